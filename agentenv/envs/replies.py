"""Makes the fact of a reply: whatever a policy or a renderer gives is read before it is believed."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from agentenv.core.policy import PolicyIdentity, Reply
from agentenv.core.renderer import Renderer
from agentenv.core.reply_check import impossible
from agentenv.engine.effects import Sample
from agentenv.errors import HarnessFault, PolicyServerFault, UsageError
from agentenv.records.axes import Finish
from agentenv.records.codec import settled
from agentenv.records.facts import TurnSampled
from agentenv.records.messages import ParsedTurn
from agentenv.records.tokens import Sampled


def turn_of(
    sample: Sample, reply: Reply, *, renderer: Renderer, identity: PolicyIdentity, elapsed_s: float
) -> TurnSampled:
    """Make the fact of a reply.

    Args:
        sample: What was asked for.
        reply: What the policy gave.
        renderer: Parses it.
        identity: Of the policy, for its prices.
        elapsed_s: Since the episode began.

    Raises:
        PolicyServerFault: It is no finished reply to what was asked, or cannot be recorded.
        HarnessFault: The renderer made of it what cannot be recorded.
    """
    if (flaw := _flaw(sample, reply)) is not None:
        raise PolicyServerFault(f"turn {sample.turn}: {flaw}")
    fact = TurnSampled(
        turn=sample.turn,
        purpose=sample.purpose,
        sampled=reply.sampled,
        sampling=sample.sampling,
        seed=sample.seed,
        finish=reply.finish,
        stop_token_id=reply.stop_token_id,
        parsed=renderer.parse(memoryview(reply.sampled.completion_ids).cast("i"), sample.turn),
        queued_s=reply.queued_s,
        generating_s=reply.generating_s,
        cached_tokens=reply.cached_tokens,
        retries=reply.retries,
        cost_usd=len(sample.prompt_ids) * identity.usd_per_prompt_token
        + reply.sampled.n * identity.usd_per_completion_token,
        elapsed_s=elapsed_s,
    )
    try:
        return cast("TurnSampled", settled(fact, of=f"turn {sample.turn}"))
    except UsageError as error:
        raise _unreadable(fact, error) from error


def _flaw(sample: Sample, reply: object) -> str | None:
    """Say why it is no finished reply to what was asked, or None."""
    if not isinstance(reply, Reply):
        return f"the policy gave a {type(reply).__name__}; expected a Reply"
    sampled = reply.sampled
    kinds = [
        type(part) for part in (sampled, getattr(sampled, "completion_ids", None), getattr(sampled, "logprobs", None))
    ]
    if kinds != [Sampled, bytes, bytes]:
        return f"the policy gave a reply of {sampled!r:.80}; expected Sampled, with packed ids and log-probs"
    if reply.finish is Finish.ABORT:
        return (
            "the policy handed on a reply that its engine had aborted; a client goes on with such a call or raises a "
            "PolicyServerFault"
        )
    n, limit = sampled.n, sample.sampling.max_tokens
    if len(sampled.completion_ids) % 4 or len(sampled.logprobs) not in (0, 4 * n):
        return (
            f"the policy gave {len(sampled.completion_ids)} bytes of ids and {len(sampled.logprobs)} of log-probs; "
            "expected 4 of each for every token, or no log-probs"
        )
    if n > limit:
        return f"the policy gave {n} tokens where {limit} were allowed"
    return impossible(sampled)


def _unreadable(fact: TurnSampled, error: UsageError) -> PolicyServerFault | HarnessFault:
    try:
        settled(replace(fact, parsed=ParsedTurn(text="")), of="the reply")
    except UsageError:
        return PolicyServerFault(f"the policy gave a reply that cannot be recorded: {error}")
    fault = HarnessFault(f"the renderer parsed a reply to what cannot be recorded: {error}")
    fault.retryable = False
    return fault
