"""Law 7: whether a compressor's edits may be applied to the window, and the window they make. Pure.

`check_edits` answers with a reason instead of raising: a plan that breaks the law is a failed attempt, recorded with
that reason, and the history is unchanged. `check_sizes` is the second half of the law, for when the result has been
rendered.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import cast

from agentenv.core.pairing import owners
from agentenv.records.compaction import Edit
from agentenv.records.messages import Message, Role

_OPS = ("keep", "drop", "replace", "insert")
_ENGINE_IDS = re.compile(r"m[0-9]+\Z")
"""Ids that the engine gives to the episode's own messages, now or later."""


def apply_edits(messages: Sequence[Message], edits: Sequence[Edit]) -> tuple[Message, ...]:
    """Make the window that the edits describe.

    Args:
        messages: (n,) the window, in order.
        edits: A plan for which `check_edits` gave None; for any other the result means nothing.
    """
    by_id = {message.id: message for message in messages}
    window: list[Message] = []
    for edit in edits:
        if edit.op == "keep" and edit.message_id is not None:
            window.append(by_id[edit.message_id])
        elif edit.message is not None:
            window.append(edit.message)
    return tuple(window)


def check_edits(messages: Sequence[Message], edits: object, *, taken: Collection[str] = ()) -> str | None:
    """Say why a plan may not be applied; None if it may.

    Invariant (law 7): where this gives None, `apply_edits` keeps every system and pinned message, every tool message
    follows the assistant message it answers, and an assistant message has either all of its tool messages or is gone
    with them.

    Args:
        messages: (n,) the window, in order.
        edits: What the compressor planned. Anything may come from a plug-in: what is no sequence of `Edit` is a reason.
        taken: Ids of every other message that ever was in the episode, which no new message may have.
    """
    if not isinstance(edits, (tuple, list)):
        return f"the plan is a {type(edits).__name__}, expected a tuple of Edit"
    plan = cast("Sequence[object]", edits)
    stray = next((item for item in plan if not isinstance(item, Edit)), None)
    if stray is not None:
        return f"the plan has a {type(stray).__name__} in it, expected Edit alone"
    sound = cast("Sequence[Edit]", plan)
    return next(_reasons(messages, sound, taken), None)


def check_sizes(*, tokens_before: int, tokens_after: int, budget_tokens: int) -> str | None:
    """Say why a rendered result may not stand (law 7: it fits, and it is smaller); None if it may.

    Args:
        tokens_before: Rendered size of the window before.
        tokens_after: Rendered size of the result, tool schemas and generation prompt included.
        budget_tokens: Most tokens it may have.
    """
    if tokens_after > budget_tokens:
        return f"the result has {tokens_after:,} tokens, {budget_tokens:,} are allowed"
    if tokens_after >= tokens_before:
        return f"the result has {tokens_after:,} tokens, no fewer than the {tokens_before:,} before"
    return None


def _reasons(messages: Sequence[Message], edits: Sequence[Edit], taken: Collection[str]) -> Iterator[str]:
    """Give every reason, cheapest first. Each check may rely on those before it."""
    yield from _malformed(edits)
    yield from _untiled(messages, edits)
    yield from _not_standing(messages, edits)
    yield from _bad_ids(messages, edits, taken)
    yield from _bad_end(messages, apply_edits(messages, edits))
    yield from _unpaired(messages, edits)


def _malformed(edits: Iterable[Edit]) -> Iterator[str]:
    for edit in edits:
        if edit.op not in _OPS:
            yield f"{edit.op!r} is no edit operation; they are {', '.join(_OPS)}"
        elif edit.op in ("keep", "drop") and edit.message is not None:
            yield f"{edit.op} of {edit.message_id} carries a message, which only replace and insert do"
        elif edit.op in ("replace", "insert") and not isinstance(edit.message, Message):
            yield f"{edit.op} at {edit.message_id} carries no message"


def _untiled(messages: Sequence[Message], edits: Sequence[Edit]) -> Iterator[str]:
    """Every message is named once, in order, and every insert stands before the message it names."""
    named = [edit.message_id for edit in edits if edit.op != "insert"]
    expected = [message.id for message in messages]
    if named != expected:
        yield _first_difference(named, expected)
        return
    follows: str | None = None
    for edit in reversed(edits):
        if edit.op != "insert":
            follows = edit.message_id
        elif edit.message_id != follows:
            yield f"an insert before {edit.message_id or 'the end'} stands before {follows or 'the end'}"


def _first_difference(named: Sequence[str | None], expected: Sequence[str]) -> str:
    for index, message_id in enumerate(expected):
        if index >= len(named):
            return f"message {message_id} is named by no keep, drop or replace"
        if named[index] != message_id:
            return f"edit {index} names {named[index]}, but message {message_id} is due: every one once, in order"
    return f"edit {len(expected)} names {named[len(expected)]}, but the window has no more messages"


def _not_standing(messages: Sequence[Message], edits: Iterable[Edit]) -> Iterator[str]:
    """System and pinned messages are kept; a replacement answers for what it replaces; no second system prompt."""
    by_id = {message.id: message for message in messages}
    for edit in edits:
        old = None if edit.op == "insert" else by_id[edit.message_id or ""]
        new = edit.message
        if old is None:
            if new is not None and new.role is Role.SYSTEM:
                yield f"system message {new.id} is inserted; a compressor may insert other roles"
        elif edit.op != "keep" and (old.pinned or old.role is Role.SYSTEM):
            yield f"{edit.op} of {old.id}, which is {'pinned' if old.pinned else 'a system message'} and has to stand"
        elif new is not None and (new.role is not old.role or new.call_id != old.call_id):
            yield (
                f"{old.id} ({old.role}, call {old.call_id}) is replaced by {new.id} ({new.role}, call {new.call_id}); "
                "role and call stay"
            )


def _bad_ids(messages: Sequence[Message], edits: Iterable[Edit], taken: Collection[str]) -> Iterator[str]:
    used = {message.id for message in messages}
    for edit in edits:
        if edit.message is None:
            continue
        new_id = edit.message.id
        if not new_id or _ENGINE_IDS.match(new_id):
            yield f"new message has id {new_id!r}; ids like m7 are the episode's own, take another form"
        elif new_id in used or new_id in taken:
            yield f"new message has id {new_id!r}, which another message of the episode has"
        used.add(new_id)


def _bad_end(messages: Sequence[Message], result: Sequence[Message]) -> Iterator[str]:
    """The policy speaks next, so the last word is a user's or a tool's, or what it was before."""
    if not result:
        yield "nothing is left of the window"
    elif result[-1].role not in (Role.USER, Role.TOOL) and result[-1] is not messages[-1]:
        yield f"the window would end with {result[-1].role} message {result[-1].id}; the policy is to speak next"


def _unpaired(messages: Sequence[Message], edits: Sequence[Edit]) -> Iterator[str]:
    survivor = {
        edit.message_id: edit.message_id if edit.message is None else edit.message.id
        for edit in edits
        if edit.message_id is not None and edit.op in ("keep", "replace")
    }
    result = _Result(apply_edits(messages, edits), old=[message.id for message in messages], survivor=survivor)
    yield from _torn_turns(messages, result)
    yield from _lone_calls(result)
    yield from _misplaced(result)


class _Result:
    """The window after the edits, with what the pairing checks ask about it."""

    def __init__(self, messages: tuple[Message, ...], *, old: Iterable[str], survivor: dict[str, str]) -> None:
        self.messages = messages
        self.old = frozenset(old)
        self.survivor = survivor
        """Id of a message of the window to the id it, or its replacement, has now."""
        self.standing = frozenset(survivor.values())
        self.owner = {
            message.id: None if owner is None else messages[owner].id
            for message, owner in zip(messages, owners(messages), strict=True)
        }
        """Id of a message to the id of the assistant message that it answers."""
        self.calls = {message.id: {call.id for call in message.calls} for message in messages}

    def inserted(self, message: Message) -> bool:
        """Whether a message stands for none of the window's."""
        return message.id not in self.standing


def _torn_turns(messages: Sequence[Message], result: _Result) -> Iterator[str]:
    """A turn stays whole or goes; one whose calls were folded into text loses their results with them."""
    for message, owner in zip(messages, owners(messages), strict=True):
        if owner is None:
            continue
        asked = messages[owner].id
        here, there = result.survivor.get(message.id), result.survivor.get(asked)
        if here is not None and there is None:
            yield f"tool message {message.id} stays, but {asked}, which it answers, is gone"
        elif here is not None and result.owner[here] != there:
            yield f"tool message {here} would answer {result.owner[here] or 'nothing'} instead of {there}"
        elif here is None and there is not None and (there == asked or message.call_id in result.calls[there]):
            yield f"{there} stays, but tool message {message.id}, which answers it, is gone"


def _lone_calls(result: _Result) -> Iterator[str]:
    """A call has one result; one that a new message makes has it too."""
    answers: dict[str, list[Message]] = {}
    for message in result.messages:
        if message.role is Role.TOOL and message.call_id is not None:
            answers.setdefault(message.call_id, []).append(message)
    for call_id, found in answers.items():
        if len(found) > 1 and any(result.inserted(message) for message in found):
            yield f"call {call_id} would have {len(found)} results: {', '.join(message.id for message in found)}"
    for message in result.messages:
        for call in message.calls if message.id not in result.old else ():
            if all(result.owner[answer.id] != message.id for answer in answers.get(call.id, ())):
                yield f"call {call.id} of new message {message.id} has no result"


def _misplaced(result: _Result) -> Iterator[str]:
    """An inserted tool message stands with the turn it answers; nothing else is put into a turn."""
    for before, message in pairwise((None, *result.messages)):
        if message is None or message.role is not Role.TOOL:
            continue
        owner = result.owner[message.id]
        if result.inserted(message) and (owner is None or message.call_id is None):
            yield f"inserted tool message {message.id} answers no call before it"
        elif before is None or owner is None or owner in (before.id, result.owner[before.id]):
            continue
        elif result.inserted(message):
            yield f"inserted tool message {message.id} stands apart from {owner}, which it answers"
        elif result.inserted(before):
            yield f"{before.id} is inserted between {owner} and its tool message {message.id}"
