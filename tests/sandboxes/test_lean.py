"""A supervisor starts without the modules that take long to import, and has what it needs of them."""

from __future__ import annotations

import subprocess

import pytest
from agentenv.sandboxes.bundle import warden_zip
from agentenv.sandboxes.host_system import interpreter
from agentenv.sandboxes.supervisor.lean import deque, signal, suppress

HEAVY = [
    "collections",
    "contextlib",
    "dataclasses",
    "enum",
    "functools",
    "json",
    "re",
    "signal",
    "subprocess",
    "typing",
]


def test_nothing_heavy_is_imported(tmp_path):
    (tmp_path / "code.zip").write_bytes(warden_zip(interpreter()))
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path / "code.zip")!r})
import agentenv.sandboxes.warden.main
print(sorted(set({HEAVY}) & set(sys.modules)))
"""
    done = subprocess.run([interpreter(), "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_suppress_is_the_librarys():
    """Of the errors named and their kinds, and of no other."""
    with suppress(OSError, ValueError):
        raise FileNotFoundError
    with suppress(OSError):
        pass
    with pytest.raises(KeyError), suppress(OSError, ValueError):
        raise KeyError


def test_numbers_are_the_librarys():
    import collections
    import signal as library

    names = [name for name in dir(library) if name.startswith("SIG") and not name.startswith("SIG_")]
    assert {name: getattr(signal, name) for name in names} == {name: getattr(library, name) for name in names}
    assert deque is collections.deque
