"""The manifest of a run: what was used to make it (law 13), as a plain nested mapping.

Its hash is taken over canonical JSON (sorted keys, no spaces), so that the same settings have the same hash on every
machine. What goes into it is decided by whoever collects; how two of them compare is decided here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from agentenv.errors import ConfigError, DamagedJournal, NewerSchema, ended

MANIFEST_VERSION = 1

RESUME_MAY_DIFFER = frozenset(
    {
        "attempts",
        "concurrency",
        "created_at",
        "host",
        "hostname",
        "max_attempts",
        "out",
        "paths",
        "progress",
        "retries",
        "run",
    }
)
"""Keys at the top whose values (and everything below them) may differ when a run is resumed: they say where and how
fast the run is made, not what it consists of. Deeper down the same word may name anything, such as a tool."""

_ABSENT = "(absent)"


def canonical(manifest: Mapping[str, Any]) -> bytes:
    """Give the canonical JSON of a manifest.

    Raises:
        ConfigError: It holds something that is no JSON value.
    """
    try:
        text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"The manifest must hold JSON values only: {ended(error)}") from error
    return text.encode()


def manifest_sha256(manifest: Mapping[str, Any]) -> str:
    """Give the hash of the canonical JSON."""
    return hashlib.sha256(canonical(manifest)).hexdigest()


def write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Write atomically, and force it to the disk: a run without its manifest is worth nothing.

    Raises:
        ConfigError: It holds something that is no JSON value.
        OSError: The disk is full or gone.
    """
    plain = json.loads(canonical(manifest))
    content = {"manifest_version": MANIFEST_VERSION, "sha256": manifest_sha256(manifest), "manifest": plain}
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=2, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def read_manifest(path: Path) -> dict[str, Any]:
    """Read a manifest and check its hash.

    Raises:
        FileNotFoundError: There is none.
        NewerSchema: Written by a newer version of this package.
        DamagedJournal: It is no manifest, or was changed after it was written.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version, sha256, manifest = content["manifest_version"], content["sha256"], content["manifest"]
        if version > MANIFEST_VERSION:
            raise NewerSchema(f"{path} has version {version}, this package reads up to {MANIFEST_VERSION}.")
        actual = manifest_sha256(manifest)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedJournal(f"{path} is no manifest of agentenv: {type(error).__name__}: {ended(error)}") from error
    if actual != sha256:
        raise DamagedJournal(f"{path} was changed after it was written: its SHA-256 is {actual}, it says {sha256}.")
    return cast("dict[str, Any]", manifest)


def differences(stored: Mapping[str, Any], asked: Mapping[str, Any]) -> list[tuple[str, object, object]]:
    """List every dotted key that decides the run and differs: (key, stored value, asked value).

    A key that only one of them has is given as ``(absent)`` in the other. Keys of `RESUME_MAY_DIFFER` are left out.
    """
    ours, theirs = dict(_leaves(stored)), dict(_leaves(json.loads(canonical(asked))))
    keys = sorted(ours.keys() | theirs.keys())
    return [
        (".".join(key), ours.get(key, _ABSENT), theirs.get(key, _ABSENT))
        for key in keys
        if ours.get(key, _ABSENT) != theirs.get(key, _ABSENT)
    ]


def require_same(stored: Mapping[str, Any], asked: Mapping[str, Any], *, where: Path) -> None:
    """Refuse to resume a run with other settings.

    Raises:
        ConfigError: Settings that decide the run differ; shows each with both values.
    """
    found = differences(stored, asked)
    if not found:
        return
    lines = [f"  {key}: was {_short(ours)}, now {_short(theirs)}" for key, ours, theirs in found]
    raise ConfigError(
        f"The run in {where} was made with other settings; resuming would mix two runs. What differs:\n"
        + "\n".join(lines)
        + "\nResume with the settings it was made with, or collect into another folder."
    )


def _leaves(node: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, value in node.items():
        if not above and key in RESUME_MAY_DIFFER:
            continue
        if isinstance(value, dict) and value:
            yield from _leaves(cast("dict[str, Any]", value), (*above, key))
        else:
            yield (*above, key), value


def _short(value: object) -> str:
    text = _ABSENT if value == _ABSENT else json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
