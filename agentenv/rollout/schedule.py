"""Which episodes a run has, and which of them are still to be done."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agentenv.core.store import AttemptKey, FactReader
from agentenv.errors import ConfigError
from agentenv.records.axes import FaultDomain
from agentenv.records.facts import EpisodeEnded, Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One episode of a run, before its task is made."""

    number: int
    """0-based in the run."""
    task_seed: int
    member: int
    """0-based in its group."""
    group_id: str
    episode_id: str
    seed: int
    """Call seeds are derived from it; consecutive in the run, so no two calls share one."""


def slots(*, tasks: int, group_size: int, seed: int) -> Iterator[Slot]:
    """Give the episodes of a run, group by group.

    Args:
        tasks: Number of groups, each of one task.
        group_size: Episodes per task.
        seed: Of the run: task ``i`` has task seed ``seed + i``.

    Raises:
        ConfigError: Nothing to do.
    """
    if tasks < 1 or group_size < 1:
        raise ConfigError(f"a run needs at least one task and one episode per task, got {tasks} and {group_size}")
    offset = int.from_bytes(hashlib.blake2b(f"run {seed}".encode(), digest_size=4).digest(), "big")
    for task in range(tasks):
        for member in range(group_size):
            number = task * group_size + member
            yield Slot(
                number=number,
                task_seed=seed + task,
                member=member,
                group_id=f"g{task:06d}",
                episode_id=f"e{task:06d}.{member}",
                seed=offset + number,
            )


def is_done(last: Fact) -> bool:
    """Say whether the last fact of an attempt means that nothing is left to do. Errored is never done."""
    if not isinstance(last, EpisodeEnded) or last.reason.unfinished:
        return False
    return last.fault is FaultDomain.NONE and last.cut_by is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a run folder already holds."""

    done: frozenset[str]
    """Episode ids with an attempt that is done."""
    attempts: dict[str, int]
    """Episode id to the number of its last attempt."""


def progress_of(reader: FactReader) -> Progress:
    """Read what was done before."""
    done: set[str] = set()
    attempts: dict[str, int] = {}
    for key, last in reader.last_facts():
        attempts[key.episode_id] = max(key.attempt, attempts.get(key.episode_id, 0))
        if is_done(last):
            done.add(key.episode_id)
    return Progress(done=frozenset(done), attempts=attempts)


def final_attempts(last_facts: Iterable[tuple[AttemptKey, Fact]]) -> list[AttemptKey]:
    """Choose the attempt that stands for each episode: the first that is done, else the last one made."""
    chosen: dict[str, tuple[AttemptKey, bool]] = {}
    for key, last in last_facts:
        known = chosen.get(key.episode_id)
        if known is None or not known[1]:
            chosen[key.episode_id] = (key, is_done(last))
    return [key for key, _ in chosen.values()]
