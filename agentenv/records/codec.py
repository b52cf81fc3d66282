"""Versioned bytes of facts and records, and their readable JSON form.

At rest everything is one MessagePack array ``[schema version, kind, escaped, body]``. The body is the dataclass as a
map of field names. Encoding a well-typed fact never fails over its text: what MessagePack cannot carry (lone
surrogates, whole numbers beyond 64 bits, maps keyed by either) is escaped, reversibly, as extension types, and
``escaped`` says so. Extension 1 is text in UTF-8 with surrogates passed through, 2 a whole number in big-endian two's
complement, 3 a map as a list of pairs.

Not owned here: where bytes are kept (``agentenv.storage``), and what facts mean (``agentenv.engine``).
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from agentenv.errors import DamagedJournal, NewerSchema, UsageError, ended
from agentenv.records import facts as _facts
from agentenv.records.episode import EpisodeRecord
from agentenv.records.facts import SCHEMA_VERSION, Fact
from agentenv.records.tokens import unpack_ids, unpack_logprobs

_TEXT, _INTEGER, _MAP = 1, 2, 3

_FACTS: Mapping[str, type[Fact]] = {
    "episode_started": _facts.EpisodeStarted,
    "prompt_rendered": _facts.PromptRendered,
    "summary_asked": _facts.SummaryAsked,
    "compacted": _facts.Compacted,
    "turn_sampled": _facts.TurnSampled,
    "action_taken": _facts.ActionTaken,
    "stopped": _facts.Stopped,
    "scored": _facts.Scored,
    "episode_ended": _facts.EpisodeEnded,
}
_RECORD = "episode"
_KIND_OF: Mapping[type, str] = {kind: name for name, kind in _FACTS.items()} | {EpisodeRecord: _RECORD}

_encoder = msgspec.msgpack.Encoder()
_envelopes = msgspec.msgpack.Decoder(tuple[int, str, bool, msgspec.Raw])
_decoders: Mapping[str, msgspec.msgpack.Decoder[Any]] = {
    name: msgspec.msgpack.Decoder(kind) for kind, name in _KIND_OF.items()
}


def encode_fact(fact: Fact) -> bytes:
    """Encode one fact.

    Raises:
        UsageError: A free-form field (arguments, ``value``) holds something that is no JSON value, or is nested
            beyond Python's recursion limit.
    """
    return _encode(fact)


def decode_fact(data: bytes, *, where: str = "a fact") -> Fact:
    """Decode one fact; equal to what was encoded, NaN aside.

    Args:
        data: What `encode_fact` gave.
        where: The place of ``data``, for the error: file and row.

    Raises:
        NewerSchema: Written by a newer version of this package.
        DamagedJournal: The bytes are not a fact.
    """
    decoded = _decode(data, where)
    if isinstance(decoded, EpisodeRecord):
        raise DamagedJournal(f"{where}: expected a fact, found the record of an episode.")
    return decoded


def settled(fact: Fact, *, of: str) -> Fact:
    """Give a fact as its readers will get it; for facts that carry what other people's code gave.

    Args:
        fact: Any fact.
        of: What gave it, for the error: a task, a grader.

    Raises:
        UsageError: A field holds something else than it must; the message says which.
    """
    try:
        return decode_fact(encode_fact(fact), where=of)
    except DamagedJournal as error:
        raise UsageError(str(error)) from error


def encode_record(record: EpisodeRecord) -> bytes:
    """Encode the record of one attempt.

    Raises:
        UsageError: As `encode_fact`.
    """
    return _encode(record)


def decode_record(data: bytes, *, where: str = "a record") -> EpisodeRecord:
    """Decode the record of one attempt.

    Raises:
        NewerSchema, DamagedJournal: As `decode_fact`.
    """
    decoded = _decode(data, where)
    if not isinstance(decoded, EpisodeRecord):
        raise DamagedJournal(f"{where}: expected the record of an episode, found {_KIND_OF[type(decoded)]}.")
    return decoded


def record_plain(item: Fact | EpisodeRecord) -> dict[str, Any]:
    """Give a fact or record as JSON values for people and scripts: packed arrays as lists, null log-probs as None.

    Not a storage form: numbers that are not finite become their names as text, stray bytes base64.
    """
    body = cast("dict[str, Any]", _plain(msgspec.to_builtins(item, builtin_types=(bytes,))))
    return {"kind": _KIND_OF[type(item)], "schema_version": SCHEMA_VERSION} | body


def record_json(item: Fact | EpisodeRecord, *, indent: int | None = None) -> str:
    """Give `record_plain` as JSON text that any stream can take: lone surrogates stay escaped."""
    plain = record_plain(item)
    text = json.dumps(plain, indent=indent, ensure_ascii=False)
    return text if _encodable(text) else json.dumps(plain, indent=indent)


def _encode(item: Fact | EpisodeRecord) -> bytes:
    kind = _KIND_OF[type(item)]
    try:
        return _encoder.encode((SCHEMA_VERSION, kind, False, item))
    except (UnicodeEncodeError, OverflowError):
        return _encode_escaped(kind, item)
    except (TypeError, RecursionError) as error:
        raise _not_json(kind, error) from error


def _encode_escaped(kind: str, item: Fact | EpisodeRecord) -> bytes:
    try:
        body = _escape(msgspec.to_builtins(item, builtin_types=(bytes,)))
        return _encoder.encode((SCHEMA_VERSION, kind, True, body))
    except (TypeError, RecursionError) as error:
        raise _not_json(kind, error) from error


def _not_json(kind: str, error: Exception) -> UsageError:
    return UsageError(
        f"A fact of kind {kind!r} cannot be stored: {ended(error)} Arguments and values must be JSON values of "
        "moderate depth; convert them before they are recorded."
    )


def _decode(data: bytes, where: str) -> Fact | EpisodeRecord:
    try:
        version, kind, escaped, body = _envelopes.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedJournal(
            f"{where}: {len(data)} bytes that are not a fact of this package: {ended(error)}"
        ) from error
    _check_version(version, where)
    decoder = _decoders.get(kind)
    if decoder is None:
        raise DamagedJournal(f"{where}: unknown kind {kind!r} in schema version {version}.")
    try:
        return _unescape(body, kind) if escaped else decoder.decode(body)
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise DamagedJournal(f"{where}: the {kind} does not decode: {ended(error)}") from error


def _check_version(version: int, where: str) -> None:
    if version > SCHEMA_VERSION:
        raise NewerSchema(
            f"{where}: written with schema version {version}, this package reads up to {SCHEMA_VERSION}. "
            "Upgrade agentenv to read it."
        )
    if version < 1:
        raise DamagedJournal(f"{where}: schema version {version} never existed.")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _escape(value: object) -> object:
    """Replace what MessagePack cannot carry by extension types."""
    if isinstance(value, str):
        return value if _encodable(value) else msgspec.msgpack.Ext(_TEXT, value.encode("utf-8", "surrogatepass"))
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else _escape_integer(value)
    if isinstance(value, (list, tuple)):
        return [_escape(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        pairs = [(_escape(key), _escape(item)) for key, item in cast("dict[object, object]", value).items()]
        if any(isinstance(key, msgspec.msgpack.Ext) for key, _ in pairs):
            return msgspec.msgpack.Ext(_MAP, _encoder.encode(pairs))
        return dict(pairs)
    return value


def _escape_integer(value: int) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _unescape(body: msgspec.Raw, kind: str) -> Fact | EpisodeRecord:
    plain = msgspec.msgpack.decode(body, ext_hook=_extension)
    return msgspec.convert(plain, EpisodeRecord if kind == _RECORD else _FACTS[kind])


def _extension(code: int, data: memoryview) -> object:
    if code == _TEXT:
        return bytes(data).decode("utf-8", "surrogatepass")
    if code == _INTEGER:
        return int.from_bytes(data, "big", signed=True)
    if code == _MAP:
        pairs = cast("list[tuple[Any, Any]]", msgspec.msgpack.decode(data, ext_hook=_extension))
        return {key: item for key, item in pairs}  # noqa: C416  # pairs arrive as lists of two
    raise ValueError(f"unknown extension type {code}")


_ID_FIELDS = frozenset({"appended_ids", "completion_ids", "final_prompt_ids", "token_ids"})


def _plain(value: object, name: str = "") -> object:
    """Unpack arrays by the name of their field, and spell out what JSON has no word for."""
    if isinstance(value, dict):
        return {str(key): _plain(item, str(key)) for key, item in cast("dict[object, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in cast("list[object]", value)]
    if isinstance(value, bytes):
        return _unpacked(value, name)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _unpacked(packed: bytes, name: str) -> object:
    if name in _ID_FIELDS:
        return unpack_ids(packed).tolist()
    if name == "logprobs":
        return unpack_logprobs(packed)
    if name == "sampled_mask":
        return list(packed)
    return base64.b64encode(packed).decode()
