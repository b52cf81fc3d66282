from __future__ import annotations

from agentenv.records.axes import CallStatus
from hypothesis import given
from hypothesis import strategies as st

from agentenv_tools.calculator import calculator
from tests.toolkit.kit import call_one, make_context


async def test_result_is_the_number_alone() -> None:
    result = await call_one(calculator, expression="(12 + 7) * 3")
    assert (result.text, result.status) == ("57", CallStatus.OK)


async def test_what_cannot_be_calculated_is_reported() -> None:
    result = await call_one(calculator, expression="1/0")
    assert (result.text, result.status) == ("Cannot calculate: division by zero.", CallStatus.ERROR)


async def test_number_instead_of_text_is_taken() -> None:
    assert (await call_one(calculator, expression=42)).text == "42"


async def test_other_argument_names_are_explained() -> None:
    result = await call_one(calculator, expr="1+1")
    assert result.status is CallStatus.INVALID_ARGUMENTS
    assert result.text.splitlines() == [
        'Invalid arguments for "calculator":',
        '- argument "expression" is missing: expected a string: Numbers with + - * / // % ** and parentheses.',
        '- there is no argument "expr". Did you mean "expression"? Arguments: expression',
        'Example of a valid call: {"name": "calculator", "arguments": {"expression": "(12 + 7) * 3"}}',
    ]


@given(expression=st.text(st.characters(codec=None, categories=None)) | st.text("0123456789+-*/()", max_size=30))
async def test_any_expression_gives_a_representable_answer(expression: str) -> None:
    """Law: no text of the policy raises, and what it is shown is valid UTF-8 within the cap."""
    result = await call_one(calculator, make_context(cap=200), expression=expression)
    assert len(result.text.encode()) <= 200
    assert result.status in (CallStatus.OK, CallStatus.ERROR)
