"""Verification of the audit log: every record against the previous one, every chain against what was signed.

It streams: its memory grows with the number of processes and tenants, not with that of the calls. It reads a snapshot
of the database as of its start, so concurrent writes do not appear as errors.
"""

from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from time import monotonic
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone

from tools_app.audit.checkpoints.statements import Run, known_keys
from tools_app.audit.recorder.chain import start_of
from tools_app.audit.recorder.entries import HASH_VERSION
from tools_app.audit.verification.changes import newest_claims, verify_changes
from tools_app.audit.verification.claims import Claim, ClaimedHeads, Claims, Exports, Statements, compare, covers
from tools_app.audit.verification.records import (
    Batch,
    ChainEntry,
    Newest,
    Record,
    batches,
    calls_of_chain,
    chain_entries,
    snapshot,
)
from tools_app.audit.verification.report import DeadlineExceeded, Finding, Problem, Report, UnsignedTail
from tools_app.models import Call, ChainStart, Checkpoint, Process

# A process signs every minute. Older unsigned records will not be signed any more.
UNSIGNED_AFTER = timedelta(minutes=10)


@dataclass(frozen=True)
class Scope:
    """What to verify.

    `tenant_id`: only records of this tenant (None: all). `since`: each chain only from the first record that ended then
    or later. `newest`: only this many of the newest records. `seconds`: the time limit. `keys`: the trusted public
    keys.
    """

    tenant_id: UUID | None = None
    since: datetime | None = None
    newest: int | None = None
    seconds: float | None = None
    keys: frozenset[str] = field(default_factory=known_keys)

    def has(self, tenant_id: UUID | None) -> bool:
        """Return whether the chains of a tenant are to be verified."""
        return self.tenant_id in {None, tenant_id}

    def calls(self) -> QuerySet[Call]:
        """Return the records to verify."""
        return Call.objects.all() if self.tenant_id is None else Call.objects.filter(tenant_id=self.tenant_id)


def verify(scope: Scope, export: Iterable[str] = (), witnessed: Iterable[str] = ()) -> Report:
    """Verify what `scope` specifies.

    `export` are lines of exported checkpoints to compare with the database, `witnessed` those of witness files.
    """
    report = Report(ends_at=monotonic() + scope.seconds if scope.seconds is not None else None)
    with snapshot():
        try:
            compare(witnessed, scope.keys, report, scope.tenant_id)
            _Verification(scope, report).run(export)
        except DeadlineExceeded:
            report.was_stopped = True
    return report


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
        record = batch.records.get(entry.call_id)
        if record is None or not record.fits(self._before, entry.hash):
            self._report_mismatch(entry, record, batch)
            return
        if entry.position > self._newest_claim:
            self._report.unsigned += 1
            self._unsigned = self._unsigned or entry
            self._unsigned_until = max(self._unsigned_until, entry.finished_at)
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

    def _advance(self, entry: ChainEntry) -> None:
        self._next, self._before = entry.position + 1, entry.hash
        claim = self._claims.get(entry.position)
        if claim is not None and claim.hash != entry.hash and self.contradicted_claim is None:
            self.contradicted_claim = claim
        self._skip_pruned()

    def _skip_pruned(self) -> None:
        while run := next((run for run in self._runs if run.first <= self._next <= run.last), None):
            self._next, self._before = run.last + 1, bytes.fromhex(run.hash)

    def _report_mismatch(self, entry: ChainEntry, record: Record | None, batch: Batch) -> None:
        """Report what is wrong with a record that does not follow the previous one."""
        if record is None or record.texts is None:
            self._report_problem(Problem.CHANGED, "Its arguments and result are gone, or cannot be read.", entry)
            return
        if record.version not in range(1, HASH_VERSION + 1):
            message = (
                f"Its hash is of version {record.version}, which this hub does not know. Verify it with a newer hub."
            )
            self._report_problem(Problem.CHANGED, message, entry)
            return
        # A record nearby may belong at this position, by its hash.
        others = (
            other
            for other in batch.entries
            if other[:2] == entry[:2] and other.position >= entry.position and other.call_id != entry.call_id
        )
        belongs = next(
            (other for other in others if batch.records[other.call_id].fits(self._before, other.hash, entry.hash)), None
        )
        if belongs is None:
            message = "The record, its arguments and result, or its events were changed."
            self._report_problem(Problem.CHANGED, message, entry)
        elif belongs.position == entry.position:
            message = f"It shares position {entry.position} with call {belongs.call_id}, which belongs there."
            self._report_problem(Problem.INSERTED, message, entry)
        else:
            message = f"Call {belongs.call_id} belongs here, and stands at {belongs.position}."
            self._report_problem(Problem.REORDERED, message, entry)

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


class _Verification:
    def __init__(self, scope: Scope, report: Report) -> None:
        self._scope = scope
        self._report = report
        self._now = timezone.now()
        self._newest = None
        if scope.newest is not None:
            self._newest = Newest(scope.calls(), scope.newest, of_one_tenant=scope.tenant_id is not None)
        self._statements = Statements(scope.keys, report, self._newest.since if self._newest else None)
        self._exported: dict[UUID, ClaimedHeads] = {}
        self._registered = frozenset(Process.objects.values_list("pk", flat=True))

    def run(self, export: Iterable[str]) -> None:
        self._exported = Exports(export, self._scope.keys, self._statements, self._report).heads
        self._report_unchained()
        # Writers that have statements: their records may be gone.
        others: set[UUID] = set()
        if self._newest is None:
            for model in (Checkpoint, ChainStart):
                others |= set(model.objects.order_by().values_list("writer", flat=True).distinct())
            others |= set(self._exported)
        entries = chain_entries(self._scope.calls()) if self._newest is None else self._newest.entries()
        for writer, entries_of_writer in groupby(batches(entries), key=lambda found: found[0].writer):
            others.discard(writer)
            self._verify_writer(writer, entries_of_writer)
        for writer in others:
            self._verify_writer(writer, ())
        claims = dict(self._statements.changes)
        if self._newest is None:
            self._statements.check_cited()
        else:
            claims |= newest_claims(self._scope.keys)
        verify_changes(self._report, claims)

    def _verify_writer(self, writer: UUID, entries: Iterable[tuple[ChainEntry, Batch]]) -> None:
        claims = self._statements.claims_of(writer)
        # The signed heads of each of its chains, from the database and from the export.
        signed: dict[UUID | None, list[Claim]] = {}
        for heads_of_writer in (claims.heads, self._exported.get(writer, {})):
            for tenant_id, claim in heads_of_writer.items():
                if self._scope.has(tenant_id):
                    signed.setdefault(tenant_id, []).append(claim)
        for tenant_id, entries_of_chain in groupby(entries, key=lambda found: found[0].tenant_id):
            self._verify_chain((writer, tenant_id), entries_of_chain, claims, signed.pop(tenant_id, []))
        if self._newest is None:
            for tenant_id, heads in signed.items():
                self._verify_chain((writer, tenant_id), (), claims, heads)

    def _verify_chain(
        self,
        chain: tuple[UUID, UUID | None],
        entries: Iterable[tuple[ChainEntry, Batch]],
        claims: Claims,
        heads: list[Claim],
    ) -> None:
        verifier = ChainVerifier(
            chain, claims.runs.get(chain[1], []), heads, self._report, is_part=self._newest is not None
        )
        self._report.chains += 1
        since, began = self._scope.since, self._scope.since is None
        for entry, batch in entries:
            self._report.check_time()
            began = began or since is None or entry.finished_at >= since
            if began:
                self._report.records += 1
                verifier.verify(entry, batch)
            else:
                self._report.skipped += 1
                verifier.skip(entry)
        if verifier.contradicted_claim is not None and not verifier.is_broken:
            self._locate_rewrite(verifier, chain, verifier.contradicted_claim)
        verifier.finish(self._now, has_ended=claims.has_ended, is_registered=chain[0] in self._registered)

    def _locate_rewrite(self, verifier: ChainVerifier, chain: tuple[UUID, UUID | None], claim: Claim) -> None:
        """Find where a chain starts to differ from the signed one: after the last head that it agrees with."""
        heads = [head for head in self._statements.heads_of(*chain) if head.position < claim.position]

        def contradicts(head: Claim) -> bool:
            stored = _calls_at(chain, head.position).values_list("chain_hash", flat=True).first()
            return stored is not None and bytes(stored) != head.hash

        matching = bisect(heads, False, key=contradicts)
        first = heads[matching - 1].position + 1 if matching else 1
        verifier.report_rewritten(first, _calls_at(chain, first).values_list("id", flat=True).first(), claim)

    def _report_unchained(self) -> None:
        """Report the first record without a chain, which no process of the hub wrote."""
        calls = (self._newest.calls if self._newest else self._scope.calls()).filter(chain_position=None)
        for call in calls.order_by("finished_at")[:1]:
            message = f"It is in no chain, as {calls.count()} records in all; no process of the hub writes so."
            self._report.add(
                Finding(Problem.UNCHAINED, message, call.writer, call.tenant_id, None, call.pk, call.finished_at)
            )


def _calls_at(chain: tuple[UUID, UUID | None], position: int) -> QuerySet[Call]:
    return calls_of_chain(*chain).filter(chain_position=position).order_by("id")
