"""The files a workspace starts with."""

from __future__ import annotations

import asyncio
import errno

from agentenv.core.sandbox import Sandbox, SandboxSpec
from agentenv.errors import SandboxFault

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


async def write_first_files(sandbox: Sandbox, spec: SandboxSpec) -> None:
    """Write the files of a spec, all on their way at once.

    Raises:
        SandboxFault: One of them cannot be written; permanent.
        OSError: The disk that the workspace lies on is full.
    """
    writes = [sandbox.write(path, content) for path, content in spec.files.items()]
    for path, error in zip(spec.files, await asyncio.gather(*writes, return_exceptions=True), strict=True):
        if isinstance(error, OSError) and error.errno in NO_ROOM and spec.limits.workspace_bytes is None:
            raise error
        if isinstance(error, OSError):
            raise SandboxFault.permanent(f"the workspace cannot have the file {path!r}: {error.strerror}") from error
        if error is not None:
            raise error
