"""What a server says its model is made of: where a client may find the tokenizer."""

from __future__ import annotations

import msgspec

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.errors import ConfigError, PolicyServerFault
from agentenv.policies.transport import HttpTransport

_TIMEOUT_S = 10.0
_ROUTE = "/v1/models"


async def served_model_root(url: str, model: str | None = None, *, api_key: str | None = None) -> str:
    """Ask a vLLM server where its model was loaded from: a folder (of its machine) or a hub id.

    Args:
        url: Address of the server, in any form `HttpTransport` takes.
        model: Served name; None takes the first the server lists.
        api_key: Bearer token.

    Raises:
        ConfigError: The address is none, or holds a name or password; or the server does not say, and the tokenizer
            must be named.
        PolicyServerFault: It cannot be reached, or is no such server.
    """
    async with HttpTransport(url, api_key=api_key, max_connections=1) as transport:
        transport.start()
        try:
            reply = await transport.call("GET", _ROUTE, None, Deadline.after(_TIMEOUT_S, "finding the tokenizer"))
        except DeadlineReached as error:
            raise PolicyServerFault.permanent(
                f"{transport.url} did not answer GET {_ROUTE} within {_TIMEOUT_S:g} s. Is it still loading?"
            ) from error
    if reply.status in (401, 403):
        raise PolicyServerFault.permanent(f"{transport.url} refuses us ({reply.status}). Give the API key it expects.")
    try:
        served = msgspec.json.decode(reply.body)["data"]
        entries = [entry for entry in served if model is None or entry["id"] == model] or served
        root = entries[0].get("root")
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise PolicyServerFault.permanent(
            f"{transport.url}{_ROUTE} gave {reply.status} {reply.excerpt!r}, which is no list of models. "
            "Is it a vLLM server, and is the address right?"
        ) from error
    if not root:
        raise ConfigError(
            f"{transport.url} does not say where its model comes from: name the tokenizer with --tokenizer."
        )
    return str(root)
