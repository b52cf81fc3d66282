"""Asking the engine again for the log-probs of recorded ids: the proof behind ``agentenv verify --engine``.

Prompt log-probs are the engine's own log-softmax before temperature and filters, whatever mode it was started in. From
those of the whole vocabulary a tempered distribution follows exactly. Where a filter or a penalty shaped the sampling,
or the vocabulary is too large to be sent for every position, each position is asked for by itself: the engine scores
the recorded id as its next token under the recorded parameters (processed log-probs only).

No seed is sent: the one token sampled is thrown away, and vLLM 0.32 on a CPU dies of a seeded request whose prompt it
reads in pieces (its generators there have no offset to take back).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import anyio
import msgspec

from agentenv.core.deadline import Deadline
from agentenv.core.lifetime import AsyncResource
from agentenv.errors import ConfigError, OrderError, PolicyServerFault
from agentenv.policies import probe
from agentenv.policies.refusals import error_fields, refusal
from agentenv.policies.transport import HttpReply, HttpTransport
from agentenv.policies.vllm_wire import CompletionsRoute, GenerateRoute, no_such_route
from agentenv.records.axes import Distribution
from agentenv.records.tokens import SamplingParams

_MAX_SCORES = 200_000
"""Scores (positions times vocabulary) to take in one answer; more go position by position. About 20 MB of JSON."""
_AT_ONCE = 16
_MISSING = -9000.0


class _Score(msgspec.Struct, gc=False):
    logprob: float | None = None


class _Choice(msgspec.Struct):
    prompt_logprobs: list[dict[int, _Score] | None] | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]
    prompt_logprobs: list[dict[int, _Score] | None] | None = None
    """Here on the tokens route, in the choice on the other one."""


_decoder = msgspec.json.Decoder(_Answer)


class Rescorer(AsyncResource):
    """Scores recorded ids with a running vLLM."""

    def __init__(
        self, url: str, model: str | None = None, *, api_key: str | None = None, timeout_s: float = 600.0
    ) -> None:
        """Nothing is opened before `start`.

        Args:
            url: Address of the server.
            model: Served name; None takes the first.
            api_key: Bearer token.
            timeout_s: Longest time for one answer.
        """
        self._transport = HttpTransport(url, api_key=api_key, max_connections=_AT_ONCE)
        self._wanted = model
        self._timeout_s = timeout_s
        self._model = ""
        self._window: int | None = None
        self._vocab_size: int | None = None

    async def start(self) -> None:
        """Connect, and find out whether the server gives the scores of its whole vocabulary.

        Raises:
            ConfigError: It does not serve the model.
            PolicyServerFault: It cannot be reached, or is no vLLM.
        """
        self._transport.start()
        deadline = self._deadline()
        await probe.ask_version(self._transport, deadline)
        self._model, self._window = await probe.ask_model(self._transport, self._wanted, deadline)
        scores = await self._prompt_scores([0, 0], whole=True)
        self._vocab_size = len(scores[1] or {}) if scores is not None else None

    async def aclose(self) -> None:
        self._model = ""
        await self._transport.aclose()

    async def rescore(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        *,
        sampling: SamplingParams,
        distribution: Distribution = Distribution.SAMPLING,
    ) -> list[float | None]:
        """Score the ids at ``positions``.

        Args:
            token_ids: (T,) a recorded sequence, prompt and completions.
            positions: (N,) indices into it, each at least 1.
            sampling: As recorded for these positions.
            distribution: What the recorded log-probs describe; ``model`` ignores ``sampling``.

        Returns:
            (N,) natural log, own-token alignment: of ``token_ids[i]`` after ``token_ids[:i]``. None where the engine
            gives no finite score, and at a position that its window leaves no room to score.

        Raises:
            ConfigError: The distribution is unknown, a position is out of range, or the server was started without
                what the question needs; the message names the flag.
        """
        if not self._model:
            raise OrderError("The rescorer is not started; await start() first.")
        if distribution is Distribution.UNKNOWN:
            raise ConfigError("Log-probs of an unknown distribution cannot be compared with anything.")
        if distribution is Distribution.SAMPLING and sampling.temperature <= 0.0:
            raise ConfigError("A greedy reply has no sampling distribution; its log-probs are the model's own.")
        if any(not 1 <= at < len(token_ids) for at in positions):
            raise ConfigError(f"Positions must lie in [1, {len(token_ids)}); the first id has nothing before it.")
        ids = list(token_ids if self._window is None else token_ids[: self._window - 1])
        inside = [at for at in positions if at < len(ids)]
        scored = dict(zip(inside, await self._scores(ids, inside, sampling, distribution), strict=True))
        return [scored.get(at) for at in positions]

    async def _scores(
        self, ids: list[int], positions: list[int], sampling: SamplingParams, distribution: Distribution
    ) -> list[float | None]:
        if not positions:
            return []
        temperature = 1.0 if distribution is Distribution.MODEL else sampling.temperature
        filtered = distribution is Distribution.SAMPLING and sampling.filtered
        if temperature == 1.0 and not filtered:
            return await self._from_prompt(ids[: max(positions) + 1], positions, 1.0)
        if not filtered and self._vocab_size is not None and len(ids) * self._vocab_size <= _MAX_SCORES:
            return await self._from_prompt(ids[: max(positions) + 1], positions, temperature)
        return await self._one_by_one(ids, positions, sampling)

    async def _from_prompt(self, ids: list[int], positions: list[int], temperature: float) -> list[float | None]:
        scores = await self._prompt_scores(ids, whole=temperature != 1.0)
        if scores is None or len(scores) != len(ids):
            raise PolicyServerFault(f"{self._transport.url} gave no prompt log-prob for each of {len(ids)} ids.")
        return [_tempered(scores[at] or {}, ids[at], temperature) for at in positions]

    async def _prompt_scores(self, ids: list[int], *, whole: bool) -> list[dict[int, _Score] | None] | None:
        """Ask for prompt log-probs, of the ids or of the ``whole`` vocabulary; None if that is more than it gives."""
        reply = await self._ask_generate(ids) if whole else None
        if reply is None or no_such_route(reply.status, reply.body):
            body: dict[str, Any] = {"model": self._model, "prompt": ids, "max_tokens": 1}
            body["prompt_logprobs"] = -1 if whole else 0
            reply = await self._post(CompletionsRoute.path, body)
        if reply.status == 400 and whole and "max allowed" in error_fields(reply.body).get("message", ""):
            return None
        if no_such_route(reply.status, reply.body) or (reply.status == 400 and b"prompt_logprobs" in reply.body):
            raise self._cannot()
        if reply.status != 200:
            raise refusal(self._transport.url, reply.status, reply.body)
        answer = _decoder.decode(reply.body)
        return answer.prompt_logprobs or answer.choices[0].prompt_logprobs

    def _cannot(self) -> ConfigError:
        return ConfigError(
            f"{self._transport.url} cannot score given tokens; --engine needs a vLLM server. Without --engine the laws "
            "are still audited."
        )

    async def _ask_generate(self, ids: list[int]) -> HttpReply:
        """Take the tokens route for whole vocabularies: the other one decodes every candidate to text, which costs."""
        params = {"max_tokens": 1, "prompt_logprobs": -1, "detokenize": False}
        return await self._post(GenerateRoute.path, {"model": self._model, "token_ids": ids, "sampling_params": params})

    async def _post(self, path: str, body: dict[str, Any]) -> HttpReply:
        return await self._transport.post(path, msgspec.json.encode(body), self._deadline())

    async def _one_by_one(self, ids: list[int], positions: list[int], sampling: SamplingParams) -> list[float | None]:
        if sampling.presence_penalty or sampling.frequency_penalty:
            raise ConfigError(
                "Log-probs under presence and frequency penalties cannot be asked for again: they count the tokens of "
                "one reply, and a recorded reply can only be given back as a prompt."
            )
        found: dict[int, float | None] = {}
        waiting = iter(positions)

        async def score() -> None:
            for at in waiting:
                found[at] = await self._next_score(ids[:at], ids[at], sampling)

        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(_AT_ONCE):
                    tasks.start_soon(score)
        except ExceptionGroup as group:
            raise group.exceptions[0] from group
        return [found[at] for at in positions]

    async def _next_score(self, prompt: list[int], token: int, sampling: SamplingParams) -> float | None:
        """Ask for the score of one id as the next token. The tokens route would leave it out of its answer (0.32)."""
        route = CompletionsRoute(self._model)
        body: dict[str, Any] = {
            "model": self._model,
            "prompt": prompt,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "max_tokens": 1,
            "logprobs": 1,
            "logprob_token_ids": [token],
            "return_tokens_as_token_ids": True,
        }
        reply = await self._post(route.path, body)
        if reply.status != 200:
            raise refusal(self._transport.url + route.path, reply.status, reply.body)
        top = route.decode_top(reply.body)
        if token not in top:
            raise ConfigError(
                f"{self._transport.url} does not score a given id as the next token (vLLM 0.32 and newer do), and "
                "these sampling parameters need it. Where temperature is the only one, --max-logprobs -1 serves too."
            )
        return top[token] if top[token] > _MISSING else None

    def _deadline(self) -> Deadline:
        return Deadline.after(self._timeout_s, "re-scoring")


def _tempered(scores: dict[int, _Score], token: int, temperature: float) -> float | None:
    """Give the log-prob of ``token`` at ``temperature`` from those at 1; at 1 its own suffices, else all are needed."""
    own = scores.get(token)
    if own is None or own.logprob is None or own.logprob <= _MISSING:
        return None
    if temperature == 1.0:
        return own.logprob
    scaled = [each.logprob / temperature for each in scores.values() if each.logprob is not None]
    highest = max(scaled)
    return own.logprob / temperature - highest - math.log(math.fsum(math.exp(value - highest) for value in scaled))


async def rescore(
    url: str,
    model: str | None,
    token_ids: Sequence[int],
    positions: Sequence[int],
    *,
    sampling: SamplingParams,
    distribution: Distribution = Distribution.SAMPLING,
    api_key: str | None = None,
) -> list[float | None]:
    """Score one sequence with a server that is asked once; see `Rescorer.rescore`."""
    async with Rescorer(url, model, api_key=api_key) as rescorer:
        await rescorer.start()
        return await rescorer.rescore(token_ids, positions, sampling=sampling, distribution=distribution)
