"""What a tool returned, as the contract has it: tools are other people's code, and their results go on record."""

from __future__ import annotations

import operator
from typing import Any

from agentenv.core.tool import Result
from agentenv.records.axes import CallStatus
from agentenv.records.messages import Spill, TaskEnd


def as_result(given: Result) -> Result:
    """Give the result with every field of exactly the type it must have.

    Subclasses of text (an enumeration's member), other kinds of whole numbers (NumPy's) and the words of a status are
    converted.

    Raises:
        TypeError: It is no `Result`, or a field is something else; the message says which, and what was expected.
    """
    if (
        type(given) is Result
        and type(given.text) is str
        and type(given.status) is CallStatus
        and given.exit_code is None
        and type(given.bytes_dropped) is int
        and given.full_output is None
        and given.ends is None
    ):
        return given
    return _converted(given)


def _converted(given: Any) -> Result:
    if not isinstance(given, Result):
        raise TypeError(f"expected a Result, got a {type(given).__name__}")
    return Result(
        text=_text(given.text),
        status=_word("status", CallStatus, given.status),
        exit_code=None if given.exit_code is None else _whole("exit_code", given.exit_code),
        bytes_dropped=_whole("bytes_dropped", given.bytes_dropped),
        full_output=_spill(given.full_output),
        value=given.value,
        ends=None if given.ends is None else _word("ends", TaskEnd, given.ends),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text must be a str, got {value!r:.80}")
    return str.__str__(value)


def _word(name: str, kind: Any, value: object) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise TypeError(f"{name} must be one of {', '.join(kind)}, got {value!r:.80}") from None


def _whole(name: str, value: Any) -> int:
    try:
        number = int(operator.index(value))
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r:.80}") from None
    if not -(1 << 63) <= number < 1 << 63:
        raise TypeError(f"{name} must fit 64 bits, got one of {number.bit_length()}")
    return number


def _spill(value: object) -> Spill | None:
    if value is None or (isinstance(value, Spill) and type(value.sha256) is str and type(value.size_bytes) is int):
        return value
    raise TypeError(f"full_output must be a Spill or None, got {value!r:.80}")
