"""Short ways to write a task's first messages, and the rules they state.

Messages written here have no id until `messages` numbers them; nothing else makes ids.
"""

from __future__ import annotations

from dataclasses import replace

from agentenv.errors import ConfigError
from agentenv.records.constraints import Carrier, CheckerSpec, Constraint
from agentenv.records.messages import Message, Role


def system(text: str) -> Message:
    """Write a system message; pinned by its role."""
    return Message(id="", role=Role.SYSTEM, text=text)


def user(text: str, *, pinned: bool = False) -> Message:
    """Write a user message. ``pinned``: no compressor may remove it."""
    return Message(id="", role=Role.USER, text=text, pinned=pinned)


def assistant(text: str) -> Message:
    """Write an assistant message that nobody sampled, such as an acknowledgement between two user messages.

    Some chat templates refuse two user messages in a row.
    """
    return Message(id="", role=Role.ASSISTANT, text=text)


def messages(*parts: Message | str) -> tuple[Message, ...]:
    """Number messages ``m0``, ``m1``, … in their order. Plain text is a pinned user message: the question.

    >>> [(message.id, str(message.role), message.pinned) for message in messages(system("Be brief."), "What is 2 + 2?")]
    [('m0', 'system', False), ('m1', 'user', True)]
    """
    written = [user(part, pinned=True) if isinstance(part, str) else part for part in parts]
    return tuple(replace(message, id=f"m{index}") for index, message in enumerate(written))


def rule(
    id: str, text: str, checker: CheckerSpec, *, stated_in: tuple[Message, ...], ends_episode: bool = False
) -> Constraint:
    """Register a rule that one of the messages states, with the exact span that states it.

    Args:
        id: Unique in the task.
        text: The rule, word for word as in the message.
        checker: What watches it, such as ``CheckerSpec(name="file-unchanged", arguments={"path": "a.csv"})``.
        stated_in: The task's messages, numbered.
        ends_episode: Whether a breach ends the episode.

    Raises:
        ConfigError: No message has the text, or more than one place has it.

    >>> first = messages("Please do not touch a.csv. Thanks.")
    >>> unchanged = CheckerSpec(name="file-unchanged", arguments={"path": "a.csv"})
    >>> rule("keep", "do not touch a.csv", unchanged, stated_in=first).carrier
    Carrier(message_id='m0', start=7, end=25)
    """
    places = [message for message in stated_in if text and text in message.text]
    if len(places) != 1 or places[0].text.count(text) != 1:
        found = sum(message.text.count(text) for message in places)
        raise ConfigError(
            f"rule {id!r} must be stated exactly once in the messages, found {found} times: {text!r:.120}"
        )
    start = places[0].text.index(text)
    carrier = Carrier(message_id=places[0].id, start=start, end=start + len(text))
    return Constraint(id=id, text=text, carrier=carrier, checker=checker, ends_episode=ends_episode)
