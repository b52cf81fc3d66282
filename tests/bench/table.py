"""What the benchmark says: one row for each figure, with its target, the verdict, and the command that makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure."""

    name: str
    value: float = 0.0
    unit: str = "x"
    digits: int = 2
    limit: float | None = None
    """Target; None where the figure is for information."""
    at_least: bool = False
    """Whether the limit is a floor and not a ceiling."""
    section: str
    """`--only SECTION` makes it again."""
    absent: str = ""
    """Why there is no figure here; empty if there is one."""

    @property
    def verdict(self) -> str:
        """``met``, ``missed``, or nothing."""
        if self.limit is None:
            return ""
        met = self.value >= self.limit if self.at_least else self.value <= self.limit
        return "met" if met else "missed"

    def cells(self) -> tuple[str, ...]:
        """Write it."""
        sign = "≥" if self.at_least else "≤"
        target = "" if self.limit is None else f"{sign} {self.limit:g} {self.unit}"
        command = f"python -m tests.bench --only {self.section}"
        measured = self.absent or f"{self.value:.{self.digits}f} {self.unit}".rstrip()
        return self.name, measured, target.rstrip(), self.verdict, f"`{command}`"


def table(rows: Sequence[Row]) -> str:
    """Write a Markdown table whose columns stand under one another."""
    head = ("what", "measured", "target", "verdict", "command")
    cells = [head, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
