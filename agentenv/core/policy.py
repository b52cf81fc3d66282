"""The contract of a policy: token ids in, token ids and log-probs out."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from dataclasses import dataclass, field

from agentenv.core.deadline import Deadline
from agentenv.core.lifetime import AsyncResource
from agentenv.core.task import Task
from agentenv.records.axes import Distribution, Evidence, Finish, Purpose
from agentenv.records.messages import Message, ToolSpec
from agentenv.records.tokens import Sampled, SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyIdentity:
    """What a policy is, as found out at start; goes into the manifest (law 13)."""

    kind: str
    """Registered name: ``vllm``, ``llamacpp``, ``openai``, ``scripted``, ``replay``."""
    model: str
    engine: str
    """Name and version of what samples, such as ``vllm 0.32.0``."""
    endpoint: str | None = None
    """Address and route of a server; None in process."""
    context_window: int | None = None
    """Tokens of prompt and completion together; None if there is no limit."""
    tokenizer_sha256: str | None = None
    """Content hash of the tokenizer the ids belong to; None for text-only policies."""
    logprobs: Distribution = Distribution.UNKNOWN
    logprobs_evidence: Evidence = Evidence.UNKNOWN
    weight_versions: bool = False
    """Whether the engine labels which weights sampled what."""
    trainable: bool = True
    """False for text-only policies: their ids are ours, not the engine's."""
    usd_per_prompt_token: float = 0.0
    usd_per_completion_token: float = 0.0
    details: dict[str, str] = field(default_factory=dict[str, str])
    """Further provenance: weights hash, thread count, generation config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """One call of the policy."""

    prompt_ids: array[int]
    """(P,) the whole prompt, generation prompt included."""
    messages: tuple[Message, ...]
    """The same prompt as messages, for policies that take text only."""
    tools: tuple[ToolSpec, ...]
    sampling: SamplingParams
    """``max_tokens`` is already clamped by the budgets."""
    seed: int
    """Distinct for every call of a run, non-negative, below 2**31."""
    request_id: str
    """Unique in the run: episode, attempt, turn and try."""
    turn: int
    """0-based index of this reply in the episode."""
    purpose: Purpose = Purpose.ACT


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back: a finished reply, whose ids are the engine's own."""

    sampled: Sampled
    finish: Finish
    """Never ``abort``: a client resumes an aborted call (prompt and partial ids resubmitted) or raises a fault."""
    stop_token_id: int | None = None
    queued_s: float = 0.0
    """Waiting, here and in the engine as far as it says so; clock field."""
    generating_s: float = 0.0
    """Clock field."""
    cached_tokens: int | None = None
    """Prompt tokens the engine took from its prefix cache; None if it does not say."""
    retries: int = 0


class Policy(AsyncResource):
    """Samples replies. One instance serves many episodes at once.

    Law: ids in ``Reply.sampled.completion_ids`` were sampled after exactly ``prompt_ids``; where the engine echoes
    the prompt, the client compares. A policy that cannot promise this says ``identity.trainable = False``.
    """

    @property
    @abstractmethod
    def identity(self) -> PolicyIdentity:
        """What `start` found out.

        Raises:
            OrderError: Called before `start`.
        """

    @abstractmethod
    async def start(self) -> PolicyIdentity:
        """Connect and probe: model name, context window, distribution of log-probs, weight versions, tokenizer.

        Raises:
            ConfigError: The server has another model or another tokenizer than configured.
            PolicyServerFault: The server cannot be reached or is no engine we know.
        """

    @abstractmethod
    async def sample(self, request: SampleRequest, deadline: Deadline) -> Reply:
        """Sample one reply.

        Raises:
            PromptTooLong: The engine refused the prompt for its length.
            PolicyServerFault: Retries are used up, or the answer broke token fidelity.
            DeadlineReached: ``deadline`` fired first; whatever arrives later is dropped.
        """

    def for_task(self, task: Task, seed: int) -> Policy:
        """Give the policy that plays one episode of ``task``; by default this one.

        A scripted policy answers with the script of that task. What is returned shares this policy's resources and
        is not closed by the episode.
        """
        return self
