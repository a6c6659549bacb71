"""Verification of one chain, record by record: the first that is changed, missing, moved or inserted is named."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from tools_app.audit.checkpoints.statements import Run
from tools_app.audit.recorder.chain import start_of
from tools_app.audit.verification.claims import Claim, covers
from tools_app.audit.verification.records import Batch, Place
from tools_app.audit.verification.report import Finding, Problem, Report, UnsignedTail

# A process signs every minute. Older unsigned records will not be signed any more.
UNSIGNED_AFTER = timedelta(minutes=10)


class Walk:
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
        self._unsigned: Place | None = None
        self._unsigned_until = datetime.min.replace(tzinfo=UTC)
        self._newest_claim = max(self._claims, default=0)
        self.is_broken = False
        # The signed head that the chain contradicts although each record follows the previous one.
        self.contradicted: Claim | None = None
        self._pass_pruned()

    def skip(self, place: Place) -> None:
        """Skip a record that is not to be verified. Its presence and position are checked."""
        if not self.is_broken and self._is_next(place):
            self._advance(place)

    def take(self, place: Place, batch: Batch) -> None:
        """Verify the next record."""
        if self._is_part and place.position > self._next:
            self._is_part = False
            self._advance(place)
            return
        self._is_part = False
        if self.is_broken or not self._is_next(place):
            return
        if not self._follows(place, batch):
            self._name(place, batch)
            return
        self._note_unsigned(place)
        self._advance(place)

    def end(self, now: datetime, *, has_ended: bool, is_registered: bool) -> None:
        """After the last record, check that signed records exist and that old records are signed.

        `has_ended`: the writer has signed its last record, so nothing can follow. `is_registered`: it is still among
        the hub's processes. If it was killed, a running one will sign for it; as it signed every minute, it left only
        the records of a few minutes unsigned.
        """
        if self.is_broken:
            return
        last = max(self._claims.values(), key=lambda claim: claim.position, default=None)
        if last is not None and last.position >= self._next and not covers(self._runs, last.position, last.hash.hex()):
            self._break(Problem.MISSING, _gone(self._next, last.position, "the end was cut off"), at=last.made_at)
        elif self._unsigned is not None and abs(now - self._unsigned.finished_at) > UNSIGNED_AFTER:
            if has_ended:
                says = "Its process had signed its last record before; somebody else wrote this one."
                self._break(Problem.INSERTED, says, self._unsigned)
            elif is_registered and self._unsigned_until - self._unsigned.finished_at <= UNSIGNED_AFTER:
                place = self._unsigned
                self._report.tails.append(
                    UnsignedTail(self._writer, self._tenant_id, place.position, place.finished_at)
                )
            else:
                says = "This record and those after it are not signed, and no known process of the hub wrote them."
                self._break(Problem.UNSIGNED, says, self._unsigned)

    def rewritten(self, position: int, call_id: UUID | None, claim: Claim) -> None:
        """Report a contradicted head: from `position` on, the chain is not the one that was signed."""
        says = (
            f"The records from {position} to {claim.position} follow one another, but were not there when the chain "
            "was signed: somebody rewrote them."
        )
        self._break(Problem.REWRITTEN, says, position=position, call_id=call_id, at=claim.made_at)

    def _is_next(self, place: Place) -> bool:
        """Return whether a record is at the next position; otherwise report the problem."""
        if place.position == self._next:
            return True
        if place.position > self._next:
            says = _gone(self._next, place.position - 1, f"before call {place.call_id}")
            self._break(Problem.MISSING, says, position=self._next, at=place.finished_at)
        else:
            says = f"Position {place.position} was taken, or pruned, before this record came there."
            self._break(Problem.INSERTED, says, place)
        return False

    def _follows(self, place: Place, batch: Batch) -> bool:
        record = batch.records.get(place.call_id)
        return record is not None and record.fits(self._before, place.hash)

    def _advance(self, place: Place) -> None:
        self._next, self._before = place.position + 1, place.hash
        claim = self._claims.get(place.position)
        if claim is not None and claim.hash != place.hash and self.contradicted is None:
            self.contradicted = claim
        self._pass_pruned()

    def _pass_pruned(self) -> None:
        while run := next((run for run in self._runs if run.first <= self._next <= run.last), None):
            self._next, self._before = run.last + 1, bytes.fromhex(run.hash)

    def _note_unsigned(self, place: Place) -> None:
        if place.position > self._newest_claim:
            self._report.unsigned += 1
            self._unsigned = self._unsigned or place
            self._unsigned_until = max(self._unsigned_until, place.finished_at)

    def _name(self, place: Place, batch: Batch) -> None:
        """Report what is wrong with a record that does not follow the previous one."""
        record = batch.records.get(place.call_id)
        if record is None or record.texts is None:
            self._break(Problem.CHANGED, "Its arguments and result are gone, or cannot be read.", place)
        elif not record.is_understood:
            says = f"Its hash is of version {record.version}, which this hub does not know. Verify it with a newer hub."
            self._break(Problem.CHANGED, says, place)
        elif (other := self._record_at(place, batch)) is None:
            self._break(Problem.CHANGED, "The record, its arguments and result, or its events were changed.", place)
        elif other.position == place.position:
            says = f"It shares position {place.position} with call {other.call_id}, which belongs there."
            self._break(Problem.INSERTED, says, place)
        else:
            says = f"Call {other.call_id} belongs here, and stands at {other.position}."
            self._break(Problem.REORDERED, says, place)

    def _record_at(self, place: Place, batch: Batch) -> Place | None:
        """Return the nearby record that belongs at the position of `place`, by its hash."""
        for other in self._near(place, batch):
            if batch.records[other.call_id].fits(self._before, other.hash, place.hash):
                return other
        return None

    def _near(self, place: Place, batch: Batch) -> Iterator[Place]:
        chain = place[:2]
        for other in batch.places:
            if other[:2] == chain and other.position >= place.position and other.call_id != place.call_id:
                yield other

    def _break(
        self,
        problem: Problem,
        says: str,
        place: Place | None = None,
        *,
        position: int | None = None,
        call_id: UUID | None = None,
        at: datetime | None = None,
    ) -> None:
        self.is_broken = True
        if place is not None:
            position, call_id, at = place.position, place.call_id, place.finished_at
        position = self._next if position is None else position
        self._report.add(Finding(problem, says, self._writer, self._tenant_id, position, call_id, at))


def _gone(first: int, last: int, where: str) -> str:
    if first == last:
        return f"Record {first} is gone: {where}."
    return f"The records from {first} to {last} are gone: {where}."
