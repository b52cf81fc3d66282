"""Results of megabytes hold up no other episode: they are decoded, cut, hashed and stored beside the event loop."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from agentenv.core.tool import Result, ToolContext
from agentenv.records.messages import Spill, ToolResult
from agentenv.toolkit import FunctionTool, output, tool

from agentenv_tools import http_shown
from agentenv_tools.code import code
from agentenv_tools.files import files_edit, files_read
from agentenv_tools.http import http_tool
from agentenv_tools.python import python
from agentenv_tools.shell import shell
from tests.toolkit.kit import InMemoryBlobs, call_one, make_context
from tests.tools.web import answer, anywhere, serving, to_loopback

LARGE = 300_000
LITTLE = 1 << 12


class Watch:
    """Where large pieces were gone through."""

    def __init__(self) -> None:
        self.loop = threading.get_ident()
        self.on_loop: list[int] = []
        self.beside = 0

    def note(self, size: int) -> None:
        if threading.get_ident() != self.loop:
            self.beside += 1
        elif size > LITTLE:
            self.on_loop.append(size)


class WatchedBlobs(InMemoryBlobs):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def put(self, content: bytes) -> Spill:
        self.watch.note(len(content))
        return super().put(content)


@pytest.fixture
async def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    escaped, shown = output._visible, http_shown.shown

    def visible(text: str) -> str:
        watch.note(len(text))
        return escaped(text)

    def shown_of(reply: Any, blobs: Any) -> Result:
        watch.note(len(reply.body))
        return shown(reply, blobs)

    monkeypatch.setattr(output, "_visible", visible)
    monkeypatch.setattr(http_shown, "shown", shown_of)
    return watch


async def checked(watch: Watch, called: FunctionTool, context: ToolContext, **arguments: Any) -> ToolResult:
    context.blobs = WatchedBlobs(watch)
    result = await call_one(called, context, **arguments)
    assert watch.on_loop == []
    assert watch.beside > 0
    return result


@pytest.mark.parametrize("text", ["x", "\\0", "\\377"])
async def test_floods_of_commands(watch: Watch, context: ToolContext, text: str) -> None:
    command = f"head -c {LARGE} /dev/zero | tr '\\0' '{text}'"
    assert (await checked(watch, shell, context, command=command)).bytes_dropped > 0


async def test_floods_of_interpreters(watch: Watch, context: ToolContext) -> None:
    assert (await checked(watch, python, context, code=f"print('\\0' * {LARGE})")).bytes_dropped > 0
    assert (await checked(watch, code, context, code=f"print('x' * {LARGE})")).bytes_dropped > 0


async def test_large_files(watch: Watch, context: ToolContext) -> None:
    assert context.sandbox is not None
    await context.sandbox.write("f", b"\0" * LARGE + b"\nend")
    assert (await checked(watch, files_read, context, path="f")).bytes_dropped > 0
    assert (await call_one(files_edit, context, path="f", old="end", new="done")).text.endswith("at line 2 of f.")


@pytest.mark.parametrize("body", [b"x" * LARGE, b"\0" * LARGE])
async def test_large_bodies(watch: Watch, body: bytes) -> None:
    async with serving(lambda _: answer(body)) as server:
        tool = http_tool(f"a.test:{server.port}", may_connect=anywhere, resolve=to_loopback)
        context = make_context()
        async with context.resources:
            result = await checked(watch, tool, context, url=f"http://a.test:{server.port}/")
    assert result.full_output is not None


@tool
def long_text(text: str) -> str:
    """Give a long text."""
    return text * LARGE


@tool
def large_value() -> Result:
    """Give a large value."""
    return Result(text="short", value={"rows": [["x" * 100] * 100] * 100})


async def test_what_functions_return(watch: Watch) -> None:
    for text in ("x", "\0", "\ud800"):
        assert (await checked(watch, long_text, make_context(), text=text)).bytes_dropped > 0


async def test_large_values_are_gone_through_in_a_thread(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr("agentenv.toolkit.toolbox.json_value", lambda value: seen.append(threading.get_ident()))
    await call_one(large_value, make_context())
    assert seen
    assert watch.loop not in seen
