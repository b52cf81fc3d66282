"""The supervisor as one file: a zip of byte code, which the interpreter in the sandbox imports from.

Compiling the sources takes longer than all else of a start. So they are compiled once per process, by the very
interpreter that will run them, since byte code belongs to one version of Python.
"""

from __future__ import annotations

import hashlib
import io
import marshal
import subprocess
import zipfile
from functools import cache
from importlib.resources import files

from agentenv.errors import SandboxFault

ENTRY = (
    "import sys; sys.path.insert(0, {zip!r}); "
    "from agentenv.sandboxes.supervisor.serving import main; main(sys.argv[1:])"
)
"""Program for ``python -c``, with the path of the zip to fill in; its arguments are those of ``serving.main``.

Running the zip itself would import more.
"""

WARDEN_ENTRY = (
    "import sys; sys.path.insert(0, {zip!r}); from agentenv.sandboxes.warden.main import main; main(sys.argv[1:])"
)
"""The same for a warden; its arguments are those of ``warden.main``."""

_SUPERVISOR = ("agentenv.sandboxes.supervisor",)
_WARDEN = (*_SUPERVISOR, "agentenv.sandboxes.warden")
_COMPILE_S = 60.0
# Header of byte code (PEP 552): magic number, flags ("hash-based, not to be checked"), and a hash nobody checks.
COMPILER = """
import marshal, sys, _frozen_importlib_external as external
head = external.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
for name, text in sorted(marshal.loads(sys.stdin.buffer.read()).items()):
    print(name, (head + marshal.dumps(compile(text, name, "exec"))).hex())
"""
"""Program for ``python -c``: `compiler_input` on stdin, what `packed` takes on stdout. For Python 3.9 and newer."""


@cache
def supervisor_zip(interpreter: str) -> bytes:
    """Build the zip for an interpreter. Blocks the first time, while that compiles.

    Raises:
        SandboxFault: It cannot compile the supervisor; permanent.
    """
    return _zip(interpreter, _SUPERVISOR)


@cache
def warden_zip(interpreter: str) -> bytes:
    """Build the zip that has a warden beside the supervisor. Blocks the first time, while that compiles.

    Raises:
        SandboxFault: The interpreter cannot compile it; permanent.
    """
    return _zip(interpreter, _WARDEN)


def _zip(interpreter: str, packages: tuple[str, ...]) -> bytes:
    command = [interpreter, "-I", "-S", "-c", COMPILER]
    try:
        done = subprocess.run(
            command, input=compiler_input(packages), capture_output=True, check=False, timeout=_COMPILE_S, env={}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxFault.permanent(f"{interpreter} cannot be run: {error}") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()[-500:]
        raise SandboxFault.permanent(f"{interpreter} cannot compile the supervisor (it needs Python 3.9): {said}")
    return packed(done.stdout, packages)


def compiler_input(packages: tuple[str, ...] = _SUPERVISOR) -> bytes:
    """Give sources, those of the supervisor unless told otherwise, in the form `COMPILER` reads, to its end."""
    return marshal.dumps(_sources(packages), 2)


def packed(compiled: bytes, packages: tuple[str, ...] = _SUPERVISOR) -> bytes:
    """Make the zip of what `COMPILER` wrote: a name and byte code in hexadecimal digits on each line.

    Raises:
        ValueError: It has another form, or is not all of it.
    """
    lines = compiled.count(b"\n")
    if lines != len(_sources(packages)) or not compiled.endswith(b"\n"):
        raise ValueError(f"of {len(_sources(packages))} modules {lines} were compiled")
    whole = io.BytesIO()
    # Stored, not deflated: inflating needs a module the sandbox would have to load first.
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as archive:
        for line in compiled.decode("ascii").splitlines():
            name, code = line.split(" ")
            archive.writestr(zipfile.ZipInfo(f"{name}c"), bytes.fromhex(code))
    return whole.getvalue()


@cache
def supervisor_sha256() -> str:
    """Give the hash of the supervisor's sources, for the manifest."""
    return _hash(_SUPERVISOR)


@cache
def warden_sha256() -> str:
    """Give the hash of the sources of the warden and its supervisor, for the manifest."""
    return _hash(_WARDEN)


def _hash(packages: tuple[str, ...]) -> str:
    return hashlib.sha256(repr(sorted(_sources(packages).items())).encode()).hexdigest()


def _sources(packages: tuple[str, ...]) -> dict[str, str]:
    """Read the modules of packages, with empty packages above them: name in the zip to text."""
    sources = {"agentenv/__init__.py": "", "agentenv/sandboxes/__init__.py": ""}
    for package in packages:
        folder = package.replace(".", "/")
        for source in files(package).iterdir():
            if source.name.endswith(".py"):
                sources[f"{folder}/{source.name}"] = source.read_text(encoding="utf-8")
    return sources
