"""Comparison of the witness file and of exported checkpoints with the database.

The witness file reveals an end that was cut off, checkpoints included; exported checkpoints contradict records and
checkpoints that were rewritten.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import msgspec
from django.db.models import Max

from tools_app.audit.checkpoints.statements import CheckpointText, NotTrusted, Signed, digest_of, opened
from tools_app.audit.verification.claims import Claim, ClaimedHeads, Statements, covers
from tools_app.audit.verification.records import calls_of_chain, in_batches
from tools_app.audit.verification.report import Finding, Problem, Report
from tools_app.models import Change, Checkpoint


@dataclass
class Missing:
    """What was witnessed and is missing from the database: line numbers, and how much they stand for."""

    numbers: list[int] = field(default_factory=list)
    writers: set[UUID] = field(default_factory=set)
    records: int = 0
    changes: int = 0
    last: datetime | None = None

    def message(self) -> str:
        """Return the message for the report."""
        assert self.last is not None
        if not self.records and not self.changes:
            return (
                f"Checkpoints of {len(self.writers)} processes, witnessed up to {self.last:%Y-%m-%d %H:%M:%S} UTC, are "
                "gone or say otherwise now."
            )
        return (
            f"The database ends before what was witnessed at {self.last:%Y-%m-%d %H:%M:%S} UTC: {self.records} records "
            f"and {self.changes} changes of {len(self.writers)} processes are missing. If a backup was restored on "
            "purpose, run accept_restore."
        )


def missing_from(lines: Iterable[str], keys: frozenset[str], report: Report, tenant_id: UUID | None = None) -> Missing:
    """Compare a witness file with the database, and report what is wrong with the lines themselves.

    With a `tenant_id`, only what they say about records of this tenant.
    """
    statements, found = Statements(keys, Report()), Missing()
    changes = Change.objects.aggregate(last=Max("position"))["last"] or 0
    for number, line in enumerate(lines, 1):
        report.witnessed += 1
        try:
            signed = msgspec.json.decode(line, type=Signed)
            text = opened(signed, keys)
        except (msgspec.MsgspecError, NotTrusted) as problem:
            report.add(Finding(Problem.CHECKPOINT, f"Line {number} of the witness file proves nothing: {problem}."))
            continue
        if not isinstance(text, CheckpointText):
            continue
        heads = [head for head in text.heads if tenant_id in {None, head.tenant}]
        is_about = tenant_id is None or bool(heads)
        if is_about and not _is_there(text, digest_of(signed), statements):
            found.numbers.append(number)
            found.writers.add(text.writer)
            found.records += sum(_missing_of(text.writer, statements, head.tenant, head.position) for head in heads)
            if text.changes is not None and tenant_id is None:
                found.changes = max(found.changes, text.changes.position - changes)
            found.last = max(found.last or text.made_at, text.made_at)
    return found


def compare(lines: Iterable[str], keys: frozenset[str], report: Report, tenant_id: UUID | None = None) -> None:
    """Add to the report what `lines` witness and the database lacks, of one tenant or of all."""
    missing = missing_from(lines, keys, report, tenant_id)
    if missing.numbers:
        problem = Problem.MISSING if missing.records or missing.changes else Problem.CHECKPOINT
        report.add(Finding(problem, missing.message(), at=missing.last))


def _is_there(text: CheckpointText, digest: str, statements: Statements) -> bool:
    """Return whether the database has this checkpoint as it was witnessed, or states that it was pruned."""
    row = Checkpoint.objects.filter(writer=text.writer, sequence=text.sequence).first()
    if row is not None:
        return bytes(row.digest).hex() == digest
    return covers(statements.checkpoint_runs(text.writer), text.sequence, digest)


def _missing_of(writer: UUID, statements: Statements, tenant_id: UUID | None, position: int) -> int:
    """Return how many records are missing from the end of a chain."""
    last: int = calls_of_chain(writer, tenant_id).aggregate(last=Max("chain_position"))["last"] or 0
    runs = statements.record_runs(writer).get(tenant_id, [])
    return max(0, position - max([last, *(run.last for run in runs)]))


LINES = 500

Line = tuple[int, CheckpointText, str]


class Exports:
    """The last head of each chain that an export names, and the comparison of the export with the database."""

    def __init__(self, lines: Iterable[str], keys: frozenset[str], statements: Statements, report: Report) -> None:
        self._keys = keys
        self._statements = statements
        self._report = report
        self.heads: dict[UUID, ClaimedHeads] = defaultdict(dict)
        for some in in_batches(enumerate(lines, 1), LINES):
            self._compare([line for number, text in some if text.strip() and (line := self._read(number, text))])

    def _read(self, number: int, line: str) -> Line | None:
        self._report.exported += 1
        try:
            signed = msgspec.json.decode(line, type=Signed)
            text = opened(signed, self._keys)
        except (msgspec.MsgspecError, NotTrusted) as problem:
            self._wrong(f"Line {number} of the export proves nothing: {problem}.")
            return None
        if not isinstance(text, CheckpointText):
            self._wrong(f"Line {number} of the export is no checkpoint.")
            return None
        self._read_claims(text)
        return number, text, digest_of(signed)

    def _read_claims(self, text: CheckpointText) -> None:
        self._statements.read_changes(text)
        heads = self.heads[text.writer]
        for head in text.heads:
            if head.tenant not in heads or head.position >= heads[head.tenant].position:
                heads[head.tenant] = Claim.of(head, text.made_at)

    def _compare(self, lines: list[Line]) -> None:
        """Check that the database still has these checkpoints as they were exported."""
        by_writer: dict[UUID, list[Line]] = defaultdict(list)
        for line in lines:
            by_writer[line[1].writer].append(line)
        for writer, exported in by_writer.items():
            numbers = [text.sequence for _, text, _ in exported]
            rows = Checkpoint.objects.filter(writer=writer, sequence__in=numbers).values_list("sequence", "digest")
            there = {sequence: bytes(digest).hex() for sequence, digest in rows}
            runs = self._statements.checkpoint_runs(writer) if len(there) < len(exported) else []
            for number, text, digest in exported:
                found = there.get(text.sequence)
                if found is None and not covers(runs, text.sequence, digest):
                    self._wrong(f"Checkpoint {text.sequence}, line {number} of the export, is gone.", text)
                elif found is not None and found != digest:
                    self._wrong(f"Checkpoint {text.sequence}, line {number} of the export, says otherwise now.", text)

    def _wrong(self, message: str, text: CheckpointText | None = None) -> None:
        writer, at = (text.writer, text.made_at) if text else (None, None)
        self._report.add(Finding(Problem.CHECKPOINT, message, writer=writer, at=at))
