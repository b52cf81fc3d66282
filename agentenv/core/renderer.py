"""The contract of a renderer: messages to ids and back, never touching ids that exist."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agentenv.records.messages import Message, ParsedTurn, ToolCall, ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RendererIdentity:
    """What shaped the tokens; goes into the manifest (law 13)."""

    name: str
    tokenizer_sha256: str
    template_sha256: str
    call_style: str
    """How calls are written and parsed: ``hermes``, ``llama3``, ``mistral``, ``pythonic``."""
    tools_carrier: str
    """Where tool descriptions go: ``template`` (its own place for them) or ``system`` (in the system message)."""
    results_carrier: str
    """How tool results are shown: ``tool`` (the template has the role) or ``user`` (it has not)."""


class Tokenizer(Protocol):
    """Text to ids and back, for one vocabulary."""

    @property
    def sha256(self) -> str:
        """Content hash of everything that decides the ids."""
        ...

    @property
    def vocab_size(self) -> int:
        """One past the highest id."""
        ...

    def encode(self, text: str) -> array[int]:
        """Encode ordinary text; added tokens written out in ``text`` become their ids, nothing is put in front."""
        ...

    def encode_plain(self, text: str) -> array[int]:
        """Encode text that must not turn into control tokens, whatever it spells (tool output, user input)."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Decode, control tokens included; bytes that are no UTF-8 become U+FFFD. Total: no ids raise."""
        ...


class Renderer(Protocol):
    """Renders a history once, then only ever appends to it.

    Invariant (law 1): after ``open(messages)`` gave ``p`` and the policy sampled ``c``, the next prompt is
    ``p + c + extend(p + c, new_messages)``; no id of an earlier turn changes. A renderer that cannot prove that the
    template, given the whole history, would put the same text around the sampled ids returns None from `extend`,
    and a new segment begins with `open`.

    A renderer is stateless and may be used from several threads.
    """

    @property
    def identity(self) -> RendererIdentity:
        """What this renderer is."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary the ids belong to."""
        ...

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Ids that end a turn."""
        ...

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> array[int]:
        """Render a whole history, generation prompt included.

        Raises:
            ConfigError: The template refuses this history; the message quotes it.
        """
        ...

    def extend(
        self, previous_ids: array[int], new_messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> array[int] | None:
        """Give the ids to append to ``previous_ids`` (last prompt and what was sampled after it).

        Args:
            previous_ids: (P + C,) ids of the last prompt followed by the sampled ids, stop token or not.
            new_messages: What came after the sampled turn: tool results, sometimes user messages. Never assistant.
            tools: The same tools as in `open`.

        Returns:
            The bridge (a turn end that was not sampled, what the template puts between turns), the new messages and
            the generation prompt; or None if the equality above cannot be proved.
        """
        ...

    def why_not(self, previous_ids: array[int], new_messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
        """Say why `extend` declines, for the record of the segment that then begins; empty if it does not."""
        ...

    def parse(self, completion_ids: Sequence[int], turn: int) -> ParsedTurn:
        """Read a reply. Total: no ids raise; what is no action becomes a parse error.

        Args:
            completion_ids: (C,) sampled ids.
            turn: Index of the turn; call ids are ``t{turn}c{n}``.
        """
        ...

    def compose(self, text: str, calls: Sequence[ToolCall]) -> array[int]:
        """Write a turn as this model's policy would, turn end included: the inverse of `parse`.

        Scripted policies and demonstrations use it. Invariant: ``parse(compose(text, calls))`` gives them back.
        """
        ...
