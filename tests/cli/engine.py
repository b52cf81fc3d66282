"""A stub engine beside the command line under test: in a thread of its own, in this process."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from agentenv.testing.stub_engine import StubEngine, StubOptions
from agentenv.testing.stub_faults import StubFault
from anyio.from_thread import start_blocking_portal


class Engine:
    """A running stub, and the arguments that point a collection at it."""

    def __init__(self, stub: StubEngine, url: str) -> None:
        self.stub = stub
        self.url = url

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("--policy", "vllm", "--url", self.url, "--tokenizer", "builtin:bytes")

    def after_start(self, *faults: StubFault, good: int = 0) -> None:
        """Let sampling go wrong, ``good`` replies after the start-up questions."""
        self.stub.inject(*[None] * (START_UP_CALLS + good), *faults)  # type: ignore[list-item]  # None: no fault


START_UP_CALLS = 7
"""One token to find the route, and three texts at two temperatures."""


@contextmanager
def engine(options: StubOptions | None = None) -> Generator[Engine]:
    with start_blocking_portal() as portal:
        stub = portal.call(lambda: StubEngine(options))  # type: ignore[arg-type]
        url = portal.call(stub.start)
        try:
            yield Engine(stub, url)
        finally:
            portal.call(stub.aclose)
