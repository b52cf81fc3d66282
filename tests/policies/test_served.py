"""What a server says of its model, asked before there is a tokenizer to start a policy with."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from agentenv.core.deadline import Deadline
from agentenv.errors import ConfigError, Fault, PolicyServerFault
from agentenv.policies.refusals import refusal
from agentenv.policies.served import served_model_root
from agentenv.policies.transport import HttpTransport
from aiohttp import web

from tests.policies.tls import CERTIFICATE, serving_https

LISTED = {"data": [{"id": "a", "root": "owner/a"}, {"id": "b", "root": "/models/b"}]}


@asynccontextmanager
async def serving(answer: Any, *, status: int = 200, key: str | None = None) -> AsyncGenerator[str]:
    """Serve one answer at ``/v1/models``; give ``HOST:PORT``."""

    async def models(request: web.Request) -> web.StreamResponse:
        if key is not None and request.headers.get("Authorization") != f"Bearer {key}":
            return web.json_response({"error": "no"}, status=401)
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return web.Response(text=text, status=status, headers={"Location": "/elsewhere"} if status // 100 == 3 else {})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"localhost:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("form", ["{}", "http://{}", "http://{}/", "http://{}/v1", "{}/v1/chat/completions"])
async def test_the_root_of_the_model_is_told_however_the_address_is_written(form: str) -> None:
    async with serving(LISTED) as at:
        assert await served_model_root(form.format(at)) == "owner/a"
        assert await served_model_root(form.format(at), "b") == "/models/b"
        assert await served_model_root(form.format(at), "unknown") == "owner/a", "whether it is served is asked later"


async def test_the_key_is_sent_and_a_missing_one_asked_for() -> None:
    async with serving(LISTED, key="secret") as at:
        assert await served_model_root(at, api_key="secret") == "owner/a"
        with pytest.raises(PolicyServerFault, match=r"refuses us \(401\)\. Give the API key it expects\."):
            await served_model_root(at)


async def test_over_https_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the certificate that the environment names, and not without."""
    with serving_https(json.dumps(LISTED).encode()) as url:
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        assert await served_model_root(f"{url}/v1") == "owner/a"
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(PolicyServerFault, match=r"certificate verify failed.*SSL_CERT_FILE"):
            await served_model_root(f"{url}/v1")


async def test_https_to_a_server_without_it() -> None:
    async with serving(LISTED) as at:
        with pytest.raises(PolicyServerFault, match=r"or is it http://\?$"):
            await served_model_root(f"https://{at}")


async def test_no_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that other clients read from the environment."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with serving(LISTED) as at:
        assert await served_model_root(at) == "owner/a"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("<html>It works!</html>", r"gave 200 '<html>It works!</html>', which is no list of models\. Is it a vLLM"),
        ({"data": []}, "no list of models"),
        ({"data": [1]}, "no list of models"),
        ([], "no list of models"),
        ("\udcff", "no list of models"),
    ],
)
async def test_what_is_no_list_of_models(answer: Any, says: str) -> None:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    async with serving(text.encode("utf-8", "replace").decode()) as at:
        with pytest.raises(PolicyServerFault, match=says):
            await served_model_root(at)


async def test_a_server_that_does_not_say_needs_the_option() -> None:
    async with serving({"data": [{"id": "a"}]}) as at:
        with pytest.raises(ConfigError, match=r"name the tokenizer with --tokenizer\.$"):
            await served_model_root(at)


async def test_nobody_listens() -> None:
    with pytest.raises(PolicyServerFault, match=r"http://127\.0\.0\.1:9 gave no answer to GET /v1/models"):
        await served_model_root("127.0.0.1:9")


async def test_a_redirect_is_not_followed_and_said_to_be_one() -> None:
    async with serving("moved", status=307) as at, HttpTransport(at) as transport:
        transport.start()
        reply = await transport.call("GET", "/v1/models", None, Deadline("test"))
        fault = refusal(transport.url, reply.status, reply.body)
    assert isinstance(fault, Fault)
    assert not fault.retryable
    assert str(fault) == f"http://{at} points to another address (307). Give that one."
