"""One real vLLM server for the whole test run.

It is started by the first test that asks for it and stopped by its process id. AGENTENV_VLLM_URL names a running one
to use instead, AGENTENV_VLLM_MODEL then the folder of the model it serves; it has to be started as `_command` says.
Nothing is skipped: without the engine these tests fail, and say how to get it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ENGINE = Path(__file__).parent / "engine"
sys.path.insert(0, str(ENGINE))

import install  # noqa: E402  the recipe knows where it puts things

MODEL = "tiny"
WINDOW = 2048
VOCABULARY = 2048
START_LIMIT_S = 900.0
"""It takes half a minute on an idle machine, five on a very busy one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The server under test."""

    url: str
    model_dir: Path
    """What it serves: weights of seed 0, and the tokenizer."""
    other_weights: Path
    """A safetensors file with weights of seed 1, in a place the server can read."""

    def get(self, path: str) -> bytes:
        """Ask for ``path``."""
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return bytes(answer.read())

    def post(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
        """Post to ``path`` on a connection of its own: vLLM drops those on which a control call failed."""
        data = json.dumps(body).encode() if body is not None else b""
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status), bytes(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def control(self, path: str, body: dict[str, Any] | None = None) -> None:
        """Post a control call that has to succeed."""
        status, answer = self.post(path, body)
        assert status == 200, f"{path}: {status} {answer[:300]!r}"

    def in_flight(self) -> int:
        """Count the requests it runs or has waiting."""
        names = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")
        lines = self.get("/metrics").decode().splitlines()
        return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines if line.startswith(names))


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    say = _reporter(request.config)
    other = _model(seed=1) / "model.safetensors"
    if url := os.environ.get("AGENTENV_VLLM_URL"):
        folder = Path(os.environ.get("AGENTENV_VLLM_MODEL") or _model(seed=0))
        yield Engine(url=url, model_dir=folder, other_weights=other)
        return
    folder = _model(seed=0)
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    port = _free_port()
    say(f"\nstarting vLLM on port {port}, its log is {log}")
    with log.open("wb") as output:
        server = subprocess.Popen(
            _command(folder, port), env=_environment(), stdout=output, stderr=output, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(server, url, log, say)
        yield Engine(url=url, model_dir=folder, other_weights=other)
    finally:
        _stop(server)


def _free_port() -> int:
    """Give a port that nobody has, below those that the kernel gives to whoever asks for any.

    The server takes it only after some seconds; one of those might have gone to somebody else by then.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(max(1025, lowest - 20_000), lowest) if lowest > 1025 else 0
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return int(free.getsockname()[1])


def _reporter(config: pytest.Config) -> Callable[[str], None]:
    """Give a way to say something while output is captured: starting takes a minute."""
    capture = config.pluginmanager.get_plugin("capturemanager")
    terminal = config.pluginmanager.get_plugin("terminalreporter")

    def say(text: str) -> None:
        with capture.global_and_fixture_disabled():
            terminal.write_line(text)

    return say


def _model(*, seed: int) -> Path:
    """Make the tiny model of ``seed``, or take it from the cache: the recipe's hash is part of its name."""
    if not install.installed():
        pytest.fail(
            f"the real engine is not installed in {install.environment()}: run {ENGINE / 'install.py'} "
            "(`make test-vllm` does)",
            pytrace=False,
        )
    recipe = ENGINE / "make_tiny_model.py"
    key = hashlib.sha256(recipe.read_bytes()).hexdigest()[:12]
    folder = install.cache() / f"tiny-model-{key}-{seed}"
    if not folder.exists():
        making = folder.with_name(f"{folder.name}.{os.getpid()}")
        python = install.environment() / "bin" / "python"
        command = [str(python), str(recipe), str(making), "--seed", str(seed)]
        subprocess.run(command, env=_environment(), check=True, capture_output=True)
        try:
            making.rename(folder)
        except OSError:  # another run made it meanwhile
            shutil.rmtree(making)
    return folder


def _environment() -> dict[str, str]:
    return os.environ | {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "0",  # one core: with two, spin barriers collapse on a busy machine
        "TORCH_COMPILE_DISABLE": "1",  # else the first request with log-probs compiles C++ for 20 s
        "PYTHONPATH": str(ENGINE),
    }


def _command(folder: Path, port: int) -> list[str]:
    return [
        str(install.environment() / "bin" / "vllm"),
        "serve",
        str(folder),
        *("--host", "127.0.0.1", "--port", str(port), "--served-model-name", MODEL),
        *("--dtype", "float32", "--enforce-eager", "--max-model-len", str(WINDOW), "--max-num-seqs", "16"),
        # whole prompts at once: a seeded request that is read in pieces kills vLLM 0.32 on a CPU
        *("--max-num-batched-tokens", str(16 * WINDOW)),
        *("--kv-cache-memory-bytes", str(2**28), "--generation-config", "vllm"),
        *("--logprobs-mode", "processed_logprobs", "--max-logprobs", str(VOCABULARY)),
        *("--enable-scale-out", "--enable-prompt-tokens-details"),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        *("--worker-extension-cls", "cpu_weights.CpuWeightUpdates"),
        *("--weight-transfer-config", '{"backend": "file"}'),
    ]


def _wait(server: subprocess.Popen[bytes], url: str, log: Path, say: Callable[[str], None]) -> None:
    began = reported = time.monotonic()
    while True:
        waited_s = time.monotonic() - began
        if server.poll() is not None or waited_s > START_LIMIT_S:
            tail = log.read_text(errors="replace")[-3000:]
            state = "ended" if server.poll() is not None else "is not ready"
            pytest.fail(f"vLLM {state} after {waited_s:.0f} s (exit code {server.poll()}):\n{tail}", pytrace=False)
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                say(f"vLLM is ready after {waited_s:.0f} s")
                return
        except OSError:
            time.sleep(0.5)
        if time.monotonic() - reported > 15:
            reported = time.monotonic()
            lines = log.read_text(errors="replace").splitlines()
            say(f"  {waited_s:3.0f} s: {(lines or ['nothing yet'])[-1][:150]}")


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
