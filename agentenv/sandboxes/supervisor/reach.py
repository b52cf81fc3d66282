"""What can be reached from inside, tried by a process that is limited like any command. Sends no packet.

Not part of the supervisor: it runs this as a program of its own, and may import what costs time.
"""

# What it finds out, it prints.
# ruff: noqa: T201

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

_BEYOND = ("192.0.2.1", 9)
"""An address for documentation (RFC 5737). Only asked for the way there, by connecting a UDP socket."""
_NAME = "example.org"
_PATIENCE_S = 2.0


def main(arguments: list[str]) -> None:
    """Print a line for everything tried: a word, "yes" or "no", and what happened.

    Args:
        arguments: Port of a listener of the harness on its loopback, what to say to it, and the port of the proxy
            inside (0 if there is none).
    """
    port, word, proxy = arguments
    for name in interfaces():
        print("interface", "yes", name)
    route = _print("route", lambda: _connect(socket.SOCK_DGRAM, *_BEYOND))
    _print("host", lambda: _connect(socket.SOCK_STREAM, "127.0.0.1", int(port), word.encode()))
    if route:
        # It would be asked for on the network.
        print("name", "no", "not tried, since there is a route")
    else:
        _print("name", lambda: str(socket.getaddrinfo(_NAME, 80)[0][4]))
    if int(proxy):
        _print("proxy", lambda: _connect(socket.SOCK_STREAM, "127.0.0.1", int(proxy)))


def interfaces() -> list[str]:
    """Give the network interfaces, ``lo`` included."""
    lines = Path("/proc/self/net/dev").read_text(encoding="ascii", errors="replace").splitlines()[2:]
    return [line.split(":", 1)[0].strip() for line in lines]


def _print(word: str, attempt: Callable[[], str]) -> bool:
    os.environ["RES_OPTIONS"] = "timeout:1 attempts:1"
    try:
        happened, worked = attempt(), True
    except OSError as error:
        happened, worked = error.strerror or str(error), False
    print(word, "yes" if worked else "no", happened)
    return worked


def _connect(kind: int, host: str, port: int, word: bytes = b"") -> str:
    with socket.socket(socket.AF_INET, kind) as attempt:
        attempt.settimeout(_PATIENCE_S)
        attempt.connect((host, port))
        if word:
            attempt.sendall(word)
            attempt.shutdown(socket.SHUT_WR)
            if attempt.recv(len(word)) != word:
                raise ConnectionRefusedError("somebody else answered")
    return "connected"
