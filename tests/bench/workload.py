"""What is run: a small real model folder, replies that call the calculator, and a suite without a sandbox."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from agentenv.records.messages import ToolCall
from agentenv.rendering.loading import load_renderer
from agentenv.rendering.template_renderer import TemplateRenderer
from agentenv.toolkit.suite import (
    SeededSuite,
    Task,
    Variant,
    call,
    exact_answer,
    messages,
    scripted,
    seeded_suite,
    system,
    turn_budget,
)

from agentenv_tools.calculator import calculator
from tests.rendering.models import FAMILIES, TEMPLATES, train

TURNS = 8
REPLY_TOKENS = 32
WINDOW = 1 << 16
_N_REPLIES = 64
_FAMILY = FAMILIES["qwen25"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How much is run, and how much of it at once."""

    episodes: int
    at_once: int
    turns: int = TURNS

    @property
    def calls(self) -> int:
        """Replies of the whole run."""
        return self.episodes * self.turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Files and parts that client and engine share."""

    folder: Path
    """Removed at the end."""
    scratch: Path
    """Where journals go."""
    renderer: TemplateRenderer
    replies: list[list[int]]
    """What the engine says, each of `REPLY_TOKENS` ids and one call of the calculator; the request's seed picks one."""

    @property
    def engine_arguments(self) -> tuple[str, ...]:
        """The command line of a stub engine that says them."""
        files = ("--tokenizer", str(self.folder / "model"), "--completions", str(self.folder / "replies.json"))
        return (*files, "--window", str(WINDOW))


@contextmanager
def workload() -> Generator[Workload]:
    """Make everything in a folder of its own."""
    with TemporaryDirectory(prefix="agentenv-bench-") as name:
        folder = Path(name)
        _write_model(folder / "model")
        renderer = load_renderer(folder / "model")
        replies = [_reply(renderer, number) for number in range(_N_REPLIES)]
        (folder / "replies.json").write_text(json.dumps(replies))
        yield Workload(folder=folder, scratch=folder, renderer=renderer, replies=replies)


def existing(folder: Path, *, name: str) -> Workload:
    """Open, in another process, what `workload` made; journals go into a folder of that ``name`` in it."""
    replies: list[list[int]] = json.loads((folder / "replies.json").read_text())
    return Workload(folder=folder, scratch=folder / name, renderer=load_renderer(folder / "model"), replies=replies)


def sums(turns: int) -> SeededSuite:
    """Make a suite whose episodes take exactly ``turns`` turns, because every reply calls the calculator."""

    @seeded_suite(f"bench-{turns}", size=100_000)
    def suite(draw: Variant) -> Task:
        a, b = 100 + draw.seed % 900, 200 + draw.seed % 700
        return Task(
            id=draw.id,
            messages=messages(system("Use the calculator. Then write: The answer is N."), f"What is {a} times {b}?"),
            tools=(calculator,),
            budgets=(turn_budget(turns),),
            grader=exact_answer(a * b),
            scripts={"reference": scripted(call("calculator", expression=f"{a} * {b}"), f"The answer is {a * b}.")},
        )

    return suite


def _write_model(folder: Path) -> None:
    folder.mkdir()
    train(_FAMILY).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": _FAMILY.eos}))
    (folder / "chat_template.jinja").write_text((TEMPLATES / f"{_FAMILY.template}.jinja").read_text())


def _reply(renderer: TemplateRenderer, number: int) -> list[int]:
    """Write a reply of the exact length: a call, with as many words in front as that takes."""
    expression = f"{11 + number} * {7 + number % 13}"
    calls = [ToolCall(id="", name="calculator", arguments={"expression": expression})]
    for filler in range(REPLY_TOKENS):
        ids = renderer.compose(("a" * filler), calls).tolist()
        if len(ids) == REPLY_TOKENS:
            return ids
    raise AssertionError(f"no reply of {REPLY_TOKENS} tokens calls {expression}; the shortest has {len(ids)}")
