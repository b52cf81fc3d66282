"""A run, opened to be read: its records, the renderer its tokens belong to, and whether it keeps the laws."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentenv.config.policies import renderer_from
from agentenv.core.renderer import Renderer
from agentenv.core.store import AttemptKey
from agentenv.engine.fold import fold
from agentenv.errors import ConfigError, UnknownNameError
from agentenv.records.episode import EpisodeRecord
from agentenv.rollout.schedule import final_attempts
from agentenv.storage.reader import JournalReader
from agentenv.storage.run_folder import RunFolder

if TYPE_CHECKING:
    from agentenv.rollout.auditing import RunAudit
    from agentenv.rollout.rescoring import Comparison


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
        if source == "":
            raise ConfigError("--tokenizer is given and empty: give it a value, or leave it out.")
        wants = f"The tokenizer that {self.folder.path} was made with," if source is None else "--tokenizer"
        renderer = renderer_from(source or run["tokenizer"], run.get("call_style"), given_as=wants)
        wanted = self.manifest["renderer"]["tokenizer_sha256"]
        found = renderer.identity.tokenizer_sha256
        if found != wanted:
            raise ConfigError(
                f"The run's ids belong to tokenizer {wanted[:12]}…, {source or run['tokenizer']} is {found[:12]}…: "
                "give the right one with --tokenizer."
            )
        return renderer

    def audit(self, source: str | None = None) -> RunAudit:
        """Audit every attempt against the laws; what ``agentenv verify`` does.

        Args:
            source: Where to load the tokenizer from instead of where the run did; needed only where a task states a
                rule.

        Raises:
            DamagedJournal, NewerSchema: The journal cannot be read.
            ConfigError: The tokenizer cannot be loaded, or is not the one the run was made with.
        """
        from agentenv.rollout.auditing import audit_attempts

        self.reader.check()
        return audit_attempts(self.reader, lambda: self.renderer(source).tokenizer)

    async def rescore(
        self,
        records: Sequence[EpisodeRecord],
        engine: str,
        *,
        tolerance: float | None = None,
        api_key: str | None = None,
    ) -> Comparison:
        """Compare the log-probs of records of this run with an engine's own; what ``agentenv verify --engine`` does.

        Args:
            records: Of `audit`, or of `records`.
            engine: Address of a vLLM that serves the run's model.
            tolerance: Largest absolute difference that is no breach; None: `rollout.rescoring.TOLERANCE`.
            api_key: Bearer token of the engine.

        Raises:
            ConfigError: The engine serves another model, or was started without what the question needs.
            PolicyServerFault: It cannot be reached.
        """
        from agentenv.rollout.rescoring import TOLERANCE, rescore_records

        return await rescore_records(
            records,
            engine=engine,
            model=self.manifest["policy"]["model"],
            tolerance=TOLERANCE if tolerance is None else tolerance,
            api_key=api_key,
        )


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
