"""Claims of signed statements about a writer's chains: how far they reach, and what was pruned of them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from uuid import UUID

from tools_app.audit.checkpoints.pruned import joined
from tools_app.audit.checkpoints.statements import (
    ChangesHead,
    CheckpointText,
    Cited,
    Head,
    NotTrusted,
    PrunedText,
    Run,
    Text,
    exported,
    opened,
)
from tools_app.audit.models import Statement
from tools_app.audit.verification.report import Finding, Problem, Report
from tools_app.models import ChainKind, ChainStart, Checkpoint

CHECKPOINTS = 500


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
        self.cited: dict[UUID, Cited] = {}
        # Signed ends of the chain of changes, by position; of several that differ, the first counts.
        self.changes: dict[int, Claim] = {}

    def claims_of(self, writer: UUID) -> Claims:
        """Return all claims about a writer."""
        claims = Claims()
        for start in ChainStart.objects.filter(writer=writer).order_by("made_at"):
            self._read_start(start, claims)
        self._read_checkpoints(writer, claims)
        return claims

    def heads_of(self, writer: UUID, tenant_id: UUID | None) -> Iterator[Claim]:
        """Yield every trusted signed head of one chain, in order."""
        for row in self._checkpoints(writer):
            text = self._trusted(row)
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
        claims = Claims()
        for start in ChainStart.objects.filter(writer=writer, kind=ChainKind.CHECKPOINTS):
            self._read_start(start, claims, is_noted=False)
        return claims.checkpoint_runs

    def record_runs(self, writer: UUID) -> dict[UUID | None, list[Run]]:
        """Return which records of a writer were pruned, by tenant."""
        claims = Claims()
        for start in ChainStart.objects.filter(writer=writer, kind=ChainKind.RECORDS):
            self._read_start(start, claims, is_noted=False)
        return dict(claims.runs)

    def _checkpoints(self, writer: UUID) -> Iterable[Checkpoint]:
        rows = Checkpoint.objects.filter(writer=writer).order_by("sequence")
        if self._since is not None:
            rows = rows.filter(made_at__gte=self._since)
        return rows.iterator(CHECKPOINTS)

    def _read_start(self, row: ChainStart, claims: Claims, *, is_noted: bool = True) -> None:
        text = self._text_of(row) if is_noted else self._trusted(row)
        if not isinstance(text, PrunedText) or text.writer != row.writer:
            return
        if text.of == ChainKind.CHECKPOINTS:
            claims.checkpoint_runs = joined(claims.checkpoint_runs, text.runs)
        else:
            claims.runs[text.tenant] = joined(claims.runs[text.tenant], text.runs)

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
                self._read(text, claims)
            number, previous, anchored = row.sequence, bytes(row.digest).hex(), True

    def read_changes(self, text: CheckpointText) -> None:
        """Add a checkpoint's claim about the chain of changes."""
        if text.changes is not None:
            self.changes.setdefault(text.changes.position, Claim.of(text.changes, text.made_at))

    def _read(self, text: CheckpointText, claims: Claims) -> None:
        claims.has_ended = text.last
        self.read_changes(text)
        for head in text.heads:
            known = claims.heads.get(head.tenant)
            if known is None or head.position >= known.position:
                claims.heads[head.tenant] = Claim.of(head, text.made_at)
        for cited in text.seen:
            known_one = self.cited.get(cited.writer)
            if known_one is None or cited.sequence > known_one.sequence:
                self.cited[cited.writer] = cited

    def _text_of(self, row: Statement) -> Text | None:
        """Return the contents of a statement if it is trusted and its row agrees with it."""
        try:
            text = opened(exported(row), self._keys)
        except NotTrusted as problem:
            self._wrong(row.writer, f"{str(row).capitalize()} proves nothing: {problem}.", row)
            return None
        if not _agrees(row, text):
            self._wrong(row.writer, f"The columns of {row} do not say what was signed.", row)
            return None
        return text

    def _trusted(self, row: Statement) -> Text | None:
        try:
            return opened(exported(row), self._keys)
        except NotTrusted:
            return None

    def _wrong(self, writer: UUID, message: str, row: Statement | None = None) -> None:
        self._report.add(Finding(Problem.CHECKPOINT, message, writer=writer, at=row.made_at if row else None))


def covers(runs: list[Run], position: int, hexadecimal: str) -> bool:
    """Return whether a run covers this pruned position; at the end of a run the hash must match."""
    for run in runs:
        if run.first <= position <= run.last:
            return position < run.last or run.hash == hexadecimal
    return False


def _agrees(row: Statement, text: Text) -> bool:
    """Return whether the columns of a statement repeat what was signed."""
    same = (row.writer, row.made_at, bytes(row.digest)) == (
        text.writer,
        text.made_at,
        sha256(row.statement.encode()).digest(),
    )
    if isinstance(row, Checkpoint):
        return same and isinstance(text, CheckpointText) and row.sequence == text.sequence
    if not (isinstance(row, ChainStart) and isinstance(text, PrunedText)):
        return False
    return same and (row.kind, row.tenant_id, row.position) == (text.of, text.tenant, text.position)
