"""The thread behind the synchronous door, and episodes that end before they begin."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from agentenv.config.environments import EnvConfig, make_agent_env, open_environment
from agentenv.config.run_config import RunConfig
from agentenv.envs.loop_thread import LoopThread
from agentenv.errors import ConfigError


def opener(*, fails_at: str = "", log: list[str] | None = None):
    @asynccontextmanager
    async def open_it() -> AsyncIterator[str]:
        opened_in = asyncio.current_task()
        if fails_at == "opening":
            raise OSError("cannot open")
        yield "resource"
        if log is not None:
            log.append("same task" if asyncio.current_task() is opened_in else "another task")
        if fails_at == "closing":
            raise OSError("cannot close")

    return open_it


def environment_threads() -> int:
    return sum(thread.name == "agentenv environment" for thread in threading.enumerate())


def test_an_error_of_closing_is_raised_by_close_and_only_once() -> None:
    """It may say that what was recorded is not whole."""
    thread = LoopThread(opener(fails_at="closing"))
    assert thread.call(_echo) == "resource"
    with pytest.raises(OSError, match="cannot close"):
        thread.close()
    thread.close()
    assert environment_threads() == 0


def test_an_error_of_opening_is_raised_where_it_was_asked_for() -> None:
    with pytest.raises(OSError, match="cannot open"):
        LoopThread(opener(fails_at="opening"))
    assert environment_threads() == 0


def test_opening_and_closing_are_one_task() -> None:
    log: list[str] = []
    thread = LoopThread(opener(log=log))
    thread.close()
    assert log == ["same task"]


def test_one_that_is_forgotten_ends_and_raises_nothing() -> None:
    """A finalizer has nobody to raise to."""
    thread = LoopThread(opener(fails_at="closing"))
    del thread
    gc.collect()
    assert environment_threads() == 0


async def _echo(resource: str) -> str:
    return resource


WINDOWS = [2, 50, 400]


@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_smaller_than_the_prompt_is_refused_with_both_sizes(window: int) -> None:
    """There would be nothing to answer: an observation without a reply due is none."""
    roomy = make_agent_env("arithmetic")
    length = int(roomy.reset(seed=0)[0]["prompt_length"][0])
    roomy.close()
    assert length > window
    env = make_agent_env("arithmetic", context_window=window)
    for _ in range(2):
        with pytest.raises(ConfigError, match=rf"first prompt has {length} tokens, the context window {window};"):
            env.reset(seed=0)
    env.close()


async def test_so_it_is_at_the_asynchronous_door() -> None:
    async with open_environment(EnvConfig(run=RunConfig(suite="arithmetic"), context_window=50)) as env:
        with pytest.raises(ConfigError, match=r"first prompt has \d+ tokens, the context window 50;"):
            await env.reset(seed=0)
