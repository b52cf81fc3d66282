"""``files_search``: looks for text in the files of the workspace.

The search runs inside the sandbox (find, sort, xargs, and ripgrep where it is there, else grep), never in the harness:
a pattern of the policy's can take exponential time, and none of the harness's may depend on it. Sorting makes the order
of results the same on every file system. Both search the same files, hidden and ignored ones too, leave out those that
are no text, and their results look the same; the result's value says which it was. A pattern that ripgrep does not
take (a back-reference) goes to grep.
"""

from __future__ import annotations

from typing import Annotated

from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import Execution, Sandbox
from agentenv.core.tool import InvalidArguments, Result, ToolContext
from agentenv.errors import ToolFault
from agentenv.records.axes import CallStatus
from agentenv.toolkit import sandbox_of, tool
from agentenv.toolkit.output import decode, visible
from msgspec import Meta

from agentenv_tools.answers import refused, unusable
from agentenv_tools.arguments import text_argument, within

_TIMEOUT_S = 20.0
_WITH = "with "
"""Before the name of what is searched with, on the first line of the script's stderr."""
_LINE_BYTES = 400
"""Bytes of path and matching line that are shown."""
_RIPGREP = "rg"
_SCRIPT = r"""
for program in find sort xargs head cut; do
  command -v $program >/dev/null || { echo "no $program" >&2; exit 127; }
done
files() { find "$1" -type f -print0 | LC_ALL=C sort -z; }
shortened() { head -n "$1" | LC_ALL=C cut -b "1-$2"; }
with=grep
if command -v "$6" >/dev/null; then
  : | "$6" --no-config $7 -e "$3" - 2>/dev/null
  [ $? -gt 1 ] || with=ripgrep
fi
echo "with $with" >&2
if [ $with = ripgrep ]; then
  files "$1" |
    xargs -0 -r "$6" --no-config --color=never --no-heading -j1 -E none -nH0 $7 -e "$3" -- |
    "$6" --no-config -a -v -e '(?-u)^[^\x00]*: binary file matches \(found "\\0" byte around offset [0-9]+\)$' |
    shortened "$4" "$5"
else
  command -v grep >/dev/null || { echo "no grep" >&2; exit 127; }
  files "$1" | xargs -0 -r grep -nIHZ $2 -e "$3" -- | shortened "$4" "$5"
fi
"""
"""Arguments: path, flags of grep, pattern, most lines, most bytes of one, ripgrep, its flags."""


@tool(needs_sandbox=True, parallel=True, example={"pattern": "def main", "path": "."})
async def files_search(
    pattern: str,
    context: ToolContext,
    deadline: Deadline,
    path: str = ".",
    regex: bool = False,
    ignore_case: bool = False,
    max_results: Annotated[int, Meta(ge=1, le=200)] = 50,
) -> Result:
    """Look for text in the files of the workspace; each match is shown as path:line number:line.

    Args:
        pattern: The text, within one line.
        path: A file, or a folder to search with all folders in it.
        regex: Whether the pattern is a regular expression, as grep -E and ripgrep know them.
        ignore_case: Whether case does not matter.
        max_results: Most matches to show.
        context: The episode's; filled in, not shown.
        deadline: When the harness stops waiting; filled in, not shown.
    """
    if not pattern or "\n" in pattern:
        raise InvalidArguments('argument "pattern" must be text within one line, and not empty')
    sandbox, path = sandbox_of(context), text_argument("path", path)
    try:
        await _check(sandbox, path)
    except OSError as error:
        return unusable(path, error)
    case = "i" if ignore_case else ""
    of_grep, of_ripgrep = (f"-E{case}", f"-{case}" if case else "") if regex else (f"-F{case}", f"-F{case}")
    execution = await sandbox.run(
        [
            "/bin/sh",
            "-c",
            _SCRIPT,
            "sh",
            _relative(path),
            of_grep,
            text_argument("pattern", pattern),
            str(max_results + 1),
            str(_LINE_BYTES),
            _RIPGREP,
            of_ripgrep,
        ],
        deadline=deadline,
        timeout_s=within(_TIMEOUT_S, deadline),
    )
    return _shown(execution, max_results)


def _relative(path: str) -> str:
    """Give a path that no program takes for an option, and whose first two characters are ``./`` in every result."""
    return path if path == "." or path.startswith("./") else f"./{path}"


async def _check(sandbox: Sandbox, path: str) -> None:
    """See that the path is in the workspace.

    Raises:
        OSError: It is not, or does not exist.
    """
    try:
        await sandbox.list(path)
    except NotADirectoryError:
        await sandbox.read(path, max_bytes=1)


def _shown(execution: Execution, max_results: int) -> Result:
    said, _, complaint = decode(execution.stderr.head).strip().partition("\n")
    if not said.startswith(_WITH):
        said, complaint = "", said
    value = {"searched_with": said.removeprefix(_WITH)}
    if execution.exit_code == 127:
        raise ToolFault.permanent(f"tool 'files_search': the sandbox has {complaint}")
    matches = _matches(execution.stdout.head + execution.stdout.tail)
    if complaint and not matches:
        return refused(complaint.splitlines()[0].removeprefix("grep: ")[:_LINE_BYTES])
    lines = matches[:max_results]
    if execution.timed_out:
        lines.append("[stopped: the search took too long; narrow it]")
        return Result(text="\n".join(lines), status=CallStatus.TIMEOUT, value=value)
    if len(matches) > max_results:
        lines.append(f"[more than {max_results} matches: narrow the search]")
    return Result(text="\n".join(lines) or "[no matches]", value=value)


def _matches(output: bytes) -> list[str]:
    r"""Read ``path NUL number:line`` records; a newline in a path is shown as ``\n``."""
    found: list[str] = []
    pending = b""
    for record in output.split(b"\n"):
        path, nul, rest = (pending + record).partition(b"\0")
        if not nul:
            pending = path + b"\\n"
            continue
        pending = b""
        found.append(f"{visible(path.decode('utf-8', 'surrogateescape').removeprefix('./'))}:{_clipped(rest)}")
    return found


def _clipped(rest: bytes) -> str:
    r"""Show a matching line; a character broken by the limit is left out."""
    cut = len(rest) >= _LINE_BYTES // 2 and rest.decode("utf-8", "ignore")
    return f"{visible(cut)}..." if cut else decode(rest).rstrip("\r")
