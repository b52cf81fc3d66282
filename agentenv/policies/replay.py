"""The policy that plays a recorded run: the same replies, as long as it is asked the same things.

What this module owns: finding the recorded attempt of an episode, and refusing to answer a prompt that was never
answered. Reading facts is `recorded`'s.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib.metadata import version

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.policy import Policy, PolicyIdentity, Reply, SampleRequest
from agentenv.core.store import AttemptKey, FactReader
from agentenv.core.task import Task
from agentenv.errors import ConfigError, OrderError, PolicyServerFault
from agentenv.policies.recorded import RecordedReply, cut, recorded_replies
from agentenv.records.axes import Distribution, Evidence, FaultDomain, Finish
from agentenv.records.facts import EpisodeEnded, EpisodeStarted, Fact, TurnSampled


@dataclass(slots=True, kw_only=True)
class _Summary:
    """What a pass over the whole run finds out."""

    attempts: dict[tuple[str, int], tuple[bool, AttemptKey]]
    """(task id, episode seed) to (whether it ended without a fault, the attempt)."""
    windows: set[int | None]
    distributions: set[Distribution]
    trainable: bool = True
    n_turns: int = 0


class ReplayPolicy(Policy):
    """Answers with what a recorded run answered, episode by episode and turn by turn.

    An episode is recognised by its task id and its seed. Of several attempts the last that ended without a fault is
    played, or else the last. Turns are found by their index, so a turn that is asked for twice gets the same reply.

    Law: a reply is given only after exactly the prompt it was sampled after. So ids, log-probs and their spans stay
    true, and a replay of a trainable run is trainable.
    """

    def __init__(self, source: FactReader, *, model: str = "recorded", tokenizer_sha256: str | None = None) -> None:
        """Make the policy; nothing is read before `start`.

        Args:
            source: The recorded run; not closed by this policy. Read on the event loop's thread, one attempt at a
                time.
            model: What the manifest of the recorded run calls its model.
            tokenizer_sha256: Of the recorded run, from its manifest; None if unknown.
        """
        self._source = source
        self._model = model
        self._tokenizer_sha256 = tokenizer_sha256
        self._found: _Summary | None = None
        self._identity: PolicyIdentity | None = None

    @property
    def identity(self) -> PolicyIdentity:
        if self._identity is None:
            raise OrderError("The replay policy is not started; await start() first.")
        return self._identity

    async def start(self) -> PolicyIdentity:
        """Go through the run once.

        Raises:
            ConfigError: It has no reply at all, or two episodes that cannot be told apart.
            DamagedJournal, NewerSchema: It cannot be read.
        """
        found = _Summary(attempts={}, windows=set(), distributions=set())
        for key in self._source.attempts():
            _note_attempt(found, key, self._source.facts(key))
            await asyncio.sleep(0)  # reading blocks; between two attempts others get their turn
        if found.n_turns == 0:
            raise ConfigError("The recorded run has no reply to replay.")
        self._found = found
        only = found.distributions.pop() if len(found.distributions) == 1 else Distribution.UNKNOWN
        self._identity = PolicyIdentity(
            kind="replay",
            model=self._model,
            engine=f"agentenv {version('agentenv')}",
            context_window=found.windows.pop() if len(found.windows) == 1 else None,
            tokenizer_sha256=self._tokenizer_sha256,
            logprobs=only,
            logprobs_evidence=Evidence.UNKNOWN if only is Distribution.UNKNOWN else Evidence.REPORTED,
            weight_versions=False,
            trainable=found.trainable,
        )
        return self._identity

    async def aclose(self) -> None:
        """The source belongs to whoever opened it."""

    def for_task(self, task: Task, seed: int) -> Policy:
        """Give the policy that plays the recorded episode of this task and seed; one without says so when sampled."""
        return _ReplayedEpisode(self, task.id, seed)

    async def sample(self, request: SampleRequest, deadline: Deadline) -> Reply:
        """Refuse: which episode a request belongs to is known only through `for_task`.

        Raises:
            OrderError: Always.
        """
        _ = self.identity
        raise OrderError("A replay answers for an episode: sample from for_task(task, seed).")

    def replies_of(self, task_id: str, seed: int) -> dict[int, RecordedReply]:
        """Read the replies of one episode, by turn.

        Raises:
            OrderError: Not started.
            PolicyServerFault: The recorded run has no such episode.
        """
        if self._found is None:
            raise OrderError("The replay policy is not started; await start() first.")
        attempt = self._found.attempts.get((task_id, seed))
        if attempt is None:
            seeds = sorted(known for task, known in self._found.attempts if task == task_id)
            raise PolicyServerFault.permanent(
                f"The recorded run has no episode of task {task_id!r} with seed {seed}; "
                + (f"it has this task with the seeds {seeds[:5]}." if seeds else "it has other tasks only.")
                + " Replay with the suite, level, seed and group size of the recorded run."
            )
        return recorded_replies(self._source.facts(attempt[1]))


class _ReplayedEpisode(Policy):
    """One recorded episode; everything else is the parent's."""

    def __init__(self, parent: ReplayPolicy, task_id: str, seed: int) -> None:
        self._parent = parent
        self._task_id = task_id
        self._seed = seed
        self._replies: dict[int, RecordedReply] | None = None

    @property
    def identity(self) -> PolicyIdentity:
        return self._parent.identity

    async def start(self) -> PolicyIdentity:
        return await self._parent.start()

    async def aclose(self) -> None:
        """Nothing is held."""

    async def sample(self, request: SampleRequest, deadline: Deadline) -> Reply:
        """Give the recorded reply.

        Raises:
            PolicyServerFault: No such episode or turn, or another prompt than the recorded one; permanent.
        """
        if self._replies is None:
            self._replies = self._parent.replies_of(self._task_id, self._seed)
        if deadline.passed:
            raise DeadlineReached(f"the deadline of {deadline.name} had passed before the call", deadline)
        limit = request.sampling.max_tokens
        if limit < 1:
            raise ConfigError(f"max_tokens is {limit}; a reply needs room for 1 token at least.")
        recorded = self._reply_to(request, self._replies)
        turn = recorded.turn
        whole = turn.sampled.n <= limit
        return Reply(
            sampled=cut(turn.sampled, limit),
            finish=turn.finish if whole else Finish.LENGTH,
            stop_token_id=turn.stop_token_id if whole else None,
        )

    def _reply_to(self, request: SampleRequest, replies: dict[int, RecordedReply]) -> RecordedReply:
        where = f"task {self._task_id!r}, seed {self._seed}, turn {request.turn}"
        recorded = replies.get(request.turn)
        if recorded is None:
            raise PolicyServerFault.permanent(
                f"{where}: the recorded episode has {len(replies)} replies and none for this turn. Something that "
                "decides when an episode ends is not as it was."
            )
        at = recorded.first_difference(request.prompt_ids)
        if at is not None:
            before, now = recorded.segment[at : min(at + 5, recorded.prompt_length)], request.prompt_ids[at : at + 5]
            raise PolicyServerFault.permanent(
                f"{where}: the prompt is not the recorded one. First difference at position {at}: recorded "
                f"{before.tolist()} ({recorded.prompt_length} ids), now {now.tolist()} ({len(request.prompt_ids)} "
                "ids). Something that shapes prompts is not as it was: tools, template, budgets shown, compressor."
            )
        return recorded


def _note_attempt(found: _Summary, key: AttemptKey, facts: list[Fact]) -> None:
    started = facts[0] if facts else None
    if not isinstance(started, EpisodeStarted):
        return  # interrupted before its first fact was whole
    ended = facts[-1]
    sound = isinstance(ended, EpisodeEnded) and ended.fault is FaultDomain.NONE
    name = (started.task_id, started.seed)
    known = found.attempts.get(name)
    if known is not None and known[1].episode_id != key.episode_id:
        raise ConfigError(
            f"The recorded run has two episodes of task {name[0]!r} with seed {name[1]} ({known[1].episode_id}, "
            f"{key.episode_id}), so a replay cannot tell them apart. Replay one run at a time."
        )
    if known is None or (sound, key) > known:
        found.attempts[name] = (sound, key)
    found.windows.add(started.context_window)
    for fact in facts:
        if isinstance(fact, TurnSampled):
            found.n_turns += 1
            found.distributions.update(span.distribution for span in fact.sampled.logprob_spans)
            found.trainable = found.trainable and bool(fact.sampled.logprobs) and fact.sampled.text is None
