"""A vLLM server that is none: the routes, shapes, refusals and faults of the real one, over a tiny exact model.

For tests of whatever talks to an engine, and as the server of the benchmarks, where it runs in a process of its own
and spends little::

    python -m agentenv.testing.stub_engine --port 0 --latency-ms 50

prints its address on one line and serves until SIGINT or SIGTERM. `StubProcess` does this from a program. It passes
the contract suite of the policy together with `VllmPolicy`, like the real server.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from aiohttp import web

from agentenv.core.lifetime import AsyncResource, finish
from agentenv.core.renderer import Tokenizer
from agentenv.rendering.byte_tokenizer import ByteTokenizer
from agentenv.testing.stub_faults import MISSING, NAN_MARK, REFUSALS, StubAnswer, StubFault, spoil
from agentenv.testing.stub_model import Law, Script, StubModel, Table
from agentenv.testing.stub_shapes import (
    Params,
    Top,
    Written,
    chat_body,
    completions_body,
    generate_body,
    read_chat,
    read_completions,
    read_generate,
)

_encode = msgspec.json.Encoder().encode
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Mode = Literal["raw_logprobs", "processed_logprobs", "raw_logits"]
_LOGIT_SHIFT = 30.0
"""Added to log-probs, it makes values that only logits can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StubOptions:
    """How the server is started."""

    tokenizer: Tokenizer | None = None
    """Its vocabulary; None takes bytes."""
    model: str = "stub"
    version: str = "0.32.0"
    generate: Literal["ids", "strings"] | None = "ids"
    """Shape of log-probs on ``/inference/v1/generate`` (integers from 0.32 on); None: the route is switched off."""
    completions: bool = True
    logprobs_mode: Mode = "processed_logprobs"
    window: int | None = 4096
    """None: not reported, and nothing is refused for its length."""
    dev_mode: bool = True
    """Whether ``/server_info``, ``/weight_info`` and ``/pause`` exist."""
    weight_spans: bool = True
    tokenize: bool = True
    max_logprobs: int = 20
    latency_s: float = 0.0
    script: Script | None = None
    chat: Callable[[list[dict[str, Any]]], dict[str, Any]] | None = None
    """Assistant message (content, tool_calls) that answers the messages of a chat; None: text of sampled ids."""
    flat: bool = False
    """Whether the model is uniform, so that no probe can tell its log-probs apart."""


class StubEngine(AsyncResource):
    """The server, on loopback in the running loop."""

    def __init__(self, options: StubOptions | None = None, *, port: int = 0) -> None:
        """Prepare it; nothing listens before `start`. Port 0 takes a free one."""
        self.options = options or StubOptions()
        self.tokenizer: Tokenizer = self.options.tokenizer or ByteTokenizer()
        stops = _stop_ids(self.tokenizer)
        self.model = StubModel(
            self.tokenizer.vocab_size, stop_ids=stops, script=self.options.script, flat=self.options.flat
        )
        self.latency_s = self.options.latency_s
        self.delays: dict[int, float] = {}
        """Latency of requests with these seeds instead, in seconds."""
        self.in_flight = 0
        """Sampling requests being worked on."""
        self.served = 0
        """Sampling requests received."""
        self.seeds: list[int] = []
        """Seed of each of them, in order."""
        self.weight_label = "default"
        self._port = port
        self._faults: deque[StubFault] = deque()
        self._runner: web.ServerRunner | None = None
        self._running = asyncio.Event()
        self._running.set()
        self._abort = asyncio.Event()
        self._routes = self._table()

    def inject(self, *faults: StubFault) -> None:
        """Let the next sampling requests go wrong, one for each fault, in this order."""
        self._faults.extend(faults)

    async def start(self) -> str:
        """Listen, and give the address."""
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def aclose(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            self._abort.set()
            await finish(runner.cleanup(), 5.0)

    def pause(self, mode: Literal["abort", "keep"] = "abort") -> None:
        """Hold further requests back; ``abort`` ends those in flight with the ids they have."""
        self._running.clear()
        if mode == "abort":
            self._abort.set()
            self._abort = asyncio.Event()

    def resume(self) -> None:
        """Serve again."""
        self._running.set()

    def _table(self) -> dict[tuple[str, str], Handler]:
        options = self.options
        routes: dict[tuple[str, str], Handler] = {
            ("GET", "/health"): self._health,
            ("GET", "/version"): self._version,
            ("GET", "/v1/models"): self._models,
        }
        if options.generate is not None:
            routes["POST", "/inference/v1/generate"] = self._on_generate
        if options.completions:
            routes["POST", "/v1/completions"] = self._on_completions
            routes["POST", "/v1/chat/completions"] = self._on_chat
        if options.tokenize:
            routes["POST", "/tokenize"] = self._tokenize
        if options.dev_mode:
            routes["GET", "/server_info"] = self._server_info
            routes["GET", "/weight_info"] = self._weight_info
            routes["POST", "/update_weight_version"] = self._update_label
            routes["POST", "/pause"] = self._on_pause
            routes["POST", "/resume"] = self._on_resume
        return routes

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        handler = self._routes.get((request.method, request.path))
        if handler is not None:
            return await handler(request)
        if request.path == "/inference/v1/generate":
            return _json({"detail": "start the server with --enable-scale-out"}, 403)
        return _json({"detail": "Not Found"}, 404)

    async def _health(self, _: web.BaseRequest) -> web.StreamResponse:
        return web.Response()

    async def _version(self, _: web.BaseRequest) -> web.StreamResponse:
        return _json({"version": self.options.version})

    async def _models(self, _: web.BaseRequest) -> web.StreamResponse:
        entry = {"id": self.options.model, "object": "model", "max_model_len": self.options.window}
        return _json({"object": "list", "data": [entry]})

    async def _tokenize(self, request: web.BaseRequest) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read())
        ids = self.tokenizer.encode(body["prompt"]).tolist()
        return _json({"count": len(ids), "max_model_len": self.options.window or 0, "tokens": ids})

    async def _server_info(self, _: web.BaseRequest) -> web.StreamResponse:
        model = {"logprobs_mode": self.options.logprobs_mode, "model": self.options.model, "dtype": "torch.float64"}
        return _json({"vllm_config": {"model_config": model | {"max_logprobs": self.options.max_logprobs}}})

    async def _weight_info(self, _: web.BaseRequest) -> web.StreamResponse:
        return _json({"weight_version": self.weight_label})

    async def _update_label(self, request: web.BaseRequest) -> web.StreamResponse:
        self.weight_label = msgspec.json.decode(await request.read())["new_version"]
        return _json({"success": True, "new_version": self.weight_label})

    async def _on_pause(self, request: web.BaseRequest) -> web.StreamResponse:
        self.pause("keep" if request.query.get("mode") == "keep" else "abort")
        return _json({"status": "paused"})

    async def _on_resume(self, _: web.BaseRequest) -> web.StreamResponse:
        self.resume()
        return _json({"status": "resumed"})

    async def _on_generate(self, request: web.BaseRequest) -> web.StreamResponse:
        call = read_generate(await request.read())
        strings, spans = self.options.generate == "strings", self.options.weight_spans
        return await self._sample(
            request,
            call.token_ids,
            call.sampling_params,
            call.model,
            lambda w: generate_body(w, strings=strings, spans=spans),
        )

    async def _on_completions(self, request: web.BaseRequest) -> web.StreamResponse:
        call = read_completions(await request.read())
        return await self._sample(request, call.prompt, call, call.model, completions_body)

    async def _on_chat(self, request: web.BaseRequest) -> web.StreamResponse:
        call = read_chat(await request.read())
        prompt = self.tokenizer.encode("".join(str(message.get("content")) for message in call.messages)).tolist()

        def write(written: Written) -> dict[str, Any]:
            text = self.tokenizer.decode(written.answer.ids)
            message = {"content": text} if self.options.chat is None else self.options.chat(call.messages)
            return chat_body(written, message)

        return await self._sample(request, prompt, call, call.model, write)

    async def _sample(
        self,
        request: web.BaseRequest,
        prompt: list[int],
        params: Params,
        model: str | None,
        write: Callable[[Written], dict[str, Any]],
    ) -> web.StreamResponse:
        self.served += 1
        self.seeds.append(params.seed)
        self.in_flight += 1
        due = asyncio.get_running_loop().time() + self.delays.get(params.seed, self.latency_s)
        try:
            fault = self._faults.popleft() if self._faults else None
            refusal = self._refusal(prompt, params, model) if fault is None else REFUSALS.get(fault)
            if refusal is not None:
                return _error(*refusal)
            answer = await self._answer(request, prompt, params, fault, due)
            body = _encode(write(self._written(prompt, params, answer)))
            if fault is StubFault.NO_JSON:
                body = b"<html>proxy error</html>"
            if fault is StubFault.NAN_LOGPROB:
                body = body.replace(str(NAN_MARK).encode(), b"NaN")
            return web.Response(body=body, content_type="application/json")
        finally:
            self.in_flight -= 1

    def _refusal(self, prompt: list[int], params: Params, model: str | None) -> tuple[int, str, str | None] | None:
        window = self.options.window
        if model is not None and model != self.options.model:
            return 404, f"The model `{model}` does not exist.", "model"
        if window is not None and len(prompt) >= window:
            return REFUSALS[StubFault.TOO_LONG_GENERATE if len(prompt) > window else StubFault.TOO_LONG_GENERATE_FULL]
        if not prompt or not 0 <= min(prompt) <= max(prompt) < self.model.vocab_size:
            return 400, "Token ids are out of vocabulary, or there are none.", None
        wanted = [self.model.vocab_size if n == -1 else n or 0 for n in (params.logprobs, params.prompt_logprobs)]
        if max(wanted) > self.options.max_logprobs:
            return 400, f"Requested more log-probs than max allowed: {self.options.max_logprobs}", "logprobs"
        if (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) != (1.0, 0.0, 0.0):
            return 400, "The stub engine has no penalties.", "repetition_penalty"
        return None

    async def _answer(
        self, request: web.BaseRequest, prompt: list[int], params: Params, fault: StubFault | None, due: float
    ) -> StubAnswer:
        await self._running.wait()
        if fault is StubFault.HANG:
            await asyncio.Event().wait()
        if fault is StubFault.RESET and request.transport is not None:
            request.transport.abort()
        window = self.options.window
        limit = params.max_tokens if window is None else min(params.max_tokens, window - len(prompt))
        law = _law(params)
        drawn = self.model.draw(
            prompt,
            law=law,
            scored=self._scored(law),
            seed=params.seed,
            max_tokens=limit,
            stop_ids=params.stop_token_ids,
        )
        aborted = fault is StubFault.ABORT or (self._has_latency(params.seed) and await self._aborted(due))
        return spoil(StubAnswer.of(drawn, label=self.weight_label, aborted=aborted), fault, self.model.vocab_size)

    def _scored(self, law: Law) -> Law:
        return law if self.options.logprobs_mode == "processed_logprobs" else Law(1.0)

    def _has_latency(self, seed: int) -> bool:
        return self.delays.get(seed, self.latency_s) > 0.0

    async def _aborted(self, due: float) -> bool:
        """Wait until the answer is due; True if a pause cut it short."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await self._abort.wait()
                return True
        await self._running.wait()
        return False

    def _written(self, prompt: list[int], params: Params, answer: StubAnswer) -> Written:
        tops: list[Top] = []
        if params.logprobs:
            table = self.model.table(self._scored(_law(params)))
            context = zip(
                [prompt[-1], *answer.ids[:-1]], range(len(prompt), len(prompt) + len(answer.ids)), strict=True
            )
            tops = [self._candidates(table, params, previous, at) for previous, at in context]
        if self.options.logprobs_mode == "raw_logits":
            tops = [[(token, value + _LOGIT_SHIFT) for token, value in top] for top in tops]
            answer.logprobs = [value and value + _LOGIT_SHIFT for value in answer.logprobs]
        return Written(
            prompt, answer, params.logprobs is not None, tops, self._prompt_tops(prompt, params.prompt_logprobs)
        )

    def _candidates(self, table: Table, params: Params, previous: int, at: int) -> Top:
        if params.logprob_token_ids is None:
            return self.model.top(table, params.logprobs or 0, previous, at)
        scores = [(token, self.model.logprob(table, token, previous, at)) for token in params.logprob_token_ids]
        return [(token, max(score, MISSING)) for token, score in scores]

    def _prompt_tops(self, prompt: list[int], n: int | None) -> list[Top | None] | None:
        """Score the prompt: the model's own distribution in every mode, as in vLLM."""
        if n is None:
            return None
        table = self.model.table(Law(1.0))
        scored: list[Top | None] = [None]
        for at in range(1, len(prompt)):
            previous, token = prompt[at - 1], prompt[at]
            own = (token, self.model.logprob(table, token, previous, at))
            scored.append([own, *self.model.top(table, n, previous, at)])
        return scored


def _law(params: Params) -> Law:
    if params.temperature == 0.0:
        return Law(0.0)
    return Law(params.temperature, params.top_k, params.top_p, params.min_p)


def _stop_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    found = tokenizer.encode("<|im_end|>")
    return (found[0],) if len(found) == 1 else ()


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=_encode(value), status=status, content_type="application/json")


def _error(status: int, message: str, param: str | None) -> web.Response:
    kind = "BadRequestError" if status == 400 else "ServerError"
    return _json({"error": {"message": message, "type": kind, "param": param, "code": status}}, status)


if __name__ == "__main__":
    from agentenv.testing.stub_process import main

    main()
