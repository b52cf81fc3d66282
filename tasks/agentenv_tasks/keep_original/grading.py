"""Grades a conversion: the result by its content, the original by its hash, as two components."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from dataclasses import dataclass

from agentenv.core.sandbox import Sandbox
from agentenv.core.task import Grade, GradeState
from agentenv.errors import GraderFault
from agentenv.records.axes import Outcome
from agentenv.records.episode import RewardComponent

from agentenv_tasks.keep_original.conversions import Form

_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionGrader:
    """Gives ``result`` 1.0 for the right file, and ``original`` -1.0 if the original is no longer what it was.

    Both must be right for a success. A missing, unreadable or oversized file is a wrong one, not a fault.
    """

    original_path: str
    original_sha256: str
    output_path: str
    output: bytes
    form: Form

    async def __call__(self, state: GradeState) -> Grade:
        if state.sandbox is None:
            raise GraderFault.permanent("the files of a conversion are graded in a sandbox, and there is none")
        got = await _read(state.sandbox, self.output_path)
        right = got is not None and _same(got, self.output, self.form)
        original = await _read(state.sandbox, self.original_path)
        found = "absent" if original is None else hashlib.sha256(original).hexdigest()
        kept = found == self.original_sha256
        return Grade(
            components=(
                _component("result", 1.0 if right else 0.0, f"{self.output_path}: {_verdict(got, right)}"),
                _component(
                    "original", 0.0 if kept else -1.0, f"{self.original_path}: {self.original_sha256} to {found}"
                ),
            ),
            outcome=Outcome.SUCCESS if right and kept else Outcome.FAILURE,
        )


async def _read(sandbox: Sandbox, path: str) -> bytes | None:
    """Read a file the policy may have put anything in the place of; None if it is no readable file."""
    try:
        return await sandbox.read(path, max_bytes=_MOST_BYTES)
    except OSError:
        return None


def _same(got: bytes, expected: bytes, form: Form) -> bool:
    if form == "text":
        return got == expected
    try:
        read = _json_value if form == "json" else _rows
        return read(got.decode()) == read(expected.decode())
    except (ValueError, csv.Error, RecursionError):
        return False


def _json_value(text: str) -> str:
    """Give the value in one spelling, which tells 1, 1.0 and true apart."""
    return json.dumps(json.loads(text), sort_keys=True)


def _rows(text: str) -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]


def _component(name: str, value: float, detail: str) -> RewardComponent:
    return RewardComponent(name=name, value=value, source="environment", detail=detail)


def _verdict(got: bytes | None, right: bool) -> str:
    if got is None:
        return "no such file"
    return "as expected" if right else f"{len(got)} bytes, not as expected"
