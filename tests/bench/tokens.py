"""A whole episode tokenised, turn by turn, against encoding its final text once."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable

from agentenv.core.task import Task
from agentenv.records.messages import Message, Role
from tokenizers import Tokenizer

from tests.bench.scale import Scale
from tests.bench.table import Row
from tests.bench.workload import TURNS, Workload, sums

SECTION = "tokens"
_EPISODES = 20


async def measure(workload: Workload, scale: Scale) -> list[Row]:
    """Open, parse and extend through an episode; encode its text with the tokenizers library, and with ours."""
    renderer = workload.renderer
    library = Tokenizer.from_file(str(workload.folder / "model" / "tokenizer.json"))
    tasks = [sums(TURNS).task(number) for number in range(_EPISODES)]
    texts = [renderer.tokenizer.decode(_play(workload, task, number)) for number, task in enumerate(tasks)]
    assert library.encode(texts[0], add_special_tokens=False).ids == renderer.tokenizer.encode(texts[0]).tolist()
    work: dict[str, Callable[[int], object]] = {
        "episode": lambda number: _play(workload, tasks[number], number),
        "library": lambda number: library.encode(texts[number], add_special_tokens=False).ids,
        "ours": lambda number: renderer.tokenizer.encode(texts[number]),
    }
    took: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(2 * scale.rounds):
        for name, do in work.items():
            began = time.process_time()
            for number in range(_EPISODES):
                do(number)
            took[name].append(time.process_time() - began)

    def ratio(base: str) -> float:
        return min(took["episode"]) / min(took[base])

    return [
        Row(
            name="an episode tokenised, to encoding its text once",
            value=ratio("library"),
            limit=1.3,
            section=SECTION,
        ),
        Row(name="the same, to encoding it through our cache of words", value=ratio("ours"), section=SECTION),
    ]


def _play(workload: Workload, task: Task, number: int) -> array[int]:
    """Render one episode as the harness does: every id of it, each made once."""
    renderer = workload.renderer
    tools = tuple(tool.spec for tool in task.tools)
    ids = renderer.open(task.messages, tools)
    for turn in range(TURNS):
        reply = workload.replies[(number + turn) % len(workload.replies)]
        call = renderer.parse(reply, turn).calls[0]
        ids.extend(reply)
        result = Message(
            id=f"r{turn}", role=Role.TOOL, text=f"{number * 1013 + turn}", call_id=call.id, name=call.name, turn=turn
        )
        extension = renderer.extend(ids, [result], tools)
        assert extension is not None, "the template of the benchmark extends"
        ids.extend(extension)
    return ids
