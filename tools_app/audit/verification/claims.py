"""Claims of signed statements about a writer's chains: how far they reach, and what was pruned of them.

They come from the database; from the witness file, which reveals an end that was cut off, checkpoints included; and
from exported checkpoints, which contradict records and checkpoints that were rewritten.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec
from django.db.models import Max

from tools_app.audit.checkpoints.pruned import joined
from tools_app.audit.checkpoints.statements import (
    ChangesHead,
    CheckpointText,
    CitedCheckpoint,
    Head,
    NotTrusted,
    PrunedText,
    Run,
    Signed,
    Text,
    digest_of,
    exported,
    opened,
    trusted,
)
from tools_app.audit.models import Statement
from tools_app.audit.verification.records import calls_of_chain, in_batches
from tools_app.audit.verification.report import Finding, Problem, Report
from tools_app.models import ChainKind, ChainStart, Change, Checkpoint

CHECKPOINTS = 500
# Lines of an export that are compared together.
LINES = 500


@dataclass(frozen=True)
class Claim:
    """A signed head: the hash at `position` of a chain was `hash`."""

    position: int
    hash: bytes
    made_at: datetime

    @classmethod
    def of(cls, head: Head | ChangesHead, made_at: datetime) -> "Claim":
        """Return the claim of a checkpoint of that time."""
        return cls(head.position, bytes.fromhex(head.hash), made_at)


ClaimedHeads = dict[UUID | None, Claim]


@dataclass
class Claims:
    """The claims about one writer: the last head of each chain, the pruned runs, and whether the writer has ended."""

    heads: ClaimedHeads = field(default_factory=dict)
    runs: dict[UUID | None, list[Run]] = field(default_factory=lambda: defaultdict(list))
    checkpoint_runs: list[Run] = field(default_factory=list)
    has_ended: bool = False


class Statements:
    """Reads the statements about writers, and reports what is wrong with the statements themselves.

    `since`: only checkpoints from then on; the first of each writer is accepted as it is.
    """

    def __init__(self, keys: frozenset[str], report: Report, since: datetime | None = None) -> None:
        self._keys = keys
        self._report = report
        self._since = since
        self.cited: dict[UUID, CitedCheckpoint] = {}
        # Signed ends of the chain of changes, by position; of several that differ, the first counts.
        self.changes: dict[int, Claim] = {}

    def claims_of(self, writer: UUID) -> Claims:
        """Return all claims about a writer."""
        claims = Claims()
        for start in ChainStart.objects.filter(writer=writer).order_by("made_at"):
            _add_runs(self._text_of(start), writer, claims)
        self._read_checkpoints(writer, claims)
        return claims

    def heads_of(self, writer: UUID, tenant_id: UUID | None) -> Iterator[Claim]:
        """Yield every trusted signed head of one chain, in order."""
        for row in self._checkpoints(writer):
            text = trusted(row, self._keys)
            if isinstance(text, CheckpointText):
                yield from (Claim.of(head, text.made_at) for head in text.heads if head.tenant == tenant_id)

    def check_cited(self) -> None:
        """Check that the checkpoints named by others exist."""
        for cited in self.cited.values():
            row = Checkpoint.objects.filter(writer=cited.writer, sequence=cited.sequence).first()
            if row is not None and bytes(row.digest).hex() == cited.digest:
                continue
            if row is None and covers(self.checkpoint_runs(cited.writer), cited.sequence, cited.digest):
                continue
            self._wrong(cited.writer, f"Checkpoint {cited.sequence}, which another process names, is gone or another.")

    def checkpoint_runs(self, writer: UUID) -> list[Run]:
        """Return which checkpoints of a writer were pruned."""
        return self._runs(writer, ChainKind.CHECKPOINTS).checkpoint_runs

    def record_runs(self, writer: UUID) -> dict[UUID | None, list[Run]]:
        """Return which records of a writer were pruned, by tenant."""
        return dict(self._runs(writer, ChainKind.RECORDS).runs)

    def _runs(self, writer: UUID, kind: ChainKind) -> Claims:
        claims = Claims()
        for start in ChainStart.objects.filter(writer=writer, kind=kind):
            _add_runs(trusted(start, self._keys), writer, claims)
        return claims

    def _checkpoints(self, writer: UUID) -> Iterable[Checkpoint]:
        rows = Checkpoint.objects.filter(writer=writer).order_by("sequence")
        if self._since is not None:
            rows = rows.filter(made_at__gte=self._since)
        return rows.iterator(CHECKPOINTS)

    def _read_checkpoints(self, writer: UUID, claims: Claims) -> None:
        runs = claims.checkpoint_runs
        number, previous = (runs[0].last, runs[0].hash) if runs and runs[0].first == 1 else (0, None)
        anchored = self._since is None
        for row in self._checkpoints(writer):
            self._report.check_time()
            self._report.checkpoints += 1
            if anchored and row.sequence != number + 1:
                self._wrong(writer, f"The checkpoints from {number + 1} to {row.sequence - 1} are gone.", row)
            text = self._text_of(row)
            if isinstance(text, CheckpointText):
                if anchored and row.sequence == number + 1 and text.previous != previous:
                    self._wrong(writer, f"Checkpoint {row.sequence} does not follow the one before it.", row)
                claims.has_ended = text.last
                self.read_changes(text)
                for head in text.heads:
                    known = claims.heads.get(head.tenant)
                    if known is None or head.position >= known.position:
                        claims.heads[head.tenant] = Claim.of(head, text.made_at)
                for cited in text.seen:
                    if cited.writer not in self.cited or cited.sequence > self.cited[cited.writer].sequence:
                        self.cited[cited.writer] = cited
            number, previous, anchored = row.sequence, bytes(row.digest).hex(), True

    def read_changes(self, text: CheckpointText) -> None:
        """Add a checkpoint's claim about the chain of changes."""
        if text.changes is not None:
            self.changes.setdefault(text.changes.position, Claim.of(text.changes, text.made_at))

    def _text_of(self, row: Statement) -> Text | None:
        """Return the contents of a statement if it is trusted and its row agrees with it."""
        try:
            text = opened(exported(row), self._keys)
        except NotTrusted as problem:
            self._wrong(row.writer, f"{str(row).capitalize()} proves nothing: {problem}.", row)
            return None
        said: dict[str, Any] = {"writer": text.writer, "made_at": text.made_at}
        if isinstance(text, CheckpointText):
            said |= {"sequence": text.sequence}
        else:
            said |= {"kind": text.of, "tenant_id": text.tenant, "position": text.position}
        is_digest = bytes(row.digest) == sha256(row.statement.encode()).digest()
        if not is_digest or any(getattr(row, name, None) != value for name, value in said.items()):
            self._wrong(row.writer, f"The columns of {row} do not say what was signed.", row)
            return None
        return text

    def _wrong(self, writer: UUID, message: str, row: Statement | None = None) -> None:
        self._report.add(Finding(Problem.CHECKPOINT, message, writer=writer, at=row.made_at if row else None))


def _add_runs(text: Text | None, writer: UUID, claims: Claims) -> None:
    """Add what a statement says was pruned."""
    if isinstance(text, PrunedText) and text.writer == writer:
        if text.of == ChainKind.CHECKPOINTS:
            claims.checkpoint_runs = joined(claims.checkpoint_runs, text.runs)
        else:
            claims.runs[text.tenant] = joined(claims.runs[text.tenant], text.runs)


def covers(runs: list[Run], position: int, hexadecimal: str) -> bool:
    """Return whether a run covers this pruned position; at the end of a run the hash must match."""
    for run in runs:
        if run.first <= position <= run.last:
            return position < run.last or run.hash == hexadecimal
    return False


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
        digest, row = digest_of(signed), Checkpoint.objects.filter(writer=text.writer, sequence=text.sequence).first()
        if row is not None:
            is_there = bytes(row.digest).hex() == digest
        else:
            is_there = covers(statements.checkpoint_runs(text.writer), text.sequence, digest)
        if (tenant_id is None or heads) and not is_there:
            found.numbers.append(number)
            found.writers.add(text.writer)
            runs = statements.record_runs(text.writer)
            for head in heads:
                calls = calls_of_chain(text.writer, head.tenant)
                last: int = calls.aggregate(last=Max("chain_position"))["last"] or 0
                last = max([last, *(run.last for run in runs.get(head.tenant, []))])
                found.records += max(0, head.position - last)
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


class Exports:
    """The last head of each chain that an export names, and the comparison of the export with the database."""

    def __init__(self, lines: Iterable[str], keys: frozenset[str], statements: Statements, report: Report) -> None:
        self._keys = keys
        self._statements = statements
        self._report = report
        self.heads: dict[UUID, ClaimedHeads] = defaultdict(dict)
        for some in in_batches(enumerate(lines, 1), LINES):
            by_writer: dict[UUID, list[tuple[int, CheckpointText, str]]] = defaultdict(list)
            for number, line in some:
                if line.strip() and (read := self._read(number, line)):
                    by_writer[read[0].writer].append((number, *read))
            for writer, checkpoints in by_writer.items():
                self._compare(writer, checkpoints)

    def _read(self, number: int, line: str) -> tuple[CheckpointText, str] | None:
        """Return the checkpoint of a line and its digest, and add its claims."""
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
        self._statements.read_changes(text)
        heads = self.heads[text.writer]
        for head in text.heads:
            if head.tenant not in heads or head.position >= heads[head.tenant].position:
                heads[head.tenant] = Claim.of(head, text.made_at)
        return text, digest_of(signed)

    def _compare(self, writer: UUID, checkpoints: list[tuple[int, CheckpointText, str]]) -> None:
        """Check that the database still has these checkpoints as they were exported."""
        numbers = [text.sequence for _, text, _ in checkpoints]
        rows = Checkpoint.objects.filter(writer=writer, sequence__in=numbers).values_list("sequence", "digest")
        there = {sequence: bytes(digest).hex() for sequence, digest in rows}
        runs = self._statements.checkpoint_runs(writer) if len(there) < len(checkpoints) else []
        for number, text, digest in checkpoints:
            found = there.get(text.sequence)
            if found is None and not covers(runs, text.sequence, digest):
                self._wrong(f"Checkpoint {text.sequence}, line {number} of the export, is gone.", text)
            elif found is not None and found != digest:
                self._wrong(f"Checkpoint {text.sequence}, line {number} of the export, says otherwise now.", text)

    def _wrong(self, message: str, text: CheckpointText | None = None) -> None:
        writer, at = (text.writer, text.made_at) if text else (None, None)
        self._report.add(Finding(Problem.CHECKPOINT, message, writer=writer, at=at))
