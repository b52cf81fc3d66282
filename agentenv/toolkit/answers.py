"""Graders of a final answer: an exact number, or an exact text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from agentenv.core.task import Grade, GradeState
from agentenv.records.axes import Outcome
from agentenv.records.episode import RewardComponent

_NUMBER = re.compile(
    r"(?<![A-Za-z0-9])(?<![0-9]\.)"  # not inside a word or another number
    r"[-\u2212]?"
    r"(?:[0-9]{1,3}(?:[,\u00a0\u202f_'][0-9]{3})+(?![0-9])|[0-9]+)"
    r"(?:\.[0-9]+)?"
)
_SEPARATORS = str.maketrans({"\u2212": "-", ",": None, "\u00a0": None, "\u202f": None, "_": None, "'": None})
_LONGEST_NUMBER = 200
_TAIL = 4_000
"""Characters at the end of a reply in which its last number is looked for."""


def last_number(text: str) -> Decimal | None:
    """Read the last number of a text: thousands separators, a sign, a decimal part; None if there is none.

    >>> last_number("37 * 48 makes 1,776.")
    Decimal('1776')
    >>> last_number("**-12.50** degrees")
    Decimal('-12.50')
    >>> last_number("I do not know") is None
    True
    """
    found = _NUMBER.findall(text[-_TAIL:])
    if not found or len(found[-1]) > _LONGEST_NUMBER:
        return None
    return Decimal(found[-1].translate(_SEPARATORS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactNumber:
    """Grades 1.0 if the last number of the answer equals ``expected``, else 0.0."""

    expected: int

    async def __call__(self, state: GradeState) -> Grade:
        got = last_number(state.answer or "")
        return _grade(got is not None and got == self.expected, got=got, expected=self.expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactText:
    """Grades 1.0 if the last line of the answer is ``expected``, else 0.0.

    Letter case, runs of white space, surrounding quotes and emphasis, one final full stop and a leading
    ``Answer:`` do not count.
    """

    expected: str

    async def __call__(self, state: GradeState) -> Grade:
        lines = (state.answer or "").strip().splitlines()
        got = _bare(lines[-1]) if lines else ""
        return _grade(bool(got) and got == _bare(self.expected), got=got, expected=self.expected)


def exact_answer(expected: int | str) -> ExactNumber | ExactText:
    """Make the grader of one right answer: numbers are compared as numbers, texts as the last line.

    >>> exact_answer("42")
    ExactNumber(expected=42)
    >>> exact_answer("Ada Byron")
    ExactText(expected='Ada Byron')
    """
    if isinstance(expected, int):
        return ExactNumber(expected=expected)
    if re.fullmatch(r"-?[0-9]{1,18}", expected):
        return ExactNumber(expected=int(expected))
    return ExactText(expected=expected)


def _bare(line: str) -> str:
    line = " ".join(line.split()).strip("*_`\"' ")
    line = re.sub(r"^(the )?(final )?answer( is)?\s*:?\s+", "", line, flags=re.IGNORECASE)
    return line.strip("*_`\"' ").removesuffix(".").strip("*_`\"' ").casefold()


def _grade(right: bool, *, got: object, expected: object) -> Grade:
    component = RewardComponent(
        name="answer",
        value=1.0 if right else 0.0,
        source="environment",
        detail=f"expected {expected!s:.200}, got {got!s:.200}",
    )
    return Grade(components=(component,), outcome=Outcome.SUCCESS if right else Outcome.FAILURE)
