"""The policy behind a vLLM server: token ids in, token ids and log-probs out.

What this module owns: starting (what was asked, what it means), and one reply from request to record, across retries
and aborts. Connections are `transport`'s, bodies `vllm_wire`'s, judgement `vllm_reply`'s, questions `probe`'s.
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, field
from typing import Literal

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.policy import Policy, PolicyIdentity, Reply, SampleRequest
from agentenv.core.renderer import Tokenizer
from agentenv.errors import ConfigError, OrderError, PolicyServerFault, PromptTooLong
from agentenv.policies import probe
from agentenv.policies.refusals import refusal
from agentenv.policies.transport import HttpTransport, RetryRules
from agentenv.policies.vllm_reply import Part, assemble, judge
from agentenv.policies.vllm_wire import CompletionsRoute, GenerateRoute, Route, WireCall, encode_prompt
from agentenv.records.axes import Distribution, Evidence, Finish

Declared = Literal["auto", "model", "sampling", "unknown"]
RouteChoice = Literal["auto", "generate", "completions"]
_REPORTED = {"raw_logprobs": Distribution.MODEL, "processed_logprobs": Distribution.SAMPLING}
_SEED_STRIDE = 0x2545F491
"""Odd, so that adding multiples of it modulo 2**30 visits every seed."""
_RESUMED = 1 << 30
"""Set in the seed of a call that goes on after an abort: no first call of a run has it."""
_MAX_RESUMES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPrices:
    """US dollars per token, for the cost budget; an engine of one's own may leave them at 0."""

    usd_per_prompt_token: float = 0.0
    usd_per_completion_token: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Started:
    identity: PolicyIdentity
    route: Route


@dataclass(slots=True)
class _Gathered:
    """One reply in the making."""

    parts: list[Part] = field(default_factory=list[Part])
    notes: list[str] = field(default_factory=list[str])
    calls: int = 0
    sampling_began: float = 0.0


class VllmPolicy(Policy):
    """Samples from a vLLM server, 0.26 or newer.

    Weight versions are what the engine labels its spans with (``/inference/v1/generate`` from 0.32 on,
    ``/v1/completions`` from 0.33 on); where it labels none they are None, unknown. Asking ``/weight_info`` around every
    call would cost two round trips and still not see a change and back, so it is asked once, for the manifest.
    """

    def __init__(  # noqa: PLR0913  one keyword per setting of the configuration
        self,
        url: str,
        model: str | None = None,
        *,
        tokenizer: Tokenizer,
        logprobs: Declared = "auto",
        context_window: int | None = None,
        route: RouteChoice = "auto",
        api_key: str | None = None,
        max_connections: int = 512,
        retry: RetryRules | None = None,
        prices: TokenPrices | None = None,
        start_timeout_s: float = 60.0,
    ) -> None:
        """Check the settings; nothing is opened before `start`.

        Args:
            url: Address of the server, with or without a trailing ``/v1``.
            model: Served name; None takes the first the server lists.
            tokenizer: The vocabulary prompts are written in; compared with the server's at start.
            logprobs: ``auto`` finds out which distribution log-probs describe; a declared one is used where the
                server gives no answer, and refused where it gives another one.
            route: ``auto`` takes ``/inference/v1/generate`` where the server has it, else ``/v1/completions``; or one
                of them by name, ``generate`` or ``completions``.
            context_window: Smaller than the server's, to stay below it; None takes the server's.
            api_key: Bearer token.
            max_connections: Requests in flight at once; each takes a file descriptor.
            retry: When to ask again.
            prices: For the cost budget.
            start_timeout_s: How long `start` may take in all.

        Raises:
            ConfigError: A setting that cannot work.
        """
        if context_window is not None and context_window < 2:
            raise ConfigError(f"context_window is {context_window}; a prompt and a reply need 2 tokens at least.")
        if logprobs not in ("auto", "model", "sampling", "unknown"):
            raise ConfigError(f"logprobs is {logprobs!r}; expected auto, model, sampling or unknown.")
        if route not in ("auto", "generate", "completions"):
            raise ConfigError(f"route is {route!r}; expected auto, generate or completions.")
        self._route: RouteChoice = route
        self._transport = HttpTransport(url, api_key=api_key, max_connections=max_connections, retry=retry)
        self._wanted_model = model
        self._tokenizer = tokenizer
        self._declared: Declared = logprobs
        self._wanted_window = context_window
        self._prices = prices or TokenPrices()
        self._start_timeout_s = start_timeout_s
        self._vocab_size = tokenizer.vocab_size
        self._started: _Started | None = None

    @property
    def identity(self) -> PolicyIdentity:
        return self._ready().identity

    async def start(self) -> PolicyIdentity:
        if self._started is not None:
            return self._started.identity
        self._transport.start()
        deadline = Deadline.after(self._start_timeout_s, "start of the policy")
        try:
            self._started = await self._probe(deadline)
        except DeadlineReached as error:
            if error.deadline is not deadline:
                raise
            raise PolicyServerFault(
                f"{self._transport.url} did not answer the start-up questions within {self._start_timeout_s:g} s. "
                "Is it still loading, or paused (POST /resume)?"
            ) from error
        return self._started.identity

    async def aclose(self) -> None:
        self._started = None
        await self._transport.aclose()

    async def sample(self, request: SampleRequest, deadline: Deadline) -> Reply:
        identity = self._ready().identity
        if deadline.passed:
            raise DeadlineReached(f"the deadline of {deadline.name} had passed before the call", deadline)
        began = time.monotonic()
        gathered = await self._gather(request, deadline)
        parts = gathered.parts
        last = parts[-1]
        queued_s = gathered.sampling_began - began
        return Reply(
            sampled=assemble(
                parts,
                sampling=request.sampling,
                known=identity.logprobs,
                evidence=identity.logprobs_evidence,
                notes=tuple(gathered.notes),
            ),
            finish=Finish.LENGTH if last.finish is Finish.ABORT else last.finish,
            stop_token_id=last.stop_token_id,
            queued_s=queued_s,
            generating_s=time.monotonic() - began - queued_s,
            cached_tokens=parts[0].cached_tokens,
            retries=gathered.calls - 1,
        )

    async def _gather(self, request: SampleRequest, deadline: Deadline) -> _Gathered:
        """Call until the reply is finished: an abort is answered by sending prompt and partial ids again."""
        limit = self._limit(request)
        prompt = request.prompt_ids.tolist()
        gathered = _Gathered()
        seed, call_id = request.seed, request.request_id
        while True:
            part = await self._call(
                WireCall(encode_prompt(prompt), request.sampling, limit, seed, call_id), deadline, gathered
            )
            limit -= len(part.ids)
            if part.finish is not Finish.ABORT or limit == 0:
                return gathered
            resumes = len(gathered.parts)
            if resumes > _MAX_RESUMES:
                raise PolicyServerFault(f"The engine aborted one reply {resumes} times. Is it paused in a loop?")
            prompt += part.ids
            # The same seed would repeat the draws of the first tokens.
            seed = (request.seed + resumes * _SEED_STRIDE) % _RESUMED | _RESUMED
            call_id = f"{request.request_id}-r{resumes}"
            done = len(prompt) - len(request.prompt_ids)
            gathered.notes.append(f"aborted by the engine at {done} tokens, resumed with prompt and these, seed {seed}")

    def _ready(self) -> _Started:
        if self._started is None:
            raise OrderError("The vLLM policy is not started; await start() first.")
        return self._started

    def _limit(self, request: SampleRequest) -> int:
        """Clamp ``max_tokens`` to the window, as the engine would, so that what is asked for is what is meant."""
        limit, length, window = (
            request.sampling.max_tokens,
            len(request.prompt_ids),
            self._ready().identity.context_window,
        )
        if limit < 1:
            raise ConfigError(f"max_tokens is {limit}; a reply needs room for 1 token at least.")
        if length < 1:
            raise ConfigError("The prompt is empty; an engine samples after at least one token.")
        if window is None:
            return limit
        if length >= window:
            raise PromptTooLong(f"A prompt of {length} tokens leaves no room for a reply in a window of {window}.")
        return min(limit, window - length)

    async def _call(self, call: WireCall, deadline: Deadline, gathered: _Gathered) -> Part:
        route = self._ready().route
        reply = await self._transport.post(route.path, route.encode(call), deadline)
        if reply.status != 200:
            raise refusal(self._transport.url + route.path, reply.status, reply.body)
        part = judge(
            route.decode(reply.body),
            prompt_json=call.prompt_json,
            max_tokens=call.max_tokens,
            vocab_size=self._vocab_size,
        )
        if not gathered.parts:
            gathered.sampling_began = reply.began
        gathered.calls += reply.attempts
        gathered.parts.append(part)
        return part

    async def _probe(self, deadline: Deadline) -> _Started:
        transport, tokenizer = self._transport, self._tokenizer
        version = await probe.ask_version(transport, deadline)
        model, max_model_len = await probe.ask_model(transport, self._wanted_model, deadline, option="--model")
        window = self._window(max_model_len)
        compared = await probe.check_tokenizer(transport, model, tokenizer, deadline)
        prompts: list[array[int]] = [tokenizer.encode(text) for text in probe.PROBE_TEXTS]
        route, first = await probe.find_route(transport, self._candidates(model), prompts[0], deadline)
        details = await probe.ask_configuration(transport, deadline)
        distribution, evidence, reason = await self._distribution(
            route, prompts, details.get("logprobs_mode"), deadline
        )
        label = await probe.ask_weight_label(transport, deadline)
        if label is not None:
            details["weight_version_at_start"] = label
        identity = PolicyIdentity(
            kind="vllm",
            model=model,
            engine=f"vllm {version}",
            endpoint=transport.url + route.path,
            context_window=window,
            tokenizer_sha256=tokenizer.sha256,
            logprobs=distribution,
            logprobs_evidence=evidence,
            weight_versions=first.versions is not None,
            usd_per_prompt_token=self._prices.usd_per_prompt_token,
            usd_per_completion_token=self._prices.usd_per_completion_token,
            details=details | {"tokenizer_check": compared, "logprobs_probe": reason},
        )
        return _Started(identity=identity, route=route)

    def _candidates(self, model: str) -> list[Route]:
        routes = {"generate": GenerateRoute(model), "completions": CompletionsRoute(model)}
        return [route for name, route in routes.items() if self._route in ("auto", name)]

    def _window(self, served: int | None) -> int | None:
        wanted = self._wanted_window
        if wanted is not None and served is not None and wanted > served:
            raise ConfigError(
                f"context_window is {wanted}, but {self._transport.url} serves {served} (--max-model-len). Lower it."
            )
        return wanted if wanted is not None else served

    async def _distribution(
        self, route: Route, prompts: list[array[int]], mode: str | None, deadline: Deadline
    ) -> tuple[Distribution, Evidence, str]:
        """Weigh what was measured, what the server reports and what was declared, in this order."""
        if self._declared == "unknown":
            return Distribution.UNKNOWN, Evidence.DECLARED, "declared unknown, not probed"
        probed, reason = await probe.probe_distribution(self._transport, route, prompts, deadline)
        reported = _REPORTED.get(mode, Distribution.UNKNOWN) if mode is not None else None
        if reported is not None and probed not in (Distribution.UNKNOWN, reported):
            return Distribution.UNKNOWN, Evidence.UNKNOWN, f"the server reports {mode}, but measured: {reason}"
        known, evidence = Distribution.UNKNOWN, Evidence.UNKNOWN
        if probed is not Distribution.UNKNOWN:
            known, evidence = probed, Evidence.PROBED
        elif reported is not None:
            known, evidence = reported, Evidence.REPORTED
        if self._declared == "auto":
            return known, evidence if known is not Distribution.UNKNOWN else Evidence.UNKNOWN, reason
        declared = Distribution(self._declared)
        if evidence is Evidence.UNKNOWN:
            return declared, Evidence.DECLARED, f"declared; {reason}"
        if known is not declared:
            raise ConfigError(
                f"logprobs is declared {declared.value!r}, but {self._transport.url} gives {known.value!r} "
                f"({evidence.value}: {reason}). Leave it at 'auto', or start the server with --logprobs-mode "
                "processed_logprobs (sampling) or raw_logprobs (model)."
            )
        return known, evidence, reason
