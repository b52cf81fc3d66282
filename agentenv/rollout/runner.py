"""One episode with one policy: the loop, readable in one sitting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agentenv.core.boundary import is_its_own
from agentenv.core.lifetime import finish
from agentenv.core.policy import Policy, Reply
from agentenv.envs.episode import Episode
from agentenv.errors import HarnessFault, PolicyServerFault
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
        on_reply: Told of every reply, for progress.

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
            reply = await policy.sample(request, episode.deadline.sooner(reply_timeout_s, "one reply"))
        except HarnessFault:
            raise
        except BaseException as error:
            if not is_its_own(error):
                raise
            await episode.fail(error if isinstance(error, Exception) else _fault_of(error))
            return
        if on_reply is not None:
            on_reply(reply)
        request = await episode.submit(reply)


def _fault_of(error: BaseException) -> PolicyServerFault:
    return PolicyServerFault(f"the policy raised {type(error).__name__}, which nobody had asked for: {error}")
