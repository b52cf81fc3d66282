"""What is inside of a container: images that somebody names, and what is wrong with some."""

from __future__ import annotations

import asyncio
import contextlib
import io
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from agentenv.core.sandbox import SandboxSpec
from agentenv.errors import SandboxFault
from agentenv.sandboxes.docker import DockerProvider
from agentenv.testing.contracts.sandbox_calls import patience, said, shell

SKIPPED = ("dist-packages", "test", "config-", "__pycache__", "ensurepip", "idlelib", "lib2to3", "pydoc_data")


def needed(*programs: str) -> Iterator[str]:
    """The programs, and the libraries they and Python's extension modules need."""
    yield from programs
    modules = map(str, Path("/usr/lib").glob("python3.*/lib-dynload/_ctypes*.so"))
    listed = subprocess.run(["ldd", *programs, *modules], capture_output=True, text=True, check=True).stdout
    yield from sorted({word for word in listed.split() if word.startswith("/") and not word.endswith(":")})


def archive(*, python: str | None) -> bytes:
    """A small root of its own: a shell, a few programs, and a Python, if it gets one."""
    whole = io.BytesIO()
    programs = ["/usr/bin/" + name for name in ("dash", "cat", "true", "echo")]
    with tarfile.open(fileobj=whole, mode="w", dereference=True) as root:
        if python is not None:
            programs.append(str(Path(python).resolve()))
            for library in Path("/usr/lib").glob("python3.*"):
                root.add(library, filter=lambda entry: None if any(part in entry.name for part in SKIPPED) else entry)
        for path in needed(*programs):
            root.add(path, arcname=path.lstrip("/"))
        link = tarfile.TarInfo("opt/tools/python3")
        link.type, link.linkname = tarfile.SYMTYPE, str(Path(python or "/nowhere").resolve())
        root.addfile(link)
        shell_link = tarfile.TarInfo("bin/sh")
        shell_link.type, shell_link.linkname = tarfile.SYMTYPE, "/usr/bin/dash"
        root.addfile(shell_link)
    return whole.getvalue()


@pytest.fixture(scope="session")
def client(engine):
    from docker import APIClient

    client = APIClient(base_url=engine, version="auto")
    yield client
    client.close()


@pytest.fixture
def imported(client):
    """Import a root as an image; the images go at the end."""
    made = []

    def make(content: bytes, name: str, *changes: str) -> str:
        client.import_image_from_data(content, repository=f"agentenv-test/{name}", tag="1", changes=list(changes))
        made.append(f"agentenv-test/{name}:1")
        return made[-1]

    yield make
    for name in made:
        client.remove_image(name, force=True)


async def test_named_image_with_an_environment_of_its_own(engine, root, imported):
    """Its Python compiles the supervisor, found by the image's own PATH; commands have what the image sets."""
    name = imported(archive(python="/usr/bin/python3"), "python", "ENV PATH=/opt/tools:/usr/bin:/bin", "ENV KEY=value")
    async with DockerProvider(image=name, url=engine, workspace_root=root) as provider:
        async with await provider.lease(SandboxSpec(files={"f": b"x"}), patience()) as sandbox:
            done = await shell(sandbox, "echo $PATH $KEY $HOME; cat f; python3 -c 'print(6 * 7)'")
            assert said(done) == "/opt/tools:/usr/bin:/bin value /tmp\nx42\n"
        identity = provider.identity()
        assert identity["image"] == name
        assert identity["image_id"].startswith("sha256:")
        assert (await provider.probe()).works


@pytest.fixture
async def forwarded(engine):
    """The engine's socket, as a port of this machine."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_unix_connection(engine.removeprefix("unix://"))
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(carry(reader, to), carry(there, writer))
        for each in (to, writer):
            each.close()

    async with await asyncio.start_server(forward, "127.0.0.1", 0) as server:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_engine_on_another_machine(forwarded, root, imported):
    """A named image works there, since nothing of this machine is mounted; what would be is refused."""
    name = imported(archive(python="/usr/bin/python3"), "elsewhere", "ENV PATH=/opt/tools:/usr/bin:/bin")
    async with (
        DockerProvider(image=name, url=forwarded, workspace_root=root) as provider,
        await provider.lease(SandboxSpec(files={"f": bytes(1 << 20)}), patience()) as sandbox,
    ):
        assert await sandbox.read("f") == bytes(1 << 20)
    said = await refusal(DockerProvider(url=forwarded, workspace_root=root))
    assert "another machine's, whose /usr is not ours" in said


async def refusal(provider: DockerProvider) -> str:
    async with provider:
        with pytest.raises(SandboxFault) as refused:
            await provider.lease(SandboxSpec(), patience())
        assert not refused.value.retryable
        status = await provider.probe()
        assert (status.works, status.detail) == (False, str(refused.value))
    return str(refused.value)


async def test_missing_image_says_how_to_get_it(engine, root):
    name = "registry.invalid/no/such:1"
    said = await refusal(DockerProvider(image=name, url=engine, workspace_root=root))
    assert f"has no image {name!r}. Remedy: docker pull {name}" in said


async def test_image_of_the_machine_is_made_again_when_it_is_gone(engine, root, client):
    async with DockerProvider(url=engine, workspace_root=root) as provider:
        assert (await provider.probe()).works
        client.remove_image(provider.identity()["image"], force=True)
        with pytest.raises(SandboxFault, match="no longer has the image") as gone:
            await provider.lease(SandboxSpec(), patience())
        assert gone.value.retryable
        assert (await provider.probe()).works


async def test_image_without_python_says_what_it_needs(engine, root, imported):
    name = imported(archive(python=None), "without", "ENV PATH=/usr/bin:/bin")
    said = await refusal(DockerProvider(image=name, url=engine, workspace_root=root))
    assert "Python 3.9 or newer, as python3 on its PATH" in said


async def test_unknown_runtime_says_where_they_are_listed(engine, root):
    said = await refusal(DockerProvider(runtime="no-such-runtime", url=engine, workspace_root=root))
    assert "no-such-runtime" in said
    assert "docker info" in said
    assert list(root.iterdir()) == []
