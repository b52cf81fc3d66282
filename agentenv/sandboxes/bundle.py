"""The supervisor as one file: a zip that Python runs as it is."""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import cache
from importlib.resources import files

_PACKAGE = "agentenv.sandboxes.supervisor"


@cache
def supervisor_zip() -> bytes:
    """Build the zip: the supervisor's own modules, and empty packages above them. Same sources, same bytes."""
    content = {"agentenv/__init__.py": b"", "agentenv/sandboxes/__init__.py": b""}
    for source in files(_PACKAGE).iterdir():
        if source.name.endswith(".py"):
            content[f"{_PACKAGE.replace('.', '/')}/{source.name}"] = source.read_bytes()
    content["__main__.py"] = content.pop(f"{_PACKAGE.replace('.', '/')}/__main__.py")
    whole = io.BytesIO()
    # Stored, not deflated: inflating needs a module the sandbox would have to load first.
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(content.items()):
            archive.writestr(zipfile.ZipInfo(name), data)
    return whole.getvalue()


def supervisor_sha256() -> str:
    """Give the hash of the supervisor, for the manifest."""
    return hashlib.sha256(supervisor_zip()).hexdigest()
