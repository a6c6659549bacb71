"""Verification of one chain, record by record: the first that is changed, missing, moved or inserted is named."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from tools_app.audit.checkpoints.statements import Run
from tools_app.audit.recorder.chain import start_of
from tools_app.audit.recorder.entries import HASH_VERSION
from tools_app.audit.verification.claims import Claim, covers
from tools_app.audit.verification.records import Batch, ChainEntry
from tools_app.audit.verification.report import Finding, Problem, Report, UnsignedTail

# A process signs every minute. Older unsigned records will not be signed any more.
UNSIGNED_AFTER = timedelta(minutes=10)


class ChainVerifier:
    """Walks along one chain. After the first problem, the rest of the chain is only counted.

    `claims` are signed heads. `is_part`: the chain may start anywhere; its first record is then accepted as it is.
    """

    def __init__(
        self,
        chain: tuple[UUID, UUID | None],
        runs: list[Run],
        claims: Sequence[Claim],
        report: Report,
        *,
        is_part: bool = False,
    ) -> None:
        self._writer, self._tenant_id = chain
        self._runs = list(runs)
        self._claims = {claim.position: claim for claim in claims}
        self._report = report
        self._is_part = is_part
        self._next, self._before = 1, start_of(*chain).chain_hash
        self._unsigned: ChainEntry | None = None
        self._unsigned_until = datetime.min.replace(tzinfo=UTC)
        self._newest_claim = max(self._claims, default=0)
        self.is_broken = False
        # The signed head that the chain contradicts although each record follows the previous one.
        self.contradicted_claim: Claim | None = None
        self._skip_pruned()

    def skip(self, entry: ChainEntry) -> None:
        """Skip a record that is not to be verified. Its presence and position are checked."""
        if not self.is_broken and self._is_next(entry):
            self._advance(entry)

    def verify(self, entry: ChainEntry, batch: Batch) -> None:
        """Verify the next record."""
        if self._is_part and entry.position > self._next:
            self._is_part = False
            self._advance(entry)
            return
        self._is_part = False
        if self.is_broken or not self._is_next(entry):
            return
        if not self._follows(entry, batch):
            self._report_mismatch(entry, batch)
            return
        self._note_unsigned(entry)
        self._advance(entry)

    def finish(self, now: datetime, *, has_ended: bool, is_registered: bool) -> None:
        """After the last record, check that signed records exist and that old records are signed.

        `has_ended`: the writer has signed its last record, so nothing can follow. `is_registered`: it is still among
        the hub's processes. If it was killed, a running one will sign for it; as it signed every minute, it left only
        the records of a few minutes unsigned.
        """
        if self.is_broken:
            return
        last = max(self._claims.values(), key=lambda claim: claim.position, default=None)
        if last is not None and last.position >= self._next and not covers(self._runs, last.position, last.hash.hex()):
            self._report_problem(
                Problem.MISSING, _missing_message(self._next, last.position, "the end was cut off"), at=last.made_at
            )
        elif self._unsigned is not None and abs(now - self._unsigned.finished_at) > UNSIGNED_AFTER:
            if has_ended:
                message = "Its process had signed its last record before; somebody else wrote this one."
                self._report_problem(Problem.INSERTED, message, self._unsigned)
            elif is_registered and self._unsigned_until - self._unsigned.finished_at <= UNSIGNED_AFTER:
                entry = self._unsigned
                self._report.tails.append(
                    UnsignedTail(self._writer, self._tenant_id, entry.position, entry.finished_at)
                )
            else:
                message = "This record and those after it are not signed, and no known process of the hub wrote them."
                self._report_problem(Problem.UNSIGNED, message, self._unsigned)

    def report_rewritten(self, position: int, call_id: UUID | None, claim: Claim) -> None:
        """Report a contradicted head: from `position` on, the chain is not the one that was signed."""
        message = (
            f"The records from {position} to {claim.position} follow one another, but were not there when the chain "
            "was signed: somebody rewrote them."
        )
        self._report_problem(Problem.REWRITTEN, message, position=position, call_id=call_id, at=claim.made_at)

    def _is_next(self, entry: ChainEntry) -> bool:
        """Return whether a record is at the next position; otherwise report the problem."""
        if entry.position == self._next:
            return True
        if entry.position > self._next:
            message = _missing_message(self._next, entry.position - 1, f"before call {entry.call_id}")
            self._report_problem(Problem.MISSING, message, position=self._next, at=entry.finished_at)
        else:
            message = f"Position {entry.position} was taken, or pruned, before this record came there."
            self._report_problem(Problem.INSERTED, message, entry)
        return False

    def _follows(self, entry: ChainEntry, batch: Batch) -> bool:
        record = batch.records.get(entry.call_id)
        return record is not None and record.fits(self._before, entry.hash)

    def _advance(self, entry: ChainEntry) -> None:
        self._next, self._before = entry.position + 1, entry.hash
        claim = self._claims.get(entry.position)
        if claim is not None and claim.hash != entry.hash and self.contradicted_claim is None:
            self.contradicted_claim = claim
        self._skip_pruned()

    def _skip_pruned(self) -> None:
        while run := next((run for run in self._runs if run.first <= self._next <= run.last), None):
            self._next, self._before = run.last + 1, bytes.fromhex(run.hash)

    def _note_unsigned(self, entry: ChainEntry) -> None:
        if entry.position > self._newest_claim:
            self._report.unsigned += 1
            self._unsigned = self._unsigned or entry
            self._unsigned_until = max(self._unsigned_until, entry.finished_at)

    def _report_mismatch(self, entry: ChainEntry, batch: Batch) -> None:
        """Report what is wrong with a record that does not follow the previous one."""
        record = batch.records.get(entry.call_id)
        if record is None or record.texts is None:
            self._report_problem(Problem.CHANGED, "Its arguments and result are gone, or cannot be read.", entry)
        elif record.version not in range(1, HASH_VERSION + 1):
            message = (
                f"Its hash is of version {record.version}, which this hub does not know. Verify it with a newer hub."
            )
            self._report_problem(Problem.CHANGED, message, entry)
        elif (other := self._record_at(entry, batch)) is None:
            self._report_problem(
                Problem.CHANGED, "The record, its arguments and result, or its events were changed.", entry
            )
        elif other.position == entry.position:
            message = f"It shares position {entry.position} with call {other.call_id}, which belongs there."
            self._report_problem(Problem.INSERTED, message, entry)
        else:
            message = f"Call {other.call_id} belongs here, and stands at {other.position}."
            self._report_problem(Problem.REORDERED, message, entry)

    def _record_at(self, entry: ChainEntry, batch: Batch) -> ChainEntry | None:
        """Return the nearby record that belongs at the position of `entry`, by its hash."""
        for other in self._near(entry, batch):
            if batch.records[other.call_id].fits(self._before, other.hash, entry.hash):
                return other
        return None

    def _near(self, entry: ChainEntry, batch: Batch) -> Iterator[ChainEntry]:
        chain = entry[:2]
        for other in batch.entries:
            if other[:2] == chain and other.position >= entry.position and other.call_id != entry.call_id:
                yield other

    def _report_problem(
        self,
        problem: Problem,
        message: str,
        entry: ChainEntry | None = None,
        *,
        position: int | None = None,
        call_id: UUID | None = None,
        at: datetime | None = None,
    ) -> None:
        self.is_broken = True
        if entry is not None:
            position, call_id, at = entry.position, entry.call_id, entry.finished_at
        position = self._next if position is None else position
        self._report.add(Finding(problem, message, self._writer, self._tenant_id, position, call_id, at))


def _missing_message(first: int, last: int, where: str) -> str:
    if first == last:
        return f"Record {first} is gone: {where}."
    return f"The records from {first} to {last} are gone: {where}."
