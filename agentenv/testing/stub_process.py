"""The stub engine in a process of its own: its command line, and a handle for programs that start it.

Benchmarks need the server's cost out of their own process.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, cast

import msgspec

from agentenv.core.lifetime import AsyncResource, finish
from agentenv.errors import HarnessFault
from agentenv.rendering.loading import load_tokenizer
from agentenv.testing.stub_engine import Mode, StubEngine, StubOptions
from agentenv.testing.stub_model import Script

_SAYS = "stub engine at "
_MODES: dict[str, Mode] = {"raw": "raw_logprobs", "processed": "processed_logprobs"}


def from_file(path: Path) -> Script:
    """Read completions (a JSON list of lists of ids); the request's seed picks one."""
    completions = msgspec.json.decode(path.read_bytes(), type=list[list[int]])
    return lambda _, seed: completions[seed % len(completions)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m agentenv.testing.stub_engine", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="before every reply")
    parser.add_argument("--completions", type=Path, help="JSON list of lists of ids to say; the seed picks one")
    parser.add_argument("--logprobs", choices=sorted(_MODES), default="processed")
    parser.add_argument("--shape", choices=("ids", "strings", "none"), default="ids", help="of the generate route")
    parser.add_argument("--tokenizer", type=Path, help="model directory or GGUF file; bytes without it")
    parser.add_argument("--window", type=int, default=65536, help="tokens")
    given = parser.parse_args(arguments)
    options = StubOptions(
        tokenizer=load_tokenizer(given.tokenizer) if given.tokenizer else None,
        latency_s=given.latency_ms / 1000.0,
        script=from_file(given.completions) if given.completions else None,
        logprobs_mode=_MODES[given.logprobs],
        generate=None if given.shape == "none" else given.shape,
        window=given.window,
    )
    asyncio.run(_serve(options, given.port))


async def _serve(options: StubOptions, port: int) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    async with StubEngine(options, port=port) as engine:
        sys.stdout.write(f"{_SAYS}{await engine.start()}\n")
        sys.stdout.flush()
        await over.wait()


class StubProcess(AsyncResource):
    """The server as a child process.

    Example::

        async with await StubProcess.start("--latency-ms", "50") as stub:
            policy = VllmPolicy(stub.url, tokenizer=ByteTokenizer())
    """

    def __init__(self, url: str, process: asyncio.subprocess.Process) -> None:
        self.url = url
        self._process = process

    @property
    def pid(self) -> int:
        """Process id, for measuring what it spends."""
        return self._process.pid

    @classmethod
    async def start(cls, *arguments: str) -> Self:
        """Start it with command-line ``arguments`` and wait for its address.

        Raises:
            HarnessFault: It ended instead; its complaint is on stderr.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "agentenv.testing.stub_engine", *arguments, stdout=asyncio.subprocess.PIPE
        )
        line = (await cast("Any", process.stdout).readline()).decode()
        if not line.startswith(_SAYS):
            await process.wait()
            raise HarnessFault(f"The stub engine did not start (exit code {process.returncode}).")
        return cls(line.removeprefix(_SAYS).strip(), process)

    async def aclose(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()
            if not await finish(self._process.wait(), 5.0):
                self._process.kill()
                await self._process.wait()
