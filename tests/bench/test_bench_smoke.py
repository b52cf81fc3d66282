"""The benchmark runs and gives its rows; what they say is nobody's business here."""

from __future__ import annotations

import math

from tests.bench import sandboxes
from tests.bench.__main__ import SECTIONS, bench
from tests.bench.scale import TINY
from tests.bench.table import Row, table
from tests.bench.timing import Costs


async def test_every_section_gives_its_rows() -> None:
    rows = await bench(list(SECTIONS), TINY)
    assert {row.section for row in rows} == set(SECTIONS)
    assert sum(row.limit is not None and row.section != sandboxes.SECTION for row in rows) == 6
    for kind in ("bwrap", "namespaces"):
        assert sum(row.limit is not None and row.name.startswith(f"{kind}:") for row in rows) == 4
    assert all(math.isfinite(row.value) for row in rows)
    written = table(rows)
    assert all(f"--only {name}" in written for name in SECTIONS)


def test_verdicts_and_the_table() -> None:
    ceiling = Row(name="a", value=2.6, limit=2.5, section="s")
    floor = Row(name="b", value=95, unit="%", digits=0, limit=90, at_least=True, section="s")
    plain = Row(name="c", value=1.0, section="s")
    assert [row.verdict for row in (ceiling, floor, plain)] == ["missed", "met", ""]
    assert table([ceiling, floor]).splitlines() == [
        "| what | measured | target  | verdict | command                          |",
        "|------|----------|---------|---------|----------------------------------|",
        "| a    | 2.60 x   | ≤ 2.5 x | missed  | `python -m tests.bench --only s` |",
        "| b    | 95 %     | ≥ 90 %  | met     | `python -m tests.bench --only s` |",
    ]


def test_the_least_disturbed_run_counts() -> None:
    costs = Costs({"a": [6.0, 3.0, 30.0], "b": [1.0, 2.0, 3.0]})
    assert costs.ms("a") == 3.0
    assert costs.ratio("a", "b") == 3.0
