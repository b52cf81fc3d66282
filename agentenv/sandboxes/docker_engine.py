"""A Docker Engine: the few calls sandboxes need, and what to do when one fails.

Every method blocks, and is called in a thread. None of them is ever given to a policy: what fails here is the sandbox's
fault, never a command's output.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentenv.errors import SandboxFault, ended
from agentenv.sandboxes.docker_stream import Address

if TYPE_CHECKING:
    from docker import APIClient

DEFAULT_ADDRESS = "unix:///var/run/docker.sock"

_OLDEST = (1, 41)
"""Version of the API that Docker Engine 20.10 brought: private control-group namespaces."""
_CALL_S = 60
_CONNECT_S = 5.0
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""The engine's name of an architecture to ``platform.machine()``'s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What an engine says of itself."""

    version: str
    api: str
    machine: str
    """As ``platform.machine()`` says it."""
    limits_memory: bool
    limits_swap: bool
    limits_processes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image the engine has."""

    id: str
    env: tuple[tuple[str, str], ...]
    """What it sets for its programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A container, running or not."""

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A running container."""

    id: str
    pid: int
    """Of its first process, as the engine's machine counts."""


class Engine:
    """One engine. Connects at the first call; may be used by several threads at once."""

    def __init__(self, url: str | None = None) -> None:
        """Make one; nothing is connected.

        Args:
            url: Where it listens; None is what ``DOCKER_HOST`` says, else the system's socket.
        """
        self.url = url or os.environ.get("DOCKER_HOST") or DEFAULT_ADDRESS
        self._lock = threading.Lock()
        self._client: APIClient | None = None
        self._facts: EngineFacts | None = None

    @property
    def address(self) -> Address:
        """Where it listens.

        Raises:
            SandboxFault: The address is of a kind that cannot be used; permanent.
        """
        return Address.of(self.url)

    def facts(self) -> EngineFacts:
        """Ask it what it is, once.

        Raises:
            SandboxFault: It cannot be reached, or is too old (permanent).
        """
        client = self._connected()
        if self._facts is None:
            with _explained("says nothing about itself"):
                version: dict[str, str] = client.version()
                info: dict[str, Any] = client.info()
            self._facts = EngineFacts(
                version=f"Docker Engine {version.get('Version', '?')}",
                api=client.api_version,
                machine=_MACHINES.get(version["Arch"], version["Arch"]),
                limits_memory=bool(info.get("MemoryLimit")),
                limits_swap=bool(info.get("SwapLimit")),
                limits_processes=bool(info.get("PidsLimit")),
            )
        return self._facts

    def image(self, name: str) -> Image | None:
        """Look an image up by name or id; None if it is not there."""
        from docker.errors import ImageNotFound

        with _explained(f"cannot look up the image {name!r}"):
            try:
                about: dict[str, Any] = self._connected().inspect_image(name)
            except ImageNotFound:
                return None
        pairs = (pair.partition("=") for pair in (about.get("Config") or {}).get("Env") or ())
        return Image(id=about["Id"], env=tuple((key, value) for key, _, value in pairs))

    def import_image(self, archive: bytes, *, repository: str, tag: str) -> None:
        """Make an image of a root's tar archive."""
        with _explained(f"cannot import the image {repository}:{tag}"):
            self._connected().import_image_from_data(archive, repository=repository, tag=tag)

    def create(self, name: str, config: Mapping[str, Any]) -> None:
        """Create a container, in the engine's own form of a configuration."""
        from docker.errors import ImageNotFound

        with _explained("cannot create a container"):
            try:
                self._connected().create_container_from_config(dict(config), name)
            except ImageNotFound as error:
                raise SandboxFault(f"the Docker Engine no longer has the image {config['Image']}") from error

    def start(self, name: str) -> Started:
        """Start a created container."""
        client = self._connected()
        with _explained("cannot start a container"):
            client.start(name)
            about: dict[str, Any] = client.inspect_container(name)
        return Started(id=about["Id"], pid=about["State"]["Pid"])

    def end(self, name: str) -> None:
        """Kill a container and wait until the engine has removed it; nothing if it is not there.

        Killed and waited for before it is removed: of several removals by force at once, one may leave its shim behind.
        """
        from docker.errors import APIError, NotFound

        client = self._connected()
        with _explained(f"cannot remove the container {name}"), contextlib.suppress(NotFound):
            try:
                client.kill(name)
            except APIError as error:
                if error.status_code != 409:  # it has ended by itself, or was never started
                    raise
                if client.inspect_container(name)["State"]["Status"] == "created":
                    client.remove_container(name)
            client.wait(name, timeout=_CALL_S, condition="removed")

    def containers(self, label: str) -> list[Found]:
        """List the containers with this label, ended ones as well."""
        with _explained("cannot list containers"):
            listed: list[dict[str, Any]] = self._connected().containers(all=True, filters={"label": label})
        return [Found(name=each["Names"][0].lstrip("/"), labels=each["Labels"]) for each in listed if each["Names"]]

    def close(self) -> None:
        """Close its connections. Another call opens new ones."""
        with self._lock:
            if self._client is not None:
                self._client.close()
            self._client = None

    def _connected(self) -> APIClient:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _connect(self) -> APIClient:
        self._knock()
        try:
            from docker import APIClient
        except ImportError as error:
            raise SandboxFault.permanent("the Docker SDK is not installed. Remedy: pip install docker") from error
        with _explained(f"at {self.url} cannot be asked for its version"):
            client = APIClient(base_url=self.url, version="auto", timeout=_CALL_S)
        # It keeps connections open for each resource it asked for once, and those of a container are never asked again.
        client.headers["Connection"] = "close"
        if tuple(map(int, client.api_version.split("."))) < _OLDEST:
            found = client.api_version
            client.close()
            raise SandboxFault.permanent(
                f"the Docker Engine at {self.url} speaks API {found}, sandboxes need {_OLDEST[0]}.{_OLDEST[1]}. "
                "Remedy: Docker Engine 20.10 or newer"
            )
        return client

    def _knock(self) -> None:
        """Connect once without the SDK, whose errors do not say why.

        Raises:
            SandboxFault: Nobody is there, or we may not ask.
        """
        address = self.address
        try:
            if address.path is None:
                socket.create_connection((address.host, address.port), _CONNECT_S).close()
                return
            with socket.socket(socket.AF_UNIX) as knocking:
                knocking.settimeout(_CONNECT_S)
                knocking.connect(address.path)
        except OSError as error:
            raise SandboxFault(
                f"the Docker Engine at {self.url} cannot be reached: {error.strerror or error}"
            ) from error


def missing_image(name: str) -> str:
    """Say that an image is not there, and what to do."""
    return f"the Docker Engine has no image {name!r}. Remedy: docker pull {name}"


def remedy(said: str) -> str:
    """Say what to do about an engine that failed with these words."""
    if "Permission denied" in said and "cannot be reached" in said:
        return (
            "Remedy: add yourself to the group that owns the socket (sudo usermod -aG docker $USER, then log in "
            "again), or use a rootless engine and name its socket in DOCKER_HOST."
        )
    if "cannot be reached" in said:
        return (
            "Remedy: start it (sudo systemctl start docker), install it (Debian, Ubuntu: sudo apt-get install "
            "docker.io), or name another socket in DOCKER_HOST."
        )
    if "bind source path does not exist" in said:
        return (
            "A workspace without a size (limits.workspace_bytes) has to lie on the engine's own machine: give it one."
        )
    if "executable file not found" in said:
        return "The image needs Python 3.9 or newer, as python3 on its PATH."
    if "nknown runtime" in said:
        return "Remedy: name a runtime that `docker info` lists, or none."
    return "Try: docker run --rm hello-world"


@contextlib.contextmanager
def _explained(what: str) -> Generator[None]:
    """Turn whatever the SDK raises into our fault.

    Raises:
        SandboxFault: Always, where the body raised.
    """
    from docker.errors import APIError, DockerException
    from requests import RequestException

    try:
        yield
    except APIError as error:
        raise SandboxFault(f"the Docker Engine {what}: {ended(error.explanation or error)}") from error
    except (DockerException, RequestException, OSError) as error:
        raise SandboxFault(f"the Docker Engine {what}: {ended(error)}") from error
