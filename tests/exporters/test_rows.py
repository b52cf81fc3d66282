"""Rows: what a trainer gets, down to the single token.

- law 2: a log-prob only where the policy sampled, null elsewhere, own-token alignment;
- law 5: unscored, tool failure, task failure and truncation by length stay apart, and null never becomes 0;
- law 10: a sampled token is trained in one row only, and the weights of an episode's rows sum to 1;
- every loss is counted.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from agentenv.core.exporter import LossReport
from agentenv.core.training import EXPLAINED, Untrained
from agentenv.exporters.rows import episode_rows, row_weights, rows_of
from agentenv.records.axes import (
    CallStatus,
    CompactionOutcome,
    Distribution,
    FaultDomain,
    Finish,
    Outcome,
    Purpose,
    Scoring,
    StopReason,
)
from agentenv.records.compaction import Compaction
from agentenv.records.constraints import Breach
from agentenv.records.episode import EpisodeRecord, FaultReport, RewardComponent
from agentenv.records.messages import ToolResult
from agentenv.records.tokens import SamplingParams, unpack_ids, unpack_logprobs
from agentenv.testing.episodes import EpisodeBuilder, episode_records, reply
from hypothesis import given


def rows(record: EpisodeRecord) -> list[dict]:
    return episode_rows(record, LossReport())


def losses(record: EpisodeRecord) -> dict[str, int]:
    report = LossReport()
    list(rows_of([record], report))
    return report.dropped


@given(episode_records())
def test_credit_law(record: EpisodeRecord) -> None:
    """Law 10: a sampled token is trained in one row only, and the row weights of one episode sum to 1."""
    exported = rows(record)
    weights = [row["row_weight"] for row in exported]
    trained = sum(sum(row["train_mask"]) for row in exported)
    assert len({row["segment"] for row in exported}) == len(exported)
    if trained:
        assert math.isclose(sum(weights), 1.0)
        for row in exported:
            assert row["row_weight"] == sum(row["train_mask"]) / trained
    else:
        assert weights == [None] * len(exported)
    if record.ended:
        in_rows = [row_weights(record)[row["segment"]] for row in exported] if trained else []
        assert in_rows == [weight for weight in weights if weight is not None]
        sampled = sum(step.completion_length for step in record.steps)
        assert sum(sum(row["sampled_mask"]) for row in exported) == sampled


@given(episode_records(ended=True))
def test_mask_law(record: EpisodeRecord) -> None:
    """Law 2: a position carries a log-prob only if the policy sampled it; missing is null, never 0.0."""
    for row in rows(record):
        segment = record.segments[row["segment"]]
        assert row["token_ids"] == unpack_ids(segment.token_ids).tolist()
        lengths = {
            len(row[name])
            for name in ("token_ids", "sampled_mask", "train_mask", "logprobs", "end_mask", "bootstrap_mask")
        }
        assert len(lengths) == 1
        assert row["logprobs"] == unpack_logprobs(segment.logprobs)
        for sampled, trained, logprob in zip(row["sampled_mask"], row["train_mask"], row["logprobs"], strict=True):
            assert trained <= sampled
            assert logprob is None or sampled
            assert logprob is not None or not trained
        spans = [(span["start"], span["end"]) for span in row["logprob_spans"]]
        covered = {position for start, end in spans for position in range(start, end)}
        assert covered <= {i for i, sampled in enumerate(row["sampled_mask"]) if sampled}


@given(episode_records(ended=True))
def test_three_axes_law(record: EpisodeRecord) -> None:
    """Law 5: how it ended, whether it was scored and whose fault are three fields; no exporter turns null into 0."""
    for row in rows(record):
        assert (row["reward"] is None) == (record.reward is None)
        assert record.scoring is Scoring.SCORED or row["reward"] is None
        assert row["reason"] == record.reason
        assert (row["terminated"], row["truncated"]) == (record.terminated, record.truncated)
        assert row["scoring"] == record.scoring
        assert row["outcome"] == record.outcome
        assert row["fault"] == record.fault_domain


@given(episode_records(ended=True))
def test_end_and_bootstrap_are_two_masks(record: EpisodeRecord) -> None:
    """One end for each episode that sampled; bootstrapping only where it was truncated, and not by a fault."""
    exported = rows(record)
    assert sum(sum(row["end_mask"]) for row in exported) == bool(exported)
    bootstraps = sum(sum(row["bootstrap_mask"]) for row in exported)
    assert bootstraps == (bool(exported) and record.truncated and record.reason is not StopReason.FAULT)
    for row in exported:
        assert all(boot <= end <= sampled for boot, end, sampled in zip(
            row["bootstrap_mask"], row["end_mask"], row["sampled_mask"], strict=True
        ))  # fmt: skip
        assert (row["final_prompt_ids"] is not None) == bool(sum(row["end_mask"]))
        if row["final_prompt_ids"] is not None:
            assert row["final_prompt_ids"] == unpack_ids(record.final_prompt_ids or b"").tolist()


@given(episode_records(ended=True))
def test_unknown_distribution_is_never_trained(record: EpisodeRecord) -> None:
    """Law 3: ``unknown`` is not trainable; nor is a log-prob of another distribution than was sampled from."""
    for row in rows(record):
        turns = {position: turn for turn in row["turns"] for position in range(turn["start"], turn["end"])}
        known = {
            position: span["distribution"]
            for span in row["logprob_spans"]
            for position in range(span["start"], span["end"])
        }
        for position, trained in enumerate(row["train_mask"]):
            if trained:
                turn = turns[position]
                plain = turn["temperature"] == 1.0 and turn["top_p"] == 1.0 and turn["top_k"] == 0
                assert known[position] == "sampling" or (known[position] == "model" and plain)
        assert row["trainable"] == any(row["train_mask"])


def two_turns() -> EpisodeRecord:
    """The vector every exporter is checked with: 1 prompt, 4 sampled, 3 tool, 2 sampled, distinct log-probs."""
    builder = EpisodeBuilder().prompt([10])
    builder.turn(reply([11, 12, 13, 14], [-0.1, -0.2, -0.3, -0.4], versions=[(0, 2, "7"), (2, 4, "8")]))
    builder.prompt([20, 21, 22])
    builder.turn(reply([31, 32], [-0.5, -0.6], versions=[(0, 2, "8")]))
    return builder.end(final=[40, 41])


def test_two_turn_episode_token_by_token() -> None:
    """The k-th trained token's id, log-prob and mask agree; first trained token right after a one-token prompt."""
    (row,) = rows(two_turns())
    assert row["token_ids"] == [10, 11, 12, 13, 14, 20, 21, 22, 31, 32]
    assert row["sampled_mask"] == row["train_mask"] == [0, 1, 1, 1, 1, 0, 0, 0, 1, 1]
    float32 = [float(np.float32(value)) for value in (-0.1, -0.2, -0.3, -0.4, -0.5, -0.6)]
    assert row["logprobs"] == [None, *float32[:4], None, None, None, *float32[4:]]
    assert row["end_mask"] == [0] * 9 + [1]
    assert row["bootstrap_mask"] == [0] * 10
    assert row["final_prompt_ids"] == [10, 11, 12, 13, 14, 20, 21, 22, 31, 32, 40, 41]
    assert (row["distribution"], row["temperature"], row["row_weight"], row["n_segments"]) == ("model", 1.0, 1.0, 1)
    assert [(turn["start"], turn["end"]) for turn in row["turns"]] == [(1, 5), (8, 10)]


def test_version_changes_in_the_middle_of_a_turn() -> None:
    """Spans are kept in positions of the row; their range is an exporter's reduction, null where there is no order."""
    (row,) = rows(two_turns())
    spans = [(span["start"], span["end"], span["version"]) for span in row["weight_version_spans"]]
    assert spans == [(1, 3, "7"), (3, 5, "8"), (8, 10, "8")]
    assert (row["min_weight_version"], row["max_weight_version"]) == (7, 8)
    for versions in ([(0, 1, "7"), (1, 2, None)], [(0, 2, "step-7")], [(0, 2, "٣")], [(0, 2, "9" * 30)]):
        record = EpisodeBuilder().prompt([1]).turn(reply([2, 3], versions=versions)).end()
        (row,) = rows(record)
        assert (row["min_weight_version"], row["max_weight_version"]) == (None, None)
    assert losses(record)["order of weight versions that are no whole numbers (in a row)"] == 1


def test_summary_is_trained_once() -> None:
    """A summary the policy wrote is trained in its own row, and is prompt in the next one (law 10)."""
    builder = EpisodeBuilder().prompt([1, 2]).turn(reply([3, 4]))
    builder.prompt([5], new="summary", purpose=Purpose.SUMMARY).turn(reply([6, 7, 8, 9]))
    builder.prompt([1, 6, 7, 8, 9], new="compaction k0").turn(reply([3, 4]))
    first, summary, last = rows(builder.end(StopReason.COLLECTOR_PAUSE, reward=None))
    assert summary["train_mask"] == [0, 1, 1, 1, 1]
    assert summary["purpose"] == "summary"
    assert last["train_mask"] == [0, 0, 0, 0, 0, 1, 1]
    assert [row["row_weight"] for row in (first, summary, last)] == [0.25, 0.5, 0.25]
    assert [row["final_prompt_ids"] is None for row in (first, summary, last)] == [True, True, False]
    assert last["bootstrap_mask"] == [0, 0, 0, 0, 0, 0, 1]


def unscored() -> EpisodeRecord:
    return EpisodeBuilder().prompt([1]).turn(reply([2])).end(StopReason.FINAL_ANSWER, reward=None)


def tool_failed() -> EpisodeRecord:
    report = FaultReport(domain=FaultDomain.TOOL, error="ToolFault", message="no interpreter")
    return EpisodeBuilder().prompt([1]).turn(reply([2])).end(StopReason.FAULT, reward=None, fault=report)


def grader_hung() -> EpisodeRecord:
    report = FaultReport(domain=FaultDomain.GRADER, error="GraderFault", message="no answer in 60 s")
    builder = EpisodeBuilder().prompt([1]).turn(reply([2]))
    return builder.end(StopReason.COMPLETED, reward=None, fault=report, scoring=Scoring.TIMED_OUT)


def task_failed() -> EpisodeRecord:
    return EpisodeBuilder().prompt([1]).turn(reply([2])).end(StopReason.FAILED, reward=0.0)


def cut_by_length() -> EpisodeRecord:
    builder = EpisodeBuilder().prompt([1]).turn(reply([2]), finish=Finish.LENGTH)
    return builder.end(StopReason.GENERATION_LENGTH, reward=0.0)


def test_four_facts_never_become_the_same_zero() -> None:
    """Charter, check 2: unscored, tool failure, task failure and length truncation stay apart in the exported row."""
    axes = [
        (
            row["terminated"],
            row["truncated"],
            row["reason"],
            row["scoring"],
            row["outcome"],
            row["fault"],
            row["reward"],
        )
        for make in (unscored, tool_failed, grader_hung, task_failed, cut_by_length)
        for row in rows(make())
    ]
    assert axes == [
        (True, False, "final_answer", "not_run", "unknown", "none", None),
        (False, True, "fault", "not_run", "unknown", "tool", None),
        (True, False, "completed", "timed_out", "unknown", "grader", None),
        (True, False, "failed", "scored", "failure", "none", 0.0),
        (False, True, "generation_length", "scored", "failure", "none", 0.0),
    ]
    faulted, timed_out = rows(tool_failed())[0], rows(grader_hung())[0]
    assert (faulted["trainable"], faulted["untrained"], faulted["row_weight"]) == (False, ["fault"], None)
    assert (timed_out["trainable"], timed_out["bootstrap_mask"]) == (True, [0, 0])
    assert rows(cut_by_length())[0]["bootstrap_mask"] == [0, 1]


@pytest.mark.parametrize(
    ("sampled", "sampling", "untrained", "cautions", "mask"),
    [
        (reply([2, 3]), SamplingParams(), [], [], [0, 1, 1]),
        (reply([2, 3]), SamplingParams(temperature=2.0), ["other_distribution"], [], [0, 0, 0]),
        (reply([2, 3]), SamplingParams(top_p=0.9), ["other_distribution"], [], [0, 0, 0]),
        (reply([2, 3], distribution=Distribution.SAMPLING), SamplingParams(temperature=0.7), [], [], [0, 1, 1]),
        (
            reply([2, 3], distribution=Distribution.SAMPLING),
            SamplingParams(top_k=5),
            [],
            ["filtered_sampling"],
            [0, 1, 1],
        ),
        (reply([2, 3], distribution=Distribution.SAMPLING), SamplingParams(temperature=0.0), [], ["greedy"], [0, 1, 1]),
        (reply([2, 3], distribution=Distribution.UNKNOWN), SamplingParams(), ["unknown_distribution"], [], [0, 0, 0]),
        (reply([2, 3], [-0.5, None]), SamplingParams(), ["no_logprob"], [], [0, 1, 0]),
        (reply([2, 3], [-0.5, -math.inf]), SamplingParams(), ["no_logprob"], [], [0, 1, 0]),
        (replace(reply([2, 3]), logprobs=b""), SamplingParams(), ["no_logprob"], [], [0, 0, 0]),
        (replace(reply([2, 3]), logprob_spans=()), SamplingParams(), ["unknown_distribution"], [], [0, 0, 0]),
        (reply([2, 3], text="five"), SamplingParams(), ["text_only"], [], [0, 0, 0]),
    ],
)
def test_what_is_trained_and_why_not(sampled, sampling, untrained, cautions, mask) -> None:
    """Each reason not to train is named in the row, and the masks say which tokens it means."""
    (row,) = rows(EpisodeBuilder().prompt([1]).turn(sampled, sampling=sampling).end())
    assert (row["untrained"], row["cautions"], row["train_mask"]) == (untrained, cautions, mask)
    assert row["sampled_mask"] == [0, 1, 1]
    assert row["trainable"] == any(mask)
    assert row["row_weight"] == (1.0 if any(mask) else None)


def test_interrupted_attempts_have_no_row() -> None:
    """An attempt without an end is nothing to train on, and is counted."""
    record = EpisodeBuilder().prompt([1]).turn(reply([2])).end(None)
    assert rows(record) == []
    assert row_weights(record) == ()
    assert losses(record) == {"attempt that never ended": 1}


def test_every_loss_is_counted() -> None:
    """What rows cannot carry is in the report, with numbers."""
    result = ToolResult(call_id="c0", name="t", status=CallStatus.OK, text="4")
    compaction = Compaction(
        id="k0", compressor="window:9", trigger="budget", budget_tokens=9, edits=(), tokens_before=10,
        tokens_after=5, outcome=CompactionOutcome.APPLIED,
    )  # fmt: skip
    builder = (
        EpisodeBuilder().prompt([1]).turn(reply([2, 3], [-1.0, None]), results=(result,), compactions=(compaction,))
    )
    builder.turn(reply([]))
    builder.prompt([5], new="compaction k0")
    report = LossReport()
    faulted = EpisodeBuilder(episode_id="e1").prompt([1]).turn(reply([2, 3])).end(StopReason.FAULT, reward=None)
    empty = EpisodeBuilder(episode_id="e2").prompt([1]).end(StopReason.CONTEXT_OVERFLOW, reward=None)
    assert len(list(rows_of([builder.end(), faulted, empty], report, run_id="r"))) == 2
    assert (report.rows, report.episodes) == (2, 2)
    assert report.dropped == {
        "segment without sampled tokens": 2,
        "episode without sampled tokens": 1,
        "turn with an empty completion": 1,
        "status and exit code of a tool result (its text is in the tokens)": 1,
        "edits of a compaction (what it left is in the tokens)": 1,
    }
    assert report.untrained == {Untrained.NO_LOGPROB: 1, Untrained.FAULT: 2}
    assert EXPLAINED.keys() == set(Untrained), "every reason has plain words"


def test_what_no_target_can_carry() -> None:
    """Lone surrogates are escaped, numbers that are not finite become null; both are counted."""
    parts = (
        RewardComponent(name="a" + chr(0xD800), value=math.nan, source="test"),
        RewardComponent(name="b", value=1.0, source="model"),
    )
    breach = Breach(constraint_id="c", turn=0, evidence=chr(0xDFFF), visible=False, compaction_id="k0")
    record = EpisodeBuilder().prompt([1]).turn(reply([2]), breaches=(breach,)).end(rewards=parts)
    (row,) = rows(record)
    assert row["reward"] is None
    assert [(part["name"], part["value"]) for part in row["reward_components"]] == [("a\\ud800", None), ("b", 1.0)]
    assert row["breaches"] == [
        {"constraint_id": "c", "turn": 0, "visible": False, "compaction_id": "k0", "evidence": "\\udfff"}
    ]
    counted = losses(record)
    assert counted["lone surrogates in a text (escaped)"] == 2
    assert counted["number that is not finite (null instead)"] == 2


def test_rewards_of_steps() -> None:
    """A step without a reward has null; the episode's reward is the sum of all its parts."""
    part = RewardComponent(name="progress", value=0.25, source="environment")
    builder = EpisodeBuilder().prompt([1]).turn(reply([2]), rewards=(part, part)).turn(reply([3]))
    (row,) = rows(builder.end(reward=1.0))
    assert [turn["reward"] for turn in row["turns"]] == [0.5, None]
    assert row["reward"] == 1.5
    assert [part["turn"] for part in row["reward_components"]] == [None, 0, 0]


def test_outcome_is_not_read_from_the_reward() -> None:
    (row,) = rows(EpisodeBuilder().prompt([1]).turn(reply([2])).end(reward=0.0, outcome=Outcome.SUCCESS))
    assert (row["outcome"], row["reward"]) == ("success", 0.0)
