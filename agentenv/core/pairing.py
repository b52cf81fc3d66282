"""Which messages belong together: a tool message answers an assistant message, and neither stands alone (law 7)."""

from __future__ import annotations

from collections.abc import Sequence

from agentenv.records.messages import Message, Role


def owners(messages: Sequence[Message]) -> tuple[int | None, ...]:
    """Say for each message which assistant message it answers.

    Returns:
        (n,) indices into ``messages``: for a tool message with a ``call_id``, the newest earlier assistant message
        that made this call; for one without, the newest earlier assistant message (it answers the turn as a whole).
        None for every other message, and for a tool message that answers nothing in this window.

    >>> from agentenv.records.messages import ToolCall
    >>> call = ToolCall(id="t0c0", name="add", arguments={})
    >>> owners(
    ...     [
    ...         Message(id="m0", role=Role.USER, text="1 + 1?"),
    ...         Message(id="m1", role=Role.ASSISTANT, text="", calls=(call,)),
    ...         Message(id="m2", role=Role.TOOL, text="2", call_id="t0c0"),
    ...     ]
    ... )
    (None, None, 1)
    """
    by_call: dict[str, int] = {}
    assistant: int | None = None
    found: list[int | None] = []
    for index, message in enumerate(messages):
        owner: int | None = None
        if message.role is Role.ASSISTANT:
            assistant = index
            for call in message.calls:
                by_call[call.id] = index
        elif message.role is Role.TOOL:
            owner = assistant if message.call_id is None else by_call.get(message.call_id)
        found.append(owner)
    return tuple(found)
