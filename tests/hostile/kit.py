"""A policy that says what it is told to, id for id, and collections of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentenv.compressors.table import parse_compressor
from agentenv.constraints.table import make_checker
from agentenv.core.deadline import Deadline
from agentenv.core.policy import Policy, PolicyIdentity, Reply, SampleRequest
from agentenv.core.renderer import Renderer
from agentenv.core.task import OnText, Task
from agentenv.engine.audit import audit, audit_visibility
from agentenv.envs.plan import EpisodeOptions, EpisodeParts
from agentenv.records.axes import Distribution, Evidence, Finish
from agentenv.records.codec import record_json
from agentenv.records.episode import EpisodeRecord
from agentenv.records.tokens import LogprobSpan, Sampled, SamplingParams, VersionSpan, pack_ids, pack_logprobs
from agentenv.rollout.collector import CollectOptions, Collector
from agentenv.rollout.schedule import Progress, slots
from agentenv.storage.run_folder import RunFolder
from agentenv.toolkit.function_tool import tool
from agentenv.toolkit.suite import SeededSuite, Variant, exact_answer, messages, scripted, turn_budget

from agentenv_tools.calculator import calculator
from agentenv_tools.submit import submit
from tests.rollout.kit import MANIFEST, wall_clock

Say = Callable[[SampleRequest], str | Sequence[int]]
"""The reply to a request: ids, or text whose control tokens become ids."""


@tool(parallel=True)
def echo(text: str, n: int = 0) -> str:
    """Say it back."""
    return text * (n or 1)


@tool
def anything(value: Any) -> str:
    """Take whatever JSON can carry."""
    return repr(value)


class Saying(Policy):
    """Says exactly what it is told to."""

    def __init__(self, say: Say, renderer: Renderer) -> None:
        self._say = say
        self._renderer = renderer
        self._identity = PolicyIdentity(
            kind="saying",
            model="none",
            engine="none",
            tokenizer_sha256=renderer.identity.tokenizer_sha256,
        )

    @property
    def identity(self) -> PolicyIdentity:
        return self._identity

    async def start(self) -> PolicyIdentity:
        return self._identity

    async def aclose(self) -> None:
        """Nothing is held."""

    async def sample(self, request: SampleRequest, deadline: Deadline) -> Reply:
        said, limit = self._say(request), request.sampling.max_tokens
        ids = list(self._renderer.tokenizer.encode(said) if isinstance(said, str) else said)[:limit]
        n = len(ids)
        span = LogprobSpan(start=0, end=n, distribution=Distribution.MODEL, evidence=Evidence.DECLARED)
        return Reply(
            sampled=Sampled(
                completion_ids=pack_ids(ids),
                logprobs=pack_logprobs([-1.0] * n),
                logprob_spans=(span,) if n else (),
                version_spans=(VersionSpan(start=0, end=n, version="1"),) if n else (),
            ),
            finish=Finish.LENGTH if n == limit else Finish.STOP,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """One episode, before it is played."""

    renderer: Renderer
    turns: int = 3
    question: str = "What is 2 + 3?"
    compressor: str = "none"
    show_budgets: str = "none"


def suite_of(game: Game) -> SeededSuite:
    def make(draw: Variant) -> Task:
        return Task(
            id=draw.id,
            messages=messages(game.question),
            tools=(calculator, echo, anything, submit),
            grader=exact_answer(5),
            on_text=OnText.OBSERVE,
            budgets=(turn_budget(game.turns),),
            scripts={"reference": scripted("5")},
        )

    return SeededSuite("hostile", 1000, make=make)


async def play(out: Path, say: Say, game: Game) -> EpisodeRecord:
    """Play one episode over a real journal. It ends without fault, and no law is broken."""
    policy = Saying(say, game.renderer)
    with RunFolder.create(out, MANIFEST) as folder:
        async with folder.journal() as writer:
            collector = Collector(
                suite=suite_of(game),
                policy=policy,
                parts=EpisodeParts(
                    renderer=game.renderer,
                    identity=policy.identity,
                    compressor=parse_compressor(game.compressor),
                    checker=make_checker,
                    writer=writer,
                    blobs=folder.blobs,
                    provider=None,
                ),
                episode_options=EpisodeOptions(
                    sampling=SamplingParams(max_tokens=1 << 20),
                    budgets=(wall_clock(100),),
                    show_budgets=game.show_budgets,
                ),
                options=CollectOptions(tasks=1, max_attempts=1),
            )
            nothing = Progress(done=frozenset(), attempts={})
            tally = await collector.run(slots(tasks=1, group_size=1, seed=0), nothing)
    with RunFolder.open(out).reader() as reader:
        (key,) = reader.attempts()
        record, findings = audit(reader.facts(key))
    assert record is not None, findings
    assert record.fault is None, record.fault
    assert (tally.done, record.done) == (1, True)
    tokenizer = game.renderer.tokenizer
    spell = tokenizer.encode_plain
    assert findings + audit_visibility(record, tokenizer.decode, lambda text: tokenizer.decode(spell(text))) == []
    record_json(record).encode()
    return record
