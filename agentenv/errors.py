"""Every exception the package raises, by whose fault it is.

    AgentEnvError
    ├─ UsageError              the caller's mistake; raised at once (also a ValueError)
    │  ├─ ConfigError          a value, file or combination that cannot work
    │  ├─ UnknownNameError     a name nobody registered; says what is near
    │  └─ OrderError           a call out of order (step before reset)
    ├─ Fault                   infrastructure gave way; ends one episode, is recorded, spares its siblings
    │  ├─ PolicyServerFault    the engine: unreachable, wrong, or lying about tokens
    │  │  └─ PromptTooLong     the engine refused the prompt for its length (not a fault of the episode: context)
    │  ├─ ToolFault            a tool could not be run (a tool that *reports* an error is no fault)
    │  ├─ SandboxFault         the sandbox could not start, was lost, or broke its protocol
    │  ├─ GraderFault          the grader raised or ran past its deadline
    │  ├─ CompressorFault      the compressor raised or broke its contract
    │  ├─ TaskFault            the task's own code raised
    │  └─ HarnessFault         our own code, or the machine under it (full disk)
    └─ RecordError             what is stored cannot be trusted or read
       ├─ LawBreach            a record contradicts one of the laws
       ├─ DamagedJournal       the file is not a journal, or is corrupt beyond its tail
       ├─ NewerSchema          written by a newer version of this package
       └─ RunInUse             another live process writes there

The model's own mistakes (text that is no action, an unknown tool, bad arguments) are not exceptions: they become
observations. Reaching a budget is not an exception either: it is an ending with a reason.

Messages say what happened, expected against actual, where, and what to do. Every class pickles: the constructor
takes the message alone, further facts are attributes with defaults.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


def ended(said: object) -> str:
    """Give an error's own text, or a server's, as the end of a sentence: with one stop, whether or not it has one.

    >>> ended(ValueError("Expecting value.")), ended("is it there?"), ended(f"TimeoutError: {TimeoutError()}")
    ('Expecting value.', 'is it there?', 'TimeoutError.')
    """
    text = str(said).strip().rstrip(".: \t\r\n")
    return text if text.endswith(("?", "!", "…")) or not text else f"{text}."


class AgentEnvError(Exception):
    """Root of every exception of this package."""


class UsageError(AgentEnvError, ValueError):
    """The caller asked for something that cannot be; nothing was changed."""


class ConfigError(UsageError):
    """A setting, a file or a combination of settings cannot work."""


class OrderError(UsageError):
    """A call came out of order, such as ``step`` before ``reset``."""


class UnknownNameError(UsageError):
    """Nobody registered this name."""

    @classmethod
    def of(cls, kind: str, name: str, known: Iterable[str], *, where: str = "") -> UnknownNameError:
        """Build the message: what is unknown (and ``where``, with a space in front), what is near, what there is."""
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return cls(f"There is no {kind} {name!r}{where}.{hint} Known: {', '.join(names) or 'none'}.")


class Fault(AgentEnvError):
    """Infrastructure gave way at one boundary. The episode ends with ``fault``; its siblings go on."""

    domain: ClassVar[str] = "harness"
    """Value of ``records.axes.FaultDomain`` that this class stands for."""

    retryable: bool = True
    """Whether starting the episode anew may help. Set on the instance where it cannot."""

    @classmethod
    def permanent(cls, message: str) -> Fault:
        """Build one that starting anew cannot help (wrong model name, missing binary)."""
        fault = cls(message)
        fault.retryable = False
        return fault

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), self.args, self.__dict__)


class PolicyServerFault(Fault):
    """The engine is unreachable, answered wrongly, or broke token fidelity."""

    domain = "policy_server"


class PromptTooLong(PolicyServerFault):
    """The engine refused a prompt for its length; the machine treats it as context overflow."""


class ToolFault(Fault):
    """A tool could not be run at all."""

    domain = "tool"


class SandboxFault(Fault):
    """The sandbox could not be started, was lost, or broke its protocol."""

    domain = "sandbox"


class GraderFault(Fault):
    """The grader raised, or ran past its deadline."""

    domain = "grader"


class CompressorFault(Fault):
    """The compressor raised, or returned what its contract forbids."""

    domain = "compressor"


class TaskFault(Fault):
    """The task's own code raised."""

    domain = "task"


class HarnessFault(Fault):
    """Our own code, or the machine under it."""

    domain = "harness"


class RecordError(AgentEnvError):
    """What is stored cannot be trusted or read."""


class LawBreach(RecordError):
    """A record contradicts one of the laws of ARCHITECTURE.md."""


class DamagedJournal(RecordError):
    """The file is no journal, or is corrupt beyond a torn tail."""


class NewerSchema(RecordError):
    """The record was written by a newer version of this package."""


class RunInUse(RecordError):
    """Another live process holds this run folder."""
