"""The HTTP transport of the calls that carry every token: bounded retries, one clock.

What this module owns: which failures are worth a second attempt, and how long to wait before it. Connections are
`http_client`'s. It knows nothing of any engine's routes or bodies. There are no timers here besides the caller's
deadline: a server that is paused for a weight update answers late, and that is no failure.
"""

from __future__ import annotations

import random
import ssl
import time
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import anyio

from agentenv.core.deadline import Deadline
from agentenv.core.lifetime import AsyncResource, finish
from agentenv.errors import ConfigError, OrderError, PolicyServerFault, ended
from agentenv.policies.http_client import HttpClient, NotHttp, base_url, read_address

_BUSY = frozenset({429, 503})
"""The server works and asks for patience: a full queue, or a pause for new weights."""
_BROKEN = frozenset({500, 502, 504})
_CLOSE_GRACE_S = 5.0
_IDLE_S = 4.0
"""vLLM's HTTP server drops connections that idle for 5 s; ours let go first, so that no request meets a closing one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """How often, and for how long, an attempt is repeated. Sampling has no effect besides its reply, so it may be."""

    attempts: int = 5
    """Attempts in all after which a broken answer (500, 502, 504) or a lost connection is a fault."""
    patience_s: float = 300.0
    """How long a busy server (429, 503) is asked again; a weight update may take minutes."""
    base_s: float = 0.2
    """First wait; doubled with every further one, with jitter of ±50 %."""
    cap_s: float = 10.0
    """Longest wait."""

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.patience_s, self.base_s, self.cap_s) < 0:
            raise ConfigError(f"RetryRules needs at least 1 attempt and no negative time, not {self}.")

    def wait_s(self, attempt: int, jitter: float) -> float:
        """Give the wait after the ``attempt``-th attempt (1-based); ``jitter`` in [0, 1) spreads it."""
        return min(self.cap_s, self.base_s * 2.0 ** min(attempt - 1, 30)) * (0.5 + jitter)


class HttpReply(NamedTuple):
    """One answer, whole."""

    status: int
    body: bytes
    attempts: int
    """How many were made, this one included."""
    began: float
    """``time.monotonic`` at which the attempt that was answered began."""

    @property
    def excerpt(self) -> str:
        """What the body begins with, for messages."""
        return self.body[:200].decode("utf-8", "replace")


class HttpTransport(AsyncResource):
    """Connections to one server, kept between calls."""

    def __init__(
        self, url: str, *, api_key: str | None = None, max_connections: int = 512, retry: RetryRules | None = None
    ) -> None:
        """Check the address; nothing is opened before `start`.

        Args:
            url: Base address, in any form `base_url` takes.
            api_key: Sent as a bearer token.
            max_connections: Requests in flight at once; further ones wait their turn. Each takes a file descriptor.
            retry: When to try again; the defaults suit an engine that takes new weights now and then.

        Raises:
            ConfigError: No http(s) address, or no connection allowed.
        """
        self.url = base_url(url)
        if max_connections < 1:
            raise ConfigError(f"max_connections is {max_connections}; at least one connection is needed.")
        self.retry = retry or RetryRules()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self._make = partial(
            HttpClient, read_address(self.url), headers=headers, max_connections=max_connections, idle_s=_IDLE_S
        )
        self._client: HttpClient | None = None
        self._random = random.Random()  # noqa: S311  jitter of waits, never sampling

    def start(self) -> None:
        """Begin to take calls. Again while it is open: nothing.

        Raises:
            ConfigError: The API key cannot be sent.
        """
        if self._client is None:
            self._client = self._make()

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await finish(client.aclose(), _CLOSE_GRACE_S)

    async def call(self, method: str, path: str, body: bytes | None, deadline: Deadline) -> HttpReply:
        """Send one request once, under ``deadline``.

        Raises:
            PolicyServerFault: The connection could not be made, or was lost.
            DeadlineReached: The deadline fired; the connection is closed, what would still come is dropped.
        """
        async with deadline.enforce():
            return await self._attempt(method, path, body, 1)

    async def post(self, path: str, body: bytes, deadline: Deadline) -> HttpReply:
        """Post ``body`` until the answer is worth reading: 200, or a refusal that asking again cannot change.

        Raises:
            PolicyServerFault: Attempts or patience are used up; the message quotes the last answer.
            DeadlineReached: The deadline fired, whether during an attempt or between two.
        """
        began = time.monotonic()
        failures = busy = 0
        async with deadline.enforce():
            while True:
                wait_s = 0.0
                try:
                    reply = await self._attempt("POST", path, body, failures + busy + 1)
                except PolicyServerFault:
                    failures += 1
                    if failures >= self.retry.attempts:
                        raise
                    wait_s = self.retry.wait_s(failures, self._random.random())
                else:
                    if reply.status in _BUSY:
                        busy += 1
                        wait_s = self._patience(reply, busy, began)
                    elif reply.status in _BROKEN:
                        failures += 1
                        if failures >= self.retry.attempts:
                            raise PolicyServerFault(
                                f"{self.url}{path} answered {reply.status} in {failures} attempts: {reply.excerpt!r}. "
                                "The engine's log says why."
                            )
                        wait_s = self.retry.wait_s(failures, self._random.random())
                    else:
                        return reply
                await anyio.sleep(wait_s)

    def _patience(self, reply: HttpReply, busy: int, began: float) -> float:
        waited_s = time.monotonic() - began
        wait_s = self.retry.wait_s(busy, self._random.random())
        if waited_s + wait_s > self.retry.patience_s:
            raise PolicyServerFault(
                f"{self.url} was busy ({reply.status}) for {waited_s:.1f} s: {reply.excerpt!r}. "
                "Send fewer episodes at once, or raise the patience."
            )
        return wait_s

    async def _attempt(self, method: str, path: str, body: bytes | None, attempt: int) -> HttpReply:
        client = self._client
        if client is None:
            raise OrderError(f"The transport to {self.url} is not open; call start() first.")
        began = time.monotonic()
        try:
            status, answer = await client.request(method, path, body)
        except (OSError, NotHttp) as error:
            raise PolicyServerFault(
                f"{self.url} gave no answer to {method} {path} (attempt {attempt}): "
                f"{ended(f'{type(error).__name__}: {error}')} {_remedy(error)}"
            ) from error
        return HttpReply(status, answer, attempt, began)


def _remedy(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "Name the certificate to trust in the environment: SSL_CERT_FILE=PATH.pem."
    if isinstance(error, ssl.SSLError):
        return "Does the server speak https there, or is it http://?"
    return "Is the server running, and is the address right?"
