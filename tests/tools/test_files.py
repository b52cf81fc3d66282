"""The files of the workspace: exact edits, honest ranges, searches that end."""

from __future__ import annotations

import pytest
from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import Sandbox
from agentenv.core.tool import ToolContext
from agentenv.records.axes import CallStatus
from agentenv.toolkit import Toolbox

from agentenv_tools.files import MAX_FILE_BYTES, files, files_edit, files_list, files_read, files_write
from agentenv_tools.search import files_search
from tests.toolkit.kit import NO_DEADLINE, call_one, calls_of


async def put(context: ToolContext, **contents: str | bytes) -> Sandbox:
    assert context.sandbox is not None
    for name, content in contents.items():
        data = content.encode() if isinstance(content, str) else content
        await context.sandbox.write(name.replace("__", "/"), data)
    return context.sandbox


def test_names_suit_every_template() -> None:
    assert [tool.spec.name for tool in files] == [
        "files_list",
        "files_read",
        "files_write",
        "files_edit",
        "files_search",
    ]
    assert all(tool.needs_sandbox for tool in files)
    assert [tool.spec.name for tool in files if tool.parallel] == ["files_list", "files_read", "files_search"]


async def test_list_shows_sizes_folders_and_depth(context: ToolContext) -> None:
    sandbox = await put(context, a="12345", sub__b="1", sub__deep__c="")
    assert (await call_one(files_list, context)).text == "a 5\nsub/"
    assert (await call_one(files_list, context, path="sub")).text == "sub/b 1\nsub/deep/"
    assert (await call_one(files_list, context, depth=3)).text == "a 5\nsub/\nsub/b 1\nsub/deep/\nsub/deep/c 0"
    assert (await call_one(files_list, context, path="sub/deep/", depth=2)).text == "sub/deep/c 0"
    assert sandbox is context.sandbox


async def test_list_of_nothing_and_of_too_much(context: ToolContext) -> None:
    assert (await call_one(files_list, context)).text == "[the folder is empty]"
    await put(context, **{f"f{n:04}": "" for n in range(501)})
    result = await call_one(files_list, context, depth=2)
    assert "[more than 500 entries" in context_whole(context, result.full_output)


def context_whole(context: ToolContext, spill: object) -> str:
    contents: dict[str, bytes] = context.blobs.contents  # type: ignore[attr-defined]
    return contents[spill.sha256].decode()  # type: ignore[attr-defined]


async def test_whole_file_is_shown_exactly(context: ToolContext) -> None:
    await put(context, a="one\n  two\n\nthree", b="x\n", empty="")
    assert (await call_one(files_read, context, path="a")).text == "one\n  two\n\nthree"
    assert (await call_one(files_read, context, path="b")).text == "x"
    assert (await call_one(files_read, context, path="empty")).text == "[the file is empty]"


async def test_range_is_shown_with_what_there_is(context: ToolContext) -> None:
    await put(context, a="".join(f"line {n}\n" for n in range(1, 21)))
    part = await call_one(files_read, context, path="a", first_line=3, last_line=4)
    assert part.text == "line 3\nline 4\n[lines 3 to 4 of 20]"
    beyond = await call_one(files_read, context, path="a", first_line=20, last_line=99)
    assert beyond.text == "line 20\n[lines 20 to 20 of 20]"
    for arguments, says in [
        ({"first_line": 21}, "a has 20 lines; line 21 does not exist"),
        ({"first_line": 3, "last_line": 2}, "last_line (2) is before first_line (3)"),
    ]:
        result = await call_one(files_read, context, path="a", **arguments)
        assert (result.status, result.text) == (CallStatus.ERROR, f"Error: {says}.")


async def test_long_file_is_paged_at_whole_lines(context: ToolContext) -> None:
    """Following first_line from page to page gives the file."""
    lines = [f"{n} " + "é" * (n % 50) for n in range(1, 401)]
    await put(context, a="\n".join(lines))
    got: list[str] = []
    while len(got) < len(lines):
        result = await call_one(files_read, context, path="a", first_line=len(got) + 1)
        assert result.bytes_dropped == 0
        shown = [line for line in result.text.split("\n") if not line.startswith("[")]
        assert f"[lines {len(got) + 1} to {len(got) + len(shown)} of 400]" in result.text
        got += shown
        assert (f"[cut to fit: go on with first_line={len(got) + 1}]" in result.text) == (len(got) < 400)
    assert got == lines


async def test_huge_line_and_huge_file_are_cut_and_say_so(context: ToolContext) -> None:
    await put(context, line="x" * 100_000 + "\ny", huge=b"z\n" * (MAX_FILE_BYTES // 2 + 10))
    result = await call_one(files_read, context, path="line")
    assert len(result.text) <= 4_000
    assert result.bytes_dropped > 90_000
    assert result.text.endswith("[lines 1 to 1 of 2]\n[cut to fit: go on with first_line=2]")
    end = await call_one(files_read, context, path="huge", first_line=MAX_FILE_BYTES // 2)
    assert end.text.endswith(f"of more than {MAX_FILE_BYTES // 2}]\n[only the first 4,194,304 bytes can be read]")


async def test_bytes_that_are_no_text_are_shown_as_escapes(context: ToolContext) -> None:
    await put(context, a=b"\xff\x00\x1bok\r\n")
    assert (await call_one(files_read, context, path="a")).text == "\\xff\\x00\\x1bok\r"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("nowhere", 'there is no file or folder "nowhere"'),
        ("sub", '"sub" is a folder, not a file'),
        ("../x", '"../x" is not allowed'),
        ("/etc/passwd", '"/etc/passwd" is not allowed'),
        ("out", '"out" is not allowed'),
        ("pipe", '"pipe" cannot be used'),
    ],
)
async def test_paths_that_cannot_be_read_are_told(context: ToolContext, path: str, says: str) -> None:
    sandbox = await put(context, sub__a="")
    await sandbox.run("ln -s /etc/passwd out; mkfifo pipe", deadline=Deadline("test"), timeout_s=10)
    for tool, arguments in [(files_read, {}), (files_edit, {"old": "a", "new": "b"})]:
        result = await call_one(tool, context, path=path, **arguments)
        assert result.status is CallStatus.ERROR
        assert says in result.text


@pytest.mark.parametrize("path", ["a\0b", "\ud800"])
async def test_paths_that_no_file_can_have_are_refused(context: ToolContext, path: str) -> None:
    for tool, arguments in [
        (files_list, {}),
        (files_read, {}),
        (files_write, {"content": ""}),
        (files_edit, {"old": "a", "new": "b"}),
        (files_search, {"pattern": "a"}),
    ]:
        assert (await call_one(tool, context, path=path, **arguments)).status is CallStatus.INVALID_ARGUMENTS


async def test_write_makes_folders_and_replaces(context: ToolContext) -> None:
    result = await call_one(files_write, context, path="new/a", content="é\n")
    assert result.text == "Wrote 3 bytes to new/a."
    await call_one(files_write, context, path="new/a", content="")
    assert (await call_one(files_read, context, path="new/a")).text == "[the file is empty]"


async def test_writes_that_cannot_be_are_told(context: ToolContext) -> None:
    await put(context, sub__a="")
    for path, says in [("sub", "is a folder"), ("../a", "not allowed"), ("x" * 300, "cannot be used")]:
        result = await call_one(files_write, context, path=path, content="x")
        assert result.status is CallStatus.ERROR
        assert says in result.text
    result = await call_one(files_write, context, path="a", content="x\ud800")
    assert result.status is CallStatus.INVALID_ARGUMENTS
    assert "lone surrogate at position 1" in result.text


async def test_edit_replaces_exactly_one(context: ToolContext) -> None:
    await put(context, a="one\ntwo\nthree\n")
    result = await call_one(files_edit, context, path="a", old="two\n", new="2\n")
    assert result.text == "Replaced 1 occurrence at line 2 of a."
    assert (await call_one(files_read, context, path="a")).text == "one\n2\nthree"


async def test_edit_that_is_not_unique_changes_nothing_and_says_how_many(context: ToolContext) -> None:
    content = "a = 1\r\nb = 1\naaa\n"
    await put(context, f=content, many="x\n" * 100)
    for old, says in [
        ("= 1", "occurs 2 times (lines 1, 2)"),
        ("aa", "occurs 2 times (lines 3, 3)"),
        ("nothing", "does not occur (0 matches) in f"),
        ("a = 1\nb", r"ends its lines with \r\n"),
        ("a  =  1", "only with other spaces"),
        ("", 'argument "old" is empty'),
    ]:
        result = await call_one(files_edit, context, path="f", old=old, new="y")
        assert result.status is CallStatus.ERROR
        assert says in result.text
    assert "occurs 20 or more times" in (await call_one(files_edit, context, path="many", old="x", new="y")).text
    assert context.sandbox is not None
    assert await context.sandbox.read("f") == content.encode()


async def test_edit_keeps_bytes_that_are_no_text(context: ToolContext) -> None:
    sandbox = await put(context, a=b"\xff\x00 old \xfe\r\n")
    await call_one(files_edit, context, path="a", old="old", new="né")
    assert await sandbox.read("a") == b"\xff\x00 n\xc3\xa9 \xfe\r\n"


async def test_file_too_large_to_edit_is_told(context: ToolContext) -> None:
    await put(context, a=b"z" * (MAX_FILE_BYTES + 1))
    assert "too large to edit" in (await call_one(files_edit, context, path="a", old="x", new="y")).text


async def test_reads_of_one_turn_run_at_once_and_those_before_a_write_are_done_before_it(context: ToolContext) -> None:
    """What is read beside a write is decided by the order of the calls, and so is the order of the results."""
    await put(context, a="old")
    read = ("files_read", {"path": "a"})
    write = ("files_write", {"path": "a", "content": "new"})
    calls = calls_of(read, read, write, read, ("files_search", {"pattern": "new"}))
    results = await Toolbox(files).run(calls, context=context, deadline=NO_DEADLINE, refuse_after=None)
    assert [result.text for result in results] == ["old", "old", "Wrote 3 bytes to a.", "new", "a:1:new"]
    assert [result.call_id for result in results] == [call.id for call in calls]


async def test_list_of_what_is_no_folder_is_told(context: ToolContext) -> None:
    await put(context, a="")
    assert '"a" is not a folder' in (await call_one(files_list, context, path="a")).text


async def test_odd_file_names_are_shown_as_escapes(context: ToolContext) -> None:
    sandbox = await put(context, plain="needle")
    command = r"""touch "$(printf 'a\377b')"; printf needle > "$(printf 'two\nlines')" """
    await sandbox.run(command, deadline=Deadline("test"), timeout_s=10)
    listed = (await call_one(files_list, context)).text
    assert listed.splitlines() == ["a\\xffb 0", "plain 6", "two\\nlines 6"]
