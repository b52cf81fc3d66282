"""The contract suite of compressors: law 7 over random histories, runnable on any compressor.

Use, in a test module::

    class TestMyCompressor(CompressorContract):
        @pytest.fixture
        def case(self):
            return CompressorCase(make=lambda: MyCompressor(limit=200))

Token counts come from `count_tokens`, which needs no vocabulary; histories have up to some 3,000 of its tokens, so a
compressor under test should have its limit in the hundreds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentenv.core.compressor import CannotCompact, CompressionView, Compressor, SummaryRequest
from agentenv.core.deadline import Deadline
from agentenv.engine.compaction import apply_edits, check_edits, check_sizes
from agentenv.records.compaction import Edit
from agentenv.records.messages import Message, Role, ToolCall

_MAX_SUMMARIES = 3
"""Summaries that one plan may ask for before the suite calls it endless."""


def count_tokens(messages: Sequence[Message]) -> int:
    """Count a window: a token per four bytes of text, and a fixed number per message, call and prompt."""
    total = 3
    for message in messages:
        total += 4 + (len(message.text.encode("utf-8", "surrogatepass")) + 3) // 4
        total += sum(8 + len(str(call.arguments)) // 4 for call in message.calls)
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressorCase:
    """One compressor, and what the suite needs to know about it."""

    make: Callable[[], Compressor]
    """Makes one; called for every example."""
    max_counts: Callable[[int], int] = field(default=lambda n_messages: 4 * n_messages + 8)
    """Most uses of ``view.count`` in one plan, by the number of messages. Each renders a whole window."""
    repeatable: bool = True
    """Whether the same view gives the same plan."""
    max_examples: int = 150


@st.composite
def histories(draw: st.DrawFn, *, max_units: int = 10) -> tuple[Message, ...]:
    """Draw a well-formed window that the policy is to answer: system and user messages, and whole turns."""
    texts = st.builds(_text, st.sampled_from(["a", "wort ", "é日🙂", "\n"]), st.integers(0, 400))
    builder = _Builder()
    if draw(st.booleans()):
        builder.add(Role.SYSTEM, draw(texts))
    builder.add(Role.USER, draw(texts), pinned=draw(st.booleans()))
    for _ in range(draw(st.integers(0, max_units))):
        if draw(st.integers(0, 3)) == 0:
            builder.add(Role.USER, draw(texts), pinned=draw(st.integers(0, 4)) == 0)
            continue
        results = draw(st.lists(texts, max_size=3))
        pinned = draw(st.sampled_from([None, None, None, None, -1, 0]))
        builder.turn(draw(texts), results, pinned=pinned)
    if builder.messages[-1].role not in (Role.USER, Role.TOOL):
        builder.add(Role.USER, draw(texts))
    return tuple(builder.messages)


def _text(word: str, n: int) -> str:
    return (word * n)[:400]


class _Builder:
    """Numbers messages, turns and calls as an episode does."""

    def __init__(self, messages: Sequence[Message] = (), *, first_message: int = 0, first_turn: int = 0) -> None:
        self.messages = list(messages)
        self.next_message = first_message
        self.next_turn = first_turn

    def add(self, role: Role, text: str, *, pinned: bool = False) -> None:
        self.messages.append(Message(id=f"m{self.next_message}", role=role, text=text, pinned=pinned))
        self.next_message += 1

    def turn(self, text: str, results: Sequence[str], *, pinned: int | None = None) -> None:
        """Add a reply with a call per result; without any, the parse error that answers the reply.

        Args:
            text: Of the reply.
            results: Texts of the tool messages.
            pinned: Index of the pinned result, -1 for the reply itself, None for neither.
        """
        turn, self.next_turn = self.next_turn, self.next_turn + 1
        calls = tuple(ToolCall(id=f"t{turn}c{n}", name="look", arguments={"at": n}) for n in range(len(results)))
        first = self.next_message
        self.next_message += 1 + max(len(results), 1)
        self.messages.append(
            Message(id=f"m{first}", role=Role.ASSISTANT, text=text, calls=calls, turn=turn, pinned=pinned == -1)
        )
        for n, result in enumerate(results or ["That was no call: write one."]):
            self.messages.append(
                Message(
                    id=f"m{first + 1 + n}",
                    role=Role.TOOL,
                    text=result,
                    call_id=calls[n].id if results else None,
                    name="look" if results else None,
                    turn=turn,
                    pinned=pinned == n,
                )
            )


def broken_law_7(before: Sequence[Message], after: Sequence[Message]) -> str | None:
    """Say how ``after`` breaks the structural half of law 7; None if it does not.

    Written apart from `engine.compaction`, by adjacency instead of edits, so that the two check one another.

    Args:
        before: A well-formed window, such as `histories` draws.
        after: What became of it.
    """
    return next(_broken(before, after), None)


def _broken(before: Sequence[Message], after: Sequence[Message]) -> Iterator[str]:
    standing = [message for message in before if message.pinned or message.role is Role.SYSTEM]
    kept = [message for message in after if message in standing]
    if kept != standing:
        yield f"of {[m.id for m in standing]}, {[m.id for m in kept]} stand"
    ids = [message.id for message in after]
    if len(set(ids)) != len(ids):
        yield f"ids come twice: {ids}"
    if not after or after[-1].role in (Role.SYSTEM, Role.ASSISTANT):
        yield "the policy has nothing to answer"
    yield from _broken_turns(before, after)


def _broken_turns(before: Sequence[Message], after: Sequence[Message]) -> Iterator[str]:
    noted = {head.id for head, answers in _turns(before) if answers and not head.calls}
    for head, answers in _turns(after):
        asked = [call.id for call in head.calls]
        answered = [answer.call_id for answer in answers if answer.call_id is not None]
        if sorted(asked) != sorted(answered):
            yield f"{head.id} made calls {asked} and has results {answered}"
        if head.id in noted and not answers:
            yield f"{head.id} has lost its parse error"
        if answers and head.role is not Role.ASSISTANT:
            yield f"{answers[0].id} answers no turn"


def _turns(messages: Sequence[Message]) -> list[tuple[Message, list[Message]]]:
    """Take a window apart into messages that are not a tool's, each with the tool messages right behind it."""
    turns: list[tuple[Message, list[Message]]] = []
    for message in messages:
        if message.role is Role.TOOL and turns:
            turns[-1][1].append(message)
        else:
            turns.append((message, []))
    return turns


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """One plan, as the suite asked for it."""

    edits: tuple[Edit, ...] | None
    """None: `CannotCompact`."""
    reason: str
    counts: int


def _plan(compressor: Compressor, messages: tuple[Message, ...], budget_tokens: int) -> _Attempt:
    counts = 0

    async def count(candidate: Sequence[Message]) -> int:
        nonlocal counts
        counts += 1
        return count_tokens(candidate)

    summary: str | None = None
    for _ in range(_MAX_SUMMARIES + 1):
        view = CompressionView(
            messages=messages,
            tools=(),
            tokens=count_tokens(messages),
            count=count,
            constraints=(),
            trigger="budget",
            summary=summary,
        )
        try:
            plan = asyncio.run(_ask(compressor, view, budget_tokens))
        except CannotCompact as error:
            return _Attempt(edits=None, reason=str(error), counts=counts)
        if not isinstance(plan, SummaryRequest):
            return _Attempt(edits=plan, reason="", counts=counts)
        assert plan.messages, "a summary is asked for with an empty prompt"
        assert plan.max_tokens >= 1, f"a summary of {plan.max_tokens} tokens is asked for"
        summary = "What happened so far: nothing of note."
    pytest.fail(f"{compressor.name} asked for more than {_MAX_SUMMARIES} summaries for one plan")


async def _ask(compressor: Compressor, view: CompressionView, budget_tokens: int) -> tuple[Edit, ...] | SummaryRequest:
    return await compressor.plan(view, budget_tokens, Deadline("the plan"))


def _check(
    messages: tuple[Message, ...], attempt: _Attempt, budget_tokens: int, taken: set[str]
) -> tuple[Message, ...]:
    """Assert law 7 of one attempt, and give the window after it."""
    if attempt.edits is None:
        assert attempt.reason, "CannotCompact says nothing"
        return messages
    assert check_edits(messages, attempt.edits, taken=taken) is None
    after = apply_edits(messages, attempt.edits)
    assert broken_law_7(messages, after) is None
    sizes = check_sizes(
        tokens_before=count_tokens(messages), tokens_after=count_tokens(after), budget_tokens=budget_tokens
    )
    assert sizes is None, sizes
    return after


class CompressorContract:
    """What every compressor keeps."""

    @pytest.fixture
    def case(self) -> CompressorCase:
        """Give the compressor under test."""
        raise NotImplementedError("a test of a compressor defines the fixture 'case'")

    def test_names_itself_the_same_every_time(self, case: CompressorCase) -> None:
        """Name, hash and trigger go into the manifest: two compressors made alike agree, and say something."""
        first, second = case.make(), case.make()
        assert first.name
        assert (first.name, first.sha256, first.trigger_tokens) == (second.name, second.sha256, second.trigger_tokens)
        assert len(first.sha256) == 64
        assert int(first.sha256, 16) >= 0
        assert first.trigger_tokens is None or first.trigger_tokens >= 1

    def test_keeps_law_7(self, case: CompressorCase) -> None:
        """Law 7: system and pinned messages stand, calls and results are paired, it fits, and it is smaller."""

        @settings(max_examples=case.max_examples, deadline=None)
        @given(messages=histories(), share=st.floats(0.02, 1.0))
        def run(messages: tuple[Message, ...], share: float) -> None:
            budget = max(int(count_tokens(messages) * share), 1)
            attempt = _plan(case.make(), messages, budget)
            _check(messages, attempt, budget, set())
            assert attempt.counts <= case.max_counts(len(messages))

        run()

    def test_keeps_law_7_again_and_again(self, case: CompressorCase) -> None:
        """Law 7 holds of every compaction of an episode, and no message gets an id that another one had."""

        @settings(max_examples=case.max_examples // 3, deadline=None)
        @given(
            messages=histories(),
            share=st.floats(0.2, 0.9),
            results=st.lists(st.integers(1, 600), min_size=2, max_size=5),
        )
        def run(messages: tuple[Message, ...], share: float, results: list[int]) -> None:
            compressor = case.make()
            budget = max(int(count_tokens(messages) * share), 1)
            taken: set[str] = set()
            for n, size in enumerate(results):
                taken |= {message.id for message in messages}
                gone = taken - {message.id for message in messages}
                messages = _check(messages, _plan(compressor, messages, budget), budget, gone)
                taken |= {message.id for message in messages}
                builder = _Builder(messages, first_message=1000 * (n + 1), first_turn=1000 * (n + 1))
                builder.turn("go on", ["x" * size])
                messages = tuple(builder.messages)

        run()

    def test_is_repeatable(self, case: CompressorCase) -> None:
        """The same view gives the same plan, whatever was planned before."""
        if not case.repeatable:
            return

        @settings(max_examples=case.max_examples // 3, deadline=None)
        @given(messages=histories(), other=histories(), share=st.floats(0.1, 0.9))
        def run(messages: tuple[Message, ...], other: tuple[Message, ...], share: float) -> None:
            budget = max(int(count_tokens(messages) * share), 1)
            used = case.make()
            _plan(used, other, budget)
            assert _plan(used, messages, budget).edits == _plan(case.make(), messages, budget).edits

        run()
