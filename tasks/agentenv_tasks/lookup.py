"""Suite ``lookup``: follow a trail through long files and say what its last entry counts.

Level 1 is a trail of 3 entries with a search tool; level 2 one of 4 without it; level 3 one of 6 with nothing but
reading, so the history grows long.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agentenv.core.task import Task, Turn
from agentenv.core.tool import Tool
from agentenv.toolkit.suite import Variant, call, exact_answer, messages, scripted, seeded_suite, system, turn_budget

from agentenv_tasks.lookup_archive import ENTRIES_PER_FILE, Stop, build_archive
from agentenv_tools.files import files

_SYSTEM = "Find the answer in the files with the given tools. Then write one sentence that ends with the number."
_PAGE = 60
"""Lines the reference reads at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    hops: int
    files: int
    tools: tuple[str, ...]
    turns: int


_LEVELS = {
    1: _Level(hops=3, files=6, tools=("files_list", "files_read", "files_search"), turns=24),
    2: _Level(hops=4, files=8, tools=("files_list", "files_read"), turns=40),
    3: _Level(hops=6, files=10, tools=("files_read",), turns=60),
}


@seeded_suite("lookup", size=400, levels=tuple(_LEVELS), sources=(Path(__file__).with_name("lookup_archive.py"),))
def suite(draw: Variant) -> Task:
    """Make one archive and the question about it."""
    level = _LEVELS[draw.level]
    archive = build_archive(draw.rng(), hops=level.hops, rooms=level.files)
    first = archive.trail[0]
    reading = [turn for stop in archive.trail for turn in _find(stop, searching="files_search" in level.tools)]
    return Task(
        id=draw.id,
        messages=messages(
            system(_SYSTEM),
            f"Every file in archive/ has {ENTRIES_PER_FILE} lines, one entry each. Begin with the entry [{first.code}] "
            f"in {first.path} and go from entry to entry, as each says where it is continued, until one is closed. "
            "Lines that begin with WITHDRAWN do not count. With how many sheets was the last entry closed?",
        ),
        tools=_tools(level.tools),
        files=archive.files,
        budgets=(turn_budget(level.turns),),
        grader=exact_answer(archive.count),
        scripts={"reference": scripted(*reading, f"The last entry was closed with this many sheets: {archive.count}")},
    )


def _tools(names: tuple[str, ...]) -> tuple[Tool, ...]:
    return tuple(tool for tool in files if tool.spec.name in names)


def _find(stop: Stop, *, searching: bool) -> list[Turn]:
    """Give the turns that bring one entry before the eyes: a search and its page, or every page up to its line."""
    pages = range(1, stop.line + 1, _PAGE)
    reading = [call("files_read", path=stop.path, first_line=page, last_line=page + _PAGE - 1) for page in pages]
    return [call("files_search", pattern=stop.code, path=stop.path), reading[-1]] if searching else reading
