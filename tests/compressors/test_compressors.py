"""What each compressor removes, what it leaves, and how its specification is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from agentenv.compressors.clear_tool_results import ClearToolResults
from agentenv.compressors.table import COMPRESSORS, parse_compressor
from agentenv.compressors.window import SlidingWindow
from agentenv.core.compressor import CannotCompact, CompressionView, Compressor
from agentenv.core.deadline import Deadline
from agentenv.engine.compaction import apply_edits, check_edits
from agentenv.errors import ConfigError, UnknownNameError
from agentenv.records.compaction import Edit
from agentenv.records.messages import Message, Role, ToolCall
from agentenv.testing.contracts.compressor import count_tokens


def _turn(n: int, *results: str, text: str = "") -> list[Message]:
    calls = tuple(ToolCall(id=f"t{n}c{k}", name="look", arguments={}) for k in range(len(results)))
    reply = Message(id=f"r{n}", role=Role.ASSISTANT, text=text, calls=calls, turn=n)
    answers = [
        Message(id=f"r{n}c{k}", role=Role.TOOL, text=result, call_id=f"t{n}c{k}", name="look", turn=n)
        for k, result in enumerate(results)
    ]
    return [reply, *answers]


SYSTEM = Message(id="s", role=Role.SYSTEM, text="x" * 40)
TASK = Message(id="u", role=Role.USER, text="x" * 40, pinned=True)


class Counter:
    """Counts windows and how often it was asked."""

    def __init__(self, count: Callable[[Sequence[Message]], int] = count_tokens) -> None:
        self.calls = 0
        self._count = count

    async def __call__(self, messages: Sequence[Message]) -> int:
        self.calls += 1
        return self._count(messages)


async def _plan(
    compressor: Compressor, messages: Sequence[Message], budget: int, count: Counter | None = None
) -> tuple[Edit, ...]:
    view = CompressionView(
        messages=tuple(messages),
        tools=(),
        tokens=count_tokens(messages),
        count=count or Counter(),
        constraints=(),
        trigger="budget",
    )
    plan = await compressor.plan(view, budget, Deadline("the plan"))
    assert isinstance(plan, tuple)
    assert check_edits(messages if isinstance(messages, tuple) else list(messages), plan) is None
    return plan


async def _left(spec: str, messages: Sequence[Message], budget: int) -> list[str]:
    plan = await _plan(parse_compressor(spec), messages, budget)
    return [message.id for message in apply_edits(messages, plan)]


# ------------------------------------------------------------------ none


async def test_none_declines_with_the_figures():
    """The reason goes into the record of the failed attempt."""
    with pytest.raises(CannotCompact, match="17 tokens, 10 are allowed, and compressor 'none' removes nothing"):
        await _plan(parse_compressor("none"), [TASK], 10)


# ------------------------------------------------------------------ window


async def test_window_keeps_the_newest_whole_turns_that_fit():
    """Exactly as many as fit the target: one more would not."""
    history = [SYSTEM, TASK, *(m for n in range(10) for m in _turn(n, "x" * 400))]
    plan = await _plan(parse_compressor("window:800"), history, 800)
    after = apply_edits(history, plan)
    assert after[:2] == (SYSTEM, TASK)
    assert after[2:] == tuple(history[-2 * ((len(after) - 2) // 2) :])
    one_more = [SYSTEM, TASK, *history[-len(after[2:]) - 2 :]]
    assert count_tokens(after) <= 400 < count_tokens(one_more)


async def test_window_drops_loose_user_messages_by_age():
    """A user message that is not pinned goes like a turn; a pinned one stands among the dropped."""
    loose = Message(id="loose", role=Role.USER, text="leave the original alone")
    firm = Message(id="firm", role=Role.USER, text="and be quick", pinned=True)
    history = [SYSTEM, TASK, loose, *_turn(0, "x" * 400), firm, *_turn(1, "x" * 400), *_turn(2, "y")]
    assert await _left("window:300", history, 300) == ["s", "u", "firm", "r2", "r2c0"]


async def test_window_drops_the_oldest_first():
    """Dropping stops as soon as the rest fits."""
    loose = Message(id="loose", role=Role.USER, text="x" * 200)
    history = [TASK, loose, *_turn(0, "x" * 40), *_turn(1, "x" * 40)]
    assert await _left("window:150,target=0.8", history, 150) == ["u", "r0", "r0c0", "r1", "r1c0"]


async def test_window_never_drops_what_the_policy_has_not_answered():
    """All results of the last turn stay, and user messages behind it, however large."""
    later = Message(id="later", role=Role.USER, text="x" * 40)
    history = [TASK, *_turn(0, "y" * 40), *_turn(1, "x" * 4000, "x" * 4000), later]
    assert await _left("window:100", history, 4000) == ["u", "r1", "r1c0", "r1c1", "later"]
    with pytest.raises(CannotCompact, match=r"the last turn and what is pinned alone take 2,"):
        await _left("window:100", history, 100)


async def test_window_keeps_the_last_word_where_there_is_no_turn():
    """Before the first reply, the newest message is what the policy is to answer."""
    history = [Message(id=f"q{n}", role=Role.USER, text="x" * 400) for n in range(5)]
    assert await _left("window:250", history, 250) == ["q4"]


async def test_window_with_a_pinned_result_keeps_its_whole_turn():
    """A pinned result stands with its call and the other results of the turn."""
    turn = _turn(0, "x" * 40, "y" * 40)
    turn[1] = Message(id="r0c0", role=Role.TOOL, text="x" * 40, call_id="t0c0", name="look", pinned=True)
    history = [TASK, *turn, *_turn(1, "x" * 400), *_turn(2, "z")]
    assert await _left("window:200", history, 200) == ["u", "r0", "r0c0", "r0c1", "r2", "r2c0"]


async def test_window_with_nothing_to_drop_declines():
    """The reason says what is left."""
    with pytest.raises(CannotCompact, match="nothing is left to drop but pinned messages and the last turn"):
        await _left("window:20", [SYSTEM, TASK, *_turn(0, "x" * 400)], 20)


async def test_window_leaves_room_to_grow():
    """The target is below the trigger, so that the next turn does not compact again."""
    history = [TASK, *(m for n in range(40) for m in _turn(n, "x" * 100))]
    compressor = parse_compressor("window:1000")
    assert compressor.trigger_tokens == 1000
    assert count_tokens(apply_edits(history, await _plan(compressor, history, 1000))) <= 500
    fuller = parse_compressor("window:1000,target=0.9")
    assert 800 < count_tokens(apply_edits(history, await _plan(fuller, history, 1000))) <= 900


@pytest.mark.parametrize("n_turns", [10, 100, 1000])
async def test_window_counts_few_candidates(n_turns: int):
    """Each count renders a whole window: about four are enough, however long the history."""
    history = [TASK, *(m for n in range(n_turns) for m in _turn(n, "x" * (37 * n % 900)))]
    count = Counter()
    await _plan(
        parse_compressor(f"window:{count_tokens(history) * 9 // 10}"), history, count_tokens(history) - 1, count
    )
    assert count.calls <= 5


async def test_window_survives_a_template_that_refuses_some_windows():
    """A candidate that the chat template refuses is passed over for a smaller one that it takes."""

    def picky(messages: Sequence[Message]) -> int:
        if messages[0].role is not Role.USER:
            raise ConfigError("Conversation roles must alternate")
        return count_tokens(messages)

    history: list[Message] = []
    for n in range(8):
        history += [Message(id=f"q{n}", role=Role.USER, text="x" * 80), *_turn(n, "x" * 80)]
    plan = await _plan(parse_compressor("window:300"), history, 300, Counter(picky))
    after = apply_edits(history, plan)
    assert after[0].role is Role.USER
    assert count_tokens(after) <= 150


async def test_window_declines_where_the_template_refuses_the_smallest_window():
    """The template's own words are the reason."""

    def picky(messages: Sequence[Message]) -> int:
        raise ConfigError("No user query found in messages.")

    history = [Message(id="q", role=Role.USER, text="x" * 400), *_turn(0, "y"), *_turn(1, "y")]
    with pytest.raises(CannotCompact, match="refuses a window of the last turn and what is pinned: No user query"):
        await _plan(parse_compressor("window:100"), history, 100, Counter(picky))


# ------------------------------------------------------------------ clear-tool-results


async def test_clearing_leaves_a_stub_with_tool_and_size():
    """Role, call, name and turn stay; the text says what stood there; the edit names its source."""
    history = [TASK, *_turn(0, "é" * 200), *_turn(1, "b" * 100), *_turn(2, "c")]
    plan = await _plan(parse_compressor("clear-tool-results:100,keep=1"), history, 200)
    stub = apply_edits(history, plan)[2]
    assert stub == Message(
        id="r0c0:cleared",
        role=Role.TOOL,
        text="[result of look cleared: 400 bytes]",
        call_id="t0c0",
        name="look",
        turn=0,
    )
    assert [(edit.op, edit.sources) for edit in plan[2:5]] == [
        ("replace", ("r0c0",)),
        ("keep", ()),
        ("replace", ("r1c0",)),
    ]


async def test_clearing_keeps_the_newest_results():
    """Three by default, over all turns."""
    history = [TASK, *(m for n in range(6) for m in _turn(n, "x" * 400))]
    assert await _left("clear-tool-results:500", history, 500) == [
        *("u", "r0", "r0c0:cleared", "r1", "r1c0:cleared", "r2", "r2c0:cleared"),
        *("r3", "r3c0", "r4", "r4c0", "r5", "r5c0"),
    ]


async def test_clearing_never_touches_results_that_the_policy_has_not_seen():
    """A turn with more results than are kept keeps them all until it is answered."""
    history = [TASK, *_turn(0, "x" * 400), *_turn(1, *["y" * 400] * 3)]
    assert await _left("clear-tool-results:400,keep=0", history, 400) == [
        *("u", "r0", "r0c0:cleared", "r1", "r1c0", "r1c1", "r1c2"),
    ]


async def test_stubs_are_not_counted_again():
    """A stub is neither cleared anew nor one of the newest; a result that looks like one is a result."""
    history: list[Message] = [TASK, *(m for n in range(3) for m in _turn(n, "x" * 400))]
    compressor = parse_compressor("clear-tool-results:200,keep=1")
    history = list(apply_edits(history, await _plan(compressor, history, 200)))
    history += [*_turn(3, "[result of look cleared: 400 bytes]" + "x" * 400), *_turn(4, "z")]
    after = apply_edits(history, await _plan(compressor, history, 200))
    assert [m.id for m in after if m.role is Role.TOOL] == [
        *("r0c0:cleared", "r1c0:cleared", "r2c0:cleared", "r3c0:cleared", "r4c0"),
    ]
    assert after[2].text == "[result of look cleared: 400 bytes]"


async def test_clearing_leaves_pinned_and_short_results_and_parse_errors():
    """A stub longer than its text helps nobody; what is pinned stands; a parse error is no result."""
    pinned = [
        Message(id="p", role=Role.ASSISTANT, text="", calls=(ToolCall(id="c", name="look", arguments={}),)),
        Message(id="pc", role=Role.TOOL, text="x" * 400, call_id="c", name="look", pinned=True),
    ]
    note = [Message(id="g", role=Role.ASSISTANT, text=""), Message(id="gn", role=Role.TOOL, text="x" * 400)]
    history = [TASK, *_turn(0, "short"), *pinned, *note, *_turn(1, "x" * 400), *_turn(2, "z")]
    left = await _left("clear-tool-results:200,keep=0", history, 400)
    assert left == ["u", "r0", "r0c0", "p", "pc", "g", "gn", "r1", "r1c0:cleared", "r2", "r2c0"]


async def test_clearing_declines_where_it_is_not_enough():
    """It promises no size: what does not fit is a failed attempt with the figures."""
    compressor = "clear-tool-results:100,keep=0"
    with pytest.raises(CannotCompact, match="no tool result older than the newest 0 is left to clear"):
        await _left(compressor, [TASK, *_turn(0, "x" * 400)], 100)
    with pytest.raises(CannotCompact, match=r"around 1 cleared results alone take \d+ tokens, 30 are allowed"):
        await _left(compressor, [TASK, *_turn(0, "x" * 400), *_turn(1, "z")], 30)


# ------------------------------------------------------------------ specifications


@pytest.mark.parametrize(
    ("spec", "name", "trigger"),
    [
        ("none", "none", None),
        ("window:2048", "window:2048", 2048),
        (" window:2048,target=0.50 ", "window:2048", 2048),
        ("window:2048,target=.7", "window:2048,target=0.7", 2048),
        ("clear-tool-results:99", "clear-tool-results:99", 99),
        ("clear-tool-results:99,keep=3", "clear-tool-results:99", 99),
        ("clear-tool-results:99,keep=0", "clear-tool-results:99,keep=0", 99),
    ],
)
def test_a_specification_becomes_one_name(spec: str, name: str, trigger: int | None):
    """Equal settings have one spelling, and it can be read again."""
    compressor = parse_compressor(spec)
    assert (compressor.name, compressor.trigger_tokens) == (name, trigger)
    again = parse_compressor(name)
    assert (again.name, again.sha256) == (compressor.name, compressor.sha256)


def test_settings_change_the_hash():
    """The manifest tells two settings apart."""
    specs = [
        "none",
        "window:1",
        "window:2",
        "window:1,target=0.6",
        "clear-tool-results:1",
        "clear-tool-results:1,keep=1",
    ]
    assert len({parse_compressor(spec).sha256 for spec in specs}) == len(specs)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("none:5", "nothing is known of '5'; expected none"),
        ("none:keep=1", "nothing is known of 'keep=1'"),
        ("window", "'nothing' is no whole number of tokens above 0; expected window:TOKENS[,target=SHARE], such as"),
        ("window:", "'nothing' is no whole number of tokens above 0"),
        ("window:0", "'0' is no whole number of tokens above 0"),
        ("window:-5", "'-5' is no whole number"),
        ("window:2k", "'2k' is no whole number"),
        ("window:\uff12", "is no whole number"),
        ("window:" + "9" * 5000, "is no whole number"),
        ("window:target=0.5", "'nothing' is no whole number"),
        ("window:5,6", "'6' is no option, or comes twice"),
        ("window:5,target=0.5,target=0.6", "'target=0.6' is no option, or comes twice"),
        ("window:5,target=0", "target='0' is no number above 0 and at most 1"),
        ("window:5,target=1.5", "target='1.5' is no number above 0 and at most 1"),
        ("window:5,target=nan", "target='nan' is no number"),
        ("window:5,target=half", "target='half' is no number"),
        ("window:5,keep=3", "nothing is known of 'keep=3'"),
        ("clear-tool-results:5,keep=-1", "keep='-1' is no whole number; expected clear-tool-results:TOKENS[,keep="),
        ("clear-tool-results:5,keep=", "keep='' is no whole number"),
        ("clear-tool-results:5,=3", "'=3' is no option"),
    ],
)
def test_a_wrong_specification_is_refused_with_the_form_expected(spec: str, problem: str):
    """The message names the part at fault and how it is written."""
    with pytest.raises(ConfigError) as caught:
        parse_compressor(spec)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: SlidingWindow(limit=0), "limit of at least 1 token, got 0"),
        (lambda: SlidingWindow(limit=5, target=0.0), "target above 0 and at most 1, got 0.0"),
        (lambda: ClearToolResults(limit=-1), "limit of at least 1 token, got -1"),
        (lambda: ClearToolResults(limit=5, keep=-1), "cannot keep -1 results"),
    ],
)
def test_wrong_settings_are_refused_in_python_too(make: Callable[[], object], problem: str):
    """Compressors made without a specification check the same."""
    with pytest.raises(ConfigError) as caught:
        make()
    assert problem in str(caught.value)


def test_an_unknown_compressor_is_refused_with_what_is_near():
    """The message says which there are."""
    with pytest.raises(UnknownNameError, match="Did you mean 'window'"):
        parse_compressor("windw:2048")


@pytest.mark.parametrize("name", COMPRESSORS)
def test_every_example_of_a_form_works(name: str):
    """The forms that error messages print are ones that the parser takes."""
    examples = COMPRESSORS[name].form.partition("such as ")[2].split(" or ")
    for example in [part for part in examples if part] or [name]:
        assert parse_compressor(example).name == example
