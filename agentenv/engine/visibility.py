"""Law 8: which constraints stand in the prompt of a call, on which tokens, and which compaction took them away. Pure.

A constraint is visible if one of its accepted renderings occurs, character by character, in the decoded text of
exactly the prompt ids. There are two levels for now, verbatim and absent: a text that was wrapped anew, quoted with
escapes or reworded counts as absent unless the constraint lists it among its renderings.

Tokens are found by decoding only, because the bytes of one character may be split over several tokens and decoding
token by token would lose it. It is relied on that decoding is local: a stretch of ids that cuts no character in two
decodes to the same text inside a longer one, but for blanks at its very start.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agentenv.errors import ConfigError, LawBreach
from agentenv.records.axes import CompactionOutcome, Purpose, VisibilityLevel
from agentenv.records.compaction import Compaction
from agentenv.records.constraints import Constraint, Visibility

Decode = Callable[[Sequence[int]], str]
"""Ids to text, control tokens included, as `core.renderer.Tokenizer.decode`."""

Spell = Callable[[str], str]
"""A text to what is left of it after encoding and decoding: some tokenizers normalise what they encode."""

_MARGIN = 8
"""Tokens beyond one per byte of a rendering that a search goes back: blanks and characters cut at the edge."""

_UNDECODABLE = "\ufffd"
"""What bytes that are no text decode to."""

_FEW = 8
"""Tokens that are tried one by one. More than twice what a cut may move, so that halving always gets on."""

_BACK = 3
"""Most tokens that a cut is moved to get out of a character, which has at most four bytes in UTF-8."""

_MOVES = sorted(((left, right) for left in range(_BACK + 1) for right in range(_BACK + 1)), key=sum)[1:]
"""How far a stretch may be moved out on either side, least first."""


def accepted(constraint: Constraint, spell: Spell | None = None) -> tuple[str, ...]:
    """Give every text that counts as stating a constraint, blanks at its ends left out.

    Args:
        constraint: Its ``text`` comes first, then its ``renderings``.
        spell: Where given, what each text becomes in the tokenizer counts too.

    Raises:
        ConfigError: A rendering is blank, or has U+FFFD in it, which stands for bytes that cannot be decoded.
    """
    texts = [text.strip() for text in (constraint.text, *constraint.renderings)]
    for text in texts:
        if not text or _UNDECODABLE in text:
            raise ConfigError(
                f"constraint {constraint.id!r} cannot be found in a prompt by the rendering {text!r:.80}: a rendering "
                "needs a character other than blanks, and none that is U+FFFD"
            )
    spelled = [spell(text).strip() for text in texts] if spell is not None else []
    return tuple(dict.fromkeys([*texts, *(text for text in spelled if text and _UNDECODABLE not in text)]))


def visibility(
    constraints: Sequence[Constraint], prompt_ids: Sequence[int], decode: Decode, *, spell: Spell | None = None
) -> tuple[Visibility, ...]:
    """Decide, for one prompt and without any history, which constraints are visible in it.

    Returns:
        One entry per constraint, in order; ``compaction_id`` is None in each.

    Raises:
        ConfigError: As `accepted`.
    """
    text = decode(prompt_ids)
    return tuple(
        _look(rule.id, accepted(rule, spell), text, prompt_ids, decode, offset=0) or _absent(rule.id, None)
        for rule in constraints
    )


@dataclass(slots=True)
class _Segment:
    """What is known of the running segment."""

    index: int
    scanned: int = 0
    """Ids, from the segment's start, in which every rendering was looked for."""
    found: dict[str, Visibility] = field(default_factory=dict[str, Visibility])
    """Constraint id to its first place. Stays true: later prompts of the segment begin with the same ids."""
    result: tuple[Visibility, ...] = ()
    """The answer to the last prompt."""


class VisibilityTracker:
    """Follows the constraints of one episode from prompt to prompt.

    Invariant: levels and token ranges are those `visibility` gives for the same prompt. A prompt that goes on from
    the last one is decoded only where it is new, and not at all once every constraint was found in its segment.

    It has to be told of every prompt that was rendered, in order, and of every compaction in between.
    """

    __slots__ = ("_compaction", "_decode", "_lost", "_reach", "_rules", "_seen", "_segment")

    def __init__(self, constraints: Sequence[Constraint], decode: Decode, *, spell: Spell | None = None) -> None:
        """Begin an episode.

        Args:
            constraints: The live ones.
            decode: The tokenizer's.
            spell: The tokenizer's ``decode(encode_plain(text))``; None if it normalises nothing.

        Raises:
            ConfigError: As `accepted`.
        """
        self._decode = decode
        self._rules = {rule.id: accepted(rule, spell) for rule in constraints}
        texts = [text for renderings in self._rules.values() for text in renderings]
        self._reach = max((_reach(text) for text in texts), default=0)
        self._segment = _Segment(index=-1)
        self._compaction: str | None = None
        self._seen: set[str] = set()
        self._lost: dict[str, str] = {}

    def compacted(self, compaction: Compaction) -> None:
        """Take note that the history was rewritten: what is absent from the next prompt, this took away.

        An attempt that failed changed nothing and is passed over.
        """
        if compaction.outcome is CompactionOutcome.APPLIED:
            self._compaction = compaction.id

    def observe(
        self,
        segment: int,
        prompt_ids: array[int],
        appended_ids: array[int] | None = None,
        *,
        purpose: Purpose = Purpose.ACT,
    ) -> tuple[Visibility, ...]:
        """Say which constraints are visible in a prompt.

        Args:
            segment: The prompt's segment. Within one, every prompt begins with the previous one, id for id.
            prompt_ids: (P,) the prompt, or the part of it that comes before ``appended_ids``. Not kept.
            appended_ids: (A,) the rest of the prompt; None if ``prompt_ids`` is all of it. Only the new part of a
                prompt is ever copied.
            purpose: A prompt that asks for a summary does not count for which compaction removed what.

        Returns:
            One entry per constraint, in order. ``compaction_id`` of an absent one is the compaction between the last
            prompt it was visible in and the next; None if there was none, or it was never visible.

        Raises:
            LawBreach: The prompt is shorter than the last one of its segment.
        """
        if not self._rules:
            return ()
        state = self._segment
        if segment != state.index:
            state = self._segment = _Segment(index=segment)
        elif len(state.found) == len(self._rules):
            return state.result
        self._scan(state, prompt_ids, array("i") if appended_ids is None else appended_ids)
        if purpose is Purpose.ACT:
            self._settle(state)
        state.result = tuple(state.found.get(rule) or _absent(rule, self._lost.get(rule)) for rule in self._rules)
        return state.result

    def _scan(self, state: _Segment, prompt_ids: array[int], appended_ids: array[int]) -> None:
        length = len(prompt_ids) + len(appended_ids)
        if length < state.scanned:
            raise LawBreach(
                f"segment {state.index}: a prompt of {length} ids came after one of {state.scanned}; prompts of a "
                "segment begin with the ones before"
            )
        base = max(state.scanned - self._reach - _BACK, 0)
        tail = prompt_ids[base:] + appended_ids[max(base - len(prompt_ids), 0) :]
        start, _, text = _clean(tail, min(_BACK, base), len(tail), self._decode, fixed_end=True)
        for rule, renderings in self._rules.items():
            if rule in state.found:
                continue
            entry = _look(rule, renderings, text, tail[start:], self._decode, offset=base + start)
            if entry is not None:
                state.found[rule] = entry
        state.scanned = length

    def _settle(self, state: _Segment) -> None:
        """Write down what appeared and what went since the last prompt of the policy's own."""
        for rule in self._rules:
            if rule in state.found:
                self._seen.add(rule)
                self._lost.pop(rule, None)
            elif rule in self._seen:
                self._seen.discard(rule)
                if self._compaction is not None:
                    self._lost[rule] = self._compaction
        self._compaction = None


def _absent(rule: str, compaction_id: str | None) -> Visibility:
    return Visibility(constraint_id=rule, level=VisibilityLevel.ABSENT, compaction_id=compaction_id)


def _look(
    rule: str, renderings: Sequence[str], text: str, ids: Sequence[int], decode: Decode, *, offset: int
) -> Visibility | None:
    """Find the rendering that is complete first in ``text``, which is ``decode(ids)``; ids begin at ``offset``."""
    complete = [(text.find(rendering) + len(rendering), rendering) for rendering in renderings if rendering in text]
    if not complete:
        return None
    _, rendering = min(complete, key=lambda entry: entry[0])
    start, end = _place(rendering, ids, decode)
    return Visibility(
        constraint_id=rule,
        level=VisibilityLevel.VERBATIM,
        token_start=offset + start,
        token_end=offset + end,
    )


def _reach(text: str) -> int:
    """Bound the tokens that a text can span: each adds a byte at least."""
    return len(text.encode("utf-8", "surrogatepass")) + _MARGIN


def _place(text: str, ids: Sequence[int], decode: Decode) -> tuple[int, int]:
    """Find the tokens of the first occurrence of a text that does occur in ``decode(ids)``.

    Halving, where each probe decodes no more than what is still in question and the reach of the text before it:
    altogether about as much as two decodings of ``ids``. The last few tokens are tried one by one.
    """
    reach = _reach(text)
    start, low, end = 0, 0, len(ids)  # the text occurs in ids[start:end], and not in ids[:low]
    while end - low > _FEW:
        middle = (low + end) // 2
        stretch = _clean(ids, max(low - reach, 0), middle, decode)
        if text in stretch.text:
            start, end = stretch.start, stretch.end
        else:
            low = middle
    left = max(low - reach, start)
    end = next((n for n in range(low + 1, end) if text in _clean(ids, left, n, decode, fixed_end=True).text), end)
    high = end  # the text does not occur in ids[high:end]
    while high - start > _FEW:
        middle = (start + high) // 2
        stretch = _clean(ids, middle, end, decode, fixed_end=True)
        if text in stretch.text:
            start = stretch.start
        else:
            high = middle
    return next((n for n in range(high, start, -1) if text in decode(ids[n:end])), start), end


class _Stretch(NamedTuple):
    """A stretch of ids, ``ids[start:end]``, and its text."""

    start: int
    end: int
    text: str


def _clean(ids: Sequence[int], start: int, end: int, decode: Decode, *, fixed_end: bool = False) -> _Stretch:
    """Decode a stretch, moved out by up to three tokens at each side to where no character is cut in two.

    Some tokenizers (byte fallback) decode a run of single-byte tokens as a whole or not at all: a cut inside a
    character would hide every other character of the run.
    """
    first = _Stretch(start, end, decode(ids[start:end]))
    if not _is_cut(first, ids):
        return first
    for left, right in _MOVES:
        a, b = start - left, end if fixed_end else end + right
        if a < 0 or b > len(ids) or (fixed_end and right):
            continue
        stretch = _Stretch(a, b, decode(ids[a:b]))
        if not _is_cut(stretch, ids):
            return stretch
    return first


def _is_cut(stretch: _Stretch, ids: Sequence[int]) -> bool:
    return (stretch.start > 0 and stretch.text.startswith(_UNDECODABLE)) or (
        stretch.end < len(ids) and stretch.text.endswith(_UNDECODABLE)
    )
