"""Audits a whole run against the laws: each attempt from its stored facts, and what takes more than one part to check.

One attempt's laws are the engine's (`engine.audit`). Here is what needs a tokenizer (law 8) or an exporter's weights
(law 10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from agentenv.core.renderer import Tokenizer
from agentenv.core.store import FactReader
from agentenv.engine.audit import Finding, audit, audit_visibility
from agentenv.exporters.rows import row_weights
from agentenv.records.episode import EpisodeRecord

_ROUNDING = 1e-6
"""Row weights are fractions added up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAudit:
    """What the audit of a run found."""

    records: list[EpisodeRecord] = field(default_factory=list[EpisodeRecord])
    """Of every attempt whose facts agree with one another."""
    findings: list[Finding] = field(default_factory=list[Finding])
    """Breaches of the laws; empty where all hold."""


def audit_attempts(reader: FactReader, tokenizer: Callable[[], Tokenizer]) -> RunAudit:
    """Audit every attempt of a run.

    Args:
        reader: Of the run's facts.
        tokenizer: Gives the one that the run's ids belong to; asked only if a task of the run states a rule.

    Raises:
        DamagedJournal, NewerSchema: A fact cannot be read.
        ConfigError: As ``tokenizer`` does.
    """
    found = RunAudit()
    for key in reader.attempts():
        record, findings = audit(reader.facts(key))
        found.findings.extend(findings)
        if record is not None:
            found.records.append(record)
            found.findings.extend(_credit(record))
    ruled = [record for record in found.records if record.constraints]
    if ruled:
        found.findings.extend(_visibility(ruled, tokenizer()))
    return found


def _credit(record: EpisodeRecord) -> Iterator[Finding]:
    weights = row_weights(record)
    if weights and abs(sum(weights) - 1) > _ROUNDING:
        where = f"{record.episode_id} attempt {record.attempt}"
        yield Finding(law=10, where=where, text=f"row weights sum to {sum(weights)}, not 1")


def _visibility(records: list[EpisodeRecord], tokenizer: Tokenizer) -> Iterator[Finding]:
    def spell(text: str) -> str:
        return tokenizer.decode(tokenizer.encode_plain(text))

    for record in records:
        yield from audit_visibility(record, tokenizer.decode, spell)
