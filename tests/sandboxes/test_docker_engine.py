"""What an engine that is missing, closed or old is said to be; the engines are played, or not there."""

from __future__ import annotations

import http.server
import json
import os
import socketserver
import subprocess
import sys
import threading

import pytest
from agentenv.core.sandbox import SandboxSpec
from agentenv.errors import SandboxFault
from agentenv.sandboxes.docker import DockerProvider
from agentenv.sandboxes.docker_engine import Engine
from agentenv.testing.contracts.sandbox_calls import patience


async def refusal(url: str, root) -> SandboxFault:
    """Lease and probe, give why that is not possible, and see that nothing is left."""
    root.mkdir(exist_ok=True)
    async with DockerProvider(url=url, workspace_root=root) as provider:
        with pytest.raises(SandboxFault) as refused:
            await provider.lease(SandboxSpec(), patience())
        status = await provider.probe()
    assert (status.works, status.detail) == (False, str(refused.value))
    assert list(root.iterdir()) == []
    return refused.value


async def test_missing_engine_says_how_to_get_one(tmp_path):
    fault = await refusal(f"unix://{tmp_path}/none.sock", tmp_path / "root")
    assert not fault.retryable
    assert "cannot be reached: No such file" in str(fault)
    assert "apt-get install docker.io" in str(fault)


async def test_stopped_engine_says_how_to_start_it(tmp_path):
    import socket

    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "left.sock"))
    fault = await refusal(f"unix://{tmp_path}/left.sock", tmp_path / "root")
    assert "Connection refused" in str(fault)
    assert "systemctl start docker" in str(fault)


CLOSED = """
import sys
from agentenv.errors import SandboxFault
from agentenv.sandboxes.docker_engine import Engine, remedy
try:
    Engine(sys.argv[1]).facts()
except SandboxFault as fault:
    print(fault, remedy(str(fault)))
"""


def test_closed_socket_names_the_group(tmp_path):
    """Asked by a user without the right: as root another one is taken, in a process of its own."""
    path = tmp_path / "closed.sock"
    with socketserver.UnixStreamServer(str(path), socketserver.BaseRequestHandler):
        path.chmod(0)
        become = []
        if os.geteuid() == 0:
            for folder in tmp_path.parents[:2]:
                folder.chmod(0o711)
            tmp_path.chmod(0o711)
            become = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]
        done = subprocess.run(
            [*become, sys.executable, "-c", CLOSED, f"unix://{path}"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert "Permission denied" in done.stdout, done.stderr
    assert "usermod -aG docker" in done.stdout


class Old(http.server.BaseHTTPRequestHandler):
    """The engine of 2019."""

    def do_GET(self) -> None:
        content = json.dumps({"ApiVersion": "1.40", "Version": "19.03.15", "Arch": "amd64"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        pass


class Nonsense(Old):
    def do_GET(self) -> None:
        self.wfile.write(b"SSH-2.0-OpenSSH\r\n")


@pytest.mark.parametrize(
    ("kind", "said"), [(Old, "speaks API 1.40.*20.10 or newer"), (Nonsense, "cannot be asked for its version")]
)
async def test_engine_that_cannot_be_used(tmp_path, kind, said):
    path = tmp_path / "engine.sock"
    with socketserver.ThreadingUnixStreamServer(str(path), kind) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            fault = await refusal(f"unix://{path}", tmp_path / "root")
        finally:
            server.shutdown()
            serving.join()
    assert not fault.retryable
    import re

    assert re.search(said, str(fault))


def test_address_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/user/1000/docker.sock")
    assert Engine().address.path == "/run/user/1000/docker.sock"
    monkeypatch.delenv("DOCKER_HOST")
    assert Engine().url == "unix:///var/run/docker.sock"
    assert Engine("tcp://127.0.0.1:1").address.port == 1
