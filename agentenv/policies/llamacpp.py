"""The policy that runs llama.cpp in this process: token ids in, token ids and log-probs out, no server needed.

What this module owns: starting, the worker threads, and one reply from request to record. The engine is
`llamacpp_engine`'s, slices are `llamacpp_sampling`'s, questions `llamacpp_probe`'s.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.lifetime import finish
from agentenv.core.policy import Policy, PolicyIdentity, Reply, SampleRequest
from agentenv.core.renderer import Tokenizer
from agentenv.errors import ConfigError, OrderError, PolicyServerFault, PromptTooLong
from agentenv.policies.llamacpp_engine import LlamaEngine, LlamaSettings, file_sha256
from agentenv.policies.llamacpp_probe import Findings, examine
from agentenv.policies.llamacpp_sampling import Abandoned, Call, Draft, sample
from agentenv.policies.llamacpp_slots import Lease, SlotBook
from agentenv.policies.vllm_reply import assemble, judge
from agentenv.policies.vllm_wire import WireReply
from agentenv.records.axes import Distribution, Evidence
from agentenv.records.tokens import Sampled

GRACE_S = 30.0
"""How long an abandoned call may take to end. It ends after one slice or one step of reading its prompt, which all
slots share: about a second for a model of 135 million parameters on one core."""

_CLOSED = "The policy was closed before the reply was sampled."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Started:
    engine: LlamaEngine
    identity: PolicyIdentity
    findings: Findings
    slots: SlotBook
    pool: ThreadPoolExecutor
    weights: str
    """Label of the weights: the hash of the file they were loaded from."""
    under_way: dict[int, Call] = field(default_factory=dict[int, Call])
    """Slot to the call it plays."""


class LlamaCppPolicy(Policy):
    """Samples from a GGUF model with llama.cpp, `n_parallel` replies at once.

    Every sampling field of a request is sent, with filters in vLLM's order, so that the same parameters mean the same
    distribution on both engines. A reply ends at the model's own end tokens (as with vLLM) and at
    ``sampling.stop_token_ids``. It never blocks the event loop: calls run in threads of their own.

    Weight versions: the weights are those of one file and never change, so the whole of every reply is labelled with
    that file's hash.

    A deadline or a cancellation ends a call within one slice of `llamacpp_sampling.SLICE` tokens or one step of
    ``n_batch`` prompt tokens; `sample` raises when its worker has let go, so nothing of it lives on.

    Replies are repeatable for equal requests up to the engine's rounding: what a slot already holds and what is
    sampled beside it changes log-probs by some 1e-5.
    """

    def __init__(
        self,
        model_path: Path | str,
        *,
        tokenizer: Tokenizer,
        n_ctx: int = 4096,
        n_parallel: int = 4,
        n_threads: int = 1,
        n_batch: int = 64,
        model_sha256: str | None = None,
    ) -> None:
        """Check the settings; nothing is loaded before `start`.

        Args:
            model_path: A GGUF file.
            tokenizer: The vocabulary prompts are written in; compared with the model's own at start.
            n_ctx: Window of each reply: prompt and completion together.
            n_parallel: Replies sampled at once; more wait.
            n_threads: Of the engine. More than the cores that are free makes it collapse: its threads spin.
            n_batch: Prompt tokens read per step; larger ones read no faster on a CPU.
            model_sha256: Expected hash of the file; None takes any.

        Raises:
            ConfigError: A setting that cannot work.
        """
        counts = {"n_parallel": n_parallel, "n_threads": n_threads, "n_batch": n_batch}
        for name, value in counts.items():
            if value < 1:
                raise ConfigError(f"{name} is {value}; it must be 1 at least.")
        if n_ctx < 2:
            raise ConfigError(f"n_ctx is {n_ctx}; a prompt and a reply need 2 tokens at least.")
        self._settings = LlamaSettings(
            model_path=Path(model_path), n_ctx=n_ctx, n_parallel=n_parallel, n_threads=n_threads, n_batch=n_batch
        )
        self._tokenizer = tokenizer
        self._wanted_sha256 = model_sha256
        self._started: _Started | None = None

    @property
    def identity(self) -> PolicyIdentity:
        return self._ready().identity

    @property
    def n_in_flight(self) -> int:
        """Calls whose worker has not ended."""
        return self._started.slots.n_leased if self._started else 0

    async def start(self) -> PolicyIdentity:
        if self._started is None:
            pool = ThreadPoolExecutor(self._settings.n_parallel, thread_name_prefix="llamacpp")
            work = asyncio.get_running_loop().run_in_executor(pool, self._load)
            try:
                await asyncio.wait([work])
                engine, findings, weights = work.result()
            except BaseException:
                await finish(_close_when_loaded(work, pool), GRACE_S)
                raise
            self._started = _Started(
                engine=engine,
                identity=self._identify(engine, findings, weights),
                findings=findings,
                slots=SlotBook(self._settings.n_parallel),
                pool=pool,
                weights=f"sha256:{weights}",
            )
        return self._started.identity

    async def aclose(self) -> None:
        started, self._started = self._started, None
        if started is not None:
            for call in started.under_way.values():
                call.abandoned.set()
            await finish(_close(started.engine, started.pool), GRACE_S)

    async def sample(self, request: SampleRequest, deadline: Deadline) -> Reply:
        started = self._ready()
        limit = self._limit(request, started)
        if deadline.passed:
            raise DeadlineReached(f"the deadline of {deadline.name} had passed before the call", deadline)
        began = time.monotonic()
        async with deadline.enforce():
            lease = await started.slots.take(request.prompt_ids)
            if self._started is not started:  # closed while this call waited; the next one waiting has to hear it too
                started.slots.give_back(lease, array("i"))
                raise PolicyServerFault(_CLOSED)
            queued_s = time.monotonic() - began
            draft = await self._run(started, lease, self._call(request, started, lease, limit))
        return Reply(
            sampled=_sampled(draft, request, started, limit),
            finish=draft.finish,
            stop_token_id=draft.stop_token_id,
            queued_s=queued_s,
            generating_s=time.monotonic() - began - queued_s,
            cached_tokens=draft.cached_tokens,
        )

    def _ready(self) -> _Started:
        if self._started is None:
            raise OrderError("The llamacpp policy is not started; await start() first.")
        return self._started

    def _load(self) -> tuple[LlamaEngine, Findings, str]:
        weights = file_sha256(self._settings.model_path) if self._settings.model_path.is_file() else ""
        if self._wanted_sha256 not in (None, weights):
            raise ConfigError(
                f"{self._settings.model_path} is not the model that is expected: its sha256 is "
                f"{weights or 'unknown (no such file)'}, expected {self._wanted_sha256}. Fetch it again."
            )
        engine = LlamaEngine.load(self._settings)
        try:
            findings = examine(engine, self._settings, self._tokenizer)
            engine.seal()
        except BaseException:
            engine.close()
            raise
        return engine, findings, weights

    def _identify(self, engine: LlamaEngine, findings: Findings, weights: str) -> PolicyIdentity:
        settings = self._settings
        known = findings.distribution is not Distribution.UNKNOWN
        return PolicyIdentity(
            kind="llamacpp",
            model=settings.model_path.name,
            engine=f"llama.cpp (xllamacpp {engine.version})",
            context_window=findings.window,
            tokenizer_sha256=self._tokenizer.sha256,
            logprobs=findings.distribution,
            logprobs_evidence=Evidence.PROBED if known else Evidence.UNKNOWN,
            weight_versions=True,
            details=findings.details
            | {
                "model_sha256": weights,
                "n_threads": str(settings.n_threads),
                "n_parallel": str(settings.n_parallel),
                "n_batch": str(settings.n_batch),
            },
        )

    def _limit(self, request: SampleRequest, started: _Started) -> int:
        """Check the request and give the most tokens its reply can have."""
        n, window, vocab_size = len(request.prompt_ids), started.findings.window, started.findings.vocab_size
        if request.sampling.max_tokens < 1:
            raise ConfigError(f"max_tokens is {request.sampling.max_tokens}; a reply needs room for 1 token at least.")
        if not n:
            raise ConfigError("The prompt is empty; the engine samples after at least one token.")
        if not 0 <= min(request.prompt_ids) <= max(request.prompt_ids) < vocab_size:
            at = next(i for i, token in enumerate(request.prompt_ids) if not 0 <= token < vocab_size)
            raise PolicyServerFault.permanent(
                f"The prompt of {request.request_id} has the id {request.prompt_ids[at]} at position {at}, outside the "
                f"model's vocabulary of {vocab_size}. Is it written with the model's own tokenizer?"
            )
        if n >= window:
            raise PromptTooLong(f"A prompt of {n} tokens leaves no room for a reply in a window of {window}.")
        return min(request.sampling.max_tokens, window - n)

    def _call(self, request: SampleRequest, started: _Started, lease: Lease, limit: int) -> Call:
        raw = started.findings.distribution is Distribution.MODEL
        return Call(
            prompt=request.prompt_ids.tolist(),
            sampling=request.sampling,
            max_tokens=limit,
            seed=request.seed,
            slot=lease.index,
            vocab_size=started.findings.vocab_size,
            read_step=self._settings.n_batch,
            n_held=lease.n_held,
            score_with=started.findings.end_id if raw else None,
        )

    async def _run(self, started: _Started, lease: Lease, call: Call) -> Draft:
        """Run the call in a worker; if nobody waits any more, abandon it and see it end."""
        work = asyncio.get_running_loop().run_in_executor(started.pool, sample, started.engine, call)
        started.under_way[lease.index] = call

        def done(ended: asyncio.Future[Draft]) -> None:
            del started.under_way[lease.index]
            started.slots.give_back(lease, _held(call, ended))

        work.add_done_callback(done)
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            call.abandoned.set()
            await finish(_ended(work), GRACE_S)
            raise
        try:
            return work.result()
        except Abandoned as error:
            raise PolicyServerFault(_CLOSED) from error


def _sampled(draft: Draft, request: SampleRequest, started: _Started, limit: int) -> Sampled:
    """Judge the draft by the same rules as an answer of vLLM, and make it a part of a record."""
    wire = WireReply(
        ids=draft.ids,
        logprobs=draft.logprobs,
        logprob_ids=[],
        finish=draft.finish.value,
        stop_reason=draft.stop_token_id,
        versions=[(started.weights, 0, len(draft.ids))],
        prompt_echo=None,
        cached_tokens=draft.cached_tokens,
    )
    part = judge(wire, prompt_json=b"", max_tokens=limit, vocab_size=started.findings.vocab_size)
    identity = started.identity
    return assemble(
        [part],
        sampling=request.sampling,
        known=identity.logprobs,
        evidence=identity.logprobs_evidence,
        notes=tuple(draft.notes),
    )


def _held(call: Call, work: asyncio.Future[Draft]) -> array[int]:
    """What the slot has read when its worker is done: unknown if the call failed, so nothing is assumed."""
    failed = work.cancelled() or work.exception() is not None
    return array("i") if failed else array("i", call.prompt + work.result().ids)


async def _ended(work: asyncio.Future[Draft]) -> None:
    await asyncio.wait([work])


async def _close(engine: LlamaEngine, pool: ThreadPoolExecutor) -> None:
    await asyncio.get_running_loop().run_in_executor(pool, engine.close)
    pool.shutdown(wait=False)


async def _close_when_loaded(work: asyncio.Future[tuple[LlamaEngine, Findings, str]], pool: ThreadPoolExecutor) -> None:
    """After a failed or cancelled start: wait for the loading thread, and close what it may have loaded."""
    await asyncio.wait([work])
    if not work.cancelled() and work.exception() is None:
        await _close(work.result()[0], pool)
    pool.shutdown(wait=False)
