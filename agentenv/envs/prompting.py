"""Makes the prompt of a call: extends the running segment where the renderer can prove it, else opens a new one."""

from __future__ import annotations

import asyncio
from array import array
from typing import NamedTuple

from agentenv.core.renderer import Renderer
from agentenv.engine.effects import Render

_THREAD_ABOVE_CHARS = 32_768
"""Longer prompts are rendered in a thread, so that tokenising does not block the loop."""

_NOTHING: array[int] = array("i")


class Prompt(NamedTuple):
    """A prompt as ids: ``before + appended``."""

    segment: int
    before: array[int]
    """Ids the segment has already; empty when it is new. Not to be changed."""
    appended: array[int]
    reason: str | None
    """Why a new segment begins; None if it goes on."""


async def make_prompt(effect: Render, renderer: Renderer) -> Prompt:
    """Render what the policy will see (law 1).

    Raises:
        ConfigError: The template refuses the history.
    """
    before = effect.previous_ids
    if before is None:
        return Prompt(effect.segment, _NOTHING, await _opened(effect, renderer), effect.reason)
    appended = renderer.extend(before, effect.new_messages, effect.tools)
    if appended is not None:
        return Prompt(effect.segment, before, appended, None)
    why = renderer.why_not(before, effect.new_messages, effect.tools)
    return Prompt(effect.segment + 1, _NOTHING, await _opened(effect, renderer), why)


async def _opened(effect: Render, renderer: Renderer) -> array[int]:
    if sum(len(message.text) for message in effect.window) > _THREAD_ABOVE_CHARS:
        return await asyncio.to_thread(renderer.open, effect.window, effect.tools)
    return renderer.open(effect.window, effect.tools)
