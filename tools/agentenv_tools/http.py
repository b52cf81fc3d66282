"""``http``: requests to the hosts that whoever made the toolbox has listed. From the harness, not from the sandbox.

Which hosts, and which addresses they may lead to, is `agentenv.core.hosts`'s to say. A name is looked up once, and the
connection goes to the very address that was checked; every redirect is checked like a request. Nothing of the harness's
is sent: no proxy, no cookie, no password file. One connection per request: a connection is to an address, and two names
that lead to one address must not share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from agentenv.core.hosts import HostNotFound, HostRefused, MayConnect, Resolve, is_public, look_up, parse_rules
from agentenv.core.tool import InvalidArguments, Result, ToolContext
from agentenv.errors import ConfigError
from agentenv.records.axes import CallStatus
from agentenv.toolkit import FunctionTool, tool
from agentenv.toolkit.off_loop import off_loop
from agentenv.toolkit.output import visible
from msgspec import Meta

from agentenv_tools import http_exchange, http_shown
from agentenv_tools.answers import refused
from agentenv_tools.http_exchange import Exchange, Limits, NotReached, Request, Unsendable, transport_of

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
METHODS: tuple[Method, ...] = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
SAFE_METHODS: tuple[Method, ...] = ("GET", "HEAD", "OPTIONS")
"""Those that change nothing. Source: RFC 9110, section 9.2.1."""
_DESCRIPTION = """Send an HTTP request; redirects are followed.

    {hosts} A call may take {seconds:g} seconds, and {most:,} bytes of an answer are read.

    Args:
        url: Where to: an http:// or https:// address.
        method: {methods}.
        headers: Header fields to send.
        body: What to send, as text.
        context: The episode's; filled in, not shown.
    """


def http_tool(
    *hosts: str,
    methods: Sequence[Method] = METHODS,
    max_bytes: int = 1 << 20,
    timeout_s: float = 30.0,
    may_connect: MayConnect = is_public,
    resolve: Resolve = look_up,
) -> FunctionTool:
    """Make the tool for a task's ``tools``.

    Args:
        hosts: Which may be reached: ``example.org``, ``*.example.org``, ``[2001:db8::1]``, each perhaps with ``:PORT``
            (else 80 and 443). None: the tool refuses every call, and says why.
        methods: Which may be used. With `SAFE_METHODS` alone, calls of one turn run at once.
        max_bytes: Most bytes of a body that are read.
        timeout_s: For a whole call, redirects included; reaching it is a result.
        may_connect: Judges an address. Anything but the default is for tests, as is the next.
        resolve: Looks a name up.

    Raises:
        ConfigError: A host is none, or a number cannot work.
    """
    rules = parse_rules(hosts)
    if not methods or not set(methods) <= set(METHODS):
        raise ConfigError(f"http takes methods out of {', '.join(METHODS)}, at least one; got {tuple(methods)}")
    if max_bytes < 1:
        raise ConfigError(f"http must be allowed to read 1 byte or more, got max_bytes={max_bytes}")
    limits = Limits(rules=rules, methods=tuple(methods), max_bytes=max_bytes, may_connect=may_connect, resolve=resolve)

    async def http(
        url: str,
        context: ToolContext,
        method: Annotated[str, Meta(max_length=10)] = "GET",
        headers: dict[str, str] | None = None,
        body: str = "",
    ) -> Result:
        if not rules:
            return Result(text=_NO_HOSTS, status=CallStatus.UNAVAILABLE)
        if method.upper() not in methods:
            raise InvalidArguments(f'argument "method" must be one of {", ".join(methods)}, got "{visible(method)}"')
        return await _answered(Request(method.upper(), url, headers or {}, body), context, limits)

    listed = f"These hosts can be reached: {', '.join(map(str, rules))}." if rules else "No host can be reached."
    http.__doc__ = _DESCRIPTION.format(
        hosts=listed, seconds=timeout_s, most=max_bytes, methods=", ".join(methods) if len(methods) > 1 else methods[0]
    )
    return tool(
        parallel=set(methods) <= set(SAFE_METHODS),
        timeout_s=timeout_s,
        example={"url": f"https://{hosts[0].replace('*.', 'www.') if hosts else 'example.org'}/"},
        sources=(http_exchange, http_shown),
    )(http)


_NO_HOSTS = (
    "The tool is unavailable: no host may be reached with it. Whoever made this task has to list them: "
    'http_tool("example.org") in the task\'s tools.'
)


async def _answered(request: Request, context: ToolContext, limits: Limits) -> Result:
    exchange = Exchange(await transport_of(context), limits)
    try:
        reply = await exchange.follow(request)
    except Unsendable as error:
        raise InvalidArguments(str(error)) from error
    except HostRefused as error:
        return refused(f"this may not be reached: {error}")
    except (HostNotFound, NotReached) as error:
        return refused(str(error))
    return await off_loop(len(reply.body), http_shown.shown, reply, context.blobs)


http = http_tool()
"""Without hosts: refuses every call, and says what to do."""
