"""Law 8, as episodes follow it: a long prompt is looked through in a thread, and what is found is the same."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence

import pytest
from agentenv.constraints.table import make_checker
from agentenv.engine.visibility import visibility
from agentenv.envs.rules import RuleWatch
from agentenv.records.axes import Purpose
from agentenv.records.constraints import Carrier, CheckerSpec, Constraint
from agentenv.rendering.byte_tokenizer import ByteTokenizer

RULE = Constraint(
    id="c0",
    text="Leave the original alone.",
    carrier=Carrier(message_id="m1", start=0, end=25),
    checker=CheckerSpec(name="file-unchanged", arguments={"path": "a"}),
)


class Watched(ByteTokenizer):
    """Tells in which threads it decoded."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[threading.Thread] = set()

    def decode(self, ids: Sequence[int]) -> str:
        self.threads.add(threading.current_thread())
        return super().decode(ids)


@pytest.mark.parametrize(("padding", "elsewhere"), [(100, False), (100_000, True)])
async def test_a_long_prompt_is_decoded_in_a_thread(padding: int, elsewhere: bool) -> None:
    """Law 8: a rule is visible if it occurs in the decoded text of exactly that call's prompt ids."""
    tokenizer = Watched()
    rules = RuleWatch([RULE], make_checker, tokenizer)
    with_rule = tokenizer.encode("x" * padding + RULE.text + "y" * padding)
    without = tokenizer.encode("x" * padding)
    for segment, ids in enumerate((with_rule, without)):
        tokenizer.threads.clear()
        seen = await rules.see(segment, array("i"), ids, Purpose.ACT)
        assert tokenizer.threads
        assert (threading.current_thread() not in tokenizer.threads) == elsewhere
        assert seen == visibility([RULE], ids, tokenizer.decode)


async def test_a_running_segment_goes_on_from_a_look_in_a_thread() -> None:
    """Law 8: what is appended later is looked for where the long look ended."""
    tokenizer = ByteTokenizer()
    rules = RuleWatch([RULE], make_checker, tokenizer)
    half = len(RULE.text) // 2
    before = tokenizer.encode("x" * 100_000 + RULE.text[:half])
    appended = tokenizer.encode(RULE.text[half:])
    first = await rules.see(0, array("i"), before, Purpose.ACT)
    second = await rules.see(0, before, appended, Purpose.ACT)
    assert first == visibility([RULE], before, tokenizer.decode)
    assert second == visibility([RULE], before + appended, tokenizer.decode)
    assert first != second
