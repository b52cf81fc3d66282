"""The text-only policy: any server that speaks OpenAI's chat completions, with tools.

Its replies are text and parsed calls; the ids the server sampled are not to be had. So that an environment reads them
as it reads any other reply, text and calls are written out once more by the renderer at hand (``Renderer.compose``):
those ids are ours, carry no log-probs, and records made with them say that they are not trainable.
"""

from __future__ import annotations

import time
from array import array
from typing import Any

import msgspec

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.policy import Policy, PolicyIdentity, Reply, SampleRequest
from agentenv.core.renderer import Renderer
from agentenv.errors import ConfigError, OrderError, PolicyServerFault, UsageError, ended
from agentenv.policies.probe import ask_model
from agentenv.policies.refusals import refusal
from agentenv.policies.transport import HttpTransport, RetryRules
from agentenv.records.axes import Distribution, Evidence, Finish
from agentenv.records.messages import Message, Role, ToolCall, ToolSpec
from agentenv.records.tokens import Sampled, SamplingParams, VersionSpan, pack_ids

_PATH = "/v1/chat/completions"
_FINISHES = {"stop": Finish.STOP, "tool_calls": Finish.STOP, "function_call": Finish.STOP, "length": Finish.LENGTH}
_UNPARSED = "unparsed_arguments"
"""Argument that carries what the model wrote where it was no JSON object; no tool has it, so the model is told."""
_UNNAMED = "unnamed"
"""Stands for the name of a call that has none; no tool has it, so the model is told."""
_MOST_CALLS = 128
"""Of one reply, as many as renderers read."""
_MOST_LEVELS = 48
"""Of nesting in arguments; renderers read some more, the call around them included."""


class _Function(msgspec.Struct):
    name: str
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct):
    function: _Function
    id: str | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Answer)


class OpenAiPolicy(Policy):
    """Samples text from an OpenAI-compatible server."""

    def __init__(
        self,
        url: str,
        model: str,
        *,
        renderer: Renderer | None = None,
        context_window: int | None = None,
        api_key: str | None = None,
        max_connections: int = 64,
        retry: RetryRules | None = None,
    ) -> None:
        """Check the settings; nothing is opened before `start`.

        Args:
            url: Address of the server, with or without a trailing ``/v1``.
            model: Name to ask for.
            renderer: Writes replies as ids for the environment; None where the environment takes plain text, which
                leaves no way to pass a tool call on.
            context_window: Tokens, where the server does not say; used for budgets alone.
            api_key: Bearer token.
            max_connections: Requests in flight at once.
            retry: When to ask again.
        """
        self._transport = HttpTransport(url, api_key=api_key, max_connections=max_connections, retry=retry)
        self._model = model
        self._renderer = renderer
        self._window = context_window
        self._identity: PolicyIdentity | None = None

    @property
    def identity(self) -> PolicyIdentity:
        if self._identity is None:
            raise OrderError("The OpenAI policy is not started; await start() first.")
        return self._identity

    async def start(self) -> PolicyIdentity:
        if self._identity is not None:
            return self._identity
        self._transport.start()
        deadline = Deadline.after(60.0, "start of the policy")
        try:
            model, window = await ask_model(self._transport, self._model, deadline, option="--model")
        except DeadlineReached as error:
            raise PolicyServerFault(f"{self._transport.url} did not list its models within 60 s.") from error
        self._identity = PolicyIdentity(
            kind="openai",
            model=model,
            engine="OpenAI-compatible server",
            endpoint=self._transport.url + _PATH,
            context_window=self._window if self._window is not None else window,
            tokenizer_sha256=self._renderer.tokenizer.sha256 if self._renderer is not None else None,
            logprobs=Distribution.UNKNOWN,
            logprobs_evidence=Evidence.UNKNOWN,
            trainable=False,
            details={"ids": "composed by our renderer" if self._renderer is not None else "none"},
        )
        return self._identity

    async def aclose(self) -> None:
        self._identity = None
        await self._transport.aclose()

    async def sample(self, request: SampleRequest, deadline: Deadline) -> Reply:
        model = self.identity.model
        if deadline.passed:
            raise DeadlineReached(f"the deadline of {deadline.name} had passed before the call", deadline)
        began = time.monotonic()
        reply = await self._transport.post(_PATH, _encoder.encode(chat_body(model, request)), deadline)
        if reply.status != 200:
            raise refusal(self._transport.url + _PATH, reply.status, reply.body)
        choice = _read(reply.body)
        finish = _FINISHES.get(choice.finish_reason or "")
        if finish is None:
            raise PolicyServerFault.permanent(
                f"{self._transport.url} ended a reply with {choice.finish_reason!r}; "
                f"expected one of {sorted(_FINISHES)}."
            )
        text = choice.message.content or ""
        calls, notes = _calls(choice.message.tool_calls or [])
        ids, compose_notes = self._compose(text, calls, finish)
        stops = self._renderer.stop_token_ids if self._renderer is not None else ()
        return Reply(
            sampled=Sampled(
                completion_ids=pack_ids(ids),
                version_spans=(VersionSpan(start=0, end=len(ids), version=None),) if ids else (),
                text=text,
                notes=notes + compose_notes,
            ),
            finish=finish,
            stop_token_id=ids[-1] if finish is Finish.STOP and ids and ids[-1] in stops else None,
            queued_s=reply.began - began,
            generating_s=time.monotonic() - reply.began,
            retries=reply.attempts - 1,
        )

    def _compose(self, text: str, calls: list[ToolCall], finish: Finish) -> tuple[array[int], tuple[str, ...]]:
        """Write text and calls as ids; the notes say what could not be written as it came."""
        renderer = self._renderer
        if renderer is None:
            if calls:
                raise ConfigError(
                    f"The server answered with the tool calls {[call.name for call in calls]}, and there is no "
                    "renderer to write them for the environment. Configure a tokenizer and template for this policy."
                )
            return array("i"), ()
        ids, notes = _written(renderer, text, calls)
        if finish is Finish.LENGTH and ids and ids[-1] in renderer.stop_token_ids:
            del ids[-1]
        return ids, notes


def _written(renderer: Renderer, text: str, calls: list[ToolCall]) -> tuple[array[int], tuple[str, ...]]:
    """Compose a turn. A text that the call style cannot carry goes in plainly, or beside calls not at all."""
    try:
        return renderer.compose(text.strip(), calls), ()
    except UsageError:
        if not calls:
            ids = renderer.tokenizer.encode_plain(text)
            ids.extend(renderer.stop_token_ids[:1])
            return ids, ("the text does not read back as a turn: written plainly",)
    try:
        return renderer.compose("", calls), ("the text beside the calls does not read back: left out of the ids",)
    except UsageError as error:
        raise PolicyServerFault(f"The server's tool calls cannot be written for the environment: {error}") from error


def chat_body(model: str, request: SampleRequest) -> dict[str, Any]:
    """Write a request. Fields OpenAI does not have go only where they are not neutral: some servers refuse them."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": model,
        "messages": [_message(message) for message in request.messages],
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "max_tokens": sampling.max_tokens,
        "seed": request.seed,
        **_extensions(sampling),
    }
    if request.tools:
        body["tools"] = [_tool(spec) for spec in request.tools]
    return body


def _extensions(sampling: SamplingParams) -> dict[str, float]:
    neutral = SamplingParams()
    names = ("top_k", "min_p", "repetition_penalty")
    return {name: getattr(sampling, name) for name in names if getattr(sampling, name) != getattr(neutral, name)}


def _message(message: Message) -> dict[str, Any]:
    """Write a message; a tool message that answers no call (a parse error) can only go as a user's."""
    if message.role is Role.TOOL and message.call_id is not None:
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    role = Role.USER if message.role is Role.TOOL else message.role
    written: dict[str, Any] = {"role": role.value, "content": message.text}
    if message.calls:
        written["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _encoder.encode(call.arguments).decode()},
            }
            for call in message.calls
        ]
    return written


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}


def _read(body: bytes) -> _Choice:
    try:
        choices = _decoder.decode(body).choices
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PolicyServerFault(
            f"The answer of {_PATH} is no chat completion: {ended(error)} It begins {body[:120]!r}."
        ) from error
    if len(choices) != 1:
        raise PolicyServerFault(f"{_PATH} answered {len(choices)} choices where 1 was asked for.")
    return choices[0]


def _calls(given: list[_Call]) -> tuple[list[ToolCall], tuple[str, ...]]:
    """Read what the model called, in a form that a renderer can write.

    What it cannot write is the model's mistake, not the server's: it is changed, with a note, and the environment
    answers it.
    """
    calls: list[ToolCall] = []
    notes: list[str] = []
    for index, call in enumerate(given[:_MOST_CALLS]):
        name, arguments = call.function.name.strip() or _UNNAMED, _arguments(call.function.arguments)
        if _UNPARSED in arguments:
            notes.append(f"the arguments of call {index} ({name:.80}) are no JSON object of moderate depth")
        calls.append(ToolCall(id=call.id or f"c{index}", name=name, arguments=arguments))
    if len(given) > len(calls):
        notes.append(f"the reply has {len(given)} calls; only the first {len(calls)} were taken")
    return calls, tuple(notes)


def _arguments(given: str | dict[str, Any] | None) -> dict[str, Any]:
    if not given:
        return {}
    text = given if isinstance(given, str) else _encoder.encode(given).decode()
    try:
        decoded: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {_UNPARSED: text}
    return decoded if isinstance(decoded, dict) and not _too_deep(decoded) else {_UNPARSED: text}


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_MOST_LEVELS):
        level = [item for node in level if isinstance(node, (dict, list)) for item in _items(node)]
        if not level:
            return False
    return True


def _items(node: Any) -> list[Any]:
    return list(node.values()) if isinstance(node, dict) else node
