"""One episode with one policy: the loop, readable in one sitting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agentenv.core.boundary import is_its_own
from agentenv.core.deadline import DeadlineReached
from agentenv.core.lifetime import finish
from agentenv.core.policy import Policy, Reply, SampleRequest
from agentenv.envs.episode import Episode
from agentenv.envs.faults import attributed
from agentenv.errors import PolicyServerFault
from agentenv.records.axes import StopReason


async def run_episode(
    episode: Episode,
    policy: Policy,
    *,
    reply_timeout_s: float,
    grace_s: float,
    on_reply: Callable[[Reply], None] | None = None,
) -> None:
    """Run one episode to its end.

    Args:
        episode: Not begun yet; closed here.
        policy: Of this episode.
        reply_timeout_s: Longest wait for one reply; past it the policy server is at fault.
        grace_s: Time that writing down a cancellation may take.
        on_reply: Told of every reply that was taken, for progress; must not raise.

    Raises:
        HarnessFault: The journal cannot be written: nothing can go on.
        asyncio.CancelledError: Whoever cancelled wants it back; the episode's end is recorded as ``cancelled``.
    """
    async with episode:
        try:
            await _loop(episode, policy, reply_timeout_s, on_reply)
        except asyncio.CancelledError:
            await finish(episode.stop(StopReason.CANCELLED), grace_s)
            raise


async def _loop(
    episode: Episode, policy: Policy, reply_timeout_s: float, on_reply: Callable[[Reply], None] | None
) -> None:
    request = await episode.begin()
    while request is not None:
        try:
            reply = await _sample(episode, policy, request, reply_timeout_s)
        except BaseException as error:
            if not is_its_own(error):
                raise
            await episode.fail(attributed(error, PolicyServerFault, "the policy"))
            return
        if on_reply is not None and isinstance(reply, Reply):  # pyright: ignore[reportUnnecessaryIsInstance]
            on_reply(reply)  # what is none is refused by the episode
        request = await episode.submit(reply)


async def _sample(episode: Episode, policy: Policy, request: SampleRequest, timeout_s: float) -> Reply:
    """Sample one reply, for no longer than the harness waits, whatever the policy makes of its deadline.

    Raises:
        PolicyServerFault: No reply came in time.
        DeadlineReached: The episode's.
    """
    deadline = episode.deadline.sooner(timeout_s, "one reply")
    try:
        async with deadline.enforce():
            reply = await policy.sample(request, deadline)
    except DeadlineReached as error:
        if error.deadline is not deadline or deadline is episode.deadline:
            raise
        raise PolicyServerFault(_too_late(request, timeout_s)) from error
    return reply


def _too_late(request: SampleRequest, timeout_s: float) -> str:
    return (
        f"turn {request.turn}: no reply within {timeout_s:g} s to a prompt of {len(request.prompt_ids)} tokens, up to "
        f"{request.sampling.max_tokens} tokens long. If the server is only slow, raise --reply-timeout, lower "
        "--max-tokens or lower --concurrency; else look at its log"
    )
