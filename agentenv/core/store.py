"""The contract of stores: the journal is the truth of a run, append-only."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from agentenv.core.lifetime import AsyncResource
from agentenv.records.facts import Fact


@dataclass(frozen=True, slots=True, order=True)
class AttemptKey:
    """One attempt at one episode."""

    episode_id: str
    attempt: int
    """1-based. Interrupted or faulted episodes are attempted again; all attempts are kept."""


class FactWriter(AsyncResource):
    """Appends the facts of a run.

    Law 11: when `append` returns, the facts survive ``kill -9`` of this process at any later moment.
    """

    @abstractmethod
    async def append(self, key: AttemptKey, *facts: Fact) -> None:
        """Write facts in order, in one transaction shared with whoever else is waiting (group commit).

        Raises:
            HarnessFault: The disk is full or gone; nothing of this call was written.
            asyncio.CancelledError: Nothing of this call was written. A cancellation that comes when the facts are on
                their way already is delivered at the caller's next await instead, so that it knows what it wrote.
        """


class FactReader:
    """Reads the facts of a run, whether or not it is still being written."""

    @abstractmethod
    def attempts(self) -> list[AttemptKey]:
        """List every attempt, ordered.

        Raises:
            DamagedJournal, NewerSchema: The file cannot be read.
        """

    @abstractmethod
    def facts(self, key: AttemptKey) -> list[Fact]:
        """Give the facts of one attempt in order.

        Raises:
            KeyError: No such attempt.
            DamagedJournal, NewerSchema: A fact cannot be read.
        """

    @abstractmethod
    def last_facts(self) -> Iterator[tuple[AttemptKey, Fact]]:
        """Give the last fact of every attempt, ordered by key: enough to tell which are done."""
