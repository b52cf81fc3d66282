"""Walking beneath a folder step by step comes to the same as one step of the kernel."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from agentenv.sandboxes.supervisor.kernel import open_beneath
from agentenv.sandboxes.supervisor.walking import walk_beneath
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

READ = os.O_RDONLY | os.O_NONBLOCK
FOLDER = os.O_PATH | os.O_DIRECTORY


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A folder with links of every kind, beside one that is not to be reached."""
    top = tmp_path_factory.mktemp("walk")
    root = top / "root"
    (root / "a" / "b").mkdir(parents=True)
    (top / "outside").mkdir()
    (top / "outside" / "f").write_text("secret")
    (root / "f").write_text("root")
    (root / "a" / "f").write_text("a")
    (root / "a" / "b" / "f").write_text("b")
    for link, target in {
        "a/up": "..", "a/b/top": "../..", "in": "a/b", "file": "a/f", "loop": "loop", "gone": "nothing",
        "out": "../outside", "a/out": "../../outside/f", "absolute": "/etc", "proc": "/proc/self/root", "slash": "a/f/",
        "far": "in/top/file",
    }.items():  # fmt: skip
        (root / link).symlink_to(target)
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def outcome(call) -> object:
    """Which file was opened, or why none."""
    try:
        fd = call()
    except OSError as error:
        return errno.errorcode[errno.EACCES if error.errno == errno.EXDEV else error.errno]
    try:
        about = os.fstat(fd)
        return about.st_dev, about.st_ino
    finally:
        os.close(fd)


NAMES = ("a", "b", "f", "up", "top", "in", "file", "loop", "gone", "out", "absolute", "proc", "slash", "far", "..", ".")


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=7),
    start=st.sampled_from(["", "/", "./"]),
    end=st.sampled_from(["", "/"]),
    flags=st.sampled_from([READ, FOLDER]),
)
def test_it_opens_what_the_kernel_opens(tree, names, start, end, flags):
    """For every path: the same file, or the same error; nothing that lies outside is ever opened (``openat2(2)``)."""
    path = (start + "/".join(names) + end).encode()
    expected = outcome(lambda: open_beneath(tree, path, flags))
    assert outcome(lambda: walk_beneath(tree, path, flags, 0)) == expected


def test_it_makes_files_through_links_that_stay_inside(tree):
    fd = walk_beneath(tree, b"in/made", os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, b"x")
    os.close(fd)
    assert outcome(lambda: open_beneath(tree, b"a/b/made", READ)) == outcome(
        lambda: walk_beneath(tree, b"a/b/made", READ, 0)
    )
    for path in (b"out/made", b"absolute/made", b"../made"):
        with pytest.raises(OSError, match="leads out"):
            walk_beneath(tree, path, os.O_WRONLY | os.O_CREAT, 0o644)


def test_nothing_stays_open(tree):
    opened = Path("/proc/self/fd")
    before = len(list(opened.iterdir()))
    for path in (b"in/top/in/top/f", b"a/../../f", b"loop", b"a/b/f/x", b""):
        outcome(lambda path=path: walk_beneath(tree, path, READ, 0))
    assert len(list(opened.iterdir())) == before
