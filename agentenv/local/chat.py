"""OpenAI's chat completions as a local server speaks them: messages and tools in, text and calls out.

What this module owns: field names of that route, and what a history and a reply are there. The model's own template
writes the prompt and its call style is read back, by the renderer. No token id and no log-prob leaves by this route;
what was sampled and cannot be read as text and calls is given as it was written.

Source: OpenAI's API reference, "Create chat completion"; vLLM 0.32, ``entrypoints/openai/chat_completion/protocol.py``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from agentenv.core.policy import Reply
from agentenv.core.renderer import Renderer
from agentenv.local.shapes import BadRequest, Wanted, refuse, usage, wanted_of
from agentenv.records.messages import Message, Role, ToolCall, ToolSpec
from agentenv.records.tokens import unpack_ids

_ROLES = {role.value: role for role in Role} | {"developer": Role.SYSTEM}
_REFUSED: Mapping[str, object] = {"logprobs": False, "top_logprobs": 0, "functions": None, "audio": None}
"""With the one value that can be had here; ids and log-probs are for the routes that carry tokens."""


class _Function(msgspec.Struct):
    name: str
    arguments: str = "{}"


class _Call(msgspec.Struct):
    id: str
    function: _Function


class _Part(msgspec.Struct):
    text: str
    type: str = "text"


class _Said(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


class _Spec(msgspec.Struct):
    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None


class _Tool(msgspec.Struct):
    function: _Spec


class _Chat(msgspec.Struct):
    messages: list[_Said]
    tools: list[_Tool] | None = None
    tool_choice: Any = None
    response_format: Any = None


def read_chat(body: Mapping[str, Any], renderer: Renderer, room: int) -> Wanted:
    """Read a body of ``/v1/chat/completions``.

    Args:
        body: The decoded JSON object.
        renderer: Of the model that will answer.
        room: Reply tokens where the body names no ``max_tokens``, before the prompt is taken off.

    Raises:
        BadRequest: A field is missing, has the wrong type, or asks for what cannot be done here.
        ConfigError: The model's template refuses this history.
    """
    refuse(body)
    refuse(body, _REFUSED)
    try:
        chat = msgspec.convert(body, _Chat)
        messages = _messages(chat.messages)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise BadRequest(f"The chat cannot be read: {error}", "messages") from error
    if chat.tool_choice not in (None, "auto", "none"):
        raise BadRequest(f"tool_choice = {chat.tool_choice!r:.100} cannot be had: the model chooses.", "tool_choice")
    if chat.response_format not in (None, {"type": "text"}):
        raise BadRequest("response_format other than text cannot be had from this server.", "response_format")
    tools = [] if chat.tool_choice == "none" else [_spec(tool.function) for tool in chat.tools or []]
    prompt = renderer.open(messages, tools)
    params = {**body, "logprobs": None}
    if params.get("max_tokens") is None:
        params["max_tokens"] = params.get("max_completion_tokens")
    return wanted_of(body, params, prompt, max_tokens=max(1, room - len(prompt)))


def chat_answer(wanted: Wanted, reply: Reply, *, model: str, request_id: str, renderer: Renderer) -> dict[str, Any]:
    """Write an answer of ``/v1/chat/completions``; its counts are those of what was rendered and sampled."""
    message, finish = _answered(unpack_ids(reply.sampled.completion_ids).tolist(), renderer, request_id)
    choice = {
        "index": 0,
        "message": {"role": "assistant", **message},
        "finish_reason": finish or reply.finish.value,
        "logprobs": None,
    }
    return {
        "id": f"chatcmpl-{request_id}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": usage(wanted, reply),
    }


def _answered(ids: list[int], renderer: Renderer, request_id: str) -> tuple[dict[str, Any], str | None]:
    """Read a reply as content and calls; with the reason why it ended where there are calls."""
    turn = renderer.parse(ids, 0)
    if turn.errors:  # what was meant as a call and is none: the caller is to see it as it was written
        written = ids[:-1] if ids and ids[-1] in renderer.stop_token_ids else ids
        return {"content": renderer.tokenizer.decode(written)}, None
    reasoning = {} if turn.reasoning is None else {"reasoning_content": turn.reasoning}
    if not turn.calls:
        return {"content": turn.text, **reasoning}, None
    calls = [_call(call, f"call-{request_id}-{index}") for index, call in enumerate(turn.calls)]
    return {"content": turn.text or None, "tool_calls": calls, **reasoning}, "tool_calls"


def _call(call: ToolCall, call_id: str) -> dict[str, Any]:
    arguments = msgspec.json.encode(call.arguments).decode()
    return {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _messages(said: Sequence[_Said]) -> list[Message]:
    messages: list[Message] = []
    names: dict[str, str] = {}
    for index, each in enumerate(said):
        if each.role not in _ROLES:
            raise BadRequest(
                f"messages[{index}].role must be one of {', '.join(_ROLES)}, got {each.role!r:.60}", "role"
            )
        calls = tuple(_read_call(call, index) for call in each.tool_calls or ())
        names |= {call.id: call.name for call in calls}
        messages.append(
            Message(
                id=f"m{index}",
                role=_ROLES[each.role],
                text=_text(each.content, index),
                calls=calls,
                call_id=each.tool_call_id,
                name=names.get(each.tool_call_id or ""),
            )
        )
    if not messages:
        raise BadRequest("messages must hold one message at least.", "messages")
    return messages


def _read_call(call: _Call, index: int) -> ToolCall:
    arguments: Any = msgspec.json.decode(call.function.arguments or "{}")
    if not isinstance(arguments, dict):
        raise BadRequest(f"messages[{index}].tool_calls: arguments must be the JSON of an object.", "tool_calls")
    return ToolCall(id=call.id, name=call.function.name, arguments=arguments)


def _text(content: str | list[_Part] | None, index: int) -> str:
    if isinstance(content, list):
        if any(part.type != "text" for part in content):
            raise BadRequest(f"messages[{index}].content has parts that are no text; this model reads text.", "content")
        return "".join(part.text for part in content)
    return content or ""


def _spec(function: _Spec) -> ToolSpec:
    parameters = function.parameters or {"type": "object", "properties": {}}
    return ToolSpec(name=function.name, description=function.description, parameters=parameters)
