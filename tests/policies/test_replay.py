"""The policy that plays a recorded run."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
from agentenv.core.deadline import Deadline
from agentenv.core.policy import Policy, SampleRequest
from agentenv.core.store import AttemptKey
from agentenv.core.task import Task
from agentenv.engine.fold import fold
from agentenv.errors import ConfigError, LawBreach, OrderError, PolicyServerFault
from agentenv.policies.recorded import cut, recorded_replies
from agentenv.policies.replay import ReplayPolicy
from agentenv.records.axes import Distribution, Evidence, FaultDomain, Finish, Outcome, Purpose, Scoring, StopReason
from agentenv.records.facts import EpisodeEnded, EpisodeStarted, Fact, PromptRendered, TurnSampled
from agentenv.records.messages import ParsedTurn
from agentenv.records.tokens import (
    LogprobSpan,
    Sampled,
    SamplingParams,
    VersionSpan,
    pack_ids,
    pack_logprobs,
    unpack_ids,
    unpack_logprobs,
)
from agentenv.testing.contracts.policy import PolicyCase, PolicyContract, plain_request
from agentenv.testing.stores import InMemoryStore
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.puppet import Puppet, started, starts

NEVER = Deadline("never")
TASK = Task(id="s/0", messages=())
SEED = 7


def sampled(*ids: int) -> Sampled:
    n = len(ids)
    return Sampled(
        completion_ids=pack_ids(ids),
        logprobs=pack_logprobs([-0.5 - at for at in range(n)]),
        logprob_spans=(
            LogprobSpan(start=0, end=2, distribution=Distribution.MODEL, evidence=Evidence.PROBED),
            LogprobSpan(start=2, end=n, distribution=Distribution.MODEL, evidence=Evidence.PROBED),
        ),
        version_spans=(VersionSpan(start=0, end=n, version="step-1"),),
    )


def replied(turn: int, reply: Sampled) -> TurnSampled:
    return TurnSampled(
        turn=turn,
        purpose=Purpose.ACT,
        sampled=reply,
        sampling=SamplingParams(),
        seed=turn,
        finish=Finish.STOP,
        stop_token_id=unpack_ids(reply.completion_ids)[-1],
        parsed=ParsedTurn(text=""),
    )


def prompt(ids: list[int], *, before: int = 0, new: bool = False) -> PromptRendered:
    return PromptRendered(
        segment=0,
        new_segment_reason="first" if new else None,
        appended_ids=pack_ids(ids),
        prompt_length=before + len(ids),
    )


def ended(fault: FaultDomain = FaultDomain.NONE) -> EpisodeEnded:
    return EpisodeEnded(
        reason=StopReason.FAULT if fault is not FaultDomain.NONE else StopReason.FINAL_ANSWER,
        terminated=fault is FaultDomain.NONE,
        truncated=fault is not FaultDomain.NONE,
        budget=None,
        scoring=Scoring.NOT_RUN,
        outcome=Outcome.UNKNOWN,
        fault=fault,
        budgets=(),
    )


def two_turns() -> list[Fact]:
    return [
        started(seed=SEED, context_window=64),
        prompt([1, 2, 3], new=True),
        replied(0, sampled(10, 11, 12, 13)),
        prompt([4, 5], before=7),
        replied(1, sampled(20, 21, 22)),
        ended(),
    ]


async def recorded(*attempts: tuple[str, int, list[Fact]]) -> InMemoryStore:
    store = InMemoryStore()
    for episode_id, attempt, facts in attempts:
        await store.append(AttemptKey(episode_id, attempt), *facts)
    return store


async def replaying(*attempts: tuple[str, int, list[Fact]]) -> Policy:
    policy = ReplayPolicy(await recorded(*attempts))
    await policy.start()
    return policy.for_task(TASK, SEED)


def asking(*ids: int, turn: int = 0, max_tokens: int = 64) -> SampleRequest:
    return plain_request(array("i", ids), turn=turn, max_tokens=max_tokens)


class TestReplayPolicy(PolicyContract):
    @pytest.fixture
    async def case(self) -> PolicyCase:
        store = await recorded(("e0", 1, two_turns()))
        policy = ReplayPolicy(store)
        await policy.start()
        return PolicyCase(
            policy=policy.for_task(TASK, SEED),
            fresh=lambda: ReplayPolicy(store),
            request=lambda seed: replace(asking(1, 2, 3), seed=seed),
            stopping=asking(1, 2, 3),
        )

    async def test_a_prompt_beyond_the_window_is_told_apart(self, case: PolicyCase) -> None:
        """A replay has the recorded run's window; a prompt beyond it is another prompt than the recorded one."""
        assert case.policy.identity.context_window == 64
        with pytest.raises(PolicyServerFault, match="not the recorded one"):
            await case.policy.sample(asking(*range(1, 65)), NEVER)


@given(st.data(), starts())
def test_a_recorded_episode_is_replayed_reply_by_reply(data: st.DataObject, start: EpisodeStarted) -> None:
    """Law 1: each reply comes back, ids and spans unchanged, after exactly the prompt that the record has for it."""
    puppet = Puppet(data.draw)
    puppet.run(start)
    record = fold(puppet.facts)
    replies = recorded_replies(puppet.facts)
    assert len(replies) == len(record.steps)
    for step in record.steps:
        ids = unpack_ids(record.segments[step.segment].token_ids)[: step.prompt_length]
        assert replies[step.turn].turn.sampled == step.sampled
        assert replies[step.turn].first_difference(ids) is None
        assert replies[step.turn].first_difference(ids[:-1]) == len(ids) - 1
        assert replies[step.turn].first_difference([*ids[:-1], ids[-1] + 1]) == len(ids) - 1


@given(st.integers(1, 5))
def test_a_cut_reply_is_what_a_smaller_limit_would_have_given(n: int) -> None:
    """Law: spans of a cut reply tile [0, n), ids and log-probs are the first n."""
    whole = sampled(10, 11, 12, 13, 14)
    short = cut(whole, n)
    assert unpack_ids(short.completion_ids) == unpack_ids(whole.completion_ids)[:n]
    assert unpack_logprobs(short.logprobs) == unpack_logprobs(whole.logprobs)[:n]
    for spans in (short.logprob_spans, short.version_spans):
        bounds = [(span.start, span.end) for span in spans]
        assert [0, *(end for _, end in bounds)] == [*(start for start, _ in bounds), n]


async def test_turns_come_in_their_order_and_may_be_asked_again() -> None:
    policy = await replaying(("e0", 1, two_turns()))
    first = await policy.sample(asking(1, 2, 3), NEVER)
    second = await policy.sample(asking(1, 2, 3, 10, 11, 12, 13, 4, 5, turn=1), NEVER)
    again = await policy.sample(asking(1, 2, 3), NEVER)
    assert unpack_ids(second.sampled.completion_ids).tolist() == [20, 21, 22]
    assert first == again
    assert (first.finish, first.stop_token_id) == (Finish.STOP, 13)


async def test_another_prompt_is_refused_with_the_first_difference() -> None:
    policy = await replaying(("e0", 1, two_turns()))
    with pytest.raises(PolicyServerFault, match=r"position 1: recorded \[2, 3\] \(3 ids\), now \[9, 3\]") as caught:
        await policy.sample(asking(1, 9, 3), NEVER)
    assert not caught.value.retryable
    with pytest.raises(PolicyServerFault, match=r"position 3: recorded \[\] \(3 ids\), now \[4\]"):
        await policy.sample(asking(1, 2, 3, 4), NEVER)


async def test_a_turn_beyond_the_record_is_refused() -> None:
    policy = await replaying(("e0", 1, two_turns()))
    with pytest.raises(PolicyServerFault, match="has 2 replies and none for this turn"):
        await policy.sample(asking(1, turn=2), NEVER)


async def test_an_episode_that_was_not_recorded_is_refused_with_what_is_near() -> None:
    policy = ReplayPolicy(await recorded(("e0", 1, two_turns())))
    await policy.start()
    for task, seed, said in ((TASK, 8, r"with the seeds \[7\]"), (replace(TASK, id="s/1"), SEED, "other tasks only")):
        with pytest.raises(PolicyServerFault, match=said):
            await policy.for_task(task, seed).sample(asking(1, 2, 3), NEVER)


async def test_the_last_sound_attempt_is_played() -> None:
    def attempt(first: int, fault: FaultDomain | None) -> list[Fact]:
        facts: list[Fact] = [started(seed=SEED), prompt([1], new=True), replied(0, sampled(first, 11, 12))]
        return facts if fault is None else [*facts, ended(fault)]

    none, tool = FaultDomain.NONE, FaultDomain.TOOL
    for faults, played in (((none, tool), 50), ((tool, none), 51), ((tool, tool), 51), ((none, None), 50)):
        policy = await replaying(*(("e0", k + 1, attempt(50 + k, fault)) for k, fault in enumerate(faults)))
        reply = await policy.sample(asking(1), NEVER)
        assert unpack_ids(reply.sampled.completion_ids)[0] == played


async def test_two_episodes_that_look_alike_are_refused() -> None:
    policy = ReplayPolicy(await recorded(("e0", 1, two_turns()), ("e1", 1, two_turns())))
    with pytest.raises(ConfigError, match="cannot tell them apart"):
        await policy.start()


async def test_a_run_without_replies_is_refused() -> None:
    policy = ReplayPolicy(await recorded(("e0", 1, [started()])))
    with pytest.raises(ConfigError, match="no reply"):
        await policy.start()


async def test_the_identity_says_what_the_record_says() -> None:
    policy = ReplayPolicy(await recorded(("e0", 1, two_turns())), model="m", tokenizer_sha256="ab")
    with pytest.raises(OrderError):
        await policy.sample(asking(1), NEVER)
    found = await policy.start()
    assert (found.kind, found.model, found.tokenizer_sha256, found.context_window) == ("replay", "m", "ab", 64)
    assert (found.trainable, found.logprobs, found.logprobs_evidence) == (
        True,
        Distribution.MODEL,
        Evidence.REPORTED,
    )
    with pytest.raises(OrderError, match="for_task"):
        await policy.sample(asking(1), NEVER)


async def test_a_replay_of_untrainable_replies_is_untrainable() -> None:
    """Law 3: what was unknown stays unknown."""
    plain = replace(sampled(10, 11, 12), logprobs=b"", logprob_spans=(), text="ab")
    facts: list[Fact] = [started(seed=SEED), prompt([1], new=True), replied(0, plain)]
    policy = ReplayPolicy(await recorded(("e0", 1, facts)))
    found = await policy.start()
    assert (found.trainable, found.logprobs) == (False, Distribution.UNKNOWN)


def test_facts_that_contradict_one_another_are_a_breach() -> None:
    with pytest.raises(LawBreach, match="before any prompt"):
        recorded_replies([replied(0, sampled(1, 2, 3))])
    with pytest.raises(LawBreach, match="recorded as 9"):
        recorded_replies([prompt([1, 2], before=7, new=True)])


async def test_no_room_for_a_reply_is_a_usage_error() -> None:
    policy = await replaying(("e0", 1, two_turns()))
    with pytest.raises(ConfigError, match="max_tokens"):
        await policy.sample(asking(1, 2, 3, max_tokens=0), NEVER)
