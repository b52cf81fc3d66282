"""Policies that play a script: the reference solution of a task, or any function from what is seen to what is said.

What this module owns: finding the script of a task, and turning what it says into a reply of ids.
"""

from __future__ import annotations

from array import array
from importlib.metadata import version
from typing import Any

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.origin import raised
from agentenv.core.policy import Policy, PolicyIdentity, Reply, SampleRequest
from agentenv.core.renderer import Renderer
from agentenv.core.task import Script, ScriptView, Task, Turn
from agentenv.errors import ConfigError, OrderError, TaskFault, UnknownNameError
from agentenv.records.axes import Distribution, Evidence, Finish
from agentenv.records.messages import ToolCall
from agentenv.records.tokens import LogprobSpan, Sampled, VersionSpan, pack_ids


class ScriptedPolicy(Policy):
    """Plays ``task.scripts[script]`` for each task, or one given script for all of them.

    Law: the same prompt, turn and seed give the same ids.

    A script is no distribution. Under itself each of its tokens has probability 1, but a log-prob of 0.0 would claim
    that a model gave it, and an importance ratio over it would mean nothing. So replies carry no log-probs, the
    distribution is `unknown`, and the identity says not trainable (law 3); its records still serve as demonstrations.
    """

    def __init__(self, renderer: Renderer, *, script: str | Script = "reference") -> None:
        """Make the policy.

        Args:
            renderer: Writes turns as ids, as the model of this template would.
            script: Name of a script that every task has, or a script to play whatever the task is.
        """
        self._renderer = renderer
        self._script = script
        self._identity: PolicyIdentity | None = None

    @property
    def identity(self) -> PolicyIdentity:
        if self._identity is None:
            raise OrderError("The scripted policy is not started; await start() first.")
        return self._identity

    async def start(self) -> PolicyIdentity:
        name = self._script if isinstance(self._script, str) else getattr(self._script, "__qualname__", "callable")
        self._identity = PolicyIdentity(
            kind="scripted",
            model=f"script:{name}",
            engine=f"agentenv {version('agentenv')}",
            tokenizer_sha256=self._renderer.identity.tokenizer_sha256,
            logprobs=Distribution.UNKNOWN,
            logprobs_evidence=Evidence.UNKNOWN,
            trainable=False,
        )
        return self._identity

    @property
    def renderer(self) -> Renderer:
        """Writes turns as ids."""
        return self._renderer

    async def aclose(self) -> None:
        """Nothing is held."""

    def for_task(self, task: Task, seed: int) -> Policy:
        """Give the policy that plays this task's script.

        Raises:
            UnknownNameError: The task has no script of that name.
        """
        if not isinstance(self._script, str):
            return self
        script = task.scripts.get(self._script)
        if script is None:
            raise UnknownNameError.of(
                "script", self._script, task.scripts, where=f" in task {task.id} (--policy scripted:NAME)"
            )
        return _ScriptOfTask(self, script, task.id)

    async def sample(self, request: SampleRequest, deadline: Deadline) -> Reply:
        """Play the script that was given as a function.

        Raises:
            OrderError: Not started, or the script is a name: which one that is depends on the task (`for_task`).
            TaskFault, DeadlineReached: As `play`.
        """
        if self._identity is None or isinstance(self._script, str):
            raise OrderError(
                "The scripted policy is not started; await start() first."
                if self._identity is None
                else f"The script {self._script!r} belongs to a task: sample from for_task(task, seed)."
            )
        return play(self._renderer, self._script, request, deadline, owner="the given script")


class _ScriptOfTask(Policy):
    """One task's script; everything else is the parent's."""

    def __init__(self, parent: ScriptedPolicy, script: Script, task_id: str) -> None:
        self._parent = parent
        self._script = script
        self._task_id = task_id

    @property
    def identity(self) -> PolicyIdentity:
        return self._parent.identity

    async def start(self) -> PolicyIdentity:
        return await self._parent.start()

    async def aclose(self) -> None:
        """Nothing is held."""

    async def sample(self, request: SampleRequest, deadline: Deadline) -> Reply:
        _ = self._parent.identity  # refuses before start
        return play(self._parent.renderer, self._script, request, deadline, owner=f"the script of task {self._task_id}")


def play(renderer: Renderer, script: Script, request: SampleRequest, deadline: Deadline, *, owner: str) -> Reply:
    """Ask the script for a turn and write it as ids, cut at ``max_tokens``.

    Raises:
        ConfigError: ``max_tokens`` leaves no room for a token.
        DeadlineReached: The deadline had passed.
        TaskFault: The script raised, or gave something else than a `Turn`.
    """
    limit = request.sampling.max_tokens
    if limit < 1:
        raise ConfigError(f"max_tokens is {limit}; a reply needs room for 1 token at least.")
    if deadline.passed:
        raise DeadlineReached(f"the deadline of {deadline.name} had passed before the call", deadline)
    ids = _written(renderer, _ask(renderer, script, request, owner), request.turn, owner)
    cut = len(ids) > limit
    ids = ids[:limit]
    ends = {*renderer.stop_token_ids, *request.sampling.stop_token_ids}
    return Reply(
        sampled=_unscored(pack_ids(ids), len(ids)),
        finish=Finish.LENGTH if cut else Finish.STOP,
        stop_token_id=ids[-1] if ids and not cut and ids[-1] in ends else None,
    )


def _ask(renderer: Renderer, script: Script, request: SampleRequest, owner: str) -> Turn:
    view = ScriptView(
        turn=request.turn,
        prompt_text=renderer.tokenizer.decode(request.prompt_ids),
        messages=request.messages,
        seed=request.seed,
    )
    try:
        answer: Any = script(view)
    except (Exception, SystemExit) as error:
        raise TaskFault(f"{owner}, in turn {request.turn}, {raised(error)}") from error
    if not isinstance(answer, Turn):
        raise TaskFault(f"{owner} gave a {type(answer).__name__} in turn {request.turn}, expected a Turn")
    return answer


def _written(renderer: Renderer, said: Turn, turn: int, owner: str) -> array[int]:
    """Write what a script says as ids; what cannot be written is the script's fault."""
    try:
        calls = [
            ToolCall(id=f"t{turn}c{n}", name=name, arguments=dict(arguments))
            for n, (name, arguments) in enumerate(said.calls)
        ]
        return renderer.compose(said.text, calls)
    except Exception as error:
        raise TaskFault(
            f"{owner} gave in turn {turn} what cannot be written as a reply: {type(error).__name__}: {error}"
        ) from error


def _unscored(packed: bytes, n: int) -> Sampled:
    if n == 0:
        return Sampled(completion_ids=packed)
    return Sampled(
        completion_ids=packed,
        logprob_spans=(LogprobSpan(start=0, end=n, distribution=Distribution.UNKNOWN, evidence=Evidence.UNKNOWN),),
        version_spans=(VersionSpan(start=0, end=n, version=None),),
    )
