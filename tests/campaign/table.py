"""The report as a table."""

from __future__ import annotations

from tests.campaign.campaign import Account, Report
from tests.campaign.troubles import Outcome

_HEAD = ("what its tools do", "episodes", *Outcome, "longest, s", "over its limit, s", "wrong")


def table(report: Report) -> str:
    """Write a Markdown table, one row for each kind of trouble, and a line about what was left."""
    rows = [_cells(kind, account) for kind, account in report.accounts.items()]
    accounts = list(report.accounts.values())
    whole = Account(
        episodes=sum(account.episodes for account in accounts),
        outcomes={each: sum(account.outcomes.get(each, 0) for account in accounts) for each in Outcome},
        longest_s=max(account.longest_s for account in accounts),
        over_s=max(account.over_s for account in accounts),
        wrong=[what for account in accounts for what in account.wrong],
    )
    cells = [_HEAD, *rows, _cells("all", whole)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    left = ", ".join(f"{len(things)} {sort}" for sort, things in report.left.items())
    return "\n".join([*lines, f"Left on the machine: {left or 'nothing'}."])


def _cells(kind: str, account: Account) -> tuple[str, ...]:
    outcomes = (str(account.outcomes.get(outcome, 0) or "") for outcome in Outcome)
    figures = f"{account.longest_s:.2f}", f"{max(0.0, account.over_s):.2f}", str(len(account.wrong) or "")
    return (kind, str(account.episodes), *outcomes, *figures)
