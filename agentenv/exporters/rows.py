"""One row for each training sequence: a segment in which the policy sampled something.

Arrays of a row are as long as its ``token_ids`` (T) and aligned with them: position ``i`` of each belongs to
``token_ids[i]``. Spans are half-open and count positions of the row. A value that is not known is null, never 0.
`agentenv.exporters.schema` gives every column its type and says what it means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from agentenv.core.exporter import LossReport
from agentenv.core.training import SegmentTraining, row_weights, training_of, weights_of
from agentenv.records.axes import StopReason
from agentenv.records.episode import EpisodeRecord, RewardComponent, Segment, StepRecord

__all__ = ["ROW_VERSION", "episode_rows", "row_weights", "rows_of"]

ROW_VERSION = 1
"""Of the columns and their meaning."""


def rows_of(
    episodes: Iterable[EpisodeRecord], report: LossReport, *, run_id: str | None = None
) -> Iterator[dict[str, Any]]:
    """Give the rows of every attempt, in order, and count what they cannot carry.

    Laws 5 and 10: no null becomes 0; a sampled token is trained in one row only; the weights of an attempt's rows sum
    to 1, or are null where none of its tokens is trained.

    Args:
        episodes: Attempts; each is weighed by itself, so give one for each episode unless every attempt is wanted.
        report: Counts rows, episodes and losses.
        run_id: Goes into every row; None if nobody named the run.
    """
    for record in episodes:
        rows = episode_rows(record, report, run_id=run_id)
        report.episodes += bool(rows)
        report.rows += len(rows)
        yield from rows


def episode_rows(record: EpisodeRecord, report: LossReport, *, run_id: str | None = None) -> list[dict[str, Any]]:
    """Give the rows of one attempt; none if it never ended or sampled nothing."""
    if not record.ended:
        report.drop("attempt that never ended")
        return []
    training = training_of(record)
    weights = weights_of(training) or [None] * len(training)
    rows: list[dict[str, Any]] = []
    end = _end(record)
    for segment, trained, weight in zip(record.segments, training, weights, strict=True):
        if not any(segment.sampled_mask):
            report.drop("segment without sampled tokens")
            continue
        row = _identity(record, run_id) | _sequence(record, segment, trained, report)
        row |= _ending(record, end if end is not None and end[0] == segment.index else None, len(row["token_ids"]))
        row |= {"row_weight": weight} | _episode(record)
        rows.append(_clean(row, report))
    _count_losses(record, training, bool(rows), report)
    return rows


def _identity(record: EpisodeRecord, run_id: str | None) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "episode_id": record.episode_id,
        "attempt": record.attempt,
        "suite": record.suite,
        "task_id": record.task_id,
        "task_sha256": record.task_sha256,
        "task_seed": record.task_seed,
        "level": record.level,
        "group_id": record.group_id,
        "member": record.member,
        "seed": record.seed,
    }


def _sequence(record: EpisodeRecord, segment: Segment, training: SegmentTraining, report: LossReport) -> dict[str, Any]:
    steps = [step for step in record.steps if step.segment == segment.index]
    versions = [version for step in steps for version in _version_spans(step)]
    spans = [span for step in steps for span in _logprob_spans(step)]
    low, high = _version_range(versions, report)
    return {
        "segment": segment.index,
        "n_segments": len(record.segments),
        "segment_reason": segment.reason,
        "purpose": str(segment.purpose),
        "token_ids": np.frombuffer(segment.token_ids, "<i4").tolist(),
        "sampled_mask": list(segment.sampled_mask),
        "train_mask": list(training.mask),
        "logprobs": _nullable(segment.logprobs),
        "logprob_spans": spans,
        "distribution": _single([span["distribution"] for span in spans]),
        "weight_version_spans": versions,
        "min_weight_version": low,
        "max_weight_version": high,
        "turns": [_turn(step) for step in steps],
        "temperature": _single([step.sampling.temperature for step in steps if step.completion_length]),
        "trainable": bool(training.n_trained),
        "untrained": [str(reason) for reason in sorted(training.untrained)],
        "cautions": [str(caution) for caution in training.cautions],
        "breaches": [
            {
                "constraint_id": breach.constraint_id,
                "turn": breach.turn,
                "visible": breach.visible,
                "compaction_id": breach.compaction_id,
                "evidence": breach.evidence,
            }
            for step in steps
            for breach in step.breaches
        ],
    }


def _turn(step: StepRecord) -> dict[str, Any]:
    sampling = step.sampling
    return {
        "turn": step.turn,
        "purpose": str(step.purpose),
        "start": step.prompt_length,
        "end": step.prompt_length + step.completion_length,
        "finish": str(step.finish),
        "seed": step.seed,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "max_tokens": sampling.max_tokens,
        "reward": _sum(step.rewards),
        "terminated": step.terminated,
        "truncated": step.truncated,
    }


def _ending(record: EpisodeRecord, end: tuple[int, int] | None, length: int) -> dict[str, Any]:
    """Say where the episode ends in this row, if it does, and whether a critic bootstraps there.

    The two masks differ: ``end_mask`` cuts an advantage recursion however the episode ended; ``bootstrap_mask`` asks
    for the value of ``final_prompt_ids``, which only an episode that was truncated, and not by a fault, has.
    """
    end_mask, bootstrap_mask = [0] * length, [0] * length
    final: list[int] | None = None
    if end is not None:
        end_mask[end[1]] = 1
        if record.final_prompt_ids is not None:
            final = np.frombuffer(record.final_prompt_ids, "<i4").tolist()
        if record.truncated and not record.terminated and record.reason is not StopReason.FAULT and final is not None:
            bootstrap_mask[end[1]] = 1
    return {"end_mask": end_mask, "bootstrap_mask": bootstrap_mask, "final_prompt_ids": final}


def _episode(record: EpisodeRecord) -> dict[str, Any]:
    components = [(None, part) for part in record.rewards]
    components += [(step.turn, part) for step in record.steps for part in step.rewards]
    return {
        "reward": record.reward,
        "reward_components": [_component(part, turn) for turn, part in components],
        "terminated": record.terminated,
        "truncated": record.truncated,
        "reason": str(record.reason),
        "budget": record.budget,
        "scoring": str(record.scoring),
        "outcome": str(record.outcome),
        "fault": str(record.fault_domain),
        "budgets": [
            {
                "name": state.name,
                "kind": str(state.kind),
                "owner": str(state.owner),
                "limit": state.limit,
                "spent": state.spent,
            }
            for state in record.budgets
        ],
        "row_version": ROW_VERSION,
    }


def _component(part: RewardComponent, turn: int | None) -> dict[str, Any]:
    return {
        "turn": turn,
        "name": part.name,
        "value": part.value,
        "source": part.source,
        "status": str(part.status),
        "detail": part.detail,
    }


def _end(record: EpisodeRecord) -> tuple[int, int] | None:
    """Find the last sampled token of the episode: (segment, position)."""
    for step in reversed(record.steps):
        if step.completion_length:
            return step.segment, step.prompt_length + step.completion_length - 1
    return None


def _logprob_spans(step: StepRecord) -> list[dict[str, Any]]:
    return [
        {
            "start": step.prompt_length + span.start,
            "end": step.prompt_length + span.end,
            "distribution": str(span.distribution),
            "evidence": str(span.evidence),
        }
        for span in step.sampled.logprob_spans
    ]


def _version_spans(step: StepRecord) -> list[dict[str, Any]]:
    return [
        {"start": step.prompt_length + span.start, "end": step.prompt_length + span.end, "version": span.version}
        for span in step.sampled.version_spans
    ]


def _version_range(spans: Sequence[dict[str, Any]], report: LossReport) -> tuple[int | None, int | None]:
    """Give the lowest and highest version; null unless every span has a whole number, for others have no order."""
    labels: list[str | None] = [span["version"] for span in spans]
    if not labels or any(label is None for label in labels):
        return None, None
    numbers = [int(label) for label in labels if label is not None and label.isascii() and label.isdigit()]
    if len(numbers) < len(labels) or max(numbers) >= 2**63:
        report.drop("order of weight versions that are no whole numbers (in a row)")
        return None, None
    return min(numbers), max(numbers)


def _single(values: Sequence[Any]) -> Any:
    """Give the value all share; None if there is none or they differ."""
    return values[0] if values and all(value == values[0] for value in values) else None


def _nullable(packed: bytes) -> list[float | None]:
    """Unpack float32 exactly; null where there is no finite number."""
    values = np.frombuffer(packed, "<f4").tolist()
    return [value if math.isfinite(value) else None for value in values]


def _sum(parts: Sequence[RewardComponent]) -> float | None:
    """Sum the rewards of a step; None if there are none or one has no value."""
    values = [part.value for part in parts]
    if not values or any(value is None for value in values):
        return None
    return math.fsum(value for value in values if value is not None)


def _finite(value: float | None, report: LossReport) -> float | None:
    if value is None or math.isfinite(value):
        return value
    report.drop("number that is not finite (null instead)")
    return None


def _clean(value: Any, report: LossReport) -> Any:
    """Make what no target can carry carriable, and count it: lone surrogates escaped, numbers that are not finite."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            report.drop("lone surrogates in a text (escaped)")
            return value.encode("utf-8", "backslashreplace").decode()
        return value
    if isinstance(value, float):
        return _finite(value, report)
    if isinstance(value, dict):
        return {key: _clean(item, report) for key, item in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], (dict, str)):
        return [_clean(item, report) for item in value]
    return value


def _count_losses(
    record: EpisodeRecord, training: tuple[SegmentTraining, ...], any_row: bool, report: LossReport
) -> None:
    counts = {
        "episode without sampled tokens": int(not any_row),
        "turn with an empty completion": sum(step.completion_length == 0 for step in record.steps),
        "status and exit code of a tool result (its text is in the tokens)": sum(
            len(step.results) for step in record.steps
        ),
        "visibility of a constraint at a call that did not break it": _kept_in_sight(record),
        "edits of a compaction (what it left is in the tokens)": sum(len(step.compactions) for step in record.steps),
        "compaction that failed": len(record.failed_compactions),
    }
    for segment in training:
        for reason, n in segment.untrained.items():
            report.untrained[reason] = report.untrained.get(reason, 0) + n
    for reason, n in counts.items():
        if n:
            report.drop(reason, n)


def _kept_in_sight(record: EpisodeRecord) -> int:
    """Count the constraints of calls whose visibility no breach of the row carries."""
    broken = {(breach.turn, breach.constraint_id) for breach in record.breaches}
    return sum((step.turn, entry.constraint_id) not in broken for step in record.steps for entry in step.visibility)
