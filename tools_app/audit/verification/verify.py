"""Verification of the audit log: every record against the previous one, every chain against what was signed.

It streams: its memory grows with the number of processes and tenants, not with that of the calls. It reads a snapshot
of the database as of its start, so concurrent writes do not appear as errors.
"""

from bisect import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from time import monotonic
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone

from tools_app.audit.checkpoints import signing
from tools_app.audit.verification.chain_verifier import ChainVerifier
from tools_app.audit.verification.changes import newest_claims, verify_changes
from tools_app.audit.verification.claims import Claim, ClaimedHeads, Claims, Statements
from tools_app.audit.verification.records import (
    Batch,
    ChainEntry,
    Newest,
    batches,
    calls_of_chain,
    chain_entries,
    snapshot,
)
from tools_app.audit.verification.report import DeadlineExceeded, Finding, Problem, Report
from tools_app.audit.verification.witness import Exports, compare
from tools_app.models import Call, ChainStart, Checkpoint, Process


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
    keys: frozenset[str] = field(default_factory=signing.known_keys)

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
        others = self._writers_with_statements()
        for writer, entries in groupby(batches(self._entries()), key=lambda found: found[0].writer):
            others.discard(writer)
            self._verify_writer(writer, entries)
        for writer in others:
            self._verify_writer(writer, ())
        if self._newest is None:
            self._statements.check_cited()
        self._verify_changes()

    def _verify_changes(self) -> None:
        claims = dict(self._statements.changes)
        if self._newest is not None:
            claims |= newest_claims(self._scope.keys)
        verify_changes(self._report, claims)

    def _entries(self) -> Iterable[ChainEntry]:
        return chain_entries(self._scope.calls()) if self._newest is None else self._newest.entries()

    def _writers_with_statements(self) -> set[UUID]:
        """Return the writers that have statements. Their records may be gone."""
        if self._newest is not None:
            return set()
        checkpoints = Checkpoint.objects.order_by().values_list("writer", flat=True).distinct()
        starts = ChainStart.objects.order_by().values_list("writer", flat=True).distinct()
        return {*checkpoints, *starts, *self._exported}

    def _verify_writer(self, writer: UUID, entries: Iterable[tuple[ChainEntry, Batch]]) -> None:
        claims = self._statements.claims_of(writer)
        signed = self._signed(writer, claims)
        for tenant_id, entries_of_chain in groupby(entries, key=lambda found: found[0].tenant_id):
            self._verify_chain((writer, tenant_id), entries_of_chain, claims, signed.pop(tenant_id, []))
        if self._newest is None:
            for tenant_id, heads in signed.items():
                self._verify_chain((writer, tenant_id), (), claims, heads)

    def _signed(self, writer: UUID, claims: Claims) -> dict[UUID | None, list[Claim]]:
        """Return the signed heads of each chain of a writer, from the database and from the export."""
        found: dict[UUID | None, list[Claim]] = {}
        for heads in (claims.heads, self._exported.get(writer, {})):
            for tenant_id, claim in heads.items():
                if self._scope.has(tenant_id):
                    found.setdefault(tenant_id, []).append(claim)
        return found

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
        self._verify_entries(verifier, entries)
        if verifier.contradicted_claim is not None and not verifier.is_broken:
            self._locate_rewrite(verifier, chain, verifier.contradicted_claim)
        verifier.finish(self._now, has_ended=claims.has_ended, is_registered=chain[0] in self._registered)

    def _verify_entries(self, verifier: ChainVerifier, entries: Iterable[tuple[ChainEntry, Batch]]) -> None:
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

    def _locate_rewrite(self, verifier: ChainVerifier, chain: tuple[UUID, UUID | None], claim: Claim) -> None:
        """Find where a chain starts to differ from the signed one: after the last head that it agrees with."""
        heads = [head for head in self._statements.heads_of(*chain) if head.position < claim.position]
        matching = bisect(heads, False, key=lambda head: _hash_at(chain, head.position) not in {None, head.hash})
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


def _hash_at(chain: tuple[UUID, UUID | None], position: int) -> bytes | None:
    found = _calls_at(chain, position).values_list("chain_hash", flat=True).first()
    return bytes(found) if found is not None else None
