"""The contract suite of policies: every implementation passes it, the scripted one included.

Use, in a test module::

    class TestMyPolicy(PolicyContract):
        @pytest.fixture
        async def case(self):
            async with MyPolicy(...) as policy:
                await policy.start()
                yield PolicyCase(policy=policy, fresh=lambda: MyPolicy(...), request=my_request, vocab_size=2048)

What a policy cannot do (be slow on demand, run out of window) is left at None in its case; the test of it then
checks the weaker promise that every policy makes.
"""

from __future__ import annotations

import asyncio
import math
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest
from anyio.lowlevel import checkpoint

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.policy import Policy, Reply, SampleRequest
from agentenv.errors import OrderError, PromptTooLong
from agentenv.records.axes import Distribution, Finish
from agentenv.records.messages import Message, Role
from agentenv.records.tokens import SamplingParams, unpack_ids, unpack_logprobs


def plain_request(
    prompt_ids: array[int], *, seed: int = 1, max_tokens: int = 8, text: str = "2 + 2?", turn: int = 0
) -> SampleRequest:
    """Make a request for ``prompt_ids`` at neutral sampling parameters."""
    return SampleRequest(
        prompt_ids=prompt_ids,
        messages=(Message(id="m0", role=Role.USER, text=text),),
        tools=(),
        sampling=SamplingParams(max_tokens=max_tokens),
        seed=seed,
        request_id=f"contract-{seed}-{turn}",
        turn=turn,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCase:
    """One implementation, started, with what the suite needs to know about it."""

    policy: Policy
    """Started; closed by whoever made the case."""
    fresh: Callable[[], Policy]
    """Makes another one, not started."""
    request: Callable[[int], SampleRequest]
    """Makes a request that may sample at least 8 tokens, from a seed."""
    vocab_size: int | None = None
    """One past the highest id; None where the policy has no vocabulary."""
    slow: SampleRequest | None = None
    """A request that takes seconds; None if the policy answers at once."""
    in_flight: Callable[[], Awaitable[int]] | None = None
    """How many requests the engine is working on; None if it cannot be asked."""
    overlong: SampleRequest | None = None
    """A request whose prompt exceeds the window; None if there is no window."""
    stopping: SampleRequest | None = None
    """A request that ends with a stop token; None if it cannot be brought about."""
    repeatable: bool = True
    """Whether the same request gives the same ids."""


FAR = 500.0
"""Seconds within which anything here ends."""


def check_reply(reply: Reply, request: SampleRequest, *, policy: Policy, vocab_size: int | None) -> list[int]:
    """Assert what holds of every reply, and give its ids."""
    sampled = reply.sampled
    ids = list(unpack_ids(sampled.completion_ids))
    assert len(ids) <= request.sampling.max_tokens or not policy.identity.trainable
    assert all(0 <= token < (vocab_size or 2**31) for token in ids)
    assert reply.finish is not Finish.ABORT
    logprobs = unpack_logprobs(sampled.logprobs)
    assert len(logprobs) in (0, len(ids))
    assert all(value is None or (math.isfinite(value) and value <= 0.0) for value in logprobs)
    for spans in (sampled.logprob_spans, sampled.version_spans):
        bounds = [(span.start, span.end) for span in spans]
        assert all(start < end for start, end in bounds)
        if bounds:
            assert [0, *(end for _, end in bounds)] == [*(start for start, _ in bounds), len(ids)]
    if logprobs:
        assert sampled.logprob_spans
        assert all(span.distribution in Distribution for span in sampled.logprob_spans)
    if not policy.identity.trainable:
        assert not logprobs
    if reply.stop_token_id is not None:
        assert reply.finish is Finish.STOP
        assert ids[-1] == reply.stop_token_id
    return ids


class PolicyContract:
    """Subclass it as ``Test…`` and give it a ``case`` fixture."""

    async def test_identity_is_refused_before_start(self, case: PolicyCase) -> None:
        async with case.fresh() as policy:
            with pytest.raises(OrderError):
                _ = policy.identity

    async def test_sample_is_refused_before_start(self, case: PolicyCase) -> None:
        async with case.fresh() as policy:
            with pytest.raises(OrderError):
                await policy.sample(case.request(1), Deadline.after(FAR, "contract"))

    async def test_start_gives_the_identity(self, case: PolicyCase) -> None:
        async with case.fresh() as policy:
            found = await policy.start()
            assert policy.identity == found
            assert found.kind == case.policy.identity.kind
            assert found.model
            assert found.engine

    async def test_a_reply_keeps_ids_logprobs_and_spans_aligned(self, case: PolicyCase) -> None:
        """Law: logprobs are empty or as many as ids, at most 0; spans tile [0, n)."""
        for seed in range(1, 5):
            request = case.request(seed)
            reply = await case.policy.sample(request, Deadline.after(FAR, "contract"))
            check_reply(reply, request, policy=case.policy, vocab_size=case.vocab_size)

    @pytest.mark.parametrize("max_tokens", [1, 3])
    async def test_a_reply_is_no_longer_than_max_tokens(self, case: PolicyCase, max_tokens: int) -> None:
        request = case.request(7)
        request = replace(request, sampling=replace(request.sampling, max_tokens=max_tokens))
        reply = await case.policy.sample(request, Deadline.after(FAR, "contract"))
        check_reply(reply, request, policy=case.policy, vocab_size=case.vocab_size)
        if reply.finish is Finish.LENGTH:
            assert reply.stop_token_id is None

    async def test_the_stop_token_is_part_of_the_reply(self, case: PolicyCase) -> None:
        request = case.stopping or case.request(3)
        reply = await case.policy.sample(request, Deadline.after(FAR, "contract"))
        ids = check_reply(reply, request, policy=case.policy, vocab_size=case.vocab_size)
        if case.stopping is not None:
            assert reply.finish is Finish.STOP
            assert reply.stop_token_id == ids[-1]

    async def test_the_same_request_gives_the_same_ids(self, case: PolicyCase) -> None:
        request = case.request(11)
        replies = [await case.policy.sample(request, Deadline.after(FAR, "contract")) for _ in range(2)]
        ids = [check_reply(r, request, policy=case.policy, vocab_size=case.vocab_size) for r in replies]
        if case.repeatable:
            assert ids[0] == ids[1]

    async def test_a_passed_deadline_is_reported_as_itself(self, case: PolicyCase) -> None:
        """Law 12: a timeout is identified by the deadline that fired."""
        deadline = Deadline.after(-1.0, "already over")
        with pytest.raises(DeadlineReached) as caught:
            await case.policy.sample(case.slow or case.request(5), deadline)
        assert caught.value.deadline is deadline

    async def test_a_deadline_cuts_a_slow_reply_and_leaves_nothing(self, case: PolicyCase) -> None:
        if case.slow is None:
            request = case.request(5)
            reply = await case.policy.sample(request, Deadline("never"))
            check_reply(reply, request, policy=case.policy, vocab_size=case.vocab_size)
            return
        deadline = Deadline.after(0.2, "slow reply")
        with pytest.raises(DeadlineReached) as caught:
            await case.policy.sample(case.slow, deadline)
        assert caught.value.deadline is deadline
        await self._nothing_in_flight(case)

    async def test_cancellation_leaves_nothing_and_the_policy_goes_on(self, case: PolicyCase) -> None:
        before = asyncio.all_tasks()
        deadline = Deadline.after(FAR, "contract")
        call = asyncio.ensure_future(case.policy.sample(case.slow or case.request(5), deadline))
        await self._something_in_flight(case, call)
        call.cancel()
        outcome = (await asyncio.gather(call, return_exceptions=True))[0]
        assert isinstance(outcome, asyncio.CancelledError if case.slow else (asyncio.CancelledError, Reply))
        assert case.in_flight is not None or asyncio.all_tasks() <= before
        await self._nothing_in_flight(case)
        request = case.request(6)
        reply = await case.policy.sample(request, deadline)
        check_reply(reply, request, policy=case.policy, vocab_size=case.vocab_size)

    async def test_many_at_once_each_get_their_own_reply(self, case: PolicyCase) -> None:
        requests = [case.request(seed) for seed in range(100, 124)]
        deadline = Deadline.after(FAR, "contract")
        replies = await asyncio.gather(*(case.policy.sample(request, deadline) for request in requests))
        for request, reply in zip(requests, replies, strict=True):
            ids = check_reply(reply, request, policy=case.policy, vocab_size=case.vocab_size)
            if case.repeatable and request.seed % 8 == 4:
                alone = await case.policy.sample(request, deadline)
                assert list(unpack_ids(alone.sampled.completion_ids)) == ids

    async def test_a_prompt_beyond_the_window_is_told_apart(self, case: PolicyCase) -> None:
        if case.overlong is None:
            assert case.policy.identity.context_window is None or not case.policy.identity.trainable
            return
        with pytest.raises(PromptTooLong):
            await case.policy.sample(case.overlong, Deadline.after(FAR, "contract"))

    async def test_aclose_may_come_twice(self, case: PolicyCase) -> None:
        policy = case.fresh()
        await policy.start()
        await policy.aclose()
        await policy.aclose()

    async def test_aclose_may_come_before_start(self, case: PolicyCase) -> None:
        await case.fresh().aclose()

    async def _something_in_flight(self, case: PolicyCase, call: asyncio.Future[Reply]) -> None:
        """Let the call get going: until the engine works on it where it can be asked, else one turn of the loop."""
        await checkpoint()
        while case.in_flight is not None and not call.done() and await case.in_flight() == 0:
            await checkpoint()

    async def _nothing_in_flight(self, case: PolicyCase) -> None:
        """Wait until the engine has dropped the call; a test timeout is the failure."""
        while case.in_flight is not None and await case.in_flight() > 0:
            await checkpoint()
