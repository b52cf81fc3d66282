"""A run is audited, and its log-probs are asked for again, by whoever imports the library: no command line needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from agentenv.core.renderer import Tokenizer
from agentenv.core.store import AttemptKey
from agentenv.core.task import Task
from agentenv.policies.rescore import rescore
from agentenv.records.axes import Distribution, VisibilityLevel
from agentenv.records.constraints import CheckerSpec
from agentenv.records.episode import EpisodeRecord
from agentenv.records.facts import Fact, PromptRendered, TurnSampled
from agentenv.records.tokens import SamplingParams, pack_ids
from agentenv.rendering.byte_tokenizer import ByteTokenizer
from agentenv.rollout.auditing import RunAudit, audit_attempts
from agentenv.rollout.rescoring import rescore_records
from agentenv.storage.run_folder import RunFolder
from agentenv.testing.episodes import EpisodeBuilder, reply
from agentenv.testing.sandboxes import InMemoryProvider
from agentenv.testing.stores import InMemoryStore
from agentenv.testing.stub_engine import StubEngine
from agentenv.toolkit.suite import Variant, rule

from tests.rollout.kit import collect, renderer, suite_of, sums

Change = Callable[[Fact], Fact]
"""What becomes of one stored fact."""


def never() -> Tokenizer:
    raise AssertionError("no task of the run states a rule, so no tokenizer is needed")


def ruled(draw: Variant) -> Task:
    task = replace(sums(draw), files={"a.txt": b"x"})
    spec = CheckerSpec(name="file-unchanged", arguments={"path": "a.txt"})
    return replace(task, constraints=(rule("r", "what is 2 + 3", spec, stated_in=task.messages),))


def as_it_is(fact: Fact) -> Fact:
    return fact


async def stored(out: Path, change: Change = as_it_is) -> InMemoryStore:
    """The attempts of a run, each fact changed on the way."""
    store = InMemoryStore()
    with RunFolder.open(out).reader() as reader:
        for key in reader.attempts():
            facts: list[Fact] = [change(fact) for fact in reader.facts(key)]
            await store.append(AttemptKey(key.episode_id, key.attempt), *facts)
    return store


def tokenizer() -> Tokenizer:
    return renderer().tokenizer


class TestAudit:
    async def test_a_run_that_keeps_the_laws(self, tmp_path: Path) -> None:
        await collect(tmp_path / "run", tasks=2)
        found = audit_attempts(await stored(tmp_path / "run"), never)
        assert [record.episode_id for record in found.records] == ["e000000.0", "e000001.0"]
        assert found.findings == []

    async def test_facts_that_contradict_one_another(self, tmp_path: Path) -> None:
        """They are a finding, and make no record."""
        await collect(tmp_path / "run", tasks=2)

        def longer(fact: Fact) -> Fact:
            if not isinstance(fact, TurnSampled):
                return fact
            return replace(fact, sampled=replace(fact.sampled, completion_ids=pack_ids([65] * 3000)))

        found = audit_attempts(await stored(tmp_path / "run", longer), never)
        assert found.records == []
        assert [finding.law for finding in found.findings] == [1, 1]
        assert "3000 tokens were sampled" in found.findings[0].text

    async def test_rules_are_looked_for_in_the_prompts_themselves(self, tmp_path: Path) -> None:
        """Law 8: what a record says of its rules is decided anew from the ids of each call's prompt."""
        await collect(tmp_path / "run", tasks=2, suite=suite_of(ruled), provider=InMemoryProvider())
        whole = audit_attempts(await stored(tmp_path / "run"), tokenizer)
        assert whole.findings == []
        assert all(record.constraints for record in whole.records)

        def hidden(fact: Fact) -> Fact:
            if not isinstance(fact, PromptRendered):
                return fact
            gone = {"level": VisibilityLevel.ABSENT, "token_start": None, "token_end": None}
            return replace(fact, visibility=tuple(replace(entry, **gone) for entry in fact.visibility))

        found: RunAudit = audit_attempts(await stored(tmp_path / "run", hidden), tokenizer)
        n_turns = sum(len(record.steps) for record in found.records)
        assert [finding.law for finding in found.findings] == [8] * n_turns
        assert "its prompt ids say otherwise" in found.findings[0].text


PROMPT = ByteTokenizer().encode("What is 2 + 2? ").tolist()
SAID = ByteTokenizer().encode("Four.").tolist()


@pytest.fixture
async def engine() -> AsyncIterator[str]:
    async with StubEngine() as engine:
        yield await engine.start()


async def scores_of(engine: str) -> list[float]:
    ids = PROMPT + SAID
    scores = await rescore(engine, None, ids, range(len(PROMPT), len(ids)), sampling=SamplingParams())
    return [score for score in scores if score is not None]


def said(logprobs: Sequence[float | None], distribution: Distribution = Distribution.MODEL) -> EpisodeRecord:
    return EpisodeBuilder().prompt(PROMPT).turn(reply(SAID, logprobs, distribution=distribution)).end()


class TestRescoring:
    async def test_what_the_engine_confirms(self, engine: str) -> None:
        records = [said(await scores_of(engine))] * 3
        found = await rescore_records(records, engine=engine, model=None)
        assert (found.findings, found.compared, found.unknown, found.unscored) == ([], 3 * len(SAID), 0, 0)
        assert found.worst < 1e-6

    async def test_what_it_does_not_confirm(self, engine: str) -> None:
        """Law 3: the finding says which token, and by how much."""
        scores = await scores_of(engine)
        found = await rescore_records([said([*scores[:-1], scores[-1] - 0.25])], engine=engine, model=None)
        (finding,) = found.findings
        assert finding.law == 3
        assert finding.where == f"e0 attempt 1 turn 0 position {len(PROMPT + SAID) - 1}"
        assert "difference 0.25" in finding.text
        assert found.worst == pytest.approx(0.25, abs=1e-5)
        assert (await rescore_records([said(scores)], engine=engine, model=None, tolerance=0.3)).findings == []

    async def test_what_cannot_be_compared_is_counted(self, engine: str) -> None:
        """A log-prob that is missing, or of an unknown distribution, is no breach and no confirmation."""
        scores = await scores_of(engine)
        records = [said([None, *scores[1:]]), said(scores, Distribution.UNKNOWN)]
        found = await rescore_records(records, engine=engine, model=None)
        assert (found.findings, found.compared, found.unknown) == ([], len(SAID) - 1, 1 + len(SAID))
