"""The rules by which an engine's answer becomes part of a record, without any server."""

from __future__ import annotations

from itertools import pairwise

from agentenv.policies.probe import judge_temperatures
from agentenv.policies.vllm_reply import Part, assemble, judge
from agentenv.policies.vllm_wire import WireReply, encode_prompt
from agentenv.records.axes import Distribution, Evidence, Finish
from agentenv.records.tokens import SamplingParams, unpack_ids, unpack_logprobs
from hypothesis import given
from hypothesis import strategies as st

LOGPROBS = st.one_of(st.none(), st.just(-9999.0), st.floats(min_value=-50.0, max_value=0.0, width=32))
LABELS = st.sampled_from(["a", "b"])


@st.composite
def parts(draw: st.DrawFn) -> Part:
    ids = draw(st.lists(st.integers(0, 99), max_size=12))
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(ids) - 1)), max_size=3))) if len(ids) > 1 else []
    bounds = [0, *cuts, len(ids)]
    versions = [(draw(LABELS), a, b) for a, b in pairwise(bounds)] if ids else []
    wire = WireReply(
        ids=ids,
        logprobs=[draw(LOGPROBS) for _ in ids],
        logprob_ids=list(ids),
        finish=draw(st.sampled_from(["stop", "length", "abort", "repetition"])),
        stop_reason=None,
        versions=draw(st.sampled_from([None, versions, [("x", 1, 2)]])),
        prompt_echo=b"[1,2]",
        cached_tokens=None,
    )
    return judge(wire, prompt_json=encode_prompt([1, 2]), max_tokens=12, vocab_size=100)


@given(st.lists(parts(), min_size=1, max_size=4), st.sampled_from(list(Distribution)))
def test_joined_parts_stay_aligned(given_parts: list[Part], known: Distribution) -> None:
    """Laws 2 and 3: as many log-probs as ids, missing is null, and both kinds of span tile [0, n)."""
    evidence = Evidence.UNKNOWN if known is Distribution.UNKNOWN else Evidence.PROBED
    sampled = assemble(given_parts, sampling=SamplingParams(), known=known, evidence=evidence)
    ids = [token for part in given_parts for token in part.ids]
    assert list(unpack_ids(sampled.completion_ids)) == ids
    logprobs = unpack_logprobs(sampled.logprobs)
    assert logprobs == [value for part in given_parts for value in part.logprobs]
    assert -9999.0 not in logprobs
    for spans in (sampled.version_spans, sampled.logprob_spans):
        covered = [index for span in spans for index in range(span.start, span.end)]
        assert covered == list(range(len(ids)))
    labels = [span.version for span in sampled.version_spans for _ in range(span.start, span.end)]
    assert labels == [s.version for part in given_parts for s in part.versions for _ in range(s.start, s.end)]


def test_the_prompt_may_be_echoed_with_spaces() -> None:
    wire = WireReply([5], [-1.0], [5], "stop", None, None, b"[1, 2, 3]", None)
    part = judge(wire, prompt_json=b"[1,2,3]", max_tokens=1, vocab_size=10)
    assert (part.finish, part.stop_token_id) == (Finish.STOP, 5)


def test_a_stop_string_names_no_stop_token() -> None:
    wire = WireReply([5], [-1.0], [5], "stop", "END", None, None, None)
    assert judge(wire, prompt_json=b"[1]", max_tokens=1, vocab_size=10).stop_token_id is None


def test_penalised_greedy_logprobs_are_of_no_known_distribution() -> None:
    wire = WireReply([5], [-1.0], [5], "length", None, None, None, None)
    part = judge(wire, prompt_json=b"[1]", max_tokens=1, vocab_size=10)
    sampling = SamplingParams(temperature=0.0, presence_penalty=0.5)
    sampled = assemble([part], sampling=sampling, known=Distribution.SAMPLING, evidence=Evidence.PROBED)
    assert sampled.logprob_spans[0].distribution is Distribution.UNKNOWN
    assert sampled.logprob_spans[0].evidence is Evidence.UNKNOWN
    assert sampled.notes


@given(
    st.lists(st.floats(-8.0, 8.0), min_size=5, max_size=40, unique=True),
    st.sampled_from([Distribution.MODEL, Distribution.SAMPLING]),
)
def test_two_temperatures_tell_the_distribution_or_nothing(logits: list[float], truth: Distribution) -> None:
    """Law 3: the probe never names a distribution that is not the engine's; it may say unknown."""
    import math

    def logprobs(temperature: float) -> dict[int, float]:
        scaled = [logit / temperature for logit in logits]
        log_z = math.log(math.fsum(math.exp(value) for value in scaled))
        best = sorted(range(len(logits)), key=lambda i: -logits[i])[:20]
        return {i: scaled[i] - log_z for i in best}

    plain = logprobs(1.0)
    tempered = logprobs(2.0 if truth is Distribution.SAMPLING else 1.0)
    assert judge_temperatures(plain, tempered)[0] in (truth, Distribution.UNKNOWN)
    spread = max(plain.values()) - min(plain.values())
    assert (judge_temperatures(plain, tempered)[0] is truth) == (spread >= 0.25)
