"""Asks an engine again for the log-probs of recorded ids, and lists where they differ from the record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from agentenv.core.lifetime import first_of
from agentenv.engine.audit import Finding
from agentenv.policies.rescore import Rescorer
from agentenv.records.axes import Distribution
from agentenv.records.episode import EpisodeRecord, StepRecord
from agentenv.records.tokens import unpack_ids, unpack_logprobs

TOLERANCE = 1e-3
"""Largest difference of log-probs that batching and the order of sums explain."""
_AT_ONCE = 8


@dataclass(slots=True)
class Comparison:
    """What re-scoring a run found."""

    findings: list[Finding] = field(default_factory=list[Finding])
    compared: int = 0
    """Tokens with a recorded and an engine's log-prob."""
    unknown: int = 0
    """Sampled tokens without a recorded log-prob of a known distribution."""
    unscored: int = 0
    """Tokens the engine gave no score for."""
    worst: float = 0.0
    """Largest absolute difference."""


async def rescore_records(
    records: Sequence[EpisodeRecord],
    *,
    engine: str,
    model: str | None,
    tolerance: float = TOLERANCE,
    api_key: str | None = None,
) -> Comparison:
    """Compare every recorded log-prob with the engine's own.

    Args:
        records: Of `rollout.auditing.audit_attempts`, say.
        engine: Address of a running vLLM.
        model: Name under which it serves the model that sampled; None takes its first.
        tolerance: Largest absolute difference of log-probs that is no breach.
        api_key: Bearer token of the engine.

    Raises:
        ConfigError: The engine serves another model, or was started without what the question needs.
        PolicyServerFault: It cannot be reached.
    """
    found = Comparison()
    limiter = anyio.CapacityLimiter(_AT_ONCE)
    async with Rescorer(engine, model, api_key=api_key) as rescorer:
        await rescorer.start()

        async def one(record: EpisodeRecord) -> None:
            async with limiter:
                await _compare(record, rescorer, tolerance, found)

        try:
            async with anyio.create_task_group() as group:
                for record in records:
                    group.start_soon(one, record)
        except BaseExceptionGroup as errors:
            raise first_of(errors) from errors
    return found


async def _compare(record: EpisodeRecord, rescorer: Rescorer, tolerance: float, found: Comparison) -> None:
    for step in record.steps:
        ids = unpack_ids(record.segments[step.segment].token_ids)
        recorded = unpack_logprobs(step.sampled.logprobs)
        for distribution, positions in _positions(step):
            if distribution is Distribution.UNKNOWN or not recorded:
                found.unknown += len(positions)
                continue
            places = [at for at in positions if at >= 1]
            scores = await rescorer.rescore(ids, places, sampling=step.sampling, distribution=distribution)
            for at, score in zip(places, scores, strict=True):
                _judge(record, step, at, recorded[at - step.prompt_length], score, tolerance, found)


def _positions(step: StepRecord) -> list[tuple[Distribution, list[int]]]:
    """Give the segment positions of every log-prob span, with what it describes."""
    if not step.sampled.logprob_spans:
        whole = range(step.prompt_length, step.prompt_length + step.completion_length)
        return [(Distribution.UNKNOWN, list(whole))]
    return [
        (span.distribution, [step.prompt_length + k for k in range(span.start, span.end)])
        for span in step.sampled.logprob_spans
    ]


def _judge(
    record: EpisodeRecord,
    step: StepRecord,
    at: int,
    recorded: float | None,
    score: float | None,
    tolerance: float,
    found: Comparison,
) -> None:
    if recorded is None:
        found.unknown += 1
        return
    if score is None:
        found.unscored += 1
        return
    found.compared += 1
    difference = abs(recorded - score)
    found.worst = max(found.worst, difference)
    if difference > tolerance:
        where = f"{record.episode_id} attempt {record.attempt} turn {step.turn} position {at}"
        text = f"recorded log-prob {recorded:.6f}, the engine gives {score:.6f} (difference {difference:.2g})"
        found.findings.append(Finding(law=3, where=where, text=text))
