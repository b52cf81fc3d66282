"""What the policy sees, as messages and as the ids of the running segment; where a segment ends (law 1)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from agentenv.engine.compaction import apply_edits
from agentenv.engine.effects import Render
from agentenv.errors import LawBreach
from agentenv.records.axes import Purpose
from agentenv.records.compaction import Compaction
from agentenv.records.facts import PromptRendered, SummaryAsked, TurnSampled
from agentenv.records.messages import Message, Role, ToolSpec
from agentenv.records.tokens import unpack_ids


class Window:
    """The messages in front of the policy, and the ids they became.

    Invariant (law 1): ``segment_ids`` only grows within a segment; a prompt is all of it at the moment of the call.
    """

    __slots__ = (
        "_messages",
        "_n_messages",
        "_new",
        "_open_reason",
        "_segment",
        "_summary",
        "_taken",
        "prompt_length",
        "segment_ids",
    )

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._new: list[Message] = []
        self._n_messages = 0
        self._open_reason: str | None = "first"
        self._segment = -1
        self._summary: SummaryAsked | None = None
        self._taken: frozenset[str] = frozenset()
        self.segment_ids: array[int] = array("i")
        self.prompt_length = 0

    @property
    def messages(self) -> tuple[Message, ...]:
        """The window, in order."""
        return tuple(self._messages)

    @property
    def new_messages(self) -> tuple[Message, ...]:
        """Messages that are in no prompt yet."""
        return tuple(self._new)

    @property
    def must_open(self) -> bool:
        """Whether the next prompt has to open a new segment."""
        return self._open_reason is not None

    @property
    def taken(self) -> frozenset[str]:
        """Ids that compactions gave to messages, in the window or not."""
        return self._taken

    @property
    def next_message_id(self) -> str:
        """The id that the next message of this episode gets."""
        return f"m{self._n_messages}"

    @property
    def n_messages(self) -> int:
        """Number of messages that ever were."""
        return self._n_messages

    @property
    def summary_messages(self) -> tuple[Message, ...]:
        """Prompt of the summary that is being written."""
        return self._summary.messages if self._summary else ()

    @property
    def summary_max_tokens(self) -> int:
        """Longest summary asked for."""
        return self._summary.max_tokens if self._summary else 0

    def begin(self, messages: Sequence[Message]) -> None:
        """Start with the task's own messages."""
        self._messages = list(messages)
        self._new = list(messages)
        self._n_messages = len(messages)

    def render(self, tools: tuple[ToolSpec, ...], purpose: Purpose, *, final: bool) -> Render:
        """Say what has to be rendered."""
        summary = purpose is Purpose.SUMMARY
        opens = summary or self._open_reason is not None
        return Render(
            window=self.summary_messages if summary else tuple(self._messages),
            new_messages=self.summary_messages if summary else tuple(self._new),
            tools=() if summary else tools,
            previous_ids=None if opens else self.segment_ids,
            reason="summary" if summary else (self._open_reason or ""),
            segment=self._segment + 1 if opens else self._segment,
            purpose=purpose,
            final=final,
        )

    def rendered(self, fact: PromptRendered) -> None:
        """Take a prompt.

        Raises:
            LawBreach: It does not continue the segment it claims to.
        """
        appended = unpack_ids(fact.appended_ids)
        if fact.segment == self._segment and fact.new_segment_reason is None:
            self.segment_ids.extend(appended)
        elif fact.segment == self._segment + 1 and fact.new_segment_reason:
            self._segment += 1
            self.segment_ids = appended
        else:
            raise LawBreach(
                f"prompt of segment {fact.segment} (reason {fact.new_segment_reason!r}) cannot follow segment "
                f"{self._segment}: a new segment has the next index and a reason, a running one has neither"
            )
        if len(self.segment_ids) != fact.prompt_length:
            raise LawBreach(
                f"segment {fact.segment}: the prompt has {len(self.segment_ids)} ids, not {fact.prompt_length}"
            )
        self.prompt_length = fact.prompt_length
        if fact.purpose is Purpose.SUMMARY:
            self._open_reason = "summary"
        else:
            self._open_reason = None
            self._new.clear()

    def ask_summary(self, fact: SummaryAsked) -> None:
        """Remember the prompt of a summary."""
        self._summary = fact

    def sampled(self, fact: TurnSampled) -> None:
        """Take a reply: its ids extend the segment as they are, its text becomes a message."""
        self.segment_ids.extend(unpack_ids(fact.sampled.completion_ids))
        if fact.purpose is Purpose.SUMMARY:
            return
        reply = Message(
            id=self.next_message_id,
            role=Role.ASSISTANT,
            text=fact.parsed.text,
            calls=fact.parsed.calls,
            turn=fact.turn,
        )
        self._append(reply)

    def observed(self, messages: Sequence[Message]) -> None:
        """Take what the policy is shown next."""
        for message in messages:
            self._append(message)
            self._new.append(message)

    def compact(self, compaction: Compaction) -> None:
        """Apply an accepted compaction: the history is rewritten, so a new segment begins."""
        self._messages = list(apply_edits(self._messages, compaction.edits))
        self._taken |= {edit.message.id for edit in compaction.edits if edit.message is not None}
        self._open_reason = f"compaction {compaction.id}"

    def _append(self, message: Message) -> None:
        if message.id != self.next_message_id:
            raise LawBreach(f"message {message.id} cannot come where {self.next_message_id} is due")
        self._messages.append(message)
        self._n_messages += 1
