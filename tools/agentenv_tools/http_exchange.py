"""One request of ``http`` and its redirects: checked, sent to checked addresses, read up to a limit."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urljoin

from agentenv.core.hosts import HostRule, MayConnect, Resolve, addresses_for
from agentenv.core.tool import ToolContext
from agentenv.toolkit.output import visible

if TYPE_CHECKING:
    import httpx

_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TO_GET = frozenset({301, 302, 303})
"""After which a POST becomes a GET. Source: RFC 9110, section 15.4."""
_OURS = frozenset({"connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "upgrade"}) | {
    "proxy-authorization",
    "proxy-connection",
    "transfer-encoding",
}
"""Fields that say where a request goes and where it ends."""
_TO_ITS_HOST_ALONE = frozenset({"authorization", "cookie"})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Name of a header field. Source: RFC 9110, section 5.1."""
_MOST_HEADERS = 50
_MOST_URL_CHARS = 8_000
_PORTS = {"http": 80, "https": 443}


class Unsendable(Exception):
    """The policy asked for what is no request; the text says why."""


class NotReached(Exception):
    """No answer came; the text says why."""


class Request(NamedTuple):
    """What to ask."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one tool was made with."""

    rules: tuple[HostRule, ...]
    methods: tuple[str, ...]
    max_bytes: int
    may_connect: MayConnect
    resolve: Resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back."""

    status: int
    reason: str
    url: str
    """Of the last request."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    """At most ``max_bytes``, as it was sent (perhaps compressed)."""
    cut: bool
    """Whether there was more."""
    redirects: tuple[str, ...] = field(default=())
    """Addresses that led here, the one that was asked for first."""


class Exchange:
    """Sends the requests of one call."""

    def __init__(self, transport: httpx.AsyncBaseTransport, limits: Limits) -> None:
        self._transport = transport
        self._limits = limits

    async def follow(self, request: Request) -> Reply:
        """Send a request, and those that redirects ask for.

        Raises:
            Unsendable: It is none.
            HostRefused, HostNotFound: Of it, or of a redirect.
            NotReached: No answer came, or redirects go round.
        """
        _check(request)
        before: list[str] = []
        while True:
            reply = await self._send(request)
            location = reply.headers.get("location")
            if reply.status not in _REDIRECTS or not location:
                return replace(reply, redirects=tuple(before))
            before.append(request.url)
            if len(before) > _MOST_REDIRECTS:
                raise NotReached(f"there were more than {_MOST_REDIRECTS} redirects, the last to {visible(location)}")
            request = self._redirected(request, reply.status, location)

    def _redirected(self, request: Request, status: int, location: str) -> Request:
        method, body, headers = request.method, request.body, request.headers
        if (status in _TO_GET and method == "POST") or (status == 303 and method != "HEAD"):
            method, body = "GET", ""
            headers = {name: value for name, value in headers.items() if not name.lower().startswith("content-")}
        if method not in self._limits.methods:
            raise NotReached(f"a redirect asks for {method}, which is not allowed")
        try:
            url = urljoin(request.url, location)
            elsewhere = _origin(url) != _origin(request.url)
        except (Unsendable, ValueError) as error:
            raise NotReached(f"a redirect leads to what is no address: {visible(str(error))}") from error
        if elsewhere:
            headers = {name: value for name, value in headers.items() if name.lower() not in _TO_ITS_HOST_ALONE}
        return Request(method, url, headers, body)

    async def _send(self, request: Request) -> Reply:
        import httpx

        scheme, host, port = _origin(request.url)
        addresses = await addresses_for(
            host, port, self._limits.rules, may_connect=self._limits.may_connect, resolve=self._limits.resolve
        )
        why = ""
        for address in addresses:
            built = _built(request, address, host)
            try:
                response = await self._transport.handle_async_request(built)
            except httpx.ConnectError as error:
                why = str(error) or "no answer"
                continue
            except httpx.TransportError as error:
                raise NotReached(f"{scheme}://{host}:{port} gave no answer: {type(error).__name__} {error}") from error
            try:
                return await self._read(response, request.url)
            except httpx.TransportError as error:
                raise NotReached(f"{host}:{port} broke off its answer: {type(error).__name__} {error}") from error
            finally:
                await response.aclose()
        raise NotReached(f"{host}:{port} cannot be reached: {visible(why)}")

    async def _read(self, response: httpx.Response, url: str) -> Reply:
        body = bytearray()
        most = self._limits.max_bytes
        async for piece in response.aiter_raw():
            body += piece[: most + 1 - len(body)]
            if len(body) > most:
                break
        return Reply(
            status=response.status_code,
            reason=response.reason_phrase,
            url=url,
            headers=dict(response.headers),
            body=bytes(body[:most]),
            cut=len(body) > most,
        )


async def transport_of(context: ToolContext) -> httpx.AsyncBaseTransport:
    """Give what sends the episode's requests; made at the first call, since it reads certificates."""
    transport: httpx.AsyncBaseTransport | None = context.state.get("http")
    if transport is None:
        transport = await context.resources.enter_async_context(await asyncio.to_thread(_transport))
        context.state["http"] = transport
    return transport


def _transport() -> httpx.AsyncBaseTransport:
    import httpx

    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.AsyncHTTPTransport(trust_env=False, limits=limits, http2=False, retries=0)


def _check(request: Request) -> None:
    """Refuse what would be another request than it seems.

    Raises:
        Unsendable: With a text for the policy.
    """
    if len(request.url) > _MOST_URL_CHARS:
        raise Unsendable(f'argument "url" has {len(request.url):,} characters; at most {_MOST_URL_CHARS:,} are sent')
    _origin(request.url)
    if len(request.headers) > _MOST_HEADERS:
        raise Unsendable(f'argument "headers" has {len(request.headers)} fields; at most {_MOST_HEADERS} are sent')
    for name, value in request.headers.items():
        if not _TOKEN.fullmatch(name):
            raise Unsendable(f'argument "headers": "{visible(name)}" is no name of a header field')
        if name.lower() in _OURS:
            raise Unsendable(f'argument "headers": {name} cannot be set')
        if not value.isascii() or not value.replace("\t", " ").isprintable():
            raise Unsendable(f'argument "headers": the value of {name} must be printable ASCII on one line')
    try:
        request.body.encode()
    except UnicodeEncodeError:
        raise Unsendable('argument "body" contains a lone surrogate, which is not a character') from None


def _origin(url: str) -> tuple[str, str, int]:
    """Give scheme, host and port of an address.

    Raises:
        Unsendable: It has none, or a user's name and password, which belong into a header.
    """
    import httpx

    try:
        parsed = httpx.URL(url)
        host = parsed.raw_host.decode("ascii").strip("[]").rstrip(".").lower()
    except (httpx.InvalidURL, UnicodeError, ValueError, TypeError) as error:
        raise Unsendable(f'"{visible(url[:200])}" is no address: {visible(str(error))}') from error
    if parsed.scheme not in _PORTS or not host:
        raise Unsendable(f'"{visible(url[:200])}" is no address that starts with http:// or https://')
    if parsed.userinfo:
        raise Unsendable("an address must not contain a user's name; send an Authorization header instead")
    return parsed.scheme, host, parsed.port or _PORTS[parsed.scheme]


def _built(request: Request, address: str, host: str) -> httpx.Request:
    """Make the request to an address, in the name of the host: in its Host field, and in what TLS asks and proves."""
    import httpx

    url = httpx.URL(request.url)
    headers = {
        "user-agent": "agentenv",
        "accept": "*/*",
        **{name.lower(): text for name, text in request.headers.items()},
    }
    headers |= {"host": url.netloc.decode("ascii"), "accept-encoding": "identity", "connection": "close"}
    return httpx.Request(
        request.method,
        url.copy_with(host=address, fragment=None),
        headers=headers,
        content=request.body.encode() if request.body else None,
        extensions={"sni_hostname": host, "timeout": httpx.Timeout(None).as_dict()},
    )
