"""The report of a verification: counts, and the first wrong record of each broken chain."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from time import monotonic
from uuid import UUID

MAX_FINDINGS = 200


class Problem(StrEnum):
    """The kinds of problems, as reports name them."""

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
    """A problem and its location. `at` is when the record was made, or its substitute signed.

    `is_change`: it is about the change log.
    """

    problem: Problem
    message: str
    writer: UUID | None = None
    tenant_id: UUID | None = None
    position: int | None = None
    call_id: UUID | None = None
    at: datetime | None = None
    change_id: UUID | None = None
    is_change: bool = False


@dataclass(frozen=True)
class UnsignedTail:
    """The newest records of a process that ended without signing them: a running hub signs them for it."""

    writer: UUID
    tenant_id: UUID | None
    position: int
    at: datetime


class DeadlineExceeded(Exception):
    """The verification has run out of time."""


@dataclass
class Report:
    """The outcome of a verification. Beyond MAX_FINDINGS, findings are only counted."""

    records: int = 0
    chains: int = 0
    changes: int = 0
    checkpoints: int = 0
    exported: int = 0
    witnessed: int = 0
    unsigned: int = 0
    skipped: int = 0
    was_stopped: bool = False
    findings: list[Finding] = field(default_factory=list)
    tails: list[UnsignedTail] = field(default_factory=list)
    more_findings: int = 0
    ends_at: float | None = None

    def check_time(self) -> None:
        """Raise DeadlineExceeded if the time is up."""
        if self.ends_at is not None and monotonic() > self.ends_at:
            raise DeadlineExceeded

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong in what was verified."""
        return not self.findings

    def add(self, finding: Finding) -> None:
        """Add a finding."""
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)
        else:
            self.more_findings += 1
