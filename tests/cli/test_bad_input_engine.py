"""Servers that are not there, not what they are said to be, or lie: a clear error with the remedy, nothing lost.

One class for each kind of bad input of an engine; the table in tests/README.md says which test is whose.
"""

from __future__ import annotations

import http.server
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from agentenv.config.reading import stored_run
from agentenv.records.axes import FaultDomain, StopReason
from agentenv.records.episode import EpisodeRecord
from agentenv.records.tokens import unpack_logprobs
from agentenv.rendering.byte_tokenizer import ByteTokenizer
from agentenv.testing.stub_engine import StubOptions
from agentenv.testing.stub_faults import StubFault

from tests.cli.engine import Engine, engine
from tests.cli.kit import Cli, Said, records


def attempts(out: Path) -> list[EpisodeRecord]:
    with stored_run(out) as stored:
        return list(stored.records(sorted(stored.reader.attempts())))


def refused(said: Said, out: Path, code: int, *texts: str) -> None:
    """It ended before anything was made, says what is wrong and what to do, and shows no traceback."""
    assert said.code == code, said.err
    for text in texts:
        assert text in said.err
    assert "Traceback" not in said.err
    assert not out.exists(), "a folder was made for a run that never began"


@pytest.fixture
def served() -> Iterator[Engine]:
    with engine() as running:
        yield running


def run(cli: Cli, at: Engine, out: Path, *arguments: object) -> Said:
    small = ("-n", 1, "--max-tokens", 24, "--concurrency", 1)
    return cli("collect", "arithmetic", *at.arguments, *small, "--out", out, *arguments)


class TestUnreachableOrWrongServer:
    def test_nobody_listens(self, cli: Cli, tmp_path: Path) -> None:
        address = ("--policy", "vllm", "--url", "http://127.0.0.1:9", "--tokenizer", "builtin:bytes")
        said = cli("collect", "arithmetic", *address, "--out", tmp_path / "run")
        refused(said, tmp_path / "run", 3, "http://127.0.0.1:9", "Is the server running, and is the address right?")

    @pytest.mark.parametrize("url", ["localhost", "ftp://x", "http://", "8000", "http:/localhost:8000"])
    def test_what_is_no_address(self, cli: Cli, tmp_path: Path, url: str) -> None:
        address = ("--policy", "vllm", "--url", url, "--tokenizer", "builtin:bytes")
        said = cli("collect", "arithmetic", *address, "--out", tmp_path / "run")
        refused(said, tmp_path / "run", 2, "give it as http://")

    @pytest.mark.parametrize("form", ["{0}", "http://{0}/", "http://{0}/v1", "{0}/v1/", " http://{0}/v1/completions"])
    def test_an_address_as_it_is_pasted(self, cli: Cli, tmp_path: Path, served: Engine, form: str) -> None:
        """The run is the same one: resuming with another form of the address changes nothing."""
        out = tmp_path / "run"
        assert run(cli, served, out).code == 0
        pasted = ("--url", form.format(served.url.removeprefix("http://")))
        assert run(cli, served, out, *pasted, "--resume").code == 0
        assert cli("verify", out, "--engine", pasted[1]).code == 0

    def test_something_else_listens(self, cli: Cli, tmp_path: Path) -> None:
        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"<html>It works!</html>")

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            url = f"http://127.0.0.1:{server.server_address[1]}"
            said = cli(
                "collect", "arithmetic", "--policy", "vllm", "--url", url, "--tokenizer", "builtin:bytes",
                "--out", tmp_path / "run",
            )  # fmt: skip
            server.shutdown()
            thread.join()
        refused(said, tmp_path / "run", 3, "is no vLLM server", "It works!", "Check the address")

    def test_the_address_is_missing(self, cli: Cli, tmp_path: Path) -> None:
        said = cli("collect", "arithmetic", "--policy", "vllm", "--out", tmp_path / "run")
        refused(said, tmp_path / "run", 2, "give --url http://HOST:PORT")

    def test_it_goes_away_in_the_middle(self, cli: Cli, tmp_path: Path, served: Engine) -> None:
        """What was collected is kept and usable; the rest is tried again with --resume."""
        out = tmp_path / "run"
        served.after_start(*[StubFault.BROKEN_500] * 5, good=2)
        said = run(cli, served, out, "-n", 3, "--max-attempts", 1)
        assert said.code == 3
        assert "1 of 3 episodes are not done" in said.err
        assert "--resume" in said.err
        before = {name: record for name, record in records(out).items() if record.done}
        assert len(before) == 2
        again = run(cli, served, out, "-n", 3, "--resume")
        assert again.code == 0, again.err
        after = records(out)
        assert len(after) == 3
        assert {name: after[name] for name in before} == before


class TestWrongModelName:
    def test_the_server_has_another(self, cli: Cli, tmp_path: Path, served: Engine) -> None:
        said = run(cli, served, tmp_path / "run", "--model", "stubb")
        refused(said, tmp_path / "run", 2, "the model 'stubb' (--model). Did you mean 'stub'? It serves: stub")


class _OtherTokenizer(ByteTokenizer):
    """Bytes, one id further on from digits upwards."""

    def encode(self, text: str) -> array[int]:
        return array("i", [(i + 1) % 256 if 48 <= i < 58 else i for i in super().encode(text)])


class TestTokenizerThatDiffers:
    def test_the_first_difference_stops_the_run(self, cli: Cli, tmp_path: Path) -> None:
        """Before the first episode: no token of it would be true."""
        with engine(StubOptions(tokenizer=_OtherTokenizer())) as other:
            said = run(cli, other, tmp_path / "run")
            assert other.stub.served == 0, "nothing was sampled"
        refused(said, tmp_path / "run", 2, "at position 16", "Point the tokenizer at the directory of the model")


class TestPromptLongerThanTheWindow:
    def test_it_ends_the_episode_by_name_of_the_budget(self, cli: Cli, tmp_path: Path) -> None:
        """It is context overflow, nobody's fault, and not tried again."""
        with engine(StubOptions(window=400)) as small:
            said = run(cli, small, tmp_path / "run")
            assert said.code == 0, said.err
        (record,) = attempts(tmp_path / "run")
        assert (record.reason, record.budget) == (StopReason.CONTEXT_OVERFLOW, "collector.context_tokens")
        assert (record.truncated, record.fault, len(record.steps)) == (True, None, 0)
        assert record.final_prompt_ids is not None
        assert len(record.final_prompt_ids) // 4 > 400

    @pytest.mark.parametrize("fault", [StubFault.TOO_LONG_GENERATE, StubFault.TOO_LONG_GENERATE_FULL])
    def test_so_does_a_refusal_of_the_engine(self, cli: Cli, tmp_path: Path, served: Engine, fault: StubFault) -> None:
        served.after_start(fault)
        assert run(cli, served, tmp_path / "run").code == 0
        (record,) = attempts(tmp_path / "run")
        assert (record.reason, record.fault) == (StopReason.CONTEXT_OVERFLOW, None)

    def test_a_context_that_leaves_no_room_is_refused(self, cli: Cli, tmp_path: Path, served: Engine) -> None:
        said = run(cli, served, tmp_path / "run", "--context", 1)
        refused(said, tmp_path / "run", 2, "(--context) must hold a prompt and a reply")


class TestLogProbs:
    @pytest.mark.parametrize(
        ("fault", "says"),
        [
            (StubFault.FEW_LOGPROBS, "gave 23 log-probs for them"),
            (StubFault.NO_LOGPROBS, "gave 0 log-probs for them"),
            (StubFault.POSITIVE_LOGPROB, "none can be above 0"),
            (StubFault.OTHER_LOGPROB, "of another token"),
        ],
    )
    def test_a_reply_whose_log_probs_lie_is_a_fault_of_the_server(
        self, cli: Cli, tmp_path: Path, served: Engine, fault: StubFault, says: str
    ) -> None:
        """The attempt is kept, without the reply, and the episode is tried again."""
        served.after_start(fault)
        said = run(cli, served, tmp_path / "run")
        assert said.code == 0, said.err
        first, second = attempts(tmp_path / "run")
        assert (first.reason, first.fault_domain, first.steps) == (StopReason.FAULT, FaultDomain.POLICY_SERVER, ())
        assert first.fault is not None
        assert says in first.fault.message
        assert second.done
        assert "1 tried again" in said.out

    @pytest.mark.parametrize("fault", [StubFault.NAN_LOGPROB, StubFault.MISSING_LOGPROB, StubFault.NULL_LOGPROB])
    def test_what_is_missing_is_null_never_zero(
        self, cli: Cli, tmp_path: Path, served: Engine, fault: StubFault
    ) -> None:
        """NaN and -9999.0 are how an engine says that it has no number; the record says null, and why."""
        served.after_start(fault)
        assert run(cli, served, tmp_path / "run").code == 0
        (record,) = attempts(tmp_path / "run")
        (step,) = record.steps
        logprobs = unpack_logprobs(step.sampled.logprobs)
        assert logprobs[0] is None
        assert None not in logprobs[1:]
        assert any("missing, NaN or -inf" in note for note in step.sampled.notes)
        said = cli("export", tmp_path / "run", "--to", "jsonl")
        assert said.code == 0
        assert "-9999" not in (tmp_path / "run" / "export.jsonl").read_text()
        assert cli("verify", tmp_path / "run").code == 0

    def test_a_server_that_always_lies_ends_the_run_with_code_3(self, cli: Cli, tmp_path: Path, served: Engine) -> None:
        served.after_start(*[StubFault.FEW_LOGPROBS] * 3)
        said = run(cli, served, tmp_path / "run")
        assert said.code == 3
        assert "1 of 1 episodes are not done" in said.err
        assert [record.fault_domain for record in attempts(tmp_path / "run")] == [FaultDomain.POLICY_SERVER] * 3


class TestReplyAfterItsDeadline:
    def test_it_is_dropped_and_the_server_at_fault(self, cli: Cli, tmp_path: Path, served: Engine) -> None:
        """The connection is closed; what would still come belongs to nobody."""
        served.after_start(StubFault.HANG)
        said = run(cli, served, tmp_path / "run", "--reply-timeout", 3)
        assert said.code == 0, said.err
        first, second = attempts(tmp_path / "run")
        assert (first.reason, first.fault_domain, first.steps) == (StopReason.FAULT, FaultDomain.POLICY_SERVER, ())
        assert first.fault is not None
        assert "no reply within 3 s" in first.fault.message
        assert second.done

    def test_the_episodes_own_deadline_is_a_budget(self, cli: Cli, tmp_path: Path, served: Engine) -> None:
        """Law 12: which deadline fired decides; this one is the collector's, and no fault."""
        served.after_start(StubFault.HANG)
        assert run(cli, served, tmp_path / "run", "--budget", "wall_clock=0.3").code == 0
        (record,) = attempts(tmp_path / "run")
        assert (record.reason, record.budget) == (StopReason.COLLECTOR_BUDGET, "collector.wall_clock")
        assert record.fault is None


class TestVerifyAgainstAnEngine:
    def test_an_engine_that_is_gone_is_said_to_be(self, cli: Cli, tmp_path: Path) -> None:
        with engine() as running:
            assert run(cli, running, tmp_path / "run").code == 0
            assert cli("verify", tmp_path / "run", "--engine", running.url).code == 0
        said = cli("verify", tmp_path / "run", "--engine", running.url)
        assert said.code == 3
        assert "Is the server running" in said.err
