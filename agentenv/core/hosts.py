"""Allow-lists of hosts, and which addresses may be connected to for them: one rule for sandboxes and for tools.

A name is looked up once, and whoever asks connects to the very addresses that were checked, so that no second answer
of a name server can lead to another one. Addresses that are not public are refused, whatever name leads to them: this
machine, its network, the metadata services of clouds.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from anyio.lowlevel import RunVar

from agentenv.errors import ConfigError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
MayConnect = Callable[[Address], bool]
"""Judges an address. Anything but `is_public` is for tests."""
Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Looks a name up, as `look_up` does."""

_AT_ONCE = 16
"""Names that are looked up at the same time; more wait."""
_LOOK_UP_S = 15.0
"""For one name, waiting included."""
_OF_LOOP: RunVar[ThreadPoolExecutor] = RunVar("agentenv.core.hosts")

_PORTS = frozenset({80, 443})
_NAME = re.compile(r"(?:\*\.)?(?!-)[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})*")
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
"""Where IPv6 has its public addresses; outside are some that stand for any IPv4 address. Source: RFC 4291, 2.4."""
_NOT_PUBLIC = tuple(map(ipaddress.ip_network, ("2002::/16", "2001::/32", "3fff::/20", "168.63.129.16/32")))
"""What looks public and is not: tunnels to any IPv4 address, what newer registries reserve, a cloud's own services.

Source: RFC 3056, 4380 and 9637; Azure's documentation of that address.
"""


class HostRefused(Exception):
    """A host that may not be connected to; the text says why."""


class HostNotFound(Exception):
    """A host whose name leads to no address; the text says why."""


@dataclass(frozen=True, slots=True)
class HostRule:
    """One entry of an allow-list."""

    host: str
    """A name or an address; ``*.`` in front is every name below."""
    ports: frozenset[int] = _PORTS

    @classmethod
    def parse(cls, text: str) -> HostRule:
        """Read ``example.org``, ``*.example.org``, ``[2001:db8::1]``, each perhaps with ``:PORT``.

        Raises:
            ConfigError: It is none of that.
        """
        host, colon, port = text.lower().rpartition(":")
        if not colon or text.endswith("]"):
            host, colon, port = text.lower(), "", ""
        if colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            raise ConfigError(f"{text!r} is no host of an allow-list: expected a port from 1 to 65535 after the colon.")
        bracketed = host.startswith("[") and host.endswith("]") and ":" in host
        bare = host[1:-1] if bracketed else host
        if address_of(bare) is None if bracketed else not _NAME.fullmatch(bare):
            raise ConfigError(
                f"{text!r} is no host of an allow-list: expected example.org or *.example.org, perhaps with :PORT."
            )
        return cls(bare, frozenset({int(port)}) if colon else _PORTS)

    def allows(self, host: str, port: int) -> bool:
        """Whether it is about this host, and this port."""
        if port not in self.ports:
            return False
        return host.endswith(self.host[1:]) if self.host.startswith("*.") else host == self.host

    def __str__(self) -> str:
        return f"{self.host}:{'|'.join(map(str, sorted(self.ports)))}"


def parse_rules(hosts: Sequence[str]) -> tuple[HostRule, ...]:
    """Read an allow-list, such as ``SandboxSpec.network``.

    Raises:
        ConfigError: An entry is no host.
    """
    return tuple(map(HostRule.parse, hosts))


def is_public(address: Address) -> bool:
    """Whether an address may be connected to: one of the internet at large, of a single machine."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address not in _GLOBAL_UNICAST:
            return False
    return address.is_global and not address.is_multicast and not any(address in one for one in _NOT_PUBLIC)


async def look_up(host: str, port: int) -> list[str]:
    """Give the addresses of a name.

    Raises:
        OSError: There are none.
    """
    import socket

    ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_threads(), ask)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _threads() -> ThreadPoolExecutor:
    """Give this loop's threads for names, of its own: while name servers are slow, they keep no other work waiting."""
    try:
        return _OF_LOOP.get()
    except LookupError:
        threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="agentenv-names")
        _OF_LOOP.set(threads)
        return threads


async def addresses_for(
    host: str,
    port: int,
    rules: Sequence[HostRule],
    *,
    may_connect: MayConnect = is_public,
    resolve: Resolve = look_up,
) -> list[str]:
    """Give the addresses that may be connected to for a host, in the order of the name server; at least one.

    Args:
        host: A name in lower case without a final dot, or an address without brackets.
        port: Of the connection.
        rules: The allow-list.
        may_connect: Judges an address.
        resolve: Looks a name up.

    Raises:
        HostRefused: It is not on the list, or leads to no public address.
        HostNotFound: It cannot be looked up, or not in time.
    """
    if not any(rule.allows(host, port) for rule in rules):
        raise HostRefused(
            f"{host}:{port} is not on the list of hosts, which is: {', '.join(map(str, rules)) or 'empty'}"
        )
    try:
        async with asyncio.timeout(_LOOK_UP_S):
            found = [host] if address_of(host) is not None else await resolve(host, port)
    except TimeoutError:
        raise HostNotFound(f"{host} cannot be looked up: no name server answered in {_LOOK_UP_S:g} s") from None
    except (OSError, UnicodeError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise HostNotFound(f"{host} cannot be looked up: {said}") from None
    checked = [text for text in found if (it := address_of(text)) is not None and may_connect(it)]
    if not checked:
        raise HostRefused(f"{host} has no public address")
    return checked


def address_of(text: str) -> Address | None:
    """Read an address; None if it is none."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
