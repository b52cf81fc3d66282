"""Reading an engine's refusals: what it says, and whether it says that a prompt is too long.

The texts were collected from running servers (vLLM 0.32.0 on both token routes, llama.cpp's server) and from OpenAI's
documentation of ``context_length_exceeded``.
"""

from __future__ import annotations

import msgspec

from agentenv.errors import Fault, PolicyServerFault, PromptTooLong, ended

_FIELDS = ("message", "param", "type", "detail", "code")
_LENGTH_TEXTS = (
    "maximum context length",
    "maximum model length",
    "max_tokens must be at least 1",
    "context_length_exceeded",
    "exceed_context_size",
    "exceeds the available context size",
)


def error_fields(body: bytes) -> dict[str, str]:
    """Read an error body, whatever the server is: those of message, param, type, detail and code that are there."""
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {"message": body[:500].decode("utf-8", "replace")}
    inner = decoded.get("error", decoded) if isinstance(decoded, dict) else decoded
    if not isinstance(inner, dict):
        return {"message": str(inner)[:500]}
    return {key: str(inner[key]) for key in _FIELDS if inner.get(key) is not None}


def prompt_too_long(status: int, body: bytes) -> bool:
    """Whether a refusal means that prompt and reply do not fit the window. One cause has several shapes."""
    if status not in (400, 413, 422):
        return False
    said = " ".join(error_fields(body).values())
    return any(text in said for text in _LENGTH_TEXTS)


def refusal(url: str, status: int, body: bytes) -> Fault:
    """Make the fault that a refusal (a status that asking again cannot change) stands for."""
    said = error_fields(body)
    text = (said.get("message") or said.get("detail") or "no text")[:200]
    if prompt_too_long(status, body):
        return PromptTooLong(f"The engine refused the prompt for its length: {text}")
    if 300 <= status < 400:
        return PolicyServerFault.permanent(f"{url} points to another address ({status}). Give that one.")
    remedy = " Give the API key it expects." if status in (401, 403) else ""
    return PolicyServerFault.permanent(f"{url} refused the request ({status}): {ended(text)}{remedy}")
