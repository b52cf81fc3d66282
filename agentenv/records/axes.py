"""The axes of an episode: how it ended, whether it was scored, whose fault, and what the task says.

They are separate fields that never decide one another (law 5). Every enumeration is closed.
"""

from __future__ import annotations

from enum import StrEnum


class StopReason(StrEnum):
    """Why the episode ended: exactly one per ended episode (law 4)."""

    COMPLETED = "completed"
    """The task says it is done."""
    FAILED = "failed"
    """The task says it is lost."""
    TASK_BUDGET = "task_budget"
    """A budget that is part of the task ran out; ``Ending.budget`` names it."""
    CONSTRAINT_BREACH = "constraint_breach"
    """A rule was broken and the task says that this ends it."""
    FINAL_ANSWER = "final_answer"
    """The policy stopped acting, and the task takes that as its end."""
    COLLECTOR_BUDGET = "collector_budget"
    """A budget of the collector ran out; ``Ending.budget`` names it."""
    COLLECTOR_PAUSE = "collector_pause"
    """Boundary of a collection; the episode could go on."""
    GENERATION_LENGTH = "generation_length"
    """The reply was cut and no action could be parsed from it."""
    CONTEXT_OVERFLOW = "context_overflow"
    """No compaction made the prompt fit."""
    CANCELLED = "cancelled"
    """Somebody stopped the collection."""
    FAULT = "fault"
    """Infrastructure gave way; ``FaultReport`` says which."""

    @property
    def terminated(self) -> bool:
        """Whether the task itself ended (else something outside it stopped it: truncated)."""
        return self in _TERMINATED

    @property
    def unfinished(self) -> bool:
        """Whether the episode has to be run again: nobody let it come to an end of its own."""
        return self in _UNFINISHED


_TERMINATED = frozenset(
    {
        StopReason.COMPLETED,
        StopReason.FAILED,
        StopReason.TASK_BUDGET,
        StopReason.CONSTRAINT_BREACH,
        StopReason.FINAL_ANSWER,
    }
)

_UNFINISHED = frozenset({StopReason.FAULT, StopReason.CANCELLED, StopReason.COLLECTOR_PAUSE})


class Scoring(StrEnum):
    """Whether a reward exists, and if not why."""

    SCORED = "scored"
    NOT_REQUIRED = "not_required"
    NOT_RUN = "not_run"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


class FaultDomain(StrEnum):
    """Whose fault it was. A tool that reports an error to the model is not a fault."""

    NONE = "none"
    POLICY_SERVER = "policy_server"
    TOOL = "tool"
    SANDBOX = "sandbox"
    GRADER = "grader"
    COMPRESSOR = "compressor"
    TASK = "task"
    HARNESS = "harness"


class Outcome(StrEnum):
    """What the task says about the result, beside every other axis."""

    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"


class Finish(StrEnum):
    """Why the engine stopped sampling one reply."""

    STOP = "stop"
    """The policy sampled a stop token."""
    LENGTH = "length"
    """Cut by ``max_tokens`` or by the context window."""
    ABORT = "abort"
    """The engine was paused or told to abort: partial ids, not a finished reply."""
    REPETITION = "repetition"
    """Cut by the engine's repetition detector."""


class CallStatus(StrEnum):
    """What became of one tool call."""

    OK = "ok"
    ERROR = "error"
    """The tool ran and reports an error to the model."""
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    """Not run: an earlier call of the turn ended the task."""
    UNAVAILABLE = "unavailable"
    """The tool could not be run: a fault of the harness's side, never shown as the tool's own output."""
    INVALID_ARGUMENTS = "invalid_arguments"
    UNKNOWN_TOOL = "unknown_tool"
    REFUSED = "refused"
    """No tool call was left in the budget; the tool was not run."""

    @property
    def charged(self) -> bool:
        """Whether the call counts against a budget of tool calls: it was taken up, well-formed or not."""
        return self not in (CallStatus.REFUSED, CallStatus.CANCELLED)

    @property
    def ran(self) -> bool:
        """Whether the tool itself was run, so that the call can have had effects."""
        return self in (CallStatus.OK, CallStatus.ERROR, CallStatus.TIMEOUT)


class Distribution(StrEnum):
    """Which distribution a behaviour log-prob describes (law 3)."""

    MODEL = "model"
    """The model's own: log-softmax of its logits, before temperature, filters and penalties."""
    SAMPLING = "sampling"
    """The one sampled from: after temperature, filters and penalties, renormalised."""
    UNKNOWN = "unknown"


class Evidence(StrEnum):
    """How something about the engine is known."""

    PROBED = "probed"
    REPORTED = "reported"
    """The engine says so (its configuration endpoint, a field of the reply)."""
    DECLARED = "declared"
    """The user says so."""
    UNKNOWN = "unknown"


class NetworkAccess(StrEnum):
    """What the commands of a sandbox can reach."""

    NONE = "none"
    """Nothing but themselves."""
    ALLOW_LIST = "allow-list"
    """The hosts they were given, through the proxy of the harness, and nothing else."""
    OPEN = "open"
    """More: there is a route out, or the services of this machine can be reached."""


class BudgetKind(StrEnum):
    """What a budget counts."""

    TURNS = "turns"
    SAMPLED_TOKENS = "sampled_tokens"
    CONTEXT_TOKENS = "context_tokens"
    """A level, not a sum: tokens in front of the policy now. A compaction gives some back."""
    TOOL_CALLS = "tool_calls"
    WALL_CLOCK = "wall_clock"
    """Seconds since the episode began."""
    COST = "cost"
    """US dollars, from the policy's declared price per token."""


class BudgetOwner(StrEnum):
    """Who set a budget, which decides how running out of it ends the episode (law 6)."""

    TASK = "task"
    """Part of the task: running out terminates."""
    COLLECTOR = "collector"
    """Part of collecting: running out truncates."""


class Purpose(StrEnum):
    """What a reply is sampled for."""

    ACT = "act"
    SUMMARY = "summary"
    """The policy itself writes a compaction's summary: an action with tokens and credit of its own."""


class VisibilityLevel(StrEnum):
    """How a constraint stood in the prompt of one call (law 8)."""

    VERBATIM = "verbatim"
    """An accepted rendering occurs in the decoded text of the prompt ids."""
    ABSENT = "absent"


class CompactionOutcome(StrEnum):
    """What became of one attempt to compact."""

    APPLIED = "applied"
    FAILED = "failed"
    """The result did not fit, was not smaller, or the compressor broke its contract; history is unchanged."""
