"""What verification found: figures, and for each broken chain the first record that is wrong."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from time import monotonic
from uuid import UUID

MOST_FINDINGS = 200


class Problem(StrEnum):
    """What is wrong, in the words of the reports."""

    CHANGED = "changed"
    MISSING = "missing"
    REORDERED = "reordered"
    INSERTED = "inserted"
    REWRITTEN = "rewritten"
    UNSIGNED = "not signed"
    UNCHAINED = "without a chain"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, and where. `at` is when the record was made, or what stands in for it was signed.

    `is_change`: it is about the chain of what people changed.
    """

    problem: Problem
    says: str
    writer: UUID | None = None
    tenant_id: UUID | None = None
    position: int | None = None
    call_id: UUID | None = None
    at: datetime | None = None
    change_id: UUID | None = None
    is_change: bool = False


class TimeIsUp(Exception):
    """The verification was given no more time."""


@dataclass
class Report:
    """The outcome of a verification. Of very many findings the first are kept and the others counted."""

    records: int = 0
    chains: int = 0
    changes: int = 0
    checkpoints: int = 0
    exported: int = 0
    unsigned: int = 0
    unchained: int = 0
    skipped: int = 0
    was_stopped: bool = False
    findings: list[Finding] = field(default_factory=list)
    more_findings: int = 0
    ends_at: float | None = None

    def check_time(self) -> None:
        """Raise TimeIsUp if it is."""
        if self.ends_at is not None and monotonic() > self.ends_at:
            raise TimeIsUp

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong in what was looked at."""
        return not self.findings

    def add(self, finding: Finding) -> None:
        """Keep a finding."""
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(finding)
        else:
            self.more_findings += 1
