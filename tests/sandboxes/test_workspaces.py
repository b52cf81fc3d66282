"""Workspaces on the host: whose they are, when they go, and that they go whole."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path

import pytest
from agentenv.sandboxes.removal import remove_tree
from agentenv.sandboxes.workspaces import Owner, make_workspace, marked, sweep_workspaces


@pytest.fixture
def dead() -> Owner:
    """A process that was."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        about = Path(f"/proc/{process.pid}/stat").read_text()
        started = about[about.rindex(")") + 2 :].split()[19]
        process.kill()
    return dataclasses.replace(Owner.this_process(), pid=process.pid, started=started)


def folder_of(owner: Owner, root: Path) -> Path:
    path = root / f"{owner.prefix}abc"
    (path / "workspace" / "d").mkdir(parents=True)
    (path / "workspace" / "d" / "f").write_bytes(b"x")
    return path


def test_owner_is_read_back_from_the_name():
    """of(prefix + anything) == owner; what is no workspace has none."""
    owner = Owner.this_process()
    assert Owner.of(f"{owner.prefix}x1y2") == owner
    for name in ("agentenv-sandbox", "agentenv-sandbox.a.b.c.d.e.f", "other.a.b.c.1.2.x", f"{owner.prefix}x.y"):
        assert Owner.of(name) is None


def test_workspace_is_private_and_named_after_its_owner(tmp_path):
    lease = make_workspace(tmp_path, os.geteuid(), {"episode": "ü"})
    assert json.loads((lease / "labels.json").read_text()) == {"episode": "ü"}
    assert Owner.of(lease.name) == Owner.this_process()
    assert (lease / "workspace").stat().st_mode & 0o777 == 0o700


def test_sweep_removes_the_dead_and_spares_the_rest(tmp_path, dead):
    """Spared: the living, the same pid started at another time elsewhere, other machines and containers."""
    here = Owner.this_process()
    gone = [
        folder_of(dead, tmp_path),
        folder_of(dataclasses.replace(here, started="1"), tmp_path),
        folder_of(dataclasses.replace(dead, boot="00000000"), tmp_path),
    ]
    stays = [
        folder_of(here, tmp_path),
        folder_of(dataclasses.replace(dead, machine="ffffffff"), tmp_path),
        folder_of(dataclasses.replace(dead, namespace="1"), tmp_path),
        tmp_path / "agentenv-sandbox.notes",
        tmp_path / "something",
    ]
    for path in stays[3:]:
        path.mkdir()
    assert sorted(sweep_workspaces(tmp_path)) == sorted(gone)
    assert sorted(tmp_path.iterdir()) == sorted(stays)


def test_sweep_kills_launchers_of_a_dead_owner(tmp_path, dead):
    """With what they started."""
    path = folder_of(dead, tmp_path)
    command = ["sh", "-c", "sleep 1000 & echo $!; wait", *marked(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        child = Path(f"/proc/{launcher.stdout.readline().strip()}/cmdline")
        assert sweep_workspaces(tmp_path) == [path]
        assert launcher.wait(10) == -9
        assert launcher.stdout.read() == ""
    assert not child.exists() or child.read_bytes() == b""


@pytest.mark.parametrize(
    "arguments",
    [["sh", "{path}"], ["sh", "--setenv", "{path}"], ["AGENTENV_LEASE={path}"], ["AGENTENV_LEASE {path}"], ["{path}x"]],
)
def test_sweep_spares_who_only_names_the_folder(tmp_path, dead, arguments):
    """As a person does who looks into it while another collection starts."""
    path = folder_of(dead, tmp_path)
    command = ["sh", "-c", "read line; echo $line", *(each.format(path=path) for each in arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert sweep_workspaces(tmp_path) == [path]
        assert process.communicate("alive\n", timeout=60)[0] == "alive\n"


def test_owner_that_is_a_zombie_is_gone(dead):
    assert dead.is_gone(Owner.this_process())
    assert not Owner.this_process().is_gone(Owner.this_process())


@pytest.mark.parametrize("levels", [1100, pytest.param(3000, marks=pytest.mark.slow)])
def test_removal_of_a_tree_too_deep_for_paths(tmp_path, levels):
    """Deeper than recursion, open descriptors and path names go, with a file on some levels."""
    top = tmp_path / "tree"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for level in range(levels):
        os.mkdir("deeper", dir_fd=here)
        if level % 100 == 0:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        inner = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    remove_tree(top)
    assert list(tmp_path.iterdir()) == []


def test_removal_follows_no_link_and_minds_no_mode(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "b" / "f").write_bytes(b"x")
    (tmp_path / "tree" / "link").symlink_to(outside)
    (tmp_path / "tree" / "a" / "link").symlink_to(outside)
    os.mkfifo(tmp_path / "tree" / "fifo")
    Path(os.fsdecode(os.fsencode(tmp_path / "tree") + b"/\xff\n")).write_bytes(b"")
    for folder in ("tree/a/b", "tree/a", "tree"):
        (tmp_path / folder).chmod(0)
    remove_tree(tmp_path / "tree")
    assert list(tmp_path.iterdir()) == [outside]
    assert outside.stat().st_mode & 0o777 == 0o500


def test_removal_of_nothing(tmp_path):
    remove_tree(tmp_path / "missing")
