"""Landlock sandboxes pass the contract suite, but for what their identity says; and what Landlock holds."""

from __future__ import annotations

import os
import socket

import pytest
from agentenv.core.sandbox import NetworkAccess, SandboxSpec
from agentenv.errors import SandboxFault
from agentenv.sandboxes.landlock import LandlockProvider
from agentenv.sandboxes.warden.kernel import landlock_version
from agentenv.testing.contracts.sandbox import SandboxContract
from agentenv.testing.contracts.sandbox_calls import patience, python, said, shell


class TestLandlockSandbox(SandboxContract):
    @pytest.fixture
    async def provider(self):
        async with LandlockProvider() as provider:
            yield provider

    async def test_network_is_none_unless_hosts_are_named(self, sandbox):
        """No socket can be made; but the interfaces of this machine are seen."""
        state = await sandbox.network_state()
        assert state.access is NetworkAccess.NONE, state.detail
        assert set(state.interfaces) == {name for _, name in socket.if_nameindex()} - {"lo"}

    async def test_named_hosts_are_an_allow_list(self, provider):
        """They are refused: no socket can be made, and so none to the proxy either."""
        with pytest.raises(SandboxFault, match=r"example\.org") as refused:
            await provider.lease(SandboxSpec(network=("example.org",)), patience())
        assert not refused.value.retryable


@pytest.fixture
async def provider():
    async with LandlockProvider() as provider:
        yield provider


@pytest.fixture
async def sandbox(provider):
    async with await provider.lease(SandboxSpec(), patience()) as sandbox:
        yield sandbox


def test_kernel_has_it():
    """The rest of the file is about nothing without it."""
    assert landlock_version() > 0


async def test_files_of_the_host_cannot_be_seen_or_changed(sandbox, tmp_path):
    """Even those that everybody may."""
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(0o755)
    open_to_all = tmp_path / "open"
    open_to_all.write_bytes(b"host")
    open_to_all.chmod(0o666)
    done = await python(
        sandbox,
        f"""
import os
for path in ({str(open_to_all)!r}, "/etc/hostname", "/etc/shadow", "/run", "/root", "/sys/kernel", "/home", "/"):
    try: os.close(os.open(path, os.O_RDONLY)); print("read", path)
    except OSError: pass
    for flags in (os.O_WRONLY, os.O_WRONLY | os.O_CREAT):
        try: os.close(os.open(path if flags == 1 else path + "/x", flags)); print("wrote", path)
        except OSError: pass
for attempt, path in (os.unlink, {str(open_to_all)!r}), (os.mkdir, "/tmp/x"), (os.rmdir, {str(tmp_path)!r}):
    try: attempt(path); print("did", attempt)
    except OSError: pass
try: os.link("/usr/bin/env", "env"); print("linked")
except OSError: pass
open("mine", "w").close(); open(os.environ["TMPDIR"] + "/mine", "w").close(); os.rename("mine", "yours")
""",
    )
    assert said(done) == ""
    assert open_to_all.read_bytes() == b"host"


async def test_no_socket_of_any_kind(sandbox):
    """But connected pairs, which event loops need."""
    done = await python(
        sandbox,
        """
import socket
for family in (1, 2, 10, 16, 17, 40):
    for kind in (1, 2, 3):
        try: socket.socket(family, kind); print(family, kind)
        except OSError: pass
a, b = socket.socketpair(); a.send(b"pair"); print(b.recv(4).decode())
""",
    )
    assert said(done) == "pair\n"


async def test_privileges_are_gone(sandbox):
    done = await shell(sandbox, "grep -E '^(CapEff|CapPrm|NoNewPrivs|Seccomp):' /proc/self/status; id -u")
    assert said(done).split() == [
        "CapPrm:", "0" * 16, "CapEff:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:", "2", str(os.geteuid() or 10002),
    ]  # fmt: skip


async def test_signals_stay_inside(provider, sandbox):
    """Of two sandboxes of one user, and to whoever watches over them, none goes through; nothing outside is traced.

    Kernels before version 6 of Landlock let signals through, which the identity says.
    """
    async with await provider.lease(SandboxSpec(), patience()) as other:
        victim = await other.start(["sh", "-c", "read x; echo $$ $PPID; cat"], deadline=patience())
        pids = (await victim.request(b"", patience())).split()
        pids += [(await shell(other, f"sed -n 's/^PPid:[[:space:]]*//p' /proc/{int(pids[1])}/status")).stdout.head]
        done = await python(
            sandbox,
            f"""
import os
for pid in {[int(pid) for pid in pids]}:
    try: os.kill(pid, 0); print("signalled", pid)
    except PermissionError: pass
    try: open(f"/proc/{{pid}}/environ").read(); print("read", pid)
    except PermissionError: pass
""",
        )
        through = [line for line in said(done).splitlines() if "signalled" in line]
        assert said(done).splitlines() == through
        assert bool(through) == ("signals reach every process" in provider.identity()["weak"])
        assert await victim.request(b"there", patience()) == b"there"


async def test_temporary_files_go_with_the_sandbox(tmp_path):
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(0o711)
    async with LandlockProvider(workspace_root=tmp_path) as provider:
        async with await provider.lease(SandboxSpec(), patience()) as sandbox:
            assert said(await shell(sandbox, "echo x > $TMPDIR/f; echo $HOME; ls $HOME")).endswith("/tmp\nf\n")
        assert list(tmp_path.iterdir()) == []
