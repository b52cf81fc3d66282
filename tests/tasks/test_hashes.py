"""Promise: the same seed gives the same task, in every process, on every machine and supported Python.

The figures were made once, on Python 3.11, and are the same on 3.12 and 3.13. A change of a suite changes its line
here on purpose: runs made before it cannot be compared with runs made after it.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys

import pytest
from agentenv.core.hashing import sha256_of
from agentenv.core.task import Task

SUITES = ("arithmetic", "repair", "keep_original", "lookup")

PROGRAM = """
import importlib, json, sys
suites = [importlib.import_module(f"agentenv_tasks.{name}").suite for name in sys.argv[1:]]
print(json.dumps([
    [suite.sha256, [suite.task(seed, level).content_sha256 for seed in (0, 3, 199) for level in suite.levels]]
    for suite in suites
]))
"""


def in_another_process(hash_seed: str) -> list[list[object]]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", PROGRAM, *SUITES]
    return json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)


def test_hashes_do_not_depend_on_the_process():
    assert in_another_process("1") == in_another_process("2")


def drawn(task: Task) -> str:
    """What the suite draws for a task, without the tools, whose wording may change."""
    return sha256_of([task.id, task.messages, task.files, task.budgets, task.constraints])


@pytest.mark.parametrize("name", SUITES)
def test_tasks_are_the_ones_written_down(name: str):
    suite = importlib.import_module(f"agentenv_tasks.{name}").suite
    hashes = [drawn(suite.task(seed, level)) for seed in range(10) for level in suite.levels]
    assert sha256_of(hashes)[:16] == WRITTEN[name]


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_has_200_tasks_or_more_and_is_named_as_registered(name: str):
    suite = importlib.import_module(f"agentenv_tasks.{name}").suite
    assert suite.size >= 200
    assert suite.name == name.replace("_", "-")
    assert suite.task(suite.size + 1).content_sha256 == suite.task(1).content_sha256


WRITTEN = {
    "arithmetic": "a47f552c7df1adef",
    "repair": "56b3bce7cb0cb5b5",
    "keep_original": "2ada4aff0b6a3157",
    "lookup": "14db49ee148436c2",
}
