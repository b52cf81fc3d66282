"""A small HTTP/1.1 client for the calls that carry every token: one request, one whole answer, connections kept.

General clients spend most of a call on what these calls never need; this one costs about a third of the cheapest of
them (``make bench``), without which a turn would cost more than its target allows. What is received is parsed by
`httptools`, the parser of Node.js. Owned here: addresses, connections, when one may serve again, what a lost one means.
Not owned: retries and deadlines (`transport`).

``https`` is spoken with the system's certificates, or those that ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` name; a
certificate that does not hold is refused, and there is no switch against that.

Left out on purpose: proxies (``HTTPS_PROXY`` and its like are not read), redirects (an answer like any other), cookies,
compression, streaming, HTTP/2, sockets without an address.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from agentenv.errors import ConfigError, OrderError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping


_WITHOUT_SCHEME = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[^\s/:?#\[\]]+):(?P<port>\d+)(?:/\S*)?")
_MISTYPED = re.compile(r"(?P<scheme>https?)(?::/*|/+)")
_HOST = re.compile(r"(?:\[|\d+\.|[A-Za-z])\S*$")
_FORM = "give it as http://HOST:PORT, or https:// where the server has a certificate"
_PASTED_ROUTE = re.compile(r"/v1(?:/chat/completions|/completions|/models)?$")


class NotHttp(Exception):
    """What came back is no HTTP."""


class Address(NamedTuple):
    """Where a server listens, taken apart."""

    host: str
    port: int
    secure: bool
    authority: str
    """As the ``Host`` header has it."""
    prefix: str
    """Path in front of every route, without a slash at its end; mostly empty."""


class Answer(NamedTuple):
    """One answer, whole."""

    status: int
    body: bytes


def base_url(url: str) -> str:
    """Give the address that is meant by what users paste.

    ``HOST:PORT`` means ``http://HOST:PORT``; slashes at the end, ``/v1`` and the usual routes behind it are taken off.

    Raises:
        ConfigError: It has no scheme, and which one is meant cannot be told; or it holds a name or password.

    >>> base_url("localhost:8000"), base_url(" https://api.example.com/v1/chat/completions/")
    ('http://localhost:8000', 'https://api.example.com')
    """
    _refuse_password(url)
    given = url.strip()
    if "://" not in given:
        bare = _WITHOUT_SCHEME.fullmatch(given)
        if bare is None or bare["port"] == "443" or given.startswith(("http:", "https:")):
            raise ConfigError(f"The server's address {url!r} has no http:// or https:// in front; {_meant(given)}.")
        given = f"http://{given}"
    if given.endswith("://"):
        return given
    return _PASTED_ROUTE.sub("", given.rstrip("/")).rstrip("/")


def _meant(given: str) -> str:
    """Say what to write instead of an address whose beginning is mistyped or left out."""
    beginning = _MISTYPED.match(given)
    rest = given[beginning.end() :] if beginning else given
    if not _HOST.match(rest):
        return _FORM
    if beginning:
        return f"give it as {beginning['scheme']}://{rest}"
    return f"give it as http://{rest} or https://{rest}, with :PORT where it is not the usual one"


def _refuse_password(url: str) -> None:
    if "@" in url:  # before anything else: no message may repeat a password
        raise ConfigError("The server's address holds a name or password; give a key by the environment instead.")


def read_address(url: str) -> Address:
    """Take ``http(s)://HOST[:PORT][/PREFIX]`` apart.

    Raises:
        ConfigError: It is none.
    """
    _refuse_password(url)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        host.encode("idna")
        authority = parts.netloc.encode("idna").decode("ascii")
    except ValueError as error:
        raise ConfigError(f"The server's address {url!r} is none: {str(error).rstrip('.')}; {_FORM}.") from error
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise ConfigError(f"The server's address {url!r} is none; {_FORM}.")
    secure = parts.scheme == "https"
    return Address(host, port or (443 if secure else 80), secure, authority, parts.path.rstrip("/"))


class HttpClient:
    """Connections to one server, each with one request at a time."""

    def __init__(self, address: Address, *, headers: Mapping[str, str], max_connections: int, idle_s: float) -> None:
        """Prepare; nothing is opened before the first request.

        Args:
            address: The server.
            headers: Sent with every request.
            max_connections: Requests in flight at once; further ones wait their turn.
            idle_s: A connection that idles for longer is not used again.

        Raises:
            ConfigError: A header cannot be sent.
        """
        lines = [f"Host: {address.authority}", *(f"{name}: {value}" for name, value in headers.items())]
        if not all(line.isprintable() and line.isascii() for line in lines):
            raise ConfigError("The API key has characters that no HTTP header can carry. Is it complete, on one line?")
        self._address = address
        self._fixed = "".join(f"{line}\r\n" for line in lines).encode("ascii")
        self._max_connections = max_connections
        self._busy = 0
        """Requests that have their turn; never more than ``max_connections``."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle_s = idle_s
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._tls: ssl.SSLContext | None = None
        self._closed = False

    async def request(self, method: str, path: str, body: bytes | None) -> Answer:
        """Send one request and read the whole answer. Cancelled, it closes the connection.

        Raises:
            OSError: The connection could not be made, or was lost.
            NotHttp: What came back is no HTTP.
            OrderError: The client is closed.
        """
        if self._busy < self._max_connections:
            self._busy += 1
        else:
            await self._turn()
        try:
            connection = self._kept() or await self._connect()
            try:
                answer = await connection.exchange(self._written(method, path, body))
            except BaseException:
                connection.close()
                raise
        finally:
            self._end_turn()
        if not connection.closed:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        return answer

    async def aclose(self) -> None:
        """Close every connection, those in use too. May be called twice."""
        self._closed = True
        for connection in list(self._open):
            connection.close()
        await asyncio.sleep(0)  # sockets are closed in the loop's next pass

    async def _turn(self) -> None:
        """Wait until somebody who is done hands over."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self._end_turn()  # it came together with the cancellation
            raise

    def _end_turn(self) -> None:
        """Hand over to whoever has waited longest."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._busy -= 1

    def _written(self, method: str, path: str, body: bytes | None) -> bytes:
        first = f"{method} {self._address.prefix}{path} HTTP/1.1\r\n".encode("ascii")
        if body is None:
            return b"%b%b\r\n" % (first, self._fixed)
        return b"%b%bContent-Length: %d\r\n\r\n%b" % (first, self._fixed, len(body), body)

    def _kept(self) -> _Connection | None:
        """Take the connection that served last, or none if even that one has idled for too long."""
        if self._closed:
            raise OrderError("The HTTP client is closed.")
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and time.monotonic() - connection.idle_since < self._idle_s:
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        address = self._address
        if address.secure and self._tls is None:
            import ssl

            self._tls = ssl.create_default_context()
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(self._open), address.host, address.port, ssl=self._tls
        )
        return connection


class _Connection(asyncio.Protocol):
    """One connection. The methods with ``on_`` are the parser's callbacks."""

    def __init__(self, siblings: set[_Connection]) -> None:
        """Begin; the connection is among ``siblings`` for as long as it is open."""
        self.closed = False
        self.idle_since = 0.0
        self._siblings = siblings
        self._transport: asyncio.Transport | None = None
        self._parser = HttpResponseParser(self)
        self._answer: asyncio.Future[Answer] | None = None
        self._pieces: list[bytes] = []
        self._has_length = False
        self._ends_with_connection = False

    def exchange(self, request: bytes) -> asyncio.Future[Answer]:
        """Send a request; the future gets the answer, or an `OSError` or `NotHttp`."""
        assert self._transport is not None, "a connection is handed out once it is made"
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        """Close at once: nothing is owed to the server. May be called twice."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._siblings.add(self)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.close()  # nothing was asked: whatever it says belongs to no request
            return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail(NotHttp(f"the answer is no HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._siblings.discard(self)
        if self._answer is not None and exc is None and self._ends_with_connection:
            self._settle()
        else:
            self._fail(exc or ConnectionResetError("the connection was closed before the answer was complete"))

    def on_message_begin(self) -> None:
        if self._answer is None:
            self.close()  # a second answer to one request must not be taken for that of the next

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._has_length = True

    def on_headers_complete(self) -> None:
        self._ends_with_connection = not self._has_length

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        self._ends_with_connection = False
        if self._parser.get_status_code() < 200:  # an interim answer: the real one follows
            self._has_length = False
            self._pieces.clear()
            return
        self._settle()

    def _settle(self) -> None:
        answer, self._answer = self._answer, None
        pieces, self._pieces, self._has_length = self._pieces, [], False
        unsent = self._transport is not None and self._transport.get_write_buffer_size() > 0
        if unsent or not self._parser.should_keep_alive():
            self.close()
        if answer is not None and not answer.done():
            answer.set_result(Answer(self._parser.get_status_code(), b"".join(pieces)))

    def _fail(self, error: Exception) -> None:
        answer, self._answer = self._answer, None
        self.close()
        if answer is not None and not answer.done():
            answer.set_exception(error)
