"""One episode for a person to read: every token of every prompt, coloured by who put it there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from agentenv.cli.terminal import harmless
from agentenv.core.renderer import Renderer
from agentenv.engine.compaction import apply_edits
from agentenv.records.axes import CompactionOutcome, Purpose, VisibilityLevel
from agentenv.records.compaction import Compaction, Edit
from agentenv.records.episode import EpisodeRecord, NetworkReport, StepRecord
from agentenv.records.messages import Message, Role
from agentenv.records.tokens import unpack_ids, unpack_logprobs

SAMPLED, TEMPLATE = "bold green", "dim"
STYLES = {Role.SYSTEM: "magenta", Role.USER: "cyan", Role.ASSISTANT: "green", Role.TOOL: "yellow"}


class Piece(NamedTuple):
    """A stretch of text with one author."""

    text: str
    style: str


def print_episode(record: EpisodeRecord, renderer: Renderer, *, tokens: bool) -> None:
    """Print an episode.

    Args:
        record: The episode.
        renderer: Of its tokens.
        tokens: Whether to print every sampled token with id and log-prob, not only the text.
    """
    console = Console(highlight=False, soft_wrap=True)
    _print_head(console, record)
    at: dict[int, int] = {}
    for step, added in zip(record.steps, added_messages(record), strict=True):
        _print_compactions(console, step.compactions)
        start = at.get(step.segment, 0)
        _print_step_head(console, record, step, opens=start == 0)
        ids = unpack_ids(record.segments[step.segment].token_ids)
        text = renderer.tokenizer.decode(ids[start : step.prompt_length])
        console.print(_coloured(pieces(text, added)))
        completion = ids[step.prompt_length : step.prompt_length + step.completion_length]
        sampled = renderer.tokenizer.decode(completion)
        console.print(_said(sampled if console.is_terminal else f"«{sampled}»", style=SAMPLED))
        if tokens:
            _print_tokens(console, step, completion, renderer)
        _print_step_tail(console, step)
        at[step.segment] = step.prompt_length + step.completion_length
    _print_compactions(console, record.failed_compactions)
    _print_end(console, record)


def added_messages(record: EpisodeRecord) -> Iterator[Sequence[Message]]:
    """Give, for each step, the messages its prompt has and the one before it had not, in their order.

    The prompt that opens a segment has the whole window; any other what was observed since the last reply.
    """
    made = {edit.message.id for edit in _edits(record) if edit.message is not None}
    opening = itertools.takewhile(lambda message: message.turn is None and message.id not in made, record.messages)
    replies = {message.turn: message for message in record.messages if message.role is Role.ASSISTANT}
    window: tuple[Message, ...] = tuple(opening)
    added: tuple[Message, ...] = ()
    begun: set[int] = set()
    for step in record.steps:
        for compaction in step.compactions:
            if compaction.outcome is CompactionOutcome.APPLIED:
                window = apply_edits(window, compaction.edits)
        yield added if step.segment in begun else window
        if step.purpose is Purpose.ACT or step.segment in begun:
            added = step.observation
        begun.add(step.segment)
        reply = replies.get(step.turn) if step.purpose is Purpose.ACT else None
        window = (*window, *(() if reply is None else (reply,)), *step.observation)


def _edits(record: EpisodeRecord) -> Iterator[Edit]:
    tried = itertools.chain(*(step.compactions for step in record.steps), record.failed_compactions)
    return (edit for compaction in tried for edit in compaction.edits)


def pieces(text: str, messages: Sequence[Message]) -> Iterator[Piece]:
    """Split prompt text by author: message texts are found in order, what is between them is the template's.

    Args:
        text: What a prompt adds.
        messages: Those that are new in it, in order; an older one could be found in a newer one's text.
    """
    at = 0
    for message in messages:
        found = text.find(message.text, at) if message.text.strip() else -1
        if found < 0:
            continue
        if found > at:
            yield Piece(text[at:found], TEMPLATE)
        yield Piece(message.text, STYLES[message.role])
        at = found + len(message.text)
    if at < len(text):
        yield Piece(text[at:], TEMPLATE)


def _said(text: str, style: str = "") -> Text:
    """Give text to print, whoever wrote it."""
    return Text(harmless(text), style=style)


def _coloured(parts: Iterator[Piece]) -> Text:
    line = Text()
    for part in parts:
        line.append(harmless(part.text), style=part.style)
    return line


def _print_head(console: Console, record: EpisodeRecord) -> None:
    console.print(_said(f"── {record.episode_id} · attempt {record.attempt} · {record.task_id}", style="bold"))
    if record.network is not None:
        console.print(_said(f"   {_network(record.network)}", style="dim"))
    if not console.is_terminal:
        console.print("«sampled», everything else is prompt")
        return
    legend = Text("sampled", style=SAMPLED)
    legend.append("  template", style=TEMPLATE)
    for role, style in STYLES.items():
        if role is not Role.ASSISTANT:
            legend.append(f"  {role}", style=style)
    console.print(legend)


def _network(network: NetworkReport) -> str:
    asked = f"; the task names {', '.join(network.asked)}" if network.asked else ""
    return f"network of the sandbox: {network.access or 'unknown'}{asked} ({network.detail})"


def _print_step_head(console: Console, record: EpisodeRecord, step: StepRecord, *, opens: bool) -> None:
    segment = record.segments[step.segment]
    began = f" (new: {segment.reason})" if opens else ""
    console.print()
    console.print(
        _said(
            f"── turn {step.turn} · {step.purpose} · segment {step.segment}{began} · prompt {step.prompt_length}",
            style="bold",
        )
    )
    for entry in step.visibility:
        seen = entry.level is not VisibilityLevel.ABSENT
        place = f"visible at tokens {entry.token_start} to {entry.token_end}" if seen else "not visible"
        why = f", removed by compaction {entry.compaction_id}" if entry.compaction_id else ""
        console.print(_said(f"   rule {entry.constraint_id}: {place}{why}", style="blue" if seen else "bold red"))


def _print_tokens(console: Console, step: StepRecord, ids: Sequence[int], renderer: Renderer) -> None:
    logprobs = unpack_logprobs(step.sampled.logprobs) or [None] * len(ids)
    for index, (token, value) in enumerate(zip(ids, logprobs, strict=True)):
        shown = "null" if value is None else f"{value:.4f}"
        piece = renderer.tokenizer.decode([token])
        console.print(_said(f"   {step.prompt_length + index:6d}  {token:7d}  {shown:>9}  {piece!r}", style="green"))


def _print_step_tail(console: Console, step: StepRecord) -> None:
    spans = ", ".join(
        f"[{span.start}:{span.end}] {span.distribution} ({span.evidence})" for span in step.sampled.logprob_spans
    )
    versions = ", ".join(
        f"[{span.start}:{span.end}] {span.version or 'unknown'}" for span in step.sampled.version_spans
    )
    budgets = ", ".join(f"{state.name} {state.remaining:g}/{state.limit:g} left" for state in step.budgets)
    head = (
        f"   {step.completion_length} sampled, finish {step.finish}, seed {step.seed}, "
        f"T={step.sampling.temperature:g}, log-probs {spans or 'none'}, weights {versions or 'unknown'}"
    )
    lines = [head, f"   budgets: {budgets}" if budgets else ""]
    lines += [f"   note: {note}" for note in step.sampled.notes]
    lines += [
        f"   call {r.call_id} {r.name}: {r.status}, exit {r.exit_code}, {r.bytes_dropped} bytes dropped"
        for r in step.results
    ]
    console.print(_said("\n".join(line for line in lines if line), style="dim"))
    for breach in step.breaches:
        seen = "visible" if breach.visible else f"not visible (compaction {breach.compaction_id})"
        console.print(
            _said(
                f"   BREACH of {breach.constraint_id} in turn {breach.turn}, rule {seen}: {breach.evidence}", "bold red"
            )
        )


def _print_compactions(console: Console, compactions: Sequence[Compaction]) -> None:
    for compaction in compactions:
        dropped = [edit.message_id for edit in compaction.edits if edit.op == "drop"]
        replaced = [edit.message_id for edit in compaction.edits if edit.op == "replace"]
        what = f"dropped {dropped}" if dropped else ""
        what += f" replaced {replaced}" if replaced else ""
        what += f": {compaction.reason}" if compaction.reason else ""
        console.print(
            _said(
                f"── compaction {compaction.id} by {compaction.compressor} ({compaction.trigger}): "
                f"{compaction.outcome}, {compaction.tokens_before} to {compaction.tokens_after} "
                f"tokens, budget {compaction.budget_tokens} {what}",
                style="bold blue",
            )
        )


def _print_end(console: Console, record: EpisodeRecord) -> None:
    reward = "not scored" if record.reward is None else f"{record.reward:g}"
    flag = "terminated" if record.terminated else "truncated" if record.truncated else "interrupted"
    parts = "; ".join(f"{part.name}={part.value} ({part.source}) {part.detail}" for part in record.rewards)
    console.print()
    console.print(
        _said(
            f"── {flag}: {record.reason or 'no ending'}{f' ({record.budget})' if record.budget else ''} · scoring "
            f"{record.scoring} · outcome {record.outcome} · reward {reward} · fault {record.fault_domain}",
            style="bold",
        )
    )
    if parts:
        console.print(_said(parts, style="dim"))
    if record.fault:
        console.print(_said(f"{record.fault.error}: {record.fault.message}", style="red"))
