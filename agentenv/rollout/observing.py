"""Who is told of what happens in a collection, and that what it does with it cannot disturb the collection."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from agentenv.core.boundary import is_its_own
from agentenv.core.policy import Reply
from agentenv.records.facts import EpisodeEnded
from agentenv.rollout.schedule import Slot

_log = logging.getLogger(__name__)


class Observer(Protocol):
    """Told of what happens, for live progress. Its methods must not block; one that raises is told nothing more."""

    def began(self, slot: Slot, attempt: int) -> None:
        """An attempt began."""
        ...

    def replied(self, reply: Reply) -> None:
        """A reply came."""
        ...

    def ended(self, slot: Slot, ending: EpisodeEnded | None) -> None:
        """An attempt ended; None if it was cut off before it had an ending."""
        ...


class SafeObserver:
    """Passes everything on to an observer, until it raises."""

    def __init__(self, observer: Observer | None) -> None:
        self._observer = observer

    def began(self, slot: Slot, attempt: int) -> None:
        """An attempt began."""
        self._tell(lambda observer: observer.began(slot, attempt))

    def replied(self, reply: Reply) -> None:
        """A reply came."""
        self._tell(lambda observer: observer.replied(reply))

    def ended(self, slot: Slot, ending: EpisodeEnded | None) -> None:
        """An attempt ended."""
        self._tell(lambda observer: observer.ended(slot, ending))

    def _tell(self, what: Callable[[Observer], None]) -> None:
        if self._observer is None:
            return
        try:
            what(self._observer)
        except BaseException as error:
            if not is_its_own(error):
                raise
            self._observer = None
            _log.warning("the observer of the collection raised and is told nothing more", exc_info=error)
