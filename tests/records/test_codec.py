"""The codec: every fact comes back as it was, and what is not a fact of ours is named as such."""

import json
import math
from pathlib import Path

import msgspec
import pytest
from agentenv.errors import DamagedJournal, NewerSchema, UsageError
from agentenv.records import codec, facts
from agentenv.records.axes import Finish, Purpose, StopReason
from agentenv.records.codec import decode_fact, decode_record, encode_fact, encode_record, record_json, record_plain
from agentenv.records.episode import EpisodeRecord
from agentenv.records.facts import SCHEMA_VERSION, Fact, Stopped, SummaryAsked, TurnSampled
from agentenv.records.messages import Message, ParsedTurn, Role, ToolCall
from agentenv.records.tokens import Sampled, SamplingParams, pack_ids, pack_logprobs
from agentenv.testing.episodes import EpisodeBuilder, episode_records, reply
from agentenv.testing.strategies import all_facts
from hypothesis import example, given, settings
from hypothesis import strategies as st


def asked(text: str, **arguments: object) -> SummaryAsked:
    call = ToolCall(id="c0", name="calculator", arguments=dict(arguments))
    return SummaryAsked(messages=(Message(id="m0", role=Role.ASSISTANT, text=text, calls=(call,)),), max_tokens=5)


HIGH_THEN_LOW = chr(0xD83D) + chr(0xDE00)  # two lone surrogates, not the character they would make together


@given(all_facts)
@example(asked(HIGH_THEN_LOW))
@example(asked("", **{chr(0xDC80): [2**64, {chr(0xD800): -(2**63) - 1}]}))
@example(asked("\0\ufeff\U0010ffff", n=2**64 - 1, m=-(2**63)))
@example(asked(chr(0xD800), n=10**5000))
def test_fact_round_trip(fact: Fact) -> None:
    """Law 11, its codec half: a fact that was written is the fact that is read, whatever text it holds."""
    assert decode_fact(encode_fact(fact)) == fact


@settings(max_examples=30)
@given(episode_records())
def test_record_round_trip(record: EpisodeRecord) -> None:
    """A record that was written is the record that is read."""
    assert decode_record(encode_record(record)) == record


GOLDEN = json.loads((Path(__file__).parent / "golden" / "facts-v1.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("stored", GOLDEN, ids=[stored["plain"]["kind"] for stored in GOLDEN])
def test_facts_of_schema_version_1_stay_readable(stored: dict) -> None:
    """A journal written with schema version 1 reads the same in every later version; fields may only be added."""

    def within(old: object, new: object) -> bool:
        if isinstance(old, dict) and isinstance(new, dict):
            return all(key in new and within(value, new[key]) for key, value in old.items())
        if isinstance(old, list) and isinstance(new, list):
            return len(old) == len(new) and all(map(within, old, new))
        return old == new

    plain = record_plain(decode_fact(bytes.fromhex(stored["bytes"])))
    assert within(stored["plain"] | {"schema_version": SCHEMA_VERSION}, plain)


def test_golden_facts_are_of_every_kind() -> None:
    assert {stored["plain"]["kind"] for stored in GOLDEN} == set(codec._FACTS)


def test_every_fact_has_a_kind() -> None:
    """The codec covers the whole vocabulary of the journal."""
    assert set(codec._FACTS.values()) == set(Fact.__args__)
    assert {kind.__name__ for kind in Fact.__args__} == set(facts.__all__) - {"SCHEMA_VERSION", "Fact"}


def test_nan_and_infinity_in_arguments_survive() -> None:
    """The model may write NaN in its JSON; storage keeps it."""
    decoded = decode_fact(encode_fact(asked("", a=math.nan, b=-math.inf)))
    assert isinstance(decoded, SummaryAsked)
    arguments = decoded.messages[0].calls[0].arguments
    assert math.isnan(arguments["a"])
    assert arguments["b"] == -math.inf


def test_logprobs_keep_every_bit() -> None:
    """Log-probs are float32, bit for bit, null included (law 2)."""
    packed = pack_logprobs([-1e-7, None, -0.0, -123.456])
    fact = TurnSampled(
        turn=0,
        purpose=Purpose.ACT,
        sampled=Sampled(completion_ids=pack_ids([1, 2, 3, 4]), logprobs=packed),
        sampling=SamplingParams(),
        seed=1,
        finish=Finish.STOP,
        stop_token_id=4,
        parsed=ParsedTurn(text="x"),
    )
    decoded = decode_fact(encode_fact(fact))
    assert isinstance(decoded, TurnSampled)
    assert decoded.sampled.logprobs == packed


def test_newer_schema_is_refused() -> None:
    """A reader refuses a newer version instead of dropping its fields."""
    data = msgspec.msgpack.encode((SCHEMA_VERSION + 1, "stopped", False, {"reason": "hologram"}))
    with pytest.raises(NewerSchema, match=r"row 7.*version 2.*up to 1.*Upgrade"):
        decode_fact(data, where="a.sqlite row 7")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"not a fact",
        msgspec.msgpack.encode((SCHEMA_VERSION, "stopped", False)),
        msgspec.msgpack.encode((0, "stopped", False, {"reason": "fault"})),
        msgspec.msgpack.encode((SCHEMA_VERSION, "nonsense", False, {})),
        msgspec.msgpack.encode((SCHEMA_VERSION, "stopped", False, {"reason": "nonsense"})),
        msgspec.msgpack.encode((SCHEMA_VERSION, "stopped", True, {"reason": "nonsense"})),
        msgspec.msgpack.encode((SCHEMA_VERSION, "stopped", True, msgspec.msgpack.Ext(9, b""))),
        msgspec.msgpack.encode((SCHEMA_VERSION, "stopped", True, msgspec.msgpack.Ext(1, b"\xff"))),
        encode_record(EpisodeBuilder().prompt([1]).turn(reply([2])).end()),
    ],
)
def test_damage_is_named_with_its_place(data: bytes) -> None:
    """Whatever is no fact is a damaged journal, with the place."""
    with pytest.raises(DamagedJournal, match=r"a\.sqlite row 7"):
        decode_fact(data, where="a.sqlite row 7")


def test_a_fact_is_no_record() -> None:
    with pytest.raises(DamagedJournal, match="found stopped"):
        decode_record(encode_fact(Stopped(reason=StopReason.CANCELLED)))


@given(all_facts, st.data())
def test_any_bytes_decode_or_are_damage(fact: Fact, data: st.DataObject) -> None:
    """One changed byte never raises anything but the two record errors."""
    encoded = bytearray(encode_fact(fact))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decode_fact(bytes(encoded))
    except (DamagedJournal, NewerSchema):
        return


@pytest.mark.parametrize("escaped", [False, True])
def test_what_is_no_json_value_is_refused(escaped: bool) -> None:
    """A free-form field with an object in it is the caller's mistake, named."""
    text = chr(0xD800) if escaped else "x"
    with pytest.raises(UsageError, match="summary_asked"):
        encode_fact(asked(text, value=object()))
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UsageError, match="moderate depth"):
        encode_fact(asked(text, value=deep))
    while deep:  # unwound by hand: the interpreter would recurse
        deep = deep.pop()  # type: ignore[assignment]


@given(all_facts)
def test_json_is_printable_and_parses(fact: Fact) -> None:
    """``show --json`` prints on any UTF-8 stream and is strict JSON."""
    text = record_json(fact)
    text.encode()
    assert json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))["kind"]


def test_plain_unpacks_arrays() -> None:
    """People see ids and nulls, not base64."""
    record = EpisodeBuilder().prompt([5, 6]).turn(reply([7, 8], [-0.5, None])).end(final=[9])
    segment = record_plain(record)["segments"][0]
    assert segment["token_ids"] == [5, 6, 7, 8]
    assert segment["sampled_mask"] == [0, 0, 1, 1]
    assert segment["logprobs"] == [None, None, -0.5, None]
    assert record_plain(record)["final_prompt_ids"] == [5, 6, 7, 8, 9]
    assert record_plain(asked("", raw=b"\0"))["messages"][0]["calls"][0]["arguments"]["raw"] == "AA=="
    assert '"\u00e9"' in record_json(asked("é"), indent=1)
