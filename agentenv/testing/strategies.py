"""Hypothesis strategies for facts and records.

`facts` gives any well-typed fact: what a codec or a store must carry. `episode_records` gives coherent records: what
readers, exporters and metrics may rely on (laws 1, 2, 4, 5, 6).
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from agentenv.records import axes, facts
from agentenv.records.budgets import Budget, BudgetState
from agentenv.records.compaction import Compaction, Edit
from agentenv.records.constraints import Breach, Carrier, CheckerSpec, Constraint, Polarity, Visibility
from agentenv.records.episode import FaultReport, NetworkReport, RewardComponent
from agentenv.records.messages import (
    Message,
    ParsedTurn,
    ParseError,
    Role,
    Spill,
    TaskEnd,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from agentenv.records.tokens import LogprobSpan, Sampled, SamplingParams, VersionSpan, pack_ids, pack_logprobs

texts = st.text(st.characters(exclude_categories=()), max_size=12)
"""Any text Python can hold, lone surrogates and NUL included."""
names = st.text(st.characters(codec="ascii", categories=("Ll", "Nd")), min_size=1, max_size=8)
counts = st.integers(0, 2**31 - 1)
seconds = st.floats(0, 1e6)
token_ids = st.lists(st.integers(0, 2**31 - 1), max_size=6).map(pack_ids)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
json_objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(texts, json_values, max_size=2)
spills = st.builds(Spill, sha256=names, size_bytes=counts)
workspaces = st.dictionaries(texts, spills, max_size=2)


def _few(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(inner, max_size=2).map(tuple)


def _maybe(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | inner


tool_calls = st.builds(ToolCall, id=names, name=texts, arguments=json_objects)
messages = st.builds(
    Message,
    id=names,
    role=st.sampled_from(Role),
    text=texts,
    calls=_few(tool_calls),
    call_id=_maybe(names),
    name=_maybe(names),
    pinned=st.booleans(),
    turn=_maybe(counts),
)
tool_specs = st.builds(ToolSpec, name=names, description=texts, parameters=json_objects)
tool_results = st.builds(
    ToolResult,
    call_id=names,
    name=texts,
    status=st.sampled_from(axes.CallStatus),
    text=texts,
    exit_code=_maybe(st.integers(-255, 255)),
    duration_s=seconds,
    bytes_dropped=counts,
    full_output=_maybe(spills),
    ends=_maybe(st.sampled_from(TaskEnd)),
    value=json_values,
)
parsed_turns = st.builds(
    ParsedTurn,
    text=texts,
    calls=_few(tool_calls),
    errors=_few(st.builds(ParseError, reason=texts, excerpt=texts)),
    reasoning=_maybe(texts),
    closed=st.booleans(),
)
sampling_params = st.builds(
    SamplingParams,
    temperature=st.floats(0, 2),
    top_p=st.floats(0.1, 1),
    top_k=st.integers(0, 100),
    max_tokens=st.integers(1, 4096),
    stop_token_ids=_few(counts),
)
budgets = st.builds(
    Budget,
    kind=st.sampled_from(axes.BudgetKind),
    limit=st.integers(1, 10**6).map(float),
    owner=st.sampled_from(axes.BudgetOwner),
)


@st.composite
def _budget_states(draw: st.DrawFn) -> BudgetState:
    budget = draw(budgets)
    spent = float(draw(st.integers(0, int(budget.limit))))
    return BudgetState(name=budget.name, kind=budget.kind, owner=budget.owner, limit=budget.limit, spent=spent)


budget_states = _budget_states()
constraints = st.builds(
    Constraint,
    id=names,
    text=texts,
    carrier=st.builds(Carrier, message_id=names, start=counts, end=counts),
    checker=st.builds(CheckerSpec, name=names, arguments=json_objects),
    polarity=st.sampled_from(Polarity),
    renderings=_few(texts),
    ends_episode=st.booleans(),
)
visibilities = st.builds(
    Visibility,
    constraint_id=names,
    level=st.sampled_from(axes.VisibilityLevel),
    token_start=_maybe(counts),
    token_end=_maybe(counts),
    compaction_id=_maybe(names),
)
breaches = st.builds(
    Breach,
    constraint_id=names,
    turn=counts,
    evidence=texts,
    visible=st.booleans(),
    compaction_id=_maybe(names),
)
reward_components = st.builds(
    RewardComponent,
    name=texts,
    value=_maybe(st.floats(-10, 10)),
    source=st.sampled_from(("test", "environment", "human", "model")),
    status=st.sampled_from(axes.Scoring),
    detail=texts,
)
fault_reports = st.builds(
    FaultReport,
    domain=st.sampled_from([domain for domain in axes.FaultDomain if domain is not axes.FaultDomain.NONE]),
    error=names,
    message=texts,
    retryable=st.booleans(),
)
network_reports = st.builds(
    NetworkReport,
    asked=_few(names),
    access=_maybe(st.sampled_from(axes.NetworkAccess)),
    interfaces=_few(names),
    detail=texts,
)
edits = st.builds(
    Edit,
    op=st.sampled_from(("keep", "drop", "replace", "insert")),
    message_id=_maybe(names),
    message=_maybe(messages),
    sources=_few(names),
)
compactions = st.builds(
    Compaction,
    id=names,
    compressor=names,
    trigger=st.sampled_from(("budget", "overflow")),
    budget_tokens=counts,
    edits=_few(edits),
    tokens_before=counts,
    tokens_after=_maybe(counts),
    outcome=st.sampled_from(axes.CompactionOutcome),
    reason=_maybe(texts),
    duration_s=seconds,
    summary_turns=_few(counts),
)


_LOGPROBS = (None, 0.0, -1e-7, -0.1, -0.5, -2.25, -17.5, -50.0)
_lengths = st.integers(0, 6)
_first_ids = st.integers(0, 2**31 - 7)
_codes = st.binary(min_size=6, max_size=6)
_logprob_kinds = st.sampled_from(("all", "some", "none"))
_distributions = st.tuples(st.sampled_from(axes.Distribution), st.sampled_from(axes.Evidence))
_versions = st.none() | st.integers(0, 9).map(str) | names
_reply_texts = st.none() | texts
_notes = _few(texts)


@st.composite
def sampled_replies(draw: st.DrawFn) -> Sampled:
    """Replies of up to six tokens whose spans tile them, with log-probs that are complete, partly null, or missing."""
    n, first, kind, codes = draw(_lengths), draw(_first_ids), draw(_logprob_kinds), draw(_codes)
    values = [_LOGPROBS[code % 8] for code in codes[:n]]
    if kind == "all":
        values = [-3.0 if value is None else value for value in values]
    return Sampled(
        completion_ids=pack_ids(range(first, first + n)),
        logprobs=b"" if kind == "none" else pack_logprobs(values),
        logprob_spans=tuple(
            LogprobSpan(start=start, end=end, distribution=distribution, evidence=evidence)
            for start, end in _tiles(n, codes[0])
            for distribution, evidence in [draw(_distributions)]
        ),
        version_spans=tuple(
            VersionSpan(start=start, end=end, version=draw(_versions)) for start, end in _tiles(n, codes[1])
        ),
        text=draw(_reply_texts),
        notes=draw(_notes),
    )


def _tiles(n: int, code: int) -> list[tuple[int, int]]:
    """Tile ``[0, n)`` by at most two stretches."""
    cut = code % (n + 1)
    return [(start, end) for start, end in ((0, cut), (cut, n)) if end > start]


_started = st.builds(
    facts.EpisodeStarted,
    episode_id=texts,
    attempt=st.integers(1, 9),
    suite=texts,
    task_id=texts,
    task_sha256=names,
    task_seed=counts,
    level=st.integers(1, 9),
    group_id=texts,
    member=counts,
    seed=counts,
    messages=_few(messages),
    tools=_few(tool_specs),
    budgets=_few(budgets),
    constraints=_few(constraints),
    context_window=_maybe(counts),
    sampling=sampling_params,
    ends_on_text=st.booleans(),
    scoring_required=st.booleans(),
    grade_on=_few(st.sampled_from(axes.StopReason)),
    watched=st.dictionaries(names, texts, max_size=2),
    show_budgets=st.sampled_from(("none", "tool_result", "first_message")),
    workspace=workspaces,
    network=_maybe(network_reports),
)
_rendered = st.builds(
    facts.PromptRendered,
    segment=counts,
    new_segment_reason=_maybe(texts),
    appended_ids=token_ids,
    prompt_length=counts,
    purpose=st.sampled_from(axes.Purpose),
    final=st.booleans(),
    visibility=_few(visibilities),
    rendering_s=seconds,
)
_sampled = st.builds(
    facts.TurnSampled,
    turn=counts,
    purpose=st.sampled_from(axes.Purpose),
    sampled=sampled_replies(),
    sampling=sampling_params,
    seed=counts,
    finish=st.sampled_from(axes.Finish),
    stop_token_id=_maybe(counts),
    parsed=parsed_turns,
    queued_s=seconds,
    generating_s=seconds,
    cached_tokens=_maybe(counts),
    retries=counts,
    cost_usd=seconds,
    elapsed_s=seconds,
)
_acted = st.builds(
    facts.ActionTaken,
    turn=counts,
    results=_few(tool_results),
    messages=_few(messages),
    rewards=_few(reward_components),
    breaches=_few(breaches),
    watched=st.dictionaries(names, texts, max_size=2),
    workspace=_maybe(workspaces),
    tool_s=seconds,
    elapsed_s=seconds,
)
_ended = st.builds(
    facts.EpisodeEnded,
    reason=st.sampled_from(axes.StopReason),
    terminated=st.booleans(),
    truncated=st.booleans(),
    budget=_maybe(names),
    scoring=st.sampled_from(axes.Scoring),
    outcome=st.sampled_from(axes.Outcome),
    fault=st.sampled_from(axes.FaultDomain),
    budgets=_few(budget_states),
    elapsed_s=seconds,
)
all_facts: st.SearchStrategy[facts.Fact] = st.one_of(
    _started,
    _rendered,
    st.builds(facts.SummaryAsked, messages=_few(messages), max_tokens=counts),
    st.builds(facts.Compacted, compaction=compactions),
    _sampled,
    _acted,
    st.builds(
        facts.Stopped,
        reason=st.sampled_from(axes.StopReason),
        budget=_maybe(names),
        fault=_maybe(fault_reports),
        elapsed_s=seconds,
    ),
    st.builds(
        facts.Scored,
        scoring=st.sampled_from(axes.Scoring),
        components=_few(reward_components),
        outcome=st.sampled_from(axes.Outcome),
        fault=_maybe(fault_reports),
        scoring_s=seconds,
    ),
    _ended,
)
"""Any well-typed fact; not a coherent order of facts."""
