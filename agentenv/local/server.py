"""A small HTTP server around any policy, in vLLM's shape: so a client of vLLM can be pointed at a local engine.

What this module owns: routes, the key, errors as answers, and a clean end. Bodies are `shapes`'s.

It is for one machine: it listens on the loopback address, and elsewhere only with an API key. It serves
``/inference/v1/generate``, ``/v1/completions``, ``/v1/chat/completions`` (text in, text out), ``/v1/models``,
``/tokenize``, ``/detokenize``, ``/version``, ``/server_info`` (which distribution log-probs describe) and ``/health``.
It cannot score prompts and gives no candidates beside the sampled token, because a policy does not.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import itertools
import secrets
from array import array
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from agentenv.core.deadline import Deadline
from agentenv.core.policy import Policy, PolicyIdentity, SampleRequest
from agentenv.core.renderer import Renderer
from agentenv.errors import ConfigError, Fault, HarnessFault, PromptTooLong, ended
from agentenv.local.chat import chat_answer, read_chat
from agentenv.local.shapes import (
    BadRequest,
    Wanted,
    completions_answer,
    error_answer,
    generate_answer,
    models_answer,
    read_completions,
    read_generate,
)
from agentenv.records.axes import Distribution

_SPEAKS = "0.32.0"
"""The vLLM whose shapes this server has; ``/version`` names it first, because clients choose their shapes by it."""
_MAX_BODY = 64 << 20
_SHUTDOWN_S = 0.2
_MODES = {Distribution.MODEL: "raw_logprobs", Distribution.SAMPLING: "processed_logprobs"}
_json = msgspec.json.Encoder().encode
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def serve(
    policy: Policy,
    renderer: Renderer,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    model: str | None = None,
    api_key: str | None = None,
    ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve a started policy until ``stop`` is set or the task is cancelled.

    Replies that are being sampled then are abandoned. The policy is closed by its owner.

    Args:
        policy: Started.
        renderer: Of the policy's model: writes and reads chats; its tokenizer is for texts.
        host: Address to listen on; beyond the loopback address only with ``api_key``.
        port: 0 takes a free one.
        model: Name to serve it under; None takes the policy's.
        api_key: Bearer token that every route but ``/health`` asks for; None asks for none.
        ready: Called with the server's address when it listens.
        stop: Ends the server; None: only a cancellation does.

    Raises:
        ConfigError: The address is open to others and there is no key.
        HarnessFault: The address cannot be listened on.
    """
    check_host(host, api_key)
    app = application(policy, renderer, model=model, api_key=api_key)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise HarnessFault.permanent(
                f"Cannot listen on {host}:{port}: {ended(error.strerror or error)} Choose another --port (0 takes any)."
            ) from error
        if ready is not None:
            ready(f"http://{_in_url(host)}:{runner.addresses[0][1]}")
        await (stop or asyncio.Event()).wait()
    finally:
        await runner.cleanup()


def check_host(host: str, api_key: str | None) -> None:
    """Refuse to listen where others could use the engine without a key.

    Raises:
        ConfigError: Says what to do.
    """
    if not host:
        raise ConfigError("--host is given and empty: give an address to listen on, such as 127.0.0.1.")
    if api_key is None and not _is_loopback(host):
        raise ConfigError(
            f"--host {host}: listening there lets other machines use the engine. Put an API key for them into "
            "AGENTENV_API_KEY, or listen on 127.0.0.1."
        )


def application(
    policy: Policy, renderer: Renderer, *, model: str | None = None, api_key: str | None = None
) -> web.Application:
    """Make the application; `serve` runs it."""
    routes = _Routes(policy, renderer, model or policy.identity.model)
    app = web.Application(client_max_size=_MAX_BODY, middlewares=[_guard(api_key), _answer_errors])
    app.add_routes(
        [
            web.get("/health", routes.health),
            web.get("/version", routes.version),
            web.get("/server_info", routes.server_info),
            web.get("/v1/models", routes.models),
            web.post("/tokenize", routes.tokenize),
            web.post("/detokenize", routes.detokenize),
            web.post("/inference/v1/generate", routes.generate),
            web.post("/v1/completions", routes.completions),
            web.post("/v1/chat/completions", routes.chat),
        ]
    )
    return app


class _Routes:
    """One method per route."""

    def __init__(self, policy: Policy, renderer: Renderer, model: str) -> None:
        self._policy = policy
        self._renderer = renderer
        self._tokenizer = renderer.tokenizer
        self._model = model
        self._numbers = itertools.count()
        self._seeds = secrets.randbits(31)  # requests without a seed of their own must not repeat one another

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def version(self, _: web.Request) -> web.Response:
        return _reply({"version": f"{_SPEAKS}+agentenv", "engine": self._policy.identity.engine})

    async def server_info(self, _: web.Request) -> web.Response:
        identity = self._policy.identity
        mode = _MODES.get(identity.logprobs)
        model = {"model": identity.model, "max_model_len": identity.context_window, "generation_config": "vllm"}
        return _reply({"vllm_config": {"model_config": model | ({"logprobs_mode": mode} if mode else {})}})

    async def models(self, _: web.Request) -> web.Response:
        return _reply(models_answer(self._model, self._policy.identity))

    async def tokenize(self, request: web.Request) -> web.Response:
        prompt = (await _body(request)).get("prompt")
        if not isinstance(prompt, str):
            raise BadRequest("prompt must be a text; this server renders no messages", "prompt")
        ids = self._tokenizer.encode(prompt).tolist()
        window = self._policy.identity.context_window
        return _reply({"tokens": ids, "count": len(ids), "max_model_len": window})

    async def detokenize(self, request: web.Request) -> web.Response:
        tokens = (await _body(request)).get("tokens")
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise BadRequest("tokens must be a list of token ids", "tokens")
        return _reply({"prompt": self._tokenizer.decode(tokens)})

    async def generate(self, request: web.Request) -> web.Response:
        wanted = read_generate(await _body(request), self._policy.identity.context_window or 1 << 20)
        asked = self._asked(wanted)
        reply = await self._policy.sample(asked, Deadline("a request to the local server"))
        return _reply(generate_answer(wanted, reply, model=self._model, request_id=asked.request_id))

    async def completions(self, request: web.Request) -> web.Response:
        wanted = read_completions(await _body(request), self._tokenizer.encode)
        asked = self._asked(wanted)
        reply = await self._policy.sample(asked, Deadline("a request to the local server"))
        return _reply(
            completions_answer(
                wanted, reply, model=self._model, request_id=asked.request_id, decode=self._tokenizer.decode
            )
        )

    async def chat(self, request: web.Request) -> web.Response:
        room = self._policy.identity.context_window or 1 << 20
        wanted = await asyncio.to_thread(read_chat, await _body(request), self._renderer, room)
        asked = self._asked(wanted)
        reply = await self._policy.sample(asked, Deadline("a request to the local server"))
        return _reply(
            chat_answer(wanted, reply, model=self._model, request_id=asked.request_id, renderer=self._renderer)
        )

    def _asked(self, wanted: Wanted) -> SampleRequest:
        """Check what the engine would not, and make the policy's request of it."""
        if wanted.model not in (None, self._model):
            raise BadRequest(f"The model {wanted.model!r} does not exist; this is {self._model!r}.", "model", 404)
        identity: PolicyIdentity = self._policy.identity
        _check_prompt(wanted.prompt_ids, self._tokenizer.vocab_size, identity.context_window)
        number = next(self._numbers)
        return SampleRequest(
            prompt_ids=wanted.prompt_ids,
            messages=(),
            tools=(),
            sampling=wanted.sampling,
            seed=(self._seeds + number) & 0x7FFFFFFF if wanted.seed is None else wanted.seed,
            request_id=wanted.request_id or f"local-{number}",
            turn=0,
        )


def _check_prompt(ids: array[int], vocab_size: int, window: int | None) -> None:
    if not 0 <= min(ids) <= max(ids) < vocab_size:
        raise BadRequest(f"Token id {max(ids) if min(ids) >= 0 else min(ids)} is out of vocabulary", "prompt")
    if window is not None and len(ids) >= window:
        raise BadRequest(
            f"This model's maximum context length is {window} tokens. However, your request has {len(ids)} input "
            "tokens. Please reduce the length of the input.",
            "input_tokens",
        )


def _guard(api_key: str | None) -> Any:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if api_key is not None and request.path != "/health":
            given = request.headers.get("Authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {api_key}".encode()):
                return _reply(error_answer("A Bearer token is required.", status=401), status=401)
        return await handler(request)

    return guard


@web.middleware
async def _answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except BadRequest as error:
        return _reply(error_answer(str(error), status=error.status, field=error.field), status=error.status)
    except PromptTooLong as error:
        message = f"{error} (maximum context length)"
        return _reply(error_answer(message, status=400, field="input_tokens"), status=400)
    except ConfigError as error:
        return _reply(error_answer(str(error), status=400), status=400)
    except Fault as error:
        return _reply(error_answer(str(error), status=500), status=500)


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(await request.read())
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"The body is no JSON: {error}") from error
    if not isinstance(decoded, dict):
        raise BadRequest("The body must be a JSON object.")
    return decoded


def _reply(content: dict[str, Any], *, status: int = 200) -> web.Response:
    return web.Response(body=_json(content), status=status, content_type="application/json")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
