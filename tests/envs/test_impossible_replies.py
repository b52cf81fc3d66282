"""Replies that no policy can have sampled: a fault of the policy server, and a finding where one is stored."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from agentenv.core.policy import Reply, SampleRequest
from agentenv.core.reply_check import impossible
from agentenv.engine.audit import audit
from agentenv.records.axes import Distribution, Evidence, FaultDomain, Finish, StopReason
from agentenv.records.facts import PromptRendered, TurnSampled
from agentenv.records.tokens import LogprobSpan, Sampled, VersionSpan, pack_ids, pack_logprobs
from agentenv.storage.run_folder import RunFolder
from hypothesis import given
from hypothesis import strategies as st

from tests.rollout.kit import Hooked, audited, collect

IDS = (72, 105, 33)
BAD = {
    "+inf": (IDS, (-1.0, math.inf, -1.0)),
    "-inf": (IDS, (-math.inf, -1.0, -1.0)),
    "above 0": (IDS, (-1.0, -1.0, 0.5)),
    "above 0, behind a null": (IDS, (None, -1.0, 0.5)),
    "-inf, behind a null": (IDS, (None, -1.0, -math.inf)),
    "a negative id": ((72, -1, 33), (-1.0, -1.0, -1.0)),
}
GOOD = ((-1.0, -2.0, -3.0), (None, -1.0, 0.0), (None, None, None), (-1.0, None, 5e-7), ())


def sampled(ids: tuple[int, ...], logprobs: tuple[float | None, ...]) -> Sampled:
    n = len(ids)
    span = LogprobSpan(start=0, end=n, distribution=Distribution.MODEL, evidence=Evidence.PROBED)
    return Sampled(
        completion_ids=pack_ids(ids),
        logprobs=pack_logprobs(logprobs),
        logprob_spans=(span,) if logprobs else (),
        version_spans=(VersionSpan(start=0, end=n, version=None),),
    )


@pytest.mark.parametrize("kind", BAD)
async def test_such_a_reply_is_a_fault_of_the_policy_server(tmp_path: Path, kind: str) -> None:
    """Nothing of it is recorded as sampled."""

    async def lie(request: SampleRequest) -> Reply:
        return Reply(sampled=sampled(*BAD[kind]), finish=Finish.STOP)

    await collect(tmp_path / "run", policy=Hooked(lie), tasks=1, options={"max_attempts": 1})
    (record,) = audited(tmp_path / "run").values()
    assert (record.reason, record.fault_domain) == (StopReason.FAULT, FaultDomain.POLICY_SERVER)
    assert record.fault is not None
    assert "turn 0: token" in record.fault.message
    assert record.steps == ()


@pytest.mark.parametrize("logprobs", GOOD)
async def test_nulls_and_rounding_are_no_fault(tmp_path: Path, logprobs: tuple[float | None, ...]) -> None:
    async def tell(request: SampleRequest) -> Reply:
        return Reply(sampled=sampled(IDS, logprobs), finish=Finish.STOP)

    await collect(tmp_path / "run", policy=Hooked(tell), tasks=1)
    (record,) = audited(tmp_path / "run").values()
    assert record.reason is StopReason.FINAL_ANSWER


@pytest.mark.parametrize("kind", BAD)
async def test_one_that_is_stored_is_found(tmp_path: Path, kind: str) -> None:
    """Law 2: the audit believes no number because it is on disk."""
    await collect(tmp_path / "run", tasks=1)
    ids, logprobs = BAD[kind]
    with RunFolder.open(tmp_path / "run").reader() as reader:
        (key,) = reader.attempts()
        facts = reader.facts(key)
    last = max(n for n, fact in enumerate(facts) if isinstance(fact, TurnSampled))
    fact = facts[last]
    assert isinstance(fact, TurnSampled)
    kept = fact.sampled.n - len(ids)
    whole = Sampled(
        completion_ids=fact.sampled.completion_ids[: 4 * kept] + pack_ids(ids),
        logprobs=pack_logprobs((-0.5,) * kept + logprobs),
        logprob_spans=(LogprobSpan(start=0, end=fact.sampled.n, distribution="model", evidence="probed"),),  # type: ignore[arg-type]
        version_spans=fact.sampled.version_spans,
    )
    record, findings = audit([*facts[:last], replace(fact, sampled=whole), *facts[last + 1 :]])
    assert record is not None
    assert 2 in {finding.law for finding in findings}


async def test_a_negative_id_of_a_prompt_is_found(tmp_path: Path) -> None:
    await collect(tmp_path / "run", tasks=1)
    with RunFolder.open(tmp_path / "run").reader() as reader:
        facts = reader.facts(reader.attempts()[0])
    at, first = next((n, fact) for n, fact in enumerate(facts) if isinstance(fact, PromptRendered))
    spoilt = replace(first, appended_ids=pack_ids([-7]) + first.appended_ids[4:])
    _, findings = audit([*facts[:at], spoilt, *facts[at + 1 :]])
    assert any(finding.law == 2 and "-7" in finding.text for finding in findings), findings


@given(st.lists(st.none() | st.floats(width=32, allow_nan=False), max_size=6))
def test_the_quick_check_and_the_slow_one_agree(logprobs: list[float | None]) -> None:
    """Law 2: a log-prob is a number of at most 0, or null, wherever among others it stands."""
    fine = all(value is None or -math.inf < value <= 1e-6 for value in logprobs)
    reply = sampled(tuple(range(len(logprobs))), tuple(logprobs))
    assert (impossible(reply) is None) is fine
