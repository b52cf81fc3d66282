"""Nothing that a model, a tool, a task or a suite wrote reaches a terminal as anything but text to read."""

from __future__ import annotations

import json
import re
import shutil
import string
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from agentenv.cli.terminal import harmless, harmless_json
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.kit import Cli, finished, records
from tests.hostile.shouting import BIDI, NOISE

SUITE = Path(__file__).with_name("shouting.py")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def acts(text: str) -> set[str]:
    """The characters that do something to a terminal, other than ending a line or going to the next column."""
    return {c for c in text if (unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} and c not in "\n\t") or c in BIDI}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which every kind of ending has happened, and everything said of it was harmless."""
    out = tmp_path_factory.mktemp("shouting") / "run"
    said = finished("collect", SUITE, "--policy", "scripted", "-n", 6, "--max-attempts", 1, "--out", out)
    assert said.code == 3, said.err
    assert acts(said.out + said.err) == set()
    assert [record.reward for record in records(out).values()] == [1.0, 1.0, None, None, None, 1.0]
    return out


READERS: dict[str, Callable[[Path, str], tuple[object, ...]]] = {
    "show": lambda run, name: ("show", run),
    "show one": lambda run, name: ("show", run, name),
    "show tokens": lambda run, name: ("show", run, name, "--tokens"),
    "show as JSON": lambda run, name: ("show", run, name, "--json"),
    "show what is not there": lambda run, name: ("show", run, NOISE.replace("\0", "")),
    "stats": lambda run, name: ("stats", run),
    "verify": lambda run, name: ("verify", run),
    "export": lambda run, name: ("export", run, "--to", "jsonl", "--every-attempt", "--out", run.parent / "\x1b[2J"),
    "list": lambda run, name: ("list", "\x1b[2J\x9b\u202e"),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("colour", [False, True], ids=["pipe", "terminal"])
def test_a_command_prints_only_text(
    run: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, colour: bool
) -> None:
    """No control character, no surrogate and no bidirectional control but line feeds, tabs and our own colours."""
    if colour:
        monkeypatch.setenv("FORCE_COLOR", "1")
    for number in (0, 2, 3, 4) if name == "show one" and not colour else (0,):
        said = cli(*READERS[name](run, f"e{number:06}.0"))
        assert said.code == (2 if name in {"list", "show what is not there"} else 0)
        assert acts(COLOUR.sub("", said.out + said.err)) == set()
        if name.startswith("show") and not colour:
            assert COLOUR.search(said.out) is None
        if name == "show as JSON":
            json.loads(said.out)


def test_the_list_of_episodes_has_the_ids_as_they_are(run: Path, cli: Cli) -> None:
    """Brackets and colons of a task's id are no markup."""
    assert "[link=http://a]here[/link] [/] :smile: \\ud83d" in cli("show", run).out


def test_a_terminal_that_knows_few_characters(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it cannot write is escaped; no command ends because of it."""
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    monkeypatch.setenv("PYTHONUTF8", "0")
    said = finished("show", run, "e000000.0")
    assert said.code == 0, said.err
    assert "Never call danger" in said.out


def broken_manifest(run: Path) -> None:
    text = (run / "manifest.json").read_text()
    (run / "manifest.json").write_text(text.replace('"sha256": "', f'"sha256": "{json.dumps(NOISE)[1:-1]}', 1))


def broken_journal(run: Path) -> None:
    path = run / "journal" / "main.sqlite"
    path.rename(run / "journal" / "a\x1b[2J\x9b\u202e.sqlite")
    (run / "journal" / "b\x1b[2J.sqlite").write_bytes(b"no journal" * 100)


@pytest.mark.parametrize("breaking", [broken_manifest, broken_journal])
def test_an_error_prints_only_text(run: Path, tmp_path: Path, cli: Cli, breaking: Callable[[Path], None]) -> None:
    copy = tmp_path / "\x1b]0;title\x07"
    shutil.copytree(run, copy)
    breaking(copy)
    for command in ("show", "stats", "verify", "export"):
        said = cli(command, copy)
        assert said.code == 3
        assert said.err.startswith("agentenv: ")
        assert acts(said.out + said.err) == set()


@given(st.text(alphabet=st.characters() | st.sampled_from(BIDI + "\u2028\u2029\x1b\x9b\r")))
def test_what_is_printed(text: str) -> None:
    """What acts on a terminal is escaped; everything else, ordinary Unicode and line feeds among it, stays."""
    said = harmless(text)
    assert acts(said) == set()
    if not acts(text):
        assert said == text
    assert json.loads(harmless_json(json.dumps(text, ensure_ascii=False))) == text
    assert acts(harmless_json(json.dumps(text, ensure_ascii=False))) == set()


@pytest.mark.parametrize("text", [string.printable.strip(), "a\n\tb", "naïve 東京 שלום 👩‍👩‍👧 🏴‍☠️ e\u0301"])
def test_ordinary_text_stays(text: str) -> None:
    assert harmless(text) == text
