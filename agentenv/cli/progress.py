"""Live progress of a collection: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agentenv.core.policy import Reply
from agentenv.records.axes import StopReason
from agentenv.records.facts import EpisodeEnded
from agentenv.rollout.schedule import Slot, is_done

_LINE_EVERY_S = 15.0


class LiveProgress:
    """An `Observer` that shows what happens."""

    def __init__(self, total: int) -> None:
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("episodes"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("episodes", total=total, detail="")
        self._total = total
        self._done = self._failed = self._cancelled = self._running = self._tokens = self._replies = 0
        self._began = self._printed = time.monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def skip(self, done_before: int) -> None:
        """Count what an earlier collection already did."""
        self._done += done_before
        self._refresh()

    def began(self, slot: Slot, attempt: int) -> None:
        """An attempt began."""
        del slot, attempt
        self._running += 1

    def replied(self, reply: Reply) -> None:
        """A reply came."""
        self._replies += 1
        self._tokens += reply.sampled.n
        if self._replies % 16 == 0:
            self._refresh()

    def ended(self, slot: Slot, ending: EpisodeEnded | None) -> None:
        """An attempt ended."""
        del slot
        self._running -= 1
        if ending is not None and is_done(ending):
            self._done += 1
        elif ending is None or ending.reason is StopReason.CANCELLED:
            self._cancelled += 1
        else:
            self._failed += 1
        self._refresh()

    def _refresh(self) -> None:
        now = time.monotonic()
        rate = self._tokens / max(now - self._began, 1e-9)
        failed = f", {self._failed} attempts failed" if self._failed else ""
        failed += f", {self._cancelled} cancelled" if self._cancelled else ""
        detail = f"{self._running} running, {self._replies} replies, {rate:.0f} sampled tokens/s{failed}"
        self._bar.update(self._task, completed=self._done, detail=detail)
        if self._bar.disable and (now - self._printed > _LINE_EVERY_S):
            self._printed = now
            print(f"{self._done}/{self._total} episodes, {detail}", file=sys.stderr, flush=True)
