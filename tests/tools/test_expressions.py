"""Exact arithmetic, against Python's own integers and fractions."""

from __future__ import annotations

import ast
import operator
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentenv_tools.expressions import MAX_CHARS, CannotCalculate, evaluate, show

NUMBERS = st.integers(0, 10**12).map(str) | st.decimals(0, 10**6, places=3).map(lambda number: f"{number:f}")
OPERATORS = st.sampled_from(["+", "-", "*", "/", "//", "%"])
SPACES = st.sampled_from(["", " ", "  ", "\t"])


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.tuples(inner, SPACES, OPERATORS, SPACES, inner).map("".join)
    power = st.tuples(inner, st.sampled_from(["**2", "**3", "**-1", " ** 0", "**-2**2"])).map("".join)
    return (
        binary
        | power
        | inner.map(lambda text: f"({text})")
        | inner.map(lambda text: f"-{text}")
        | inner.map("+{}".format)
    )


EXPRESSIONS = st.recursive(NUMBERS, _combined, max_leaves=12)

_BINARY: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def reference(expression: str) -> Fraction:
    """Work out by Python's own grammar over fractions."""
    # Python forbids leading zeros in integers; they mean nothing here.
    plain = re.sub(r"(?<![\d.])0+(?=\d)", "", expression)

    def value(node: ast.AST) -> Fraction:
        match node:
            case ast.Expression(body=body):
                return value(body)
            case ast.BinOp(left=left, op=ast.Pow(), right=right) if value(right).denominator != 1:
                raise ArithmeticError("an irrational result, in general")
            case ast.BinOp(left=left, op=op, right=right):
                return Fraction(_BINARY[type(op)](value(left), value(right)))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return value(operand)
            case ast.Constant():
                return Fraction(ast.get_source_segment(plain.strip(), node) or "")
            case _:
                raise AssertionError(ast.dump(node))

    return value(ast.parse(plain.strip(), mode="eval"))


@given(expression=EXPRESSIONS)
@example(expression="(0**2**-1)")
def test_agrees_with_pythons_grammar_and_fractions(expression: str) -> None:
    """Law: precedence, associativity and results are Python's, over exact numbers."""
    try:
        mine = evaluate(expression)
    except CannotCalculate as error:
        if "too large" not in str(error):
            with pytest.raises(ArithmeticError):
                reference(expression)
        return
    assert mine == reference(expression)
    assert isinstance(mine, int) or mine.denominator > 1


@given(a=st.integers(), b=st.integers(), sign=st.sampled_from(["+", "-", "*", "//", "%"]))
def test_integers_are_exact(a: int, b: int, sign: str) -> None:
    """Law: on integers the result is Python's."""
    if b == 0 and sign in ("//", "%"):
        with pytest.raises(CannotCalculate, match="division by zero"):
            evaluate(f"{a} {sign} {b}")
    else:
        expected = {"+": a + b, "-": a - b, "*": a * b}.get(sign)
        if expected is None:
            expected = a // b if sign == "//" else a % b
        assert evaluate(f"{a} {sign} {b}") == expected


@given(value=st.fractions(max_denominator=10**9))
def test_what_is_shown_is_the_value(value: Fraction) -> None:
    """Law: the text holds the exact value, as integer, finite decimal or fraction."""
    number = value.numerator if value.denominator == 1 else value
    text = show(number)
    assert Fraction(text.split(" ")[0]) == value
    assert (" " in text) == (10**30 % value.denominator != 0)
    if " " in text:
        near = Decimal(text.removesuffix(")").split("about ")[1])
        assert abs(Fraction(near) - value) <= abs(value) / 10**11


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("2+3*4", "14"),
        ("(2+3)*4", "20"),
        ("-2**2", "-4"),
        ("2**-1", "0.5"),
        ("2**3**2", "512"),
        ("2**-2**2", "0.0625"),
        ("10/4", "2.5"),
        ("10/5", "2"),
        ("1/3", "1/3 (about 0.333333333333)"),
        ("-22/7", "-22/7 (about -3.14285714286)"),
        ("2/3 + 1/3", "1"),
        ("7//-2", "-4"),
        ("-7 % 3", "2"),
        ("7.5 % 2", "1.5"),
        ("7.5 // 2", "3"),
        (".5 + 1.", "1.5"),
        ("0.1 + 0.2", "0.3"),
        ("12 × 7 − 4 ÷ 2", "82"),  # noqa: RUF001 - typographic signs are the point
        ("--3", "3"),
        ("-+-3", "3"),
        ("007", "7"),
        ("1/2**60", "1/1152921504606846976 (about 8.67361737988E-19)"),
        ("2**1000 % 10**9", str(2**1000 % 10**9)),
        ("(1)" + " * (1)" * 300, "1"),
        ("(" * 900 + "1" + ")" * 900, "1"),
        ("10**-500", "1/1" + "0" * 500 + " (about 1E-500)"),
    ],
)
def test_examples(expression: str, text: str) -> None:
    assert show(evaluate(expression)) == text


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "it is empty"),
        (" \n", "it is empty"),
        ("1 +", "ends where a number should follow"),
        ("(1", '")" is missing'),
        ("1)", "no opening parenthesis"),
        ("()", '")" stands where a number or an opening parenthesis'),
        ("1 2", '"2" stands where an operator'),
        ("2(3)", "write * between factors"),
        ("*2", '"*" stands where a number'),
        ("1..2", '".2" stands where an operator'),
        (".", '"." stands where a number'),
        ("2^3", "write ** for powers"),
        ("1,234", "without commas"),
        ("12 x 7", "write * for multiplication"),
        ("12*7=", "leave out the equals sign"),
        ("1e5", "without an exponent"),
        ("$5", '"$" stands where a number'),
        ("sqrt(2)", '"sqrt" stands where a number or an opening parenthesis should; only numbers'),
        ("__import__('os')", "stands where"),
        ("1_000", '"_" stands where'),
        ("٣+1", "stands where"),
        ("1 + \ud800", "stands where"),
        ("1\x00", "stands where"),
        ("1/0", "division by zero"),
        ("1//(2-2)", "division by zero"),
        ("1%0", "division by zero"),
        ("0**-1", "division by zero"),
        ("2**0.5", "only whole exponents"),
        ("2**(1/2)", "only whole exponents"),
        ("9**9**9", "too large"),
        ("(1/3)**99999999999", "too large"),
        ("2**-99999999999", "too large"),
        ("10**999*10**999", "too large"),
        ("9" * 1_001, "too large"),
        ("1+" * 1_000 + "1", "at most 2,000"),
    ],
)
def test_refusals_say_why(expression: str, says: str) -> None:
    with pytest.raises(CannotCalculate) as caught:
        evaluate(expression)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("expression", ["1**99999999999", "0**99999999999", "(-1)**99999999999", "1**-5"])
def test_huge_powers_of_units_are_worked_out(expression: str) -> None:
    assert evaluate(expression) in (-1, 0, 1)


@given(text=st.text(st.sampled_from("0123456789+-*/%(). x^e,"), max_size=40) | st.text(max_size=MAX_CHARS + 10))
def test_any_text_has_a_value_or_a_reason(text: str) -> None:
    """Law: no text raises anything else."""
    try:
        said = show(evaluate(text))
    except CannotCalculate as error:
        said = str(error)
    assert said
