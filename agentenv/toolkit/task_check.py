"""What a task must satisfy before an episode may begin with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import cast

from agentenv.core.hosts import parse_rules
from agentenv.core.task import Task, needs_sandbox
from agentenv.errors import ConfigError
from agentenv.records.axes import BudgetOwner
from agentenv.records.messages import Role

_REQUIRED_SCRIPTS = ("reference", "nothing")


def check_task(task: Task) -> None:
    """Refuse a task that could not be played, watched or graded as it says.

    Raises:
        ConfigError: The message names the task, what is wrong and what to do.
    """
    if not task.id:
        raise ConfigError("a task needs an id, unique in its suite; use the variant's: id=draw.id")
    _check_messages(task)
    _unique(task, "tool", (tool.spec.name for tool in task.tools))
    _unique(task, "constraint", (constraint.id for constraint in task.constraints))
    _unique(task, "budget", (budget.name for budget in task.budgets))
    for budget in task.budgets:
        if budget.owner is not BudgetOwner.TASK:
            raise ConfigError(
                f"Task {task.id}: budget {budget.name} must have the owner 'task'; others are a collector's"
            )
    _check_carriers(task)
    _check_files(task)
    _check_network(task)
    missing = [name for name in _REQUIRED_SCRIPTS if task.grader is not None and name not in task.scripts]
    if missing:
        raise ConfigError(
            f"Task {task.id} has a grader but no script {' and '.join(map(repr, missing))}; 'reference' must pass the "
            "grader and 'nothing' must not, so that a broken grader is noticed"
        )


def _check_messages(task: Task) -> None:
    expected = tuple(f"m{index}" for index in range(len(task.messages)))
    got = tuple(message.id for message in task.messages)
    if not got or got != expected:
        raise ConfigError(
            f"Task {task.id}: messages must have the ids m0, m1, … in order, got {got}; use messages(...)"
        )
    roles = [message.role for message in task.messages]
    if Role.SYSTEM in roles[1:]:
        raise ConfigError(f"Task {task.id}: only the first message may be a system message, got {roles}")
    if roles[-1] not in (Role.USER, Role.TOOL):
        raise ConfigError(f"Task {task.id}: the last message must be one the policy answers, got role {roles[-1]}")


def _unique(task: Task, kind: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigError(f"Task {task.id} has two of {kind} {name!r}; each may occur once")
        seen.add(name)


def _check_carriers(task: Task) -> None:
    texts = {message.id: message.text for message in task.messages}
    for constraint in task.constraints:
        carrier = constraint.carrier
        stated = texts.get(carrier.message_id, "")[carrier.start : carrier.end]
        if not constraint.text or stated != constraint.text:
            raise ConfigError(
                f"Task {task.id}: constraint {constraint.id!r} says {constraint.text!r:.100}, but its carrier "
                f"{carrier.message_id}[{carrier.start}:{carrier.end}] reads {stated!r:.100}; use rule(...)"
            )


def _check_files(task: Task) -> None:
    if not isinstance(cast("object", task.files), Mapping):
        raise ConfigError(f"Task {task.id}: files must map paths to bytes, got {task.files!r:.100}")
    for path, content in task.files.items():
        if not isinstance(cast("object", content), bytes):
            raise ConfigError(f"Task {task.id}: the content of file {path!r} must be bytes, got {content!r:.100}")
        parts = PurePosixPath(path).parts
        if not path or path.startswith("/") or path.endswith("/") or ".." in parts or "\0" in path:
            raise ConfigError(f"Task {task.id}: file {path!r} must be a relative path inside the workspace")


def _check_network(task: Task) -> None:
    network = cast("object", task.network)
    if not isinstance(network, tuple) or not all(isinstance(host, str) for host in cast("tuple[object, ...]", network)):
        raise ConfigError(f"Task {task.id}: network must be a tuple of hosts, got {network!r:.100}")
    try:
        parse_rules(task.network)
    except ConfigError as error:
        raise ConfigError(f"Task {task.id}: {error}") from None
    if task.network and not needs_sandbox(task):
        raise ConfigError(
            f"Task {task.id}: network is for the commands of its sandbox, and it has none; set needs_sandbox=True, or "
            "give the hosts to the tool that is to reach them"
        )
