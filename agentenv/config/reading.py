"""A run, opened to be read: its records, and the renderer its tokens belong to."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentenv.config.policies import renderer_from
from agentenv.core.renderer import Renderer
from agentenv.core.store import AttemptKey
from agentenv.engine.fold import fold
from agentenv.errors import ConfigError, UnknownNameError
from agentenv.records.episode import EpisodeRecord
from agentenv.rollout.schedule import final_attempts
from agentenv.storage.reader import JournalReader
from agentenv.storage.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run folder, whether or not it is still being written."""

    folder: RunFolder
    reader: JournalReader

    @property
    def manifest(self) -> Any:
        """What was used to make it."""
        return self.folder.manifest

    def finals(self) -> list[AttemptKey]:
        """Give the attempt that stands for each episode: the first that is done, else the last."""
        return final_attempts(self.reader.last_facts())

    def records(self, keys: list[AttemptKey] | None = None) -> Iterator[EpisodeRecord]:
        """Give records one by one; of every final attempt unless ``keys`` says which.

        Raises:
            LawBreach: Stored facts contradict one another.
            DamagedJournal, NewerSchema: They cannot be read.
        """
        for key in self.finals() if keys is None else keys:
            yield fold(self.reader.facts(key))

    def first(self) -> AttemptKey:
        """Give the attempt that stands for the first episode.

        Raises:
            ConfigError: The run has no episode yet.
        """
        keys = self.finals()
        if not keys:
            raise ConfigError(f"{self.folder.path} has no episode yet: collect some, or resume the run")
        return keys[0]

    def find(self, episode: str) -> AttemptKey:
        """Find an attempt by ``EPISODE`` (its final one) or ``EPISODE:ATTEMPT``.

        Raises:
            UnknownNameError: There is none.
        """
        name, _, attempt = episode.partition(":")
        keys = self.finals() if not attempt else self.reader.attempts()
        for key in keys:
            if key.episode_id == name and (not attempt or str(key.attempt) == attempt):
                return key
        raise UnknownNameError.of("episode", episode, [key.episode_id for key in self.finals()])

    def renderer(self, source: str | None = None) -> Renderer:
        """Load the renderer the tokens belong to.

        Args:
            source: Where to load it from instead of where the run did.

        Raises:
            ConfigError: It cannot be loaded, or is not the one the run was made with.
        """
        run = self.manifest["run"]
        renderer = renderer_from(source or run["tokenizer"], run.get("call_style"))
        wanted = self.manifest["renderer"]["tokenizer_sha256"]
        found = renderer.identity.tokenizer_sha256
        if found != wanted:
            raise ConfigError(
                f"the run's ids belong to tokenizer {wanted[:12]}…, {source or run['tokenizer']} is {found[:12]}…; "
                "give the right one with --tokenizer"
            )
        return renderer


@contextmanager
def stored_run(path: Path) -> Generator[StoredRun]:
    """Open a run to read it.

    Raises:
        ConfigError: There is none.
        DamagedJournal, NewerSchema: It cannot be read.
    """
    folder = RunFolder.open(path)
    with folder.reader() as reader:
        yield StoredRun(folder, reader)
