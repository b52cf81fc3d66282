"""Exact arithmetic on text: integers and fractions, never floats, and never `eval`.

The grammar is Python's for ``+ - * / // % **``, signs and parentheses, and so are precedence and results (``//`` and
``%`` round towards minus infinity, ``**`` binds to the right and tighter than a sign before it). Two stacks, no
recursion. Source: the shunting-yard method (E. W. Dijkstra, 1961).

Work is bounded: length of the text, and digits of every number on the way.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

Number = int | Fraction
"""A `Fraction` is never whole: whole results are integers again."""

MAX_CHARS = 2_000
MAX_DIGITS = 1_000
_MAX_BITS = 3_322
"""Bits of a number of `MAX_DIGITS` decimal digits."""
_MAX_DECIMALS = 50
"""Finite decimals longer than this are shown as a fraction."""
_APPROXIMATE_DIGITS = 12

_TOKEN = re.compile(r"\d+(?:\.\d*)?|\.\d+|\*\*|//|\S")
_SIGNS = str.maketrans({"\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u2212": "-", "\u2013": "-", "\u00a0": " "})
"""Typographic signs: times, middle dot, division, minus, en dash, no-break space."""
_SIGN = "sign"
"""A minus that stands before its operand."""
_BEFORE_OPERAND = frozenset("(-")
_PRECEDENCE = {"(": 0, "+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "%": 2, _SIGN: 3, "**": 4}


class CannotCalculate(Exception):
    """The expression has no value here; the text says why, for the policy."""


def evaluate(expression: str) -> Number:
    """Give the exact value of an expression.

    Raises:
        CannotCalculate: It is no expression, divides by zero, or leads to numbers beyond the bounds.
    """
    text = _readable(expression)
    values: list[Number] = []
    pending: list[str] = []
    operand_next = True
    for piece in _TOKEN.findall(text):
        if operand_next:
            if piece.isdecimal() or "." in piece:
                values.append(_number(piece, text))
                operand_next = False
            elif piece in _BEFORE_OPERAND:
                pending.append(_SIGN if piece == "-" else piece)
            elif piece != "+":
                raise _misplaced(text, piece, "a number or an opening parenthesis")
        elif piece == ")":
            _close(values, pending)
        else:
            precedence = _PRECEDENCE.get(piece)
            if not precedence:
                raise _misplaced(text, piece, "an operator or the end")
            _settle(values, pending, precedence + (piece == "**"))
            pending.append(piece)
            operand_next = True
    if operand_next:
        raise CannotCalculate("the expression ends where a number should follow" if text.strip() else "it is empty")
    _settle(values, pending, 1)
    if pending:
        raise CannotCalculate('a ")" is missing')
    return values[0]


def show(value: Number) -> str:
    """Write a number: an integer or finite decimal exactly, else the fraction with a decimal of 12 digits beside it."""
    if isinstance(value, int):
        return str(value)
    decimal = _finite_decimal(value)
    if decimal is not None:
        return decimal
    context = Context(prec=_APPROXIMATE_DIGITS, Emax=10_000, Emin=-10_000)
    near = context.divide(Decimal(value.numerator), Decimal(value.denominator))
    return f"{value.numerator}/{value.denominator} (about {near.normalize(context)})"


def _readable(expression: str) -> str:
    """Bound the text and bring typographic signs to ASCII."""
    if len(expression) > MAX_CHARS:
        raise CannotCalculate(
            f"the expression has {len(expression):,} characters; at most {MAX_CHARS:,} are allowed: calculate in parts"
        )
    if expression.isascii():
        return expression
    text = expression.translate(_SIGNS)
    for character in text:
        if not character.isascii():
            raise _misplaced(text, character, "a number or an operator")
    return text


def _number(piece: str, text: str) -> Number:
    if len(piece) > MAX_DIGITS:
        raise _too_large()
    if piece.isdecimal():
        return int(piece)
    if piece == ".":
        raise _misplaced(text, piece, "a number")
    return _simplest(Fraction(piece))


def _settle(values: list[Number], pending: list[str], precedence: int) -> None:
    """Carry out the pending operators that bind at least as tightly."""
    while pending and _PRECEDENCE[pending[-1]] >= precedence:
        sign = pending.pop()
        if sign is _SIGN:
            values[-1] = -values[-1]
            continue
        right = values.pop()
        try:
            values[-1] = _checked(_OPERATIONS[sign](values[-1], right))
        except ZeroDivisionError as error:
            raise CannotCalculate("division by zero") from error


def _close(values: list[Number], pending: list[str]) -> None:
    _settle(values, pending, 1)
    if not pending:
        raise CannotCalculate('a ")" has no opening parenthesis')
    pending.pop()


def _misplaced(text: str, piece: str, wanted: str) -> CannotCalculate:
    """Say what stands where something else was expected, and what to write instead."""
    advice = {
        "^": "; write ** for powers",
        ",": "; write numbers without commas, such as 1234",
        "=": "; leave out the equals sign",
        "x": "; write * for multiplication",
        "X": "; write * for multiplication",
        "e": "; write numbers without an exponent, such as 12 * 10**5",
        "(": "; write * between factors",
        "$": "; leave out units",
    }.get(piece, "")
    if piece.isalpha():
        word = re.search(rf"{re.escape(piece)}\w*", text)
        piece = word[0][:30] if word else piece
        advice = advice or "; only numbers, + - * / // % ** and parentheses are understood"
    return CannotCalculate(f'"{piece}" stands where {wanted} should{advice}')


def _divide(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int) and left % right == 0:
        return left // right
    return Fraction(left) / right


def _power(base: Number, exponent: Number) -> Number:
    """Raise to a whole power, whose size is known before it is worked out."""
    if not isinstance(exponent, int):
        raise CannotCalculate("only whole exponents are allowed after **")
    largest = max(abs(base.numerator), base.denominator)
    if (largest.bit_length() - 1) * abs(exponent) > _MAX_BITS:
        raise _too_large()
    return base**exponent if exponent >= 0 else 1 / Fraction(base) ** -exponent


_OPERATIONS: dict[str, Callable[[Any, Any], Number]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": _power,
}


def _checked(value: Number) -> Number:
    """Refuse a number beyond the bounds; make a whole fraction an integer."""
    if isinstance(value, int):
        if value.bit_length() <= _MAX_BITS:
            return value
    elif value.numerator.bit_length() <= _MAX_BITS and value.denominator.bit_length() <= _MAX_BITS:
        return _simplest(value)
    raise _too_large()


def _too_large() -> CannotCalculate:
    return CannotCalculate(f"a number has more than {MAX_DIGITS:,} digits: too large to work out")


def _simplest(value: Fraction) -> Number:
    return value.numerator if value.denominator == 1 else value


def _finite_decimal(value: Fraction) -> str | None:
    """Write a fraction as a decimal that ends, if it has one of at most 50 decimals."""
    rest, twos, fives = value.denominator, 0, 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    places = max(twos, fives)
    if rest != 1 or places > _MAX_DECIMALS:
        return None
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"
