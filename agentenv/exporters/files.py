"""Writing an export atomically: the file is whole under its name, or not there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from agentenv.errors import HarnessFault, ended


@contextmanager
def written_atomically(path: Path) -> Generator[Path]:
    """Give the path to write to; what was there before stays until everything is written and on the disk.

    Raises:
        HarnessFault: The disk is full or gone; nothing was changed.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield beside
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        fault = HarnessFault(f"Cannot write {path}: {ended(error.strerror or error)} Nothing of the export was kept.")
        fault.retryable = False
        raise fault from error
    finally:
        with contextlib.suppress(OSError):  # what stopped the export may stop this too
            beside.unlink(missing_ok=True)
