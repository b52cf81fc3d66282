"""Settings, folders and files that cannot be used: a clear error with the remedy, the right exit code, nothing lost."""

from __future__ import annotations

import resource
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from agentenv.storage.run_folder import RunFolder

from tests.cli.kit import Cli, Said, finished, n_facts, records, started, stopped_at


def collect(cli: Cli, out: Path, *arguments: object) -> Said:
    return cli("collect", "arithmetic", "--policy", "scripted", "-n", 3, "--out", out, *arguments)


@pytest.fixture
def run(cli: Cli, tmp_path: Path) -> Path:
    """A complete run of three episodes."""
    out = tmp_path / "run"
    assert collect(cli, out).code == 0
    return out


class TestNames:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (("arithmetik",), "There is no suite 'arithmetik'. Did you mean 'arithmetic'?"),
            (("arithmetic", "--policy", "vlm"), "There is no policy 'vlm' (--policy). Did you mean 'vllm'?"),
            (("arithmetic", "--compressor", "windw:9"), "Did you mean 'window'?"),
            (("arithmetic", "--compressor", "window:none"), "is no whole number of tokens above 0"),
            (("arithmetic", "--durability", "proces"), "(--durability). Did you mean 'process'?"),
            (("arithmetic", "--policy", "vllm", "--url", "ftp://x"), "--url: The server's address"),
            (("arithmetic", "--sandbox", "bwarp"), "There is no sandbox 'bwarp' (--sandbox). Did you mean 'bwrap'?"),
            (("arithmetic", "--policy", "scripted:referenc"), "(--policy scripted:NAME). Did you mean 'reference'?"),
            (("arithmetic", "--policy", "scripted:foo"), "scripted:NAME). Known: nothing, reference."),
            (
                ("arithmetic", "--tokenizer", "nowhere"),
                "--tokenizer nowhere does not exist: expected a model directory",
            ),
            (("arithmetic", "--tokenizer", "tiktoken:o200k"), "--tokenizer tiktoken:o200k: There is no tiktoken"),
            (("arithmetic", "--policy", "llamacpp", "--model", "nowhere.gguf"), "--model nowhere.gguf does not exist"),
            (("arithmetic", "--policy", "llamacpp", "--model", "/tmp"), "--model /tmp is a folder"),
            (("arithmetic", "--policy", "replay:nowhere"), "There is no run in nowhere"),
            (("arithmetic", "--policy", "replay"), "write --policy replay:PATH"),
            (("arithmetic", "--tokenizer", ""), "tokenizer (--tokenizer) is given and empty"),
            (
                ("arithmetic", "--budget", "turnes=3"),
                "There is no budget 'turnes' (--budget turnes=3). Did you mean 'turns'?",
            ),
            (("arithmetic", "--show-budgets", "tool-result"), "Did you mean 'tool_result'?"),
            (
                ("arithmetic", "--level", "7"),
                "level (--level) 7: suite 'arithmetic' has no such level; it has 1, 2, 3, 4",
            ),
            (("arithmetic", "--call-style", "hermis"), "Did you mean 'hermes'?"),
            (("nowhere/suite.py",), "there is no such file"),
            (("json:dumps",), "is no suite"),
            (("agentenv_tasks.arithmetic:sute",), "defines no 'sute'"),
            (("no_such_module_here:suite",), "cannot be imported: ModuleNotFoundError"),
        ],
    )
    def test_an_unknown_name_says_what_is_near(
        self, cli: Cli, tmp_path: Path, arguments: tuple[str, ...], says: str
    ) -> None:
        """Exit 2, before anything is made."""
        policy = () if "--policy" in arguments else ("--policy", "scripted")
        said = cli("collect", *arguments, *policy, "--out", tmp_path / "run")
        assert said.code == 2, said.err
        assert says in said.err
        assert len(arguments) == 1 or arguments[-2] in said.err, "the option at fault"
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize("content", [b"", b"{", b"GGUF"])
    def test_a_model_that_cannot_be_read_is_blamed_on_its_option(
        self, cli: Cli, tmp_path: Path, content: bytes
    ) -> None:
        """Whichever it came by: as a model, a tokenizer, or a tokenizer for reading what was recorded."""
        path = tmp_path / "model.gguf"
        path.write_bytes(content)
        out = tmp_path / "run"
        for option, policy in (("--model", "llamacpp"), ("--tokenizer", "scripted"), ("--tokenizer", "smollm2")):
            said = cli("collect", "arithmetic", "--policy", policy, option, path, "--out", out)
            assert said.code == 2, said.err
            assert said.err.startswith(f"agentenv: {option} {path} is no readable GGUF file: ")
            assert not out.exists()
        assert collect(cli, out).code == 0
        said = cli("show", out, "first", "--tokenizer", path)
        assert said.code == 2
        assert said.err.startswith(f"agentenv: --tokenizer {path} is no readable GGUF file: ")

    @pytest.mark.parametrize(
        "what", ["1 / 0", "raise SystemExit(0)", "import os; os._exit(0)", "import nothing_of_this_name", "def ("]
    )
    def test_a_suite_that_raises_when_it_is_loaded(
        self, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
    ) -> None:
        """By path and by module: exit 2 with what it raised, whatever it raised."""
        (tmp_path / "raises_at_import.py").write_text(what)
        monkeypatch.syspath_prepend(tmp_path)
        for suite in (tmp_path / "raises_at_import.py", "raises_at_import:suite"):
            said = cli("collect", suite, "--policy", "scripted", "--out", tmp_path / "run")
            assert said.code == 2, said.err
            assert "Traceback" not in said.err
            assert "raises_at_import" in said.err
            assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize("group", ["agentenv.tasks", "agentenv.tools"])
    def test_a_plug_in_that_cannot_be_loaded(
        self, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str
    ) -> None:
        """An installed distribution registers it; its module raises."""
        (tmp_path / "broken_plug_in.py").write_text("1 / 0")
        (tmp_path / "broken-1.dist-info").mkdir()
        (tmp_path / "broken-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
        (tmp_path / "broken-1.dist-info" / "entry_points.txt").write_text(f"[{group}]\nbroken = broken_plug_in:it\n")
        monkeypatch.syspath_prepend(tmp_path)
        kind = "suites" if group == "agentenv.tasks" else "tools"
        said = cli("list", kind)
        assert said.code == 2, said.err
        assert "'broken': its plug-in broken_plug_in:it cannot be imported: ZeroDivisionError" in said.err

    @pytest.mark.parametrize(
        ("command", "says"),
        [
            (("list", "tolls"), "Did you mean 'tools'?"),
            (("export", "RUN", "--to", "parket"), "Did you mean 'parquet'?"),
            (("show", "RUN", "e000001.1"), "Did you mean 'e00000"),
        ],
    )
    def test_so_do_the_readers(self, cli: Cli, run: Path, command: tuple[str, ...], says: str) -> None:
        said = cli(*[run if part == "RUN" else part for part in command])
        assert said.code == 2, said.err
        assert says in said.err

    def test_an_unknown_tool_in_a_reply_is_told_to_the_policy(self, cli: Cli) -> None:
        """The registry's tools are listed by name; what a policy calls is tests/cli/test_bad_input_tools.py's."""
        said = cli("list", "tools")
        assert said.code == 0
        assert {"calculator", "shell", "python", "submit"} <= {line.split()[0] for line in said.out.splitlines()}


class TestNumbers:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (("--budget", "turns=0"), "Budget collector.turns must be a positive number, got 0"),
            (("--budget", "turns=-3"), "must be a positive number, got -3"),
            (("--budget", "turns=1.5"), "counts whole turns, got 1.5"),
            (("--budget", "wall_clock=-1"), "must be a positive number"),
            (("--budget", "cost=nan"), "must be a positive number"),
            (("--budget", "cost=inf"), "must be a positive number"),
            (("--budget", "turns"), "expected KIND=LIMIT, such as turns=8"),
            (("--budget", "turns=many"), "'many' is no number"),
            (("--budget", "turns=3", "--budget", "turns=4"), "may be set once per owner"),
            (("--tasks", "0"), "tasks (--tasks) must be at least 1, got 0"),
            (("--group-size", "-1"), "group_size (--group-size) must be at least 1"),
            (("--group-size", "1000000000000"), "must be at most 10,000,000 episodes, got 3 times 1,000,000,000,000"),
            (("--seed", f"{1 << 62}"), "seed (--seed) must be less than 2 to the power of 62"),
            (("--max-tokens", f"{1 << 80}"), "max_tokens (--max-tokens) must be less than 2 to the power of 62"),
            (("--top-k", f"{1 << 64}"), "top_k (--top-k) must be less than 2 to the power of 62"),
            (("--concurrency", "0"), "concurrency (--concurrency) must be at least 1"),
            (("--max-attempts", "0"), "max_attempts (--max-attempts) must be at least 1"),
            (("--seed", "-1"), "seed (--seed) must not be negative, got -1"),
            (
                ("--shots", "99"),
                "shots (--shots) 99: Suite 'arithmetic' has 16 worked examples per level, asked for 99",
            ),
            (("--reply-timeout", "0"), "must be more than 0 seconds"),
            (("--reply-timeout", "inf"), "must be more than 0 seconds and finite, got inf"),
            (("--temperature", "inf"), "expected temperature >= 0"),
            (("--repetition-penalty", "inf"), "expected repetition_penalty > 0"),
            (("--concurrency", f"{1 << 80}"), "must be at most 10,000,000"),
            (("--sandbox-warm", f"{1 << 80}"), "must be at most 10,000,000"),
            (("--context", f"{1 << 80}"), "must be less than 2 to the power of 31"),
            (("--output-cap", f"{1 << 80}"), "must be less than 2 to the power of 62"),
            (("--max-attempts", f"{1 << 80}"), "must be less than 2 to the power of 62"),
            (("--out", ""), "it is empty"),
            (("--tool-timeout", "nan"), "must be more than 0 seconds"),
            (("--temperature", "-1"), "temperature >= 0"),
            (("--top-p", "0"), "0 < top_p <= 1"),
            (("--max-tokens", "0"), "max_tokens >= 1"),
            (("--tasks", "several"), "valid integer"),
            (("--context", "-5"), "context_window (--context) must hold a prompt and a reply"),
            (("--context", "0"), "context_window (--context) must hold a prompt and a reply"),
            (("--slots", "0"), "slots (--slots) must be at least 1 and at most 4,096, got 0"),
            (("--slots", "4"), "Policy scripted does not read slots (--slots), got 4; it is for llamacpp, smollm2"),
            (("--threads", "1"), "Policy scripted does not read threads"),
            (("--url", "http://127.0.0.1:9"), "Policy scripted does not read url (--url)"),
            (("--model", "m"), "Policy scripted does not read model"),
            (("--logprobs", "auto"), "Policy scripted does not read logprobs"),
            (("--budget", "cost=1"), "give --usd-per-million-prompt-tokens and --usd-per-million-completion-tokens"),
            (("--usd-per-million-prompt-tokens", "-1"), "must be a price of 0 or more, got -1.0"),
        ],
    )
    def test_what_means_nothing_is_refused(
        self, cli: Cli, tmp_path: Path, arguments: tuple[str, ...], says: str
    ) -> None:
        """Negative, zero, fractional, not a number: exit 2, before anything is made."""
        said = collect(cli, tmp_path / "run", *arguments)
        assert said.code == 2, said.err
        assert says in said.err
        assert arguments[-2] in said.err, "the option at fault"
        assert "Traceback" not in said.err
        assert not (tmp_path / "run").exists()

    def test_a_suites_own_budget_is_checked_too(self, cli: Cli, tmp_path: Path) -> None:
        path = tmp_path / "zero.py"
        path.write_text(
            "from agentenv.toolkit.suite import Task, messages, scripted, seeded_suite, turn_budget\n"
            "@seeded_suite('zero', size=1)\n"
            "def suite(draw):\n"
            "    '''Allow nothing.'''\n"
            "    return Task(id=draw.id, messages=messages('hi'), budgets=(turn_budget(0),),\n"
            "                scripts={'reference': scripted('hi')})\n"
        )
        said = cli("collect", path, "--policy", "scripted", "-n", 1, "--out", tmp_path / "run")
        assert said.code == 2
        assert "Budget task.turns must be a positive number, got 0" in said.err


class TestOtherCommands:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (("verify", "RUN", "--tolerance", "-1"), "--tolerance must be a difference of 0 or more, got -1.0"),
            (("verify", "RUN", "--tolerance", "nan"), "--tolerance must be a difference of 0 or more, got nan"),
            (("verify", "RUN", "--most", "-1"), "--most"),
            (("verify", "RUN", "--engine", ""), "--engine: The server's address ''"),
            (("show", "RUN", "first", "--tokenizer", ""), "--tokenizer is given and empty"),
            (("export", "RUN", "--to", "csv"), "There is no exporter 'csv' (--to)"),
            (("export", "RUN", "--out", ""), "--out"),
            (("doctor", "--conformance", "bwrap", "--check", "x"), "There is no check 'x' (--check)"),
            (("doctor", "--conformance", "bwrap", "--known", "x"), "There is no check 'x' (--known)"),
            (("policy", "serve", "--host", ""), "--host is given and empty"),
            (("policy", "serve", "--host", "0.0.0.0"), "AGENTENV_API_KEY"),
            (("policy", "serve", "--slots", "5000"), "slots (--slots) must be at least 1 and at most 4,096"),
            (("serve-tools", "calculator", "--sandbox", "bwarp"), "There is no sandbox 'bwarp' (--sandbox)"),
            (("serve-tools", "calculator", "--files", "RUN"), "none of these tools has a workspace"),
            (("serve-tools", "calculator"), "--http PORT"),
            (("describe-mcp", "x"), "The server x: expected NAME=COMMAND or NAME=URL"),
            (("describe-mcp", "x=python3", "--program", "/nowhere"), "--program /nowhere: there is no such folder"),
            (("describe-mcp", "x=http://127.0.0.1:1/mcp", "--program", "RUN"), "takes no program with it"),
            (("describe-mcp", "x=http://127.0.0.1:1/mcp"), "Is a server running at http://127.0.0.1:1/mcp"),
            (("collect", "RUN/manifest.json", "--policy", "scripted"), "must be a Python file, whose name ends in .py"),
        ],
    )
    def test_what_means_nothing_is_refused(self, cli: Cli, run: Path, arguments: tuple[str, ...], says: str) -> None:
        """Exit 2, the option at fault and what to do; stdin is no pipe here."""
        said = cli(*(part.replace("RUN", str(run)) for part in arguments))
        assert said.code == 2, said.err
        assert says in said.err
        assert "Traceback" not in said.err


class TestFolders:
    def test_a_folder_that_a_live_run_writes_is_in_use(self, cli: Cli, tmp_path: Path) -> None:
        """Whoever comes second is told who is there; the first is not disturbed."""
        out = tmp_path / "run"
        first = started(
            "collect", "arithmetic", "--policy", "scripted", "-n", 300, "--durability", "power", "--concurrency", 2,
            "--out", out,
        )  # fmt: skip
        assert stopped_at(first, lambda: n_facts(out) >= 10)
        try:
            for door in ((), ("--resume",)):
                said = collect(cli, out, *door)
                assert said.code == 3, said.err
                assert f"is being written by process {first.pid} on " in said.err
                assert "Wait for it, stop it, or choose another folder" in said.err
            assert cli("show", out).code == 0, "reading is possible all the while"
            assert cli("stats", out).code == 0
        finally:
            first.send_signal(signal.SIGCONT)
            first.send_signal(signal.SIGTERM)
            _, err = first.communicate(timeout=500)
        assert first.returncode == 130, err

    def test_a_run_is_not_written_over(self, cli: Cli, run: Path) -> None:
        before = records(run)
        said = collect(cli, run)
        assert said.code == 2
        assert "holds a run already. Resume it (--resume), or choose another folder" in said.err
        assert records(run) == before

    def test_a_folder_of_something_else_is_left_alone(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("x")
        said = collect(cli, tmp_path)
        assert said.code == 2
        assert "holds no run (it has 'thesis.tex')" in said.err
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]

    @pytest.mark.parametrize("command", ["show", "stats", "verify", "export"])
    def test_there_is_no_run(self, cli: Cli, tmp_path: Path, command: str) -> None:
        said = cli(command, tmp_path / "nowhere")
        assert said.code == 2
        assert "There is no run in" in said.err

    def test_resuming_what_is_not_there(self, cli: Cli, tmp_path: Path) -> None:
        said = collect(cli, tmp_path / "run", "--resume")
        assert said.code == 2
        assert "collect without --resume to make one" in said.err

    @pytest.mark.parametrize("command", [("show",), ("show", "first"), ("show", "e000000.0"), ("stats",), ("verify",)])
    def test_a_run_without_episodes(self, cli: Cli, tmp_path: Path, command: tuple[str, ...]) -> None:
        """Begun and not yet written to: whatever asks for one episode is told that there is none."""
        out = tmp_path / "run"
        RunFolder.create(out, {"run": {"id": "x"}}).close()
        said = cli(command[0], out, *command[1:])
        assert said.code == (2 if len(command) > 1 else 0), said.err
        assert "Traceback" not in said.err
        if command[1:] == ("first",):
            assert "has no episode yet" in said.err

    def test_the_first_episode_by_that_name(self, cli: Cli, run: Path) -> None:
        assert cli("show", run, "first").out == cli("show", run, "e000000.0").out


class TestAddresses:
    @pytest.mark.parametrize("policy", ["vllm", "openai"])
    @pytest.mark.parametrize("tokenizer", [(), ("--tokenizer", "builtin:bytes")])
    @pytest.mark.parametrize(
        "url",
        [
            "http://user:SECRET@127.0.0.1:9",
            "http://user:SECRET@127.0.0.1:port",
            "ftp://user:SECRET@127.0.0.1",
            "http://user:SEC/SECRET@127.0.0.1",
            "user:SECRET@127.0.0.1:9",
        ],
    )
    def test_a_password_in_an_address_is_refused_and_not_repeated(
        self, cli: Cli, tmp_path: Path, policy: str, tokenizer: tuple[str, ...], url: str
    ) -> None:
        """Before anything is sent: nothing listens at the address, and the complaint is another."""
        arguments = ("--policy", policy, "--url", url, "--model", "m", *tokenizer)
        said = cli("collect", "arithmetic", *arguments, "--out", tmp_path / "run")
        assert said.code == 2, said.err
        assert "holds a name or password" in said.err
        assert "SECRET" not in said.out + said.err


class TestResuming:
    def test_another_configuration_is_refused_and_shows_the_keys_that_differ(self, cli: Cli, run: Path) -> None:
        """Each key with both values; what only says where and how fast may differ."""
        before = records(run)
        said = collect(cli, run, "--resume", "--temperature", 0.5, "--budget", "turns=9", "--compressor", "window:4000")
        assert said.code == 2
        assert "sampling.temperature: was 1.0, now 0.5" in said.err
        assert "budgets.collector.turns: was (absent), now 9.0" in said.err
        assert 'compressor.name: was "none", now "window:4000"' in said.err
        assert "Resume with the settings it was made with, or collect into another folder" in said.err
        assert records(run) == before
        assert collect(cli, run, "--resume", "--concurrency", 2, "--max-attempts", 9).code == 0

    def test_a_suite_that_was_edited_is_another_configuration(self, cli: Cli, tmp_path: Path) -> None:
        path = tmp_path / "own.py"
        text = (Path(__file__).parents[1] / "tasks" / "sums.py").read_text()
        path.write_text(text)
        arguments = ("collect", path, "--policy", "scripted", "-n", 2, "--out", tmp_path / "run")
        assert cli(*arguments).code == 0
        path.write_text(text.replace("What is", "How much is"))
        said = cli(*arguments, "--resume")
        assert said.code == 2
        assert "suite.sha256" in said.err

    def test_a_complete_run_is_left_as_it_is(self, cli: Cli, run: Path) -> None:
        before, facts = records(run), n_facts(run)
        said = collect(cli, run, "--resume")
        assert said.code == 0, said.err
        assert (records(run), n_facts(run)) == (before, facts)
        assert f"Nothing was left to do: all 3 episodes of {run} were done. To collect more, give another" in said.out


class TestJournals:
    """A damaged or newer journal is refused by readers and by those who would write, and is not touched."""

    def refused(self, cli: Cli, run: Path, *texts: str) -> None:
        before = journal_of(run).read_bytes()
        for said in (cli("show", run), cli("verify", run), cli("stats", run), collect(cli, run, "--resume")):
            assert said.code == 3, said.err
            assert "Traceback" not in said.err
            for text in texts:
                assert text in said.err
        assert journal_of(run).read_bytes() == before

    def test_one_of_a_newer_layout(self, cli: Cli, run: Path) -> None:
        change(run, "PRAGMA user_version = 99")
        self.refused(cli, run, "layout version 99", "Upgrade agentenv")
        change(run, "PRAGMA user_version = 1")
        assert cli("verify", run).code == 0

    def test_one_that_is_something_else(self, cli: Cli, run: Path) -> None:
        journal_of(run).write_bytes(b"This is my thesis, and no journal. " * 100)
        self.refused(cli, run, "main.sqlite", "is damaged", "Restore it from a copy")

    def test_one_with_a_changed_byte(self, cli: Cli, run: Path) -> None:
        """The attempt is named by its place, in every command that reads it."""
        change(run, "UPDATE facts SET body = CAST(x'00' || substr(body, 2) AS BLOB) WHERE id = 5")
        for command in ("show", "verify", "stats"):
            said = cli(command, run)
            assert said.code == 3, said.err
            assert "main.sqlite, fact 5: its bytes are not those that were written" in said.err

    def test_a_manifest_that_was_edited(self, cli: Cli, run: Path) -> None:
        path = run / "manifest.json"
        path.write_text(path.read_text().replace('"temperature": 1.0', '"temperature": 0.1'))
        for said in (cli("show", run), collect(cli, run, "--resume")):
            assert said.code == 3
            assert "was changed after it was written" in said.err


def journal_of(run: Path) -> Path:
    return run / "journal" / "main.sqlite"


def change(run: Path, statement: str) -> None:
    with closing(sqlite3.connect(journal_of(run))) as connection:
        connection.execute(statement)
        connection.commit()


class TestFullDisk:
    def test_it_stops_the_run_with_the_remedy_and_resuming_finishes_it(self, cli: Cli, tmp_path: Path) -> None:
        """A limit of the size of files stands for the disk: the write that does not fit fails half way."""
        out = tmp_path / "run"
        arguments = ("collect", "arithmetic", "--policy", "scripted", "-n", 60, "--out", str(out))
        code = (
            "import resource, sys\n"
            "from agentenv.cli.main import main\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY))\n"
            f"sys.argv = ['agentenv', *{list(map(str, arguments))!r}]\n"
            "main()\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=500, check=False)
        assert done.returncode == 3, done.stderr
        assert "bytes free" in done.stderr
        assert "resume the run" in done.stderr
        assert "Traceback" not in done.stderr
        assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
        so_far = records(out)
        assert 0 < len(so_far) < 60
        assert cli(*arguments, "--resume").code == 0
        after = records(out)
        assert len(after) == 60
        assert all(after[name] == record for name, record in so_far.items() if record.done)

    def test_a_folder_that_cannot_be_written(self, cli: Cli) -> None:
        said = collect(cli, Path("/proc/run"))
        assert said.code == 3
        assert "Cannot write the run folder /proc/run" in said.err


class TestOthers:
    def test_the_lock_is_given_up_by_a_run_that_failed(self, cli: Cli, tmp_path: Path) -> None:
        out = tmp_path / "run"
        with RunFolder.create(out, {"run": {"id": "x"}}):
            assert collect(cli, out, "--resume").code == 3
        said = collect(cli, out, "--resume")
        assert said.code == 2, "another configuration, but nobody's lock"

    def test_version_and_help(self) -> None:
        assert finished("--version").out.startswith("agentenv ")
        assert "collect" in finished("--help").out
        assert finished().code == 2, "no command is a mistake of usage"
        assert finished("colect").code == 2

    def test_a_reader_that_leaves_early_is_no_error(self, run: Path) -> None:
        """``agentenv show RUN | head -1``."""
        line = f"{sys.executable} -m agentenv show {run} e000000.0 --json | head -c 10"
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=500, check=True)
        assert done.stderr == ""
