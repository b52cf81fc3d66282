from __future__ import annotations

from agentenv.records.axes import CallStatus
from agentenv.records.messages import TaskEnd

from agentenv_tools.submit import submit
from tests.toolkit.kit import call_one


async def test_answer_goes_to_the_grader_and_ends_the_task() -> None:
    result = await call_one(submit, answer="42")
    assert (result.value, result.ends, result.text) == ("42", TaskEnd.COMPLETED, "Submitted.")


async def test_number_is_taken_as_text_and_nothing_is_an_answer_too() -> None:
    assert (await call_one(submit, answer=42)).value == "42"
    assert (await call_one(submit, answer=2.5)).value == "2.5"
    assert (await call_one(submit)).value == ""


async def test_wrong_arguments_do_not_end_the_task() -> None:
    result = await call_one(submit, result="42")
    assert (result.ends, result.status) == (None, CallStatus.INVALID_ARGUMENTS)
