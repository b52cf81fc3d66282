"""A progress bar on the terminal, for what is fetched."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

from agentenv.local.wheels import Progress


@contextmanager
def progress_bar(title: str, console: Console | None = None) -> Generator[Progress]:
    """Draw a bar on standard error while the body runs; nothing is drawn before the first report."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bars = Bars(*columns, TimeRemainingColumn(), console=console or Console(stderr=True))
    task = bars.add_task(title, start=False, total=None)
    begun = False

    def report(done: int, total: int) -> None:
        nonlocal begun
        if not begun:
            begun = True
            bars.start()
            bars.start_task(task)
        bars.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        if begun:
            bars.stop()
