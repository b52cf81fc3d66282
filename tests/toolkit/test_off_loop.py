from __future__ import annotations

import threading

import pytest
from agentenv.toolkit.off_loop import off_loop


async def test_little_is_done_at_once_and_much_in_a_thread() -> None:
    assert await off_loop(1, threading.get_ident) == threading.get_ident()
    assert await off_loop(1 << 20, threading.get_ident) != threading.get_ident()


@pytest.mark.parametrize("size", [1, 1 << 20])
async def test_what_goes_wrong_is_raised(size: int) -> None:
    with pytest.raises(ZeroDivisionError):
        await off_loop(size, divmod, 1, 0)
