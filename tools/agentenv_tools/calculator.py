"""``calculator``: exact arithmetic."""

from __future__ import annotations

from agentenv.core.tool import Result
from agentenv.records.axes import CallStatus
from agentenv.toolkit import tool

from agentenv_tools import expressions


@tool(parallel=True, example={"expression": "(12 + 7) * 3"}, sources=(expressions,))
def calculator(expression: str) -> Result:
    """Work out an arithmetic expression exactly.

    Args:
        expression: Numbers with + - * / // % ** and parentheses.
    """
    try:
        return Result(text=expressions.show(expressions.evaluate(expression)))
    except expressions.CannotCalculate as error:
        return Result(text=f"Cannot calculate: {error}.", status=CallStatus.ERROR)
