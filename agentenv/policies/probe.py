"""What is asked of a vLLM server before the first episode, and what the answers mean.

What this module owns: the start-up questions (version, model, window, weight label, tokenizer, log-prob distribution,
which token route there is). Each is one function; `vllm` puts them together.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from agentenv.core.deadline import Deadline
from agentenv.core.renderer import Tokenizer
from agentenv.errors import ConfigError, PolicyServerFault
from agentenv.policies.transport import HttpReply, HttpTransport
from agentenv.policies.vllm_wire import (
    Route,
    WireCall,
    WireReply,
    encode_prompt,
    no_such_route,
)
from agentenv.records.axes import Distribution
from agentenv.records.tokens import SamplingParams

TOKENIZER_TEXT = (
    "Tokenizer check 0123456789 3.14159 -42\n"
    "  two spaces,    four,\ttab\n\n\nnaïve café Ω 你好 עברית 🙂👩‍💻 e\u0301 \u00a0\u200b\n"
    "def f(x: int) -> str: return f\"{x!r}\"  # <tag attr='1'/>\n"
    "<|im_start|>user\n<|im_end|><|endoftext|><s></s><bos><eos>[INST][/INST]<|eot_id|>"
    '<tool_call>{"name": "a", "arguments": {"b": [1, null, true]}}</tool_call><think></think>'
)
"""Digits, spaces, scripts, combining marks, code, and the control tokens of the usual families."""
PROBE_TEXTS = ("The capital of France is", "1, 2, 3, 4, 5,", "def main():\n    return")
_CANDIDATES = (20, 5, 1)
"""Numbers of candidates to ask for; 20 is vLLM's default limit, some servers allow fewer."""
_FLAT = 0.25
"""Candidates closer together than this (nats at temperature 1) tell nothing: noise of half precision reaches 0.05."""


class ProbedRoute(NamedTuple):
    """The route that answers, and what its first answer looked like."""

    route: Route
    first: WireReply


async def ask_version(transport: HttpTransport, deadline: Deadline) -> str:
    """Ask which vLLM this is.

    Raises:
        PolicyServerFault: Nobody answers there, or it is no vLLM.
    """
    reply = await transport.call("GET", "/version", None, deadline)
    if reply.status in (401, 403):
        raise PolicyServerFault.permanent(f"{transport.url} refuses us ({reply.status}). Give the API key it expects.")
    version = _json_object(reply).get("version")
    if reply.status != 200 or not isinstance(version, str):
        raise PolicyServerFault.permanent(
            f"{transport.url} answers, but is no vLLM server: GET /version gave {reply.status} {reply.excerpt!r}. "
            "Check the address; for other OpenAI-compatible servers use the policy 'openai' (text only)."
        )
    return version


async def ask_model(
    transport: HttpTransport, wanted: str | None, deadline: Deadline, *, option: str = ""
) -> tuple[str, int | None]:
    """Ask what is served, and choose ``wanted`` or the first.

    Args:
        transport: The server.
        wanted: Served name; None takes the first.
        deadline: Of the question.
        option: What ``wanted`` is the value of, for the error to name.

    Returns:
        The served name and its window in tokens, None if it does not say.

    Raises:
        ConfigError: ``wanted`` is not served; the message says what is.
        PolicyServerFault: The answer is no list of models.
    """
    reply = await transport.call("GET", "/v1/models", None, deadline)
    if reply.status in (401, 403):
        raise PolicyServerFault.permanent(f"{transport.url} refuses us ({reply.status}). Give the API key it expects.")
    data = _json_object(reply).get("data")
    models: list[dict[str, Any]] = [m for m in data if isinstance(m, dict)] if isinstance(data, list) else []
    windows = {str(m["id"]): m.get("max_model_len") for m in models if "id" in m}
    if not windows:
        raise PolicyServerFault.permanent(
            f"{transport.url}/v1/models gave {reply.status} {reply.excerpt!r}; expected a list of served models."
        )
    name = wanted if wanted is not None else next(iter(windows))
    if name not in windows:
        near = difflib.get_close_matches(name, windows, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        where = f" ({option})" if option else ""
        raise ConfigError(
            f"{transport.url} does not serve the model {name!r}{where}.{hint} It serves: {', '.join(windows)}."
        )
    known = [window for window in (windows[name], *windows.values()) if isinstance(window, int)]
    return name, known[0] if known else None


async def ask_weight_label(transport: HttpTransport, deadline: Deadline) -> str | None:
    """Ask for the label of the weights; None where the server keeps none or does not tell (development mode off)."""
    reply = await transport.call("GET", "/weight_info", None, deadline)
    label = _json_object(reply).get("weight_version") if reply.status == 200 else None
    return label if isinstance(label, str) else None


async def ask_configuration(transport: HttpTransport, deadline: Deadline) -> dict[str, str]:
    """Ask how the server was started, as far as it shapes tokens and log-probs; empty with development mode off."""
    reply = await transport.call("GET", "/server_info?config_format=json", None, deadline)
    config = _json_object(reply).get("vllm_config") if reply.status == 200 else None
    model = config.get("model_config") if isinstance(config, dict) else None
    if not isinstance(model, dict):
        return {}
    keys = (
        "logprobs_mode",
        "model",
        "revision",
        "tokenizer",
        "dtype",
        "quantization",
        "generation_config",
        "max_logprobs",
    )
    return {key: str(model[key]) for key in keys if model.get(key) is not None}


async def find_route(
    transport: HttpTransport, routes: Sequence[Route], prompt: Sequence[int], deadline: Deadline
) -> ProbedRoute:
    """Find the first of ``routes`` that the server has, by sampling one token.

    Raises:
        ConfigError: It has none.
        PolicyServerFault: It refuses one token's worth of sampling, or its answer is not what vLLM gives.
    """
    refusals: list[str] = []
    for route in routes:
        reply = await transport.post(route.path, route.encode(_probe_call(prompt, 1.0, 0)), deadline)
        if reply.status == 200:
            return ProbedRoute(route, route.decode(reply.body))
        if not no_such_route(reply.status, reply.body):
            raise PolicyServerFault.permanent(
                f"{transport.url}{route.path} refused one token of sampling: {reply.status} {reply.excerpt!r}."
            )
        refusals.append(f"{route.path}: {reply.status}")
    raise ConfigError(
        f"{transport.url} takes no token ids ({'; '.join(refusals)}). Start vLLM with --enable-scale-out "
        "(0.30 and newer), which adds /inference/v1/generate, and with text generation enabled."
    )


async def check_tokenizer(transport: HttpTransport, model: str, tokenizer: Tokenizer, deadline: Deadline) -> str:
    """Compare the server's tokenizer with ours on a test text.

    Returns:
        How it went, for the manifest: the server may have no tokenizer to compare with.

    Raises:
        ConfigError: They differ; the message shows the first position that does.
    """
    body = msgspec.json.encode({"model": model, "prompt": TOKENIZER_TEXT, "add_special_tokens": False})
    reply = await transport.post("/tokenize", body, deadline)
    theirs = _json_object(reply).get("tokens") if reply.status == 200 else None
    if not isinstance(theirs, list):
        return f"not compared: the server has no /tokenize ({reply.status})"
    ours = tokenizer.encode(TOKENIZER_TEXT).tolist()
    if theirs == ours:
        return f"equal on {len(ours)} test tokens"
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    mine, before = ours[at : at + 5], tokenizer.decode(ours[max(0, at - 5) : at])
    raise ConfigError(
        f"The tokenizer at hand is not the one {transport.url} uses: of {len(ours)} test ids (theirs: {len(theirs)}) "
        f"the first difference is at position {at}: ours {mine} ({tokenizer.decode(mine)!r}), "
        f"theirs {theirs[at : at + 5]}, after {before!r}. "
        "Point the tokenizer at the directory of the model that is served."
    )


async def probe_distribution(
    transport: HttpTransport, route: Route, prompts: Sequence[Sequence[int]], deadline: Deadline
) -> tuple[Distribution, str]:
    """Find out which distribution the server's log-probs describe, from the same prompts at two temperatures.

    Between two candidates of one position the normaliser cancels: their distance stays as it is if the log-probs are
    the model's own, and halves at temperature 2 if they are tempered. Flat or forced positions tell nothing.

    Returns:
        The distribution, unknown if no prompt was conclusive or they disagree; and why.
    """
    found: set[Distribution] = set()
    reasons: list[str] = []
    for prompt in prompts:
        plain = await _candidates_at(transport, route, prompt, 1.0, deadline)
        tempered = await _candidates_at(transport, route, prompt, 2.0, deadline)
        verdict, reason = judge_temperatures(plain, tempered)
        reasons.append(reason)
        if verdict is not Distribution.UNKNOWN:
            found.add(verdict)
    if len(found) == 1:
        return found.pop(), "; ".join(reasons)
    return Distribution.UNKNOWN, "; ".join(reasons)


def judge_temperatures(plain: dict[int, float], tempered: dict[int, float]) -> tuple[Distribution, str]:
    """Compare candidates (id to log-prob) of one position at temperature 1 with those at temperature 2."""
    values = [*plain.values(), *tempered.values()]
    if any(value > 1e-3 for value in values):
        return Distribution.UNKNOWN, "values above 0: logits, not log-probs"
    common = sorted((plain[token], token) for token in plain.keys() & tempered.keys() if plain[token] > -9000.0)
    if len(common) < 2:
        return Distribution.UNKNOWN, "fewer than two common candidates"
    low, high = common[0][1], common[-1][1]
    spread = plain[high] - plain[low]
    if spread < _FLAT:
        return Distribution.UNKNOWN, f"flat: candidates within {spread:.3f} nats"
    ratio = (tempered[high] - tempered[low]) / spread
    reason = f"distance {spread:.3f} at temperature 1, times {ratio:.3f} at temperature 2"
    if abs(ratio - 1.0) < 0.15:
        return Distribution.MODEL, reason
    if abs(ratio - 0.5) < 0.15:
        return Distribution.SAMPLING, reason
    return Distribution.UNKNOWN, reason


async def _candidates_at(
    transport: HttpTransport, route: Route, prompt: Sequence[int], temperature: float, deadline: Deadline
) -> dict[int, float]:
    for n in _CANDIDATES:
        reply = await transport.post(route.path, route.encode(_probe_call(prompt, temperature, n)), deadline)
        if reply.status == 200:
            return route.decode_top(reply.body)
    return {}


def _probe_call(prompt: Sequence[int], temperature: float, n_logprobs: int) -> WireCall:
    return WireCall(
        prompt_json=encode_prompt(list(prompt)),
        sampling=SamplingParams(temperature=temperature, max_tokens=1),
        max_tokens=1,
        seed=17,
        request_id=f"agentenv-probe-{temperature:g}-{n_logprobs}",
        n_logprobs=n_logprobs,
    )


def _json_object(reply: HttpReply) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return decoded if isinstance(decoded, dict) else {}
