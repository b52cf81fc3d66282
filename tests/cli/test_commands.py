"""What the commands show: runs as a user meets them, from collecting to exporting."""

from __future__ import annotations

import json
import sqlite3
import sys
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, get_origin, get_type_hints

import pytest
import typer
from agentenv.cli import collect, doctor, export, listing, serve, serve_tools, show, stats, verify
from agentenv.config.reading import stored_run
from agentenv.config.run_config import DEFAULT_CONCURRENCY, DEFAULT_SLOTS, PolicyConfig, RunConfig
from agentenv.local.server import serve as serve_policy
from agentenv.policies.scripted import ScriptedPolicy
from agentenv.records.axes import BudgetKind
from agentenv.records.codec import encode_fact
from agentenv.records.facts import TurnSampled
from agentenv.records.tokens import pack_ids
from agentenv.rendering.loading import byte_renderer
from agentenv.sandboxes import providers
from agentenv.testing.stub_engine import StubOptions
from agentenv.toolkit.suite import scripted
from anyio.abc import TaskStatus
from anyio.from_thread import start_blocking_portal

from tests.cli.engine import engine
from tests.cli.kit import Cli, check_same, records
from tests.local.smollm2 import model_path


@pytest.fixture
def run(cli: Cli, tmp_path: Path) -> Path:
    """Two groups of two: a complete run."""
    out = tmp_path / "run"
    said = cli("collect", "arithmetic", "--policy", "scripted", "-n", 2, "--group-size", 2, "--out", out)
    assert said.code == 0, said.err
    return out


class TestShow:
    def test_all_episodes_in_a_line_each(self, cli: Cli, run: Path) -> None:
        lines = [line for line in cli("show", run).out.splitlines() if line.strip().startswith("e0")]
        assert [line.split()[0] for line in lines] == ["e000000.0", "e000000.1", "e000001.0", "e000001.1"]
        assert all("final_answer" in line for line in lines)

    def test_one_episode_token_by_token(self, cli: Cli, run: Path) -> None:
        plain = cli("show", run, "first").out
        assert "What is " in plain
        assert "call t0c0 calculator: ok" in plain
        assert "terminated: final_answer · scoring scored · outcome success · reward 1 · fault none" in plain
        assert "«sampled», everything else is prompt" in plain
        assert "The answer is" in plain[plain.rindex("«") : plain.rindex("»")], "told apart where there are no colours"
        tokens = cli("show", run, "e000000.0", "--tokens").out
        assert len(tokens.splitlines()) > len(plain.splitlines()) + 100
        assert "null" in tokens, "a script has no log-probs"

    def test_as_json_it_reads_back(self, cli: Cli, run: Path) -> None:
        shown = json.loads(cli("show", run, "e000001.1", "--json").out)
        assert (shown["episode_id"], shown["member"], shown["reason"]) == ("e000001.1", 1, "final_answer")

    @pytest.mark.parametrize("option", [("--tokens",), ("--json",), ("--tokenizer", "builtin:bytes")])
    def test_what_is_for_one_episode_asks_for_one(self, cli: Cli, run: Path, option: tuple[str, ...]) -> None:
        """Silence would look as if the option had done nothing."""
        said = cli("show", run, *option)
        assert (said.code, said.out) == (2, "")
        assert f"{option[0]} is for one episode, and none is named" in said.err
        assert cli("show", run, "first", *option).code == 0

    def test_an_attempt_by_number(self, cli: Cli, run: Path) -> None:
        assert cli("show", run, "e000000.0:1").code == 0
        said = cli("show", run, "e000000.0:2")
        assert said.code == 2
        assert "There is no episode 'e000000.0:2'" in said.err

    def test_another_tokenizer_is_refused(self, cli: Cli, run: Path) -> None:
        manifest = run / "manifest.json"
        assert cli("show", run, "first", "--tokenizer", "builtin:bytes").code == 0
        assert cli("show", run, "first", "--tokenizer", str(manifest)).code == 2


class TestRules:
    """`keep-original` under ``none`` and ``window``: a rule that is kept while it can be seen, and broken after."""

    def collect(self, cli: Cli, out: Path, compressor: str) -> str:
        policy = ("--policy", "scripted:visible-rule", "--compressor", compressor)
        said = cli("collect", "keep-original", *policy, "-n", 1, "--out", out)
        assert said.code == 0, said.err
        assert cli("verify", out).code == 0
        return cli("show", out, "first").out

    def test_with_the_whole_history_there_is_no_breach(self, cli: Cli, tmp_path: Path) -> None:
        shown = self.collect(cli, tmp_path / "run", "none")
        assert "rule keep-original: visible at tokens" in shown
        assert "not visible" not in shown
        assert "BREACH" not in shown
        (record,) = records(tmp_path / "run").values()
        assert (record.reward, record.breaches) == (1.0, ())

    def test_with_a_window_the_breach_is_attributed_to_the_compaction(self, cli: Cli, tmp_path: Path) -> None:
        shown = self.collect(cli, tmp_path / "run", "window:12000")
        assert "compaction k0 by window:12000 (budget): applied" in shown
        assert "rule keep-original: not visible, removed by compaction k0" in shown
        assert "BREACH of keep-original in turn" in shown
        assert "rule not visible (compaction k0)" in shown
        (record,) = records(tmp_path / "run").values()
        (breach,) = record.breaches
        assert (breach.visible, breach.compaction_id, record.reward) == (False, "k0", 0.0)
        assert "sha256:" in breach.evidence
        assert "1 by a compaction" in cli("stats", tmp_path / "run").out


class TestVerify:
    def test_a_sound_run(self, cli: Cli, run: Path) -> None:
        said = cli("verify", run)
        assert (said.code, said.out) == (0, "0 breaches in 4 attempts\n")

    def test_a_record_that_contradicts_itself_is_a_breach(self, cli: Cli, run: Path) -> None:
        """Exit 1: what was asked about does not hold. The sums of the bytes are right, the facts are not."""
        with stored_run(run) as stored:
            key = stored.reader.attempts()[0]
            facts = stored.reader.facts(key)
        at = next(index for index, fact in enumerate(facts) if isinstance(fact, TurnSampled))
        fact = facts[at]
        assert isinstance(fact, TurnSampled)
        longer = replace(fact, sampled=replace(fact.sampled, completion_ids=pack_ids([65] * 3000)))
        body = encode_fact(longer)
        with closing(sqlite3.connect(run / "journal" / "main.sqlite")) as connection:
            (row,) = connection.execute(
                "SELECT facts.id FROM facts JOIN attempts ON attempts.id = attempt_id "
                "WHERE episode_id = ? ORDER BY facts.id LIMIT 1 OFFSET ?",
                (key.episode_id, at),
            ).fetchone()
            connection.execute("UPDATE facts SET body = ?, crc = ? WHERE id = ?", (body, zlib.crc32(body), row))
            connection.commit()
        said = cli("verify", run)
        assert said.code == 1
        assert "3000 tokens were sampled" in said.out
        assert "1 breaches in 3 attempts" in said.out

    def test_with_an_engine_every_log_prob_is_scored_again(self, cli: Cli, tmp_path: Path) -> None:
        out = tmp_path / "run"
        with engine() as running:
            said = cli("collect", "arithmetic", *running.arguments, "-n", 3, "--max-tokens", 40, "--out", out)
            assert said.code == 0, said.err
            said = cli("verify", out, "--engine", running.url)
        assert said.code == 0, said.out
        assert "log-probs compared with the engine's own" in said.out
        assert "0 breaches in 3 attempts" in said.out
        assert int(said.out.split()[0]) > 3


class TestStats:
    def test_both_denominators_and_where_it_went(self, cli: Cli, run: Path) -> None:
        text = cli("stats", run).out
        assert "4 in 2 groups" in text
        assert "4 terminated, 0 truncated" in text
        assert "of 4 scored" in text
        assert "of all 4" in text
        assert "0 trainable" in text

    def test_one_episode_is_counted_as_a_number(self, cli: Cli, tmp_path: Path) -> None:
        assert cli("collect", "arithmetic", "--policy", "scripted", "-n", 1, "--out", tmp_path / "run").code == 0
        assert "1 terminated, 0 truncated" in cli("stats", tmp_path / "run").out


class TestExport:
    @pytest.mark.parametrize("kind", ["jsonl", "parquet"])
    def test_rows_and_what_was_left_out(self, cli: Cli, run: Path, kind: str) -> None:
        said = cli("export", run, "--to", kind, "--out", run / f"rows.{kind}")
        assert said.code == 0, said.err
        assert f"4 rows of 4 episodes in {run / f'rows.{kind}'}" in said.out
        assert "not trained: " in said.out
        assert "log-probs of a distribution nobody knows, or none at all" in said.out
        assert "left out: 4 x status and exit code of a tool result" in said.out
        assert "message" not in said.out, "messages are in the rows, as tokens"
        assert (run / f"rows.{kind}").stat().st_size > 1000

    @pytest.mark.parametrize("kind", ["jsonl", "parquet"])
    def test_a_place_that_cannot_be_written(self, cli: Cli, run: Path, kind: str) -> None:
        said = cli("export", run, "--to", kind, "--out", f"/proc/rows.{kind}")
        assert said.code in (2, 3), said.err
        assert "/proc" in said.err
        assert "Traceback" not in said.err


class TestReplay:
    def test_a_replayed_run_has_the_same_records(self, cli: Cli, run: Path, tmp_path: Path) -> None:
        arguments = ("-n", 2, "--group-size", 2, "--out", tmp_path / "again")
        said = cli("collect", "arithmetic", "--policy", f"replay:{run}", *arguments)
        assert said.code == 0, said.err
        check_same(records(tmp_path / "again"), records(run))


class TestList:
    @pytest.mark.parametrize(
        ("kind", "names"),
        [
            ("suites", {"arithmetic", "keep-original", "lookup", "repair"}),
            ("tools", {"calculator", "shell", "python", "submit", "files_read"}),
            ("compressors", {"none", "window", "clear-tool-results"}),
            ("sandboxes", {"bwrap"}),
            ("policies", {"vllm", "smollm2", "llamacpp", "openai", "scripted", "replay"}),
            ("exporters", {"jsonl", "parquet"}),
            ("columns", {"token_ids", "train_mask", "row_weight"}),
        ],
    )
    def test_everything_there_is(self, cli: Cli, kind: str, names: set[str]) -> None:
        """One line for each, with a word on what it is for."""
        said = cli("list", kind)
        assert said.code == 0
        lines = [line.split(maxsplit=1) for line in said.out.splitlines()]
        assert {line[0] for line in lines} >= names
        assert all(len(line) == 2 for line in lines)


def test_doctor_proves_what_works_by_starting_it(cli: Cli) -> None:
    said = cli("doctor")
    assert said.code == 0
    assert "sandbox bwrap      works: bubblewrap" in said.out
    assert "model   smollm2" in said.out
    columns = {line[18] for line in said.out.splitlines()[1:]}
    assert columns == {" "}, "what is said stands in one column"


def test_a_package_that_is_there_and_cannot_be_loaded_is_said_to_be_that(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Installing it once more would not help."""
    (tmp_path / "xllamacpp.py").write_text('raise ImportError("libgomp.so.1: cannot open shared object file")')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "xllamacpp", raising=False)
    assert "is installed and cannot be loaded: libgomp.so.1: cannot open" in cli("doctor").out
    said = cli(
        "collect", "arithmetic", "--policy", "llamacpp", "--model", model_path(), "-n", 1, "--out", tmp_path / "r"
    )
    assert said.code == 2
    assert "cannot be loaded: libgomp.so.1: cannot open shared object file. Install" in said.err
    assert "pip install" not in said.err


def test_doctor_counts_no_sandbox_that_auto_would_not_take(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody gets without asking for it by name is no sandbox that works."""
    monkeypatch.setattr(providers, "PROVIDERS", {"none": providers.PROVIDERS["none"]})
    said = cli("doctor")
    assert said.code == 1
    assert "sandbox none       works: WEAK" in said.out


def test_every_name_that_is_listed_can_be_served(cli: Cli) -> None:
    """Each once; and all of them together, which is what `serve-tools` without names means."""
    names = [line.split()[0] for line in cli("list", "tools").out.splitlines()]
    assert sorted(set(names)) == sorted(names)
    for chosen in (names, []):
        served = serve_tools._chosen(chosen)  # pyright: ignore[reportPrivateUsage]  serving itself is tests/mcp's
        assert {tool.spec.name for tool in served} == set(names) - {"files", "search"}
        assert len(served) == len(names) - 2


def test_as_many_episodes_at_once_as_a_local_engine_has_slots() -> None:
    """More would wait for one another while their limits of time run; a server elsewhere batches."""
    for policy, at_once in (
        (PolicyConfig(kind="smollm2"), DEFAULT_SLOTS),
        (PolicyConfig(kind="llamacpp", model="m.gguf", slots=2), 2),
        (PolicyConfig(kind="vllm", url="http://x"), DEFAULT_CONCURRENCY),
        (PolicyConfig(kind="scripted:nothing"), DEFAULT_CONCURRENCY),
    ):
        assert RunConfig(suite="arithmetic", policy=policy).at_once == at_once
        assert RunConfig(suite="arithmetic", policy=policy, concurrency=3).at_once == 3


class TestListing:
    @pytest.mark.parametrize("kind", listing.KINDS)
    def test_every_kind_lists_names_with_what_they_are(self, cli: Cli, kind: str) -> None:
        """And the help says what the columns of the list are."""
        said = cli("list", kind)
        assert said.code == 0, said.err
        for line in said.out.splitlines():
            assert len(line.split()) > 1, line
        described = cli("list", "--help").out
        assert any(line.split()[0] == kind and len(line.split()) > 4 for line in described.splitlines() if line.strip())

    def test_sandboxes_are_named_for_collect(self, cli: Cli) -> None:
        assert [line.split()[0] for line in cli("list", "sandboxes").out.splitlines()] == list(providers.PROVIDERS)


LEAVES = """
from agentenv.core.tool import ToolContext
from agentenv.toolkit import tool
from agentenv.toolkit.suite import Task, call, messages, scripted, seeded_suite


def refuse():
    raise OSError("the port is still in use\\x1b[2J")


@tool
async def keeps(context: ToolContext) -> str:
    \"\"\"Keep something open.\"\"\"
    context.resources.callback(refuse)
    return "kept"


@seeded_suite("leaves", size=20)
def suite(draw):
    reference = scripted(call("keeps"), "Done.")
    return Task(id=draw.id, messages=messages("Go on."), tools=(keeps,), scripts={"reference": reference})
"""


@pytest.mark.parametrize(("tasks", "first", "lines"), [(1, "1 attempt left ", 2), (7, "7 attempts left ", 7)])
def test_what_could_not_be_closed_is_said_under_the_summary(
    cli: Cli, tmp_path: Path, tasks: int, first: str, lines: int
) -> None:
    """The run is done all the same; some lines stand for many, and none of them acts on a terminal."""
    (tmp_path / "leaves.py").write_text(LEAVES)
    said = cli("collect", tmp_path / "leaves.py", "--policy", "scripted", "-n", tasks, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    told = said.err[said.err.index(first) :].splitlines()
    assert told[0].endswith("something behind that could not be closed; the records stand:")
    assert told[1].startswith("  e000000.0, attempt 1: closing raised OSError: the port is still in use\\x1b")
    assert len(told) == lines
    if tasks > 5:
        assert told[-1] == "  … and 2 more"


def test_a_users_own_suite_is_run_from_its_path(cli: Cli, tmp_path: Path) -> None:
    suite = Path(__file__).parents[1] / "tasks" / "sums.py"
    said = cli("collect", suite, "--policy", "scripted", "-n", 2, "--shots", 1, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert {record.reward for record in records(tmp_path / "run").values()} == {1.0}


def test_progress_is_written_where_no_terminal_is(cli: Cli, tmp_path: Path) -> None:
    """Nothing is drawn into a file: results on stdout, and on stderr only what must be known before they are there."""
    said = cli("collect", "arithmetic", "--policy", "scripted", "-n", 1, "--out", tmp_path / "run")
    (line,) = said.err.splitlines()
    assert line.startswith("Nothing sampled here will be trainable: policy scripted")
    assert "trainable:" not in said.out, "said once"
    assert "\x1b[" not in said.out
    assert f"Look at it: agentenv show {tmp_path / 'run'}" in said.out


class TestUntrainable:
    """Whoever collects what no trainer can use is told so before, and by the export."""

    def test_a_temperature_that_the_log_probs_do_not_describe(self, cli: Cli, tmp_path: Path) -> None:
        out = tmp_path / "run"
        with engine(StubOptions(logprobs_mode="raw_logprobs")) as running:
            arguments = ("-n", 2, "--max-tokens", 20, "--temperature", 0.3, "--out", out)
            said = cli("collect", "arithmetic", *running.arguments, *arguments)
        assert said.code == 0, said.err
        why = "the engine's log-probs describe the model's own distribution, and temperature 0.3 samples from another."
        assert said.err.count(why) == 1
        assert "Use --temperature 1 without filters" in said.err
        exported = cli("export", out, "--to", "jsonl")
        assert "log-probs of another distribution than was sampled from" in exported.out

    def test_what_can_be_trained_is_not_warned_of(self, cli: Cli, tmp_path: Path) -> None:
        with engine() as running:
            said = cli(
                "collect", "arithmetic", *running.arguments, "-n", 1, "--max-tokens", 20, "--out", tmp_path / "r"
            )
        assert said.code == 0, said.err
        assert "trainable:" not in said.err + said.out


def options(function: Callable[..., None]) -> dict[str, str | None]:
    """Help text of each parameter of a command."""
    hints = get_type_hints(function, include_extras=True)
    return {name: hint.__metadata__[0].help for name, hint in hints.items() if get_origin(hint) is Annotated}


class TestHelp:
    @pytest.mark.parametrize("module", [collect, doctor, export, listing, serve, show, stats, verify])
    def test_every_option_says_what_it_means(self, cli: Cli, module: ModuleType) -> None:
        app, policy = typer.Typer(), typer.Typer()
        module.register(app, policy)
        (command,) = [*app.registered_commands, *policy.registered_commands]
        assert command.callback is not None
        assert command.callback.__doc__
        assert [name for name, text in options(command.callback).items() if not text] == []

    def test_budgets_are_named_by_kind(self) -> None:
        text = options(collect.collect)["budget"] or ""
        assert all(kind.value in text for kind in BudgetKind)

    def test_what_may_differ_when_resuming_does(self, cli: Cli, tmp_path: Path) -> None:
        """What the help promises: these and no others. The address is tried in tests/storage."""
        base = ("collect", "arithmetic", "--policy", "scripted", "-n", 1, "--out", tmp_path / "run")
        assert cli(*base).code == 0
        text = options(collect.collect)["resume"] or ""
        assert "--url" in text
        free = {"--concurrency": 3, "--max-attempts": 2, "--reply-timeout": 5, "--durability": "power"}
        assert all(name in text for name in free)
        for name, value in free.items():
            assert cli(*base, "--resume", name, value).code == 0
        for name, value in {"--seed": 4, "--tool-timeout": 9, "--temperature": 0.5}.items():
            assert name not in text
            assert cli(*base, "--resume", name, value).code == 2


class TestServe:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (("--port", 99999), "65535"),
            (("--policy", "vllm"), "--policy vllm: policy serve takes smollm2 or llamacpp"),
        ],
    )
    def test_what_cannot_be_served_is_refused(self, cli: Cli, arguments: tuple[object, ...], says: str) -> None:
        said = cli("policy", "serve", *arguments)
        assert said.code == 2
        assert says in said.err
        assert "Traceback" not in said.err


def test_a_default_folder_is_named_after_what_is_in_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two scripts of one suite do not meet in one folder; where one is taken, the error names the option."""
    monkeypatch.chdir(tmp_path)
    for policy in ("scripted", "scripted:nothing"):
        assert cli("collect", "arithmetic", "--policy", policy, "-n", 1).code == 0
    found = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert found == ["arithmetic-scripted", "arithmetic-scripted-nothing"]
    again = cli("collect", "arithmetic", "--policy", "scripted", "-n", 1)
    assert again.code == 2
    assert "choose another folder (--out FOLDER)" in again.err


def test_more_tasks_than_variants_are_refused(cli: Cli, tmp_path: Path) -> None:
    """They would be silent duplicates; the remedy for repeats is named."""
    said = cli("collect", "arithmetic", "--policy", "scripted", "-n", 501, "--out", tmp_path / "run")
    assert said.code == 2
    assert "tasks (--tasks) 501: suite 'arithmetic' has 500 variants of each level" in said.err
    assert "--group-size" in said.err
    assert not (tmp_path / "run").exists()


def test_an_engine_that_cannot_score_says_what_is_left(cli: Cli, run: Path) -> None:
    """The policy server of `agentenv policy serve` samples, and does not score given tokens."""
    renderer = byte_renderer()
    with stored_run(run) as stored:
        model = stored.manifest["policy"]["model"]

    async def served(*, task_status: TaskStatus[str]) -> None:
        async with ScriptedPolicy(renderer, script=scripted("hello")) as policy:
            await policy.start()
            await serve_policy(policy, renderer, port=0, model=model, ready=task_status.started)

    with start_blocking_portal() as portal:
        serving, url = portal.start_task(served)
        said = cli("verify", run, "--engine", url)
        serving.cancel()
    assert said.code == 2, said.err
    assert "cannot score given tokens; --engine needs a vLLM server. Without --engine the laws are still" in said.err


def test_a_module_that_is_a_file_beside_one_says_how_to_write_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_rev.py").write_text("")
    said = cli("collect", "own_rev:suite", "--policy", "scripted", "--out", tmp_path / "run")
    assert said.code == 2
    assert "module 'own_rev' cannot be imported" in said.err
    assert "For a file write own_rev.py" in said.err
