"""What a sandbox can reach: the measurement from inside, with a listener outside that must not be reached."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from agentenv.core.sandbox import Execution, NetworkAccess, NetworkState
from agentenv.errors import SandboxFault

_WORDS = {
    "route": "a way to 192.0.2.1",
    "host": "this machine's loopback",
    "name": "looking up example.org",
    "proxy": "the proxy of the allow-list",
}


async def measure_network(
    attempt: Callable[[list[bytes]], Awaitable[Execution]], *, proxy_port: int = 0
) -> NetworkState:
    """Let the sandbox try, and judge by what it says.

    Args:
        attempt: Runs `agentenv.sandboxes.supervisor.reach` inside, with these arguments.
        proxy_port: Of the allow-list's proxy inside; 0 if there is none.

    Raises:
        SandboxFault: The sandbox is gone, or what was run inside did not come to its end.
    """
    word = secrets.token_hex(16).encode()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(len(word)))
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        done = await attempt([b"%d" % port, word, b"%d" % proxy_port])
    if done.exit_code != 0:
        said = done.stderr.head.decode(errors="replace").strip()[-200:]
        raise SandboxFault(f"what the sandbox can reach could not be measured: exit code {done.exit_code}: {said}")
    return _judge([line.split(" ", 2) for line in done.stdout.head.decode(errors="replace").splitlines()])


def _judge(lines: list[list[str]]) -> NetworkState:
    reached = {word: answer == "yes" for word, answer, _ in lines if word != "interface"}
    if reached["route"] or reached["host"] or reached["name"]:
        access = NetworkAccess.OPEN
    else:
        access = NetworkAccess.ALLOW_LIST if reached.get("proxy") else NetworkAccess.NONE
    return NetworkState(
        access=access,
        interfaces=tuple(name for word, _, name in lines if word == "interface" and name != "lo"),
        detail="; ".join(f"{_WORDS[word]}: {answer}, {what}" for word, answer, what in lines if word != "interface"),
    )
