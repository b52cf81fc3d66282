"""What a server says its model is made of: where a client may find the tokenizer."""

from __future__ import annotations

import httpx

from agentenv.errors import ConfigError, PolicyServerFault
from agentenv.policies.http_client import read_address

_TIMEOUT_S = 10.0


async def served_model_root(url: str, model: str | None = None, *, api_key: str | None = None) -> str:
    """Ask a vLLM server where its model was loaded from: a folder (of its machine) or a hub id.

    Args:
        url: Address of the server, with or without a trailing ``/v1``.
        model: Served name; None takes the first the server lists.
        api_key: Bearer token.

    Raises:
        ConfigError: The address is none, or holds a name or password; or the server does not say, and the tokenizer
            must be named.
        PolicyServerFault: It cannot be reached, or is no such server.
    """
    read_address(url)
    address = f"{url.rstrip('/').removesuffix('/v1')}/v1/models"
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        async with httpx.AsyncClient(timeout=_TIMEOUT_S, headers=headers) as client:
            reply = await client.get(address)
    except httpx.HTTPError as error:
        raise PolicyServerFault.permanent(
            f"no policy server at {url}: {type(error).__name__}: {error}. Start it, or give its address with --url."
        ) from error
    try:
        served = reply.json()["data"]
        entries = [entry for entry in served if model is None or entry["id"] == model] or served
        root = entries[0].get("root")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise PolicyServerFault.permanent(
            f"{address} answered {reply.status_code} and is no list of models; is {url} a vLLM server?"
        ) from error
    if not root:
        raise ConfigError(f"{url} does not say where its model comes from: name the tokenizer with --tokenizer")
    return str(root)
