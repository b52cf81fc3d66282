"""What is expected of each back-end: that every check holds, but for what it says itself that it does not enforce.

``identity()["weak"]`` decides: a weakness that a provider names there makes certain checks fail, and nothing else may.
A back-end of ours may have no weakness but those of its row here, and has to name those that it always has; a
provider of somebody else's may name any that is known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Expected(StrEnum):
    """What a check is expected to find."""

    HOLDS = "holds"
    FAILS = "does not hold"
    DEPENDS = "depends"
    """On settings of the machine, since the back-end does nothing about it; either finding will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What is expected of one check, and why it is not that it holds."""

    what: Expected
    reason: str = ""

    def met(self, *, holds: bool) -> bool:
        """Say whether this is what was expected."""
        return self.what is Expected.DEPENDS or holds == (self.what is Expected.HOLDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weakness:
    """Something that a back-end does not enforce."""

    said: str
    """Words of ``identity()["weak"]`` that name it."""
    fails: tuple[str, ...] = ()
    """Names of checks that therefore do not hold."""
    depends: tuple[str, ...] = ()
    """Names of checks whose finding depends on the machine."""


HOLDS = Expectation(what=Expected.HOLDS)

TOTAL_MEMORY = Weakness(said="the memory of all processes together", fails=("mem_bomb_many",))
SWAP = Weakness(said="how much of it is swapped out", depends=("mem_bomb_many",))
PROCESS_COUNT = Weakness(said="the exact number of processes", depends=("fork_bomb",))
USERS_PROCESSES = Weakness(
    said="the number of processes is limited for the user as a whole", depends=("fork_bomb", "fork_bomb_renewing")
)
DISK = Weakness(
    said="workspace and temporary files are limited by the size of one file only",
    fails=("tmp_fill", "workspace_fill_many_files", "inode_fill"),
)
PROCESSES_SEEN = Weakness(
    said="processes of the host and their command lines can be seen",
    fails=("host_env_secret", "host_pids_visible", "sandboxes_apart"),
)
SUPERVISOR = Weakness(
    said="a command that kills its own supervisor ends the sandbox", fails=("kill_all", "kill_supervisor")
)
SIGNALS = Weakness(said="signals reach every process of the same user", fails=("kill_all", "sandboxes_apart"))
WATCHER = Weakness(said="a command that kills what watches over it may live on", fails=("kill_all", "kill_supervisor"))
UNCONFINED = Weakness(
    said="nothing is confined",
    fails=(
        "caps_nnp_seccomp",
        "dev_shm_fill",
        "host_env_secret",
        "host_pids_visible",
        "net_egress",
        "proc_links_of_others",
        "ptrace_other",
        "risky_syscalls",
        "sandboxes_apart",
        "unix_sockets",
        "write_outside",
    ),
    depends=("hardlink_escape", "mknod_devices", "nested_userns", "setuid_binary", "tiocsti"),
)

WEAKNESSES = (
    TOTAL_MEMORY, SWAP, PROCESS_COUNT, USERS_PROCESSES, DISK, PROCESSES_SEEN, SUPERVISOR, SIGNALS, WATCHER, UNCONFINED,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Of one back-end."""

    always: tuple[Weakness, ...] = ()
    """What it cannot enforce anywhere, and therefore always says."""
    sometimes: tuple[Weakness, ...] = ()
    """What it cannot enforce on some machines, and says there."""


BACKENDS: Mapping[str, Row] = MappingProxyType(
    {
        "bwrap": Row(sometimes=(TOTAL_MEMORY,)),
        "namespaces": Row(sometimes=(TOTAL_MEMORY,)),
        "docker": Row(sometimes=(TOTAL_MEMORY, SWAP, PROCESS_COUNT)),
        "landlock": Row(always=(PROCESSES_SEEN, SUPERVISOR, DISK), sometimes=(TOTAL_MEMORY, USERS_PROCESSES, SIGNALS)),
        "none": Row(always=(UNCONFINED, WATCHER, DISK), sometimes=(TOTAL_MEMORY, USERS_PROCESSES)),
    }
)
"""Kind, as `SandboxProvider.identity` names it, to what it may and must say."""

ANY = Row(sometimes=WEAKNESSES)
"""Of kinds that are not ours."""


def expectation(check: str, identity: Mapping[str, str], known: Iterable[str] = ()) -> Expectation:
    """Say what is expected of a check.

    Args:
        check: Its name.
        identity: Of the provider.
        known: Checks that its owner says do not hold, beyond what the identity says.
    """
    if check in known:
        return Expectation(what=Expected.FAILS, reason="said to be known by who runs this")
    weaknesses = [weakness for weakness in WEAKNESSES if weakness.said in identity.get("weak", "")]
    for weakness in weaknesses:
        if check in weakness.fails:
            return Expectation(what=Expected.FAILS, reason=weakness.said)
    for weakness in weaknesses:
        if check in weakness.depends:
            return Expectation(what=Expected.DEPENDS, reason=weakness.said)
    return HOLDS


def contradictions(identity: Mapping[str, str]) -> list[str]:
    """Say where a provider and this table disagree: on what it says, or on what it does not say."""
    kind, weak = identity.get("kind", ""), identity.get("weak")
    if weak is None:
        return ['identity() has no "weak"; it is empty if everything is enforced']
    row = BACKENDS.get(kind, ANY)
    unsaid = [f"it does not say: {weakness.said}" for weakness in row.always if weakness.said not in weak]
    known = (*row.always, *row.sometimes)
    without_reasons = re.sub(r" \([^()]*\)", "", weak)
    clauses = [clause for clause in without_reasons.split("; ") if clause and clause != "nothing"]
    unknown = [
        f"it says what no check is known for: {clause}"
        for clause in clauses
        if not any(weakness.said in clause for weakness in known)
    ]
    return [*unsaid, *unknown]
