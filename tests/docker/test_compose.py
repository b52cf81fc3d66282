"""The stacks of ``compose/``: every file is valid, and the one without a GPU is started, collects, and leaves nothing.

What differs from a user's: the base image is made of this machine's packages, and pip takes wheels out of it, so that
neither a registry nor a network is needed; extras that nothing here uses are left out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from agentenv.local.models import smollm2_path
from base_image import CHANGES, wheels_for, write_root

pytestmark = pytest.mark.timeout(1500)  # an image is built, and a model answers on the CPU

PROJECT = Path(__file__).parents[2]
FOLDER = PROJECT / "compose"
EXTRAS = "docker,local"
BASE, IMAGE = "agentenv-test/compose-base:1", "agentenv-test/compose:1"
USER = f"{os.geteuid() or 1000}:{os.getegid() or 1000}"
SANDBOXES = ("", "sandbox-docker.yaml", "sandbox-namespaces.yaml")


def compose_command() -> list[str]:
    """Give Compose 1 or 2, as a program of its own or as the client's."""
    if (own := shutil.which("docker-compose")) is not None:
        return [own]
    plugin = ["docker", "compose"]
    if shutil.which("docker") and not subprocess.run([*plugin, "version"], capture_output=True, check=False).returncode:
        return plugin
    pytest.fail("Compose is not installed. Remedy (Debian): apt-get install docker-compose", pytrace=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Files of a stack, under a project name of its own, with what is set for them."""

    engine: str
    files: tuple[str, ...]
    settings: dict[str, str] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"agentenv-test-{uuid.uuid4().hex[:12]}")

    def __call__(self, *words: str, code: int | None = 0) -> str:
        """Call Compose; give all it said, of itself and of its containers."""
        files = [word for name in self.files for word in ("-f", str(FOLDER / name))]
        done = subprocess.run(
            [*compose_command(), *files, "-p", self.name, *words],
            env=os.environ | {"DOCKER_HOST": self.engine, "AGENTENV_IMAGE": IMAGE} | self.settings,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert code is None or done.returncode == code, done.stdout
        return done.stdout

    def config(self) -> dict[str, Any]:
        return yaml.safe_load(self("config"))


@pytest.fixture(scope="module")
def client(engine: str) -> Iterator[Any]:
    from docker import APIClient

    client = APIClient(base_url=engine, version="auto", timeout=300)
    yield client
    client.close()


@pytest.fixture(scope="module")
def base(client: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image like the one that users build upon, without a registry."""
    folder = tmp_path_factory.mktemp("base")
    wheels = wheels_for(PROJECT, EXTRAS, folder / "wheels")
    write_root(folder / "root.tar", wheels=wheels, model=smollm2_path(), cache="/opt/agentenv/cache")
    repository, tag = BASE.split(":")
    client.import_image_from_file(str(folder / "root.tar"), repository=repository, tag=tag, changes=list(CHANGES))
    shutil.rmtree(folder)
    yield BASE
    client.remove_image(BASE, force=True)


@pytest.fixture(scope="module")
def image(engine: str, client: Any, base: str) -> Iterator[str]:
    """The image of the project, built as the file says."""
    settings = {"AGENTENV_BASE": base, "AGENTENV_EXTRAS": EXTRAS, "AGENTENV_BUILD_NETWORK": "none"}
    Stack(engine=engine, files=("cpu.yaml",), settings=settings)("build", "policy")
    yield IMAGE
    client.remove_image(IMAGE, force=True)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The shared folder, of the user whom the containers run as."""
    folder = tmp_path / "runs"
    folder.mkdir()
    if os.geteuid() == 0:
        os.chown(folder, *map(int, USER.split(":")))
    return folder


@pytest.fixture
def start(engine: str, client: Any, image: str, runs: Path) -> Iterator[Callable[..., Stack]]:
    """Make stacks; afterwards nothing of theirs may be there."""
    del image
    made: list[Stack] = []

    def make(*files: str, **settings: str) -> Stack:
        shared = {"AGENTENV_RUNS": str(runs), "AGENTENV_USER": USER}
        made.append(Stack(engine=engine, files=files, settings=shared | settings))
        return made[-1]

    yield make
    for stack in made:
        stack("down", "--volumes", "--timeout", "20")
        mine = {"label": f"com.docker.compose.project={stack.name}"}
        assert client.containers(all=True, filters=mine) == []
        assert client.volumes(filters=mine)["Volumes"] in ([], None)
        assert client.networks(filters=mine) == []
    assert client.containers(all=True, filters={"label": "agentenv.owner"}) == []


@pytest.mark.parametrize("sandbox", SANDBOXES)
@pytest.mark.parametrize("file", ["cpu.yaml", "gpu.yaml"])
def test_files_are_valid(engine: str, file: str, sandbox: str) -> None:
    """Compose takes them, alone and with each choice of a sandbox."""
    files = (file, sandbox) if sandbox else (file,)
    services = Stack(engine=engine, files=files, settings={"AGENTENV_DOCKER_GROUP": "105"}).config()["services"]
    collect = services["collect"]
    assert collect["depends_on"]["policy"]["condition"] == "service_healthy"
    assert collect["network_mode"] == "service:policy"
    assert "healthcheck" in services["policy"]
    assert "no-new-privileges:true" in collect["security_opt"]
    assert not any("ports" in service for service in services.values())
    # What neither was asked for nor explained is not given up.
    unconfined = {option for option in collect["security_opt"] if "unconfined" in option}
    assert bool(unconfined) is (sandbox == "sandbox-namespaces.yaml")
    assert ("docker.sock" in str(collect)) is (sandbox == "sandbox-docker.yaml")


def test_the_server_has_the_flags_that_the_readme_names(engine: str) -> None:
    """A server started by the file is the server that the documentation describes."""
    command = Stack(engine=engine, files=("gpu.yaml",)).config()["services"]["policy"]["command"]
    shown = next(line for line in (PROJECT / "README.md").read_text().splitlines() if line.startswith("vllm serve"))
    words = set(command.split() if isinstance(command, str) else command)
    assert set(shown.split()[3:]) <= words
    assert {"--host", "127.0.0.1"} <= words


def test_four_episodes_are_collected(start: Callable[..., Stack], runs: Path) -> None:
    """One command: the server is waited for, the run lies in the shared folder, and holds every law."""
    stack = start("cpu.yaml", AGENTENV_OPTIONS="--tasks 4 --shots 1 --max-tokens 48 --concurrency 4")
    said = stack("up", "--exit-code-from", "collect")
    assert "4 in 4 groups, 4 attempts" in said
    assert "faults       none 4" in said
    assert "0 breaches in 4 attempts" in stack("run", "--rm", "agentenv", "verify", "/runs/cpu")
    here = [sys.executable, "-m", "agentenv", "verify", str(runs / "cpu")]
    assert "0 breaches in 4 attempts" in subprocess.run(here, capture_output=True, text=True, check=True).stdout
    shown = stack("run", "--rm", "agentenv", "show", "/runs/cpu", "first")
    assert re.search(r"[1-9]\d* sampled, .* log-probs \[0:\d+\] model \(", shown), shown


def test_a_failure_of_the_collector_is_the_exit_code(start: Callable[..., Stack]) -> None:
    """And ends the server too."""
    stack = start("cpu.yaml", AGENTENV_SUITE="no-such-suite")
    assert "no-such-suite" in stack("up", "--exit-code-from", "collect", code=2)
    assert "Up" not in stack("ps")


REPAIR = ("collect", "repair", "--policy", "scripted:reference", "--tasks", "2", "-o", "/runs/repair")


def test_without_a_sandbox_suites_that_run_commands_are_refused(start: Callable[..., Stack], runs: Path) -> None:
    """With what would let them run; nothing is run unconfined."""
    said = start("cpu.yaml")("run", "--rm", "agentenv", *REPAIR, code=None)
    assert "seccomp=unconfined" in said
    assert list(runs.glob("repair/*.sqlite*")) == []


def test_sandboxes_beside_the_collector(start: Callable[..., Stack], engine: str, base: str) -> None:
    """`sandbox-docker.yaml`: the engine's socket is enough, and containers come and go with their episodes."""
    socket = engine.removeprefix("unix://")
    stack = start(
        *("cpu.yaml", "sandbox-docker.yaml"),
        AGENTENV_DOCKER_SOCKET=socket,
        AGENTENV_DOCKER_GROUP=str(Path(socket).stat().st_gid),
        AGENTENV_DOCKER_IMAGE=base,
    )
    assert "success 2" in stack("run", "--rm", "agentenv", *REPAIR, "--sandbox", "docker")
    assert "0 breaches in 2 attempts" in stack("run", "--rm", "agentenv", "verify", "/runs/repair")


def test_sandboxes_inside_the_collector(start: Callable[..., Stack], engine: str, runs: Path) -> None:
    """`sandbox-namespaces.yaml`: what it relaxes is enough. By the client: Compose 1 cannot unmask ``/proc``."""
    service = start("cpu.yaml", "sandbox-namespaces.yaml").config()["services"]["collect"]
    given = [word for option in service["security_opt"] for word in ("--security-opt", option)]
    confined = ("--network", "none", "--init", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--user", USER)
    done = subprocess.run(
        ["docker", "run", "--rm", *confined, *given, "--volume", f"{runs}:/runs", IMAGE, *REPAIR],
        env=os.environ | {"DOCKER_HOST": engine}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "success 2" in done.stdout + done.stderr
