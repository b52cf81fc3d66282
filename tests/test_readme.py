"""What the README shows is what happens."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from agentenv.registry import load_suite

README = Path(__file__).parents[1] / "README.md"


def test_the_examples_of_the_readme_run() -> None:
    """The Python session in the README is run as a doctest."""
    results = doctest.testfile(str(README), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert results.attempted > 5
    assert results.failed == 0


def test_the_suite_of_the_readme_is_a_suite_of_at_most_twenty_lines(tmp_path: Path) -> None:
    """The file shown loads, makes tasks, and is as short as it is said to be."""
    block = next(
        part for part in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if "seeded_suite" in part
    )
    assert len(block.strip().splitlines()) <= 20
    path = tmp_path / "sums.py"
    path.write_text(block)
    task = load_suite(str(path)).task(3)
    assert set(task.scripts) >= {"reference", "nothing"}
