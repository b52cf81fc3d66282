"""Law 7 as the engine checks it: what a plan may do, and every way in which it may not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from agentenv.engine.compaction import apply_edits, check_edits, check_sizes
from agentenv.records.compaction import Edit
from agentenv.records.messages import Message, Role, ToolCall
from agentenv.testing.contracts.compressor import broken_law_7, histories
from hypothesis import given, settings
from hypothesis import strategies as st


def _call(call_id: str) -> ToolCall:
    return ToolCall(id=call_id, name="look", arguments={})


SYSTEM = Message(id="m0", role=Role.SYSTEM, text="be brief")
TASK = Message(id="m1", role=Role.USER, text="do it", pinned=True)
ASIDE = Message(id="m2", role=Role.USER, text="by the way")
REPLY = Message(id="m3", role=Role.ASSISTANT, text="looking", calls=(_call("t0c0"), _call("t0c1")), turn=0)
FIRST = Message(id="m4", role=Role.TOOL, text="one", call_id="t0c0", name="look", turn=0)
SECOND = Message(id="m5", role=Role.TOOL, text="two", call_id="t0c1", name="look", turn=0)
GARBLED = Message(id="m6", role=Role.ASSISTANT, text="<tool_call", turn=1)
NOTE = Message(id="m7", role=Role.TOOL, text="that is no call", turn=1)
WINDOW = (SYSTEM, TASK, ASIDE, REPLY, FIRST, SECOND, GARBLED, NOTE)


def _plan(**ops: Edit | str) -> list[Edit]:
    """Keep every message but those named: ``m3="drop"``, or an edit of its own."""
    edits: list[Edit] = []
    for message in WINDOW:
        op = ops.get(message.id, "keep")
        edits.append(op if isinstance(op, Edit) else Edit(op=op, message_id=message.id))  # type: ignore[arg-type] # "keep" or "drop"
    return edits


def _swap(old: Message, **fields: object) -> Edit:
    return Edit(op="replace", message_id=old.id, message=replace(old, id=f"{old.id}:new", **fields))  # type: ignore[arg-type] # any field


def _insert(before: Message | None, message: Message) -> Edit:
    return Edit(op="insert", message_id=before.id if before else None, message=message)


def _note(id: str = "s0", role: Role = Role.USER, **fields: object) -> Message:
    return Message(id=id, role=role, text="summary", **fields)  # type: ignore[arg-type] # any field


def test_dropping_whole_turns_and_loose_users_is_allowed():
    """A turn goes with all its tool messages; the rest stands, in order."""
    plan = _plan(m2="drop", m3="drop", m4="drop", m5="drop")
    assert check_edits(WINDOW, plan) is None
    assert apply_edits(WINDOW, plan) == (SYSTEM, TASK, GARBLED, NOTE)


def test_replacing_a_result_is_allowed():
    """A stub keeps role and call of the result it stands for."""
    plan = _plan(m4=_swap(FIRST, text="[cleared]"))
    assert check_edits(WINDOW, plan) is None
    assert [m.id for m in apply_edits(WINDOW, plan)] == ["m0", "m1", "m2", "m3", "m4:new", "m5", "m6", "m7"]


def test_folding_a_turn_into_text_is_allowed():
    """A reply that loses its calls loses their results with them."""
    plan = _plan(m3=_swap(REPLY, calls=(), text="I looked twice"), m4="drop", m5="drop")
    assert check_edits(WINDOW, plan) is None


def test_folding_one_call_of_two_is_allowed():
    """The call that stays has its result."""
    plan = _plan(m3=_swap(REPLY, calls=(_call("t0c1"),)), m4="drop")
    assert check_edits(WINDOW, plan) is None
    assert broken_law_7(WINDOW, apply_edits(WINDOW, plan)) is None


def test_inserting_a_summary_or_a_whole_turn_is_allowed():
    """Inserts stand before the message they name, or at the end."""
    plan = _plan(m2="drop", m3="drop", m4="drop", m5="drop")
    plan.insert(2, _insert(ASIDE, _note()))
    assert check_edits(WINDOW, plan) is None
    assert [m.id for m in apply_edits(WINDOW, plan)] == ["m0", "m1", "s0", "m6", "m7"]
    plan.insert(3, _insert(ASIDE, _note("s1", Role.ASSISTANT, calls=(_call("k0"),))))
    plan.insert(4, _insert(ASIDE, _note("s2", Role.TOOL, call_id="k0")))
    assert check_edits(WINDOW, plan) is None
    plan.append(_insert(None, _note("s3")))
    assert check_edits(WINDOW, plan) is None
    assert apply_edits(WINDOW, plan)[-1].id == "s3"


def test_a_window_that_ended_with_a_reply_may_still_do_so():
    """What was there before is no fault of the compressor's."""
    window = (TASK, ASIDE, _note("m9", Role.ASSISTANT))
    plan = [Edit(op="keep", message_id="m1"), Edit(op="drop", message_id="m2"), Edit(op="keep", message_id="m9")]
    assert check_edits(window, plan) is None


HOSTILE: dict[str, tuple[object, str]] = {
    "no sequence": ("drop everything", "is a str"),
    "nothing planned": (None, "is a NoneType"),
    "not an edit": ([{"op": "keep"}], "has a dict in it"),
    "unknown operation": (_plan(m2=Edit(op="burn", message_id="m2")), "'burn' is no edit operation"),  # type: ignore[arg-type] # hostile
    "keep with a message": (_plan(m2=Edit(op="keep", message_id="m2", message=_note())), "keep of m2 carries"),
    "replace without one": (_plan(m2=Edit(op="replace", message_id="m2")), "replace at m2 carries no message"),
    "insert of text": (
        [*_plan(), Edit(op="insert", message_id=None, message="hello")],  # type: ignore[arg-type] # hostile
        "insert at None carries no message",
    ),
    "empty": ([], "message m0 is named by no"),
    "one left out": (_plan()[:-1], "message m7 is named by no"),
    "one skipped": (_plan()[:2] + _plan()[3:], "names m3, but message m2 is due"),
    "one too many": ([*_plan(), Edit(op="keep", message_id="m7")], "edit 8 names m7, but the window has no more"),
    "named twice": ([_plan()[0], *_plan()], "names m0, but message m1 is due"),
    "out of order": (_plan()[::-1], "names m7, but message m0 is due"),
    "nameless": ([Edit(op="drop", message_id=None), *_plan()[1:]], "names None, but message m0 is due"),
    "insert in the wrong place": ([_insert(NOTE, _note()), *_plan()], "an insert before m7 stands before m0"),
    "insert at the end, put elsewhere": ([_insert(None, _note()), *_plan()], "before the end stands before m0"),
    "insert behind the end": ([*_plan(), _insert(NOTE, _note())], "before m7 stands before the end"),
    "system dropped": (_plan(m0="drop"), "drop of m0, which is a system message"),
    "system replaced": (_plan(m0=_swap(SYSTEM, text="be loud")), "replace of m0, which is a system message"),
    "pinned dropped": (_plan(m1="drop"), "drop of m1, which is pinned"),
    "pinned replaced": (_plan(m1=_swap(TASK, text="do it not")), "replace of m1, which is pinned"),
    "system inserted": ([_insert(SYSTEM, _note(role=Role.SYSTEM)), *_plan()], "system message s0 is inserted"),
    "other role": (_plan(m2=_swap(ASIDE, role=Role.ASSISTANT)), "role and call stay"),
    "other call": (_plan(m4=_swap(FIRST, call_id="t0c1")), "role and call stay"),
    "id of the episode": ([_insert(SYSTEM, _note("m99")), *_plan()], "'m99'; ids like m7 are the episode's own"),
    "no id": ([_insert(SYSTEM, _note("")), *_plan()], "''; ids like m7"),
    "id of another": ([_insert(SYSTEM, _note("k0")), *_plan(m2="drop")], "'k0', which another message"),
    "id twice": ([_insert(SYSTEM, _note()), _insert(SYSTEM, _note()), *_plan()], "'s0', which another message"),
    "a result alone": (_plan(m3="drop", m4="drop"), "m5 stays, but m3, which it answers, is gone"),
    "a call alone": (_plan(m4="drop", m5="drop"), "m3 stays, but tool message m4"),
    "part of the results": (_plan(m5="drop"), "m3 stays, but tool message m5"),
    "a parse error alone": (_plan(m6="drop"), "m7 stays, but m6"),
    "a reply without its parse error": (_plan(m7="drop"), "the policy is to speak next"),
    "calls folded, results kept": (_plan(m3=_swap(REPLY, calls=())), "m4 would answer nothing instead of m3:new"),
    "calls kept, a result gone": (_plan(m3=_swap(REPLY, text=""), m4="drop"), "m3:new stays, but tool message m4"),
    "new call without result": (_plan(m6=_swap(GARBLED, calls=(_call("x"),))), "call x of new message m6:new has no"),
    "another turn's call": (
        [*_plan()[:3], _insert(REPLY, _note(role=Role.ASSISTANT, calls=(_call("t0c0"),))), *_plan()[3:]],
        "call t0c0 of new message s0 has no result",
    ),
    "result without call": ([*_plan(), _insert(None, _note(role=Role.TOOL, call_id="x"))], "s0 answers no call"),
    "note of the compressor's": ([*_plan(), _insert(None, _note(role=Role.TOOL))], "s0 answers no call"),
    "second result": (
        [*_plan()[:5], _insert(SECOND, _note(role=Role.TOOL, call_id="t0c0")), *_plan()[5:]],
        "call t0c0 would have 2 results",
    ),
    "result apart": (
        [
            *_plan()[:2],
            _insert(ASIDE, _note("s1", Role.ASSISTANT, calls=(_call("x"),))),
            _plan()[2],
            _insert(REPLY, _note("s2", Role.TOOL, call_id="x")),
            *_plan()[3:],
        ],
        "s2 stands apart from s1",
    ),
    "user inside a turn": ([*_plan()[:4], _insert(FIRST, _note()), *_plan()[4:]], "between m3 and its tool message m4"),
    "reply inside a turn": (
        [*_plan()[:7], _insert(NOTE, _note(role=Role.ASSISTANT)), *_plan()[7:]],
        "m7 would answer s0 instead of m6",
    ),
    "ends with a reply": ([*_plan(), _insert(None, _note(role=Role.ASSISTANT))], "would end with assistant message s0"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_plan_that_breaks_law_7_has_a_reason(case: str):
    """Each way of breaking it is named; nothing raises."""
    plan, reason = HOSTILE[case]
    found = check_edits(WINDOW, plan, taken={"k0"})
    assert found is not None
    assert reason in found


def test_nothing_left_has_a_reason():
    """A window without system and pinned messages may not be emptied."""
    plan = [Edit(op="drop", message_id="m2")]
    assert check_edits((ASIDE,), plan) == "nothing is left of the window"


def test_ending_on_the_system_message_has_a_reason():
    """The policy needs something to answer."""
    plan = [Edit(op="keep", message_id="m0"), Edit(op="drop", message_id="m2")]
    assert "would end with system message m0" in (check_edits((SYSTEM, ASIDE), plan) or "")


@pytest.mark.parametrize(
    ("before", "after", "budget", "reason"),
    [
        (100, 99, 99, None),
        (100, 99, 98, "99 tokens, 98 are allowed"),
        (100, 100, 100, "100 tokens, no fewer than the 100 before"),
        (1_000, 1_200, 5_000, "1,200 tokens, no fewer than the 1,000 before"),
    ],
)
def test_a_result_fits_and_is_smaller(before: int, after: int, budget: int, reason: str | None):
    """Law 7: never larger than before, and within the budget, or the attempt failed."""
    found = check_sizes(tokens_before=before, tokens_after=after, budget_tokens=budget)
    assert (found is None) == (reason is None)
    assert reason is None or reason in (found or "")


@st.composite
def _wild_plans(draw: st.DrawFn) -> tuple[tuple[Message, ...], list[Edit]]:
    """Draw a window and a plan for it that was made without any care."""
    window = draw(histories(max_units=4))
    call_ids = [call.id for message in window for call in message.calls] or ["none"]
    ids = st.sampled_from(["s0", "s1", "s2", "m3", *(message.id for message in window)])
    messages = st.builds(
        Message,
        id=ids,
        role=st.sampled_from(Role),
        text=st.just("new"),
        calls=st.lists(st.sampled_from(call_ids).map(_call), max_size=1).map(tuple),
        call_id=st.sampled_from([None, *call_ids]),
    )
    edits: list[Edit] = []
    ops = draw(st.sampled_from([["keep", "replace"], ["keep", "drop"], ["keep"] * 5 + ["drop", "replace", "swap"]]))
    for index, message in enumerate(window):
        if draw(st.integers(0, 9)) == 0:
            edits.append(Edit(op="insert", message_id=message.id, message=draw(messages)))
        op = "keep" if message.pinned and draw(st.integers(0, 3)) else draw(st.sampled_from(ops))
        if op == "replace":
            new = replace(message, id=f"r{index}", text="new")
            edits.append(Edit(op="replace", message_id=message.id, message=new))
        elif op == "swap":
            edits.append(Edit(op="replace", message_id=message.id, message=draw(messages)))
        else:
            edits.append(Edit(op="keep" if op == "keep" else "drop", message_id=message.id))
    if draw(st.integers(0, 5)) == 0:
        edits.append(Edit(op="insert", message_id=None, message=draw(messages)))
    if draw(st.integers(0, 9)) == 0:
        edits = draw(st.permutations(edits))
    return window, edits


@settings(max_examples=150, deadline=None)
@given(case=_wild_plans())
def test_whatever_the_check_lets_through_keeps_law_7(case: tuple[tuple[Message, ...], list[Edit]]):
    """Law 7: afterwards system and pinned messages stand, tool calls and results are paired."""
    window, edits = case
    if check_edits(window, edits) is None:
        assert broken_law_7(window, apply_edits(window, edits)) is None


@settings(max_examples=60, deadline=None)
@given(window=histories(max_units=6), data=st.data())
def test_the_check_lets_every_drop_of_whole_turns_through(window: tuple[Message, ...], data: st.DataObject):
    """Law 7 forbids no more than it says: whole turns and loose users may go as long as the last message stays."""
    units: list[list[Message]] = []
    for message in window:
        if message.role is Role.TOOL:
            units[-1].append(message)
        else:
            units.append([message])
    gone: set[str] = set()
    for unit in units[:-1]:
        if not any(m.pinned or m.role is Role.SYSTEM for m in unit) and data.draw(st.booleans()):
            gone |= {m.id for m in unit}
    plan = [Edit(op="drop" if m.id in gone else "keep", message_id=m.id) for m in window]
    assert check_edits(window, plan) is None
    assert apply_edits(window, plan) == tuple(m for m in window if m.id not in gone)
