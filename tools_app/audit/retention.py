"""Retention of calls, and the pruning of older ones: in small batches, or by whole months.

Payloads and events are deleted with their calls. The new start of each chain is noted in the same transaction, so the
audit log still verifies. An interrupted pruning is continued by the next one. A preview deletes nothing: it counts
calls as far as that is fast; beyond, PostgreSQL estimates their number.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event
from time import monotonic, sleep
from typing import Final, NamedTuple
from uuid import UUID

import orjson
from django.conf import settings
from django.db import OperationalError, connection
from django.db.models import QuerySet
from django.utils import timezone

from tools_app.audit import partitions
from tools_app.audit.checkpoints import pruned
from tools_app.audit.partitions import Month, Span
from tools_app.audit.recorder import entries
from tools_app.audit.search.scan import guarded
from tools_app.audit.stats import storage
from tools_app.core.ids import least_id
from tools_app.core.process.threads import Job
from tools_app.core.relations import distinct_values
from tools_app.models import Call, CallEvent, CallPayload, Process, RunningCall, Session, Tenant

log = logging.getLogger(__name__)

BATCH: Final = 500
MAX_ROWS: Final = 10_000
PAUSE_SECONDS: Final = 0.2
MAX_PAUSE_SECONDS: Final = 60.0
# Longer retention is forever.
MAX_DAYS: Final = 100 * 365
# An id is created when its call starts; clocks of processes may differ by less than this.
CLOCKS_DIFFER: Final = timedelta(days=1)
TRIES, TRY_AGAIN_SECONDS = 3, 1.0
DAY_SECONDS: Final = 24 * 3600.0
MAX_COUNTED: Final = 100_000
COUNT_SECONDS: Final = 1.0

Owner = UUID | None


class PruneStep(NamedTuple):
    """What one transaction pruned: `rows` of `what`, of a tenant or a month. `until`: how far it got."""

    of: str
    what: str
    rows: int
    until: datetime


class DueCalls(NamedTuple):
    """How many calls of a tenant are past its retention."""

    of: str
    calls: int
    before: datetime


class RetentionPolicy:
    """The start of the retention period of each tenant, by the current settings."""

    def __init__(self) -> None:
        self._now = timezone.now()
        rows = Tenant.objects.values_list("pk", "slug", "keep_days")
        self._days = {pk: days for pk, _, days in rows if days is not None}
        self._names = {pk: slug for pk, slug, _ in rows}

    def since(self, owner: Owner) -> datetime | None:
        """Return the moment before which an owner's calls are pruned; None for never.

        Denials without a tenant, and calls of deleted tenants, follow the hub's setting.
        """
        days = settings.MCPHUB_KEEP_DAYS if owner is None else self._days.get(owner, settings.MCPHUB_KEEP_DAYS)
        return self._now - timedelta(days=days) if 0 < days <= MAX_DAYS else None

    def newest(self) -> datetime | None:
        """Return the latest of these moments."""
        since = [self.since(owner) for owner in (None, *self._days)]
        return max(filter(None, since), default=None)

    def name(self, owner: Owner) -> str:
        """Return the name of an owner of calls in progress messages."""
        return "no tenant" if owner is None else self._names.get(owner, str(owner))

    def past(self, month: Month, owners: Iterable[Owner]) -> bool:
        """Return whether a month is past the retention of all `owners`."""
        since = [self.since(owner) for owner in owners]
        return month.end < self._now - CLOCKS_DIFFER and all(moment and moment >= month.end for moment in since)


def prune(tenant: Tenant | None = None, *, batch: int = BATCH) -> Iterator[PruneStep]:
    """Prune what is past its retention, of one tenant or of all; yield a step for each transaction.

    The caller pauses between the steps.
    """
    keeping = RetentionPolicy()
    if tenant is None:
        tried: set[Month] = set()
        yield from _months(keeping, tried)
        for owner in list(_owners(Call.objects.all())):
            yield from _calls(keeping, owner, batch)
        # Months that were kept only for the calls pruned above.
        yield from _months(keeping, tried)
    else:
        yield from _calls(keeping, tenant.pk, batch)
    for pk in [tenant.pk] if tenant else list(Tenant.objects.values_list("pk", flat=True)):
        yield from _sessions(keeping, pk, batch)
    if newest := keeping.newest():
        pruned.drop_checkpoints(newest)
    if tenant is None:
        for rows, until in storage.prune(batch):
            yield PruneStep("all tenants", "figures", rows, until)


def due(tenant: Tenant | None = None) -> list[DueCalls]:
    """Return what `prune` would find now."""
    keeping = RetentionPolicy()
    found = []
    for owner in _owners(Call.objects.all()) if tenant is None else [tenant.pk]:
        since = keeping.since(owner)
        if since is not None and (calls := calls_before(owner, since).count()):
            found.append(DueCalls(keeping.name(owner), calls, since))
    return found


def _owners(calls: "QuerySet[Call]") -> Iterator[Owner]:
    """Yield the tenants that have some of `calls`, deleted ones included, and None for calls without one."""
    if calls.filter(tenant_id__isnull=True).exists():
        yield None
    yield from distinct_values(calls, "tenant_id")


def calls_before(owner: Owner, before: datetime) -> "QuerySet[Call]":
    """Return the calls of a tenant, or of none, that started before a moment."""
    # The bound on the id lets PostgreSQL skip partitions.
    calls = Call.objects.filter(tenant_id__isnull=True) if owner is None else Call.objects.filter(tenant_id=owner)
    return calls.filter(started_at__lt=before, pk__lt=least_id(before + CLOCKS_DIFFER))


def _calls(keeping: RetentionPolicy, owner: Owner, batch: int) -> Iterator[PruneStep]:
    before = keeping.since(owner)
    if before is None:
        return
    rows = calls_before(owner, before)
    while step := _batch(rows, keeping.name(owner), before, batch):
        yield step
        # Deleted rows stay in the index for a while: the next batch does not read them again.
        rows = calls_before(owner, before).filter(started_at__gte=step.until)


def _batch(rows: "QuerySet[Call]", name: str, before: datetime, batch: int) -> PruneStep | None:
    with partitions.partition_lock():
        found = list(rows.order_by("started_at").values_list("pk", "started_at")[:batch])
        if not found:
            return None
        ids = [pk for pk, _ in found]
        doomed = Call.objects.filter(pk__in=ids)
        pruned.note(pruned.links_of(doomed), why=f"older than {before:%Y-%m-%dT%H:%M:%SZ}")
        CallEvent.objects.filter(call_id__in=ids).delete()
        CallPayload.objects.filter(call_id__in=ids).delete()
        doomed.delete()
    return PruneStep(name, "calls", len(ids), found[-1][1])


def _sessions(keeping: RetentionPolicy, tenant_id: UUID, batch: int) -> Iterator[PruneStep]:
    """Delete sessions that ended before the retention period: they have no calls left."""
    before = keeping.since(tenant_id)
    while before is not None:
        ended = Session.objects.filter(tenant_id=tenant_id, ended_at__lt=before, created_at__lt=before)
        found = list(ended.order_by("created_at").values_list("pk", "created_at")[:batch])
        if not found:
            return
        Session.objects.filter(pk__in=[pk for pk, _ in found]).delete()
        yield PruneStep(keeping.name(tenant_id), "sessions", len(found), found[-1][1])


def _months(keeping: RetentionPolicy, tried: set[Month]) -> Iterator[PruneStep]:
    for month, span in partitions.months().items():
        if month not in tried and keeping.past(month, _owners(_calls_in(span))):
            tried.add(month)
            count = _dropped(keeping, month)
            if count is not None:
                yield PruneStep(str(month), "calls with their month", count, month.end)


def _calls_in(span: Span) -> "QuerySet[Call]":
    return Call.objects.filter(pk__gte=span.first, pk__lt=span.end)


def _dropped(keeping: RetentionPolicy, month: Month) -> int | None:
    """Drop a month past all retention and return its number of calls; None if it must stay or be pruned in batches."""
    gone: list[int] = []

    def may_go(span: Span) -> bool:
        calls = _calls_in(span)
        if RunningCall.objects.filter(pk__lt=span.end).exists() or not keeping.past(month, _owners(calls)):
            return False
        gone.append(calls.count())
        pruned.note(pruned.links_of(calls), why=f"older than {month.end:%Y-%m-%dT%H:%M:%SZ}")
        return True

    for left in reversed(range(TRIES)):
        try:
            return gone[-1] if partitions.drop(month, may_go) else None
        except OperationalError as problem:
            if not left:
                log.warning("The partitions of %s could not be dropped yet: %s", month, problem)
        sleep(TRY_AGAIN_SECONDS)
    return None


class Daily:
    """Creates future partitions and prunes, once a day from the start of its process, without Celery beat.

    Beside housekeeping, which shows that its process is alive: pruning may take long.
    """

    def __init__(self) -> None:
        self._due = 0.0
        self.job = Job("pruning", _prune)

    def prune_if_due(self) -> None:
        """Start if a day has passed and this process is the one that prunes: the oldest that is alive."""
        if monotonic() < self._due:
            return
        if Process.objects.order_by("pk").values_list("pk", flat=True).first() != entries.process_id():
            return
        self._due = monotonic() + DAY_SECONDS
        self.job.start()


def _prune(stopping: Event) -> None:
    """Prune batch by batch: what is left when the process stops is pruned by the next run."""
    partitions.create_upcoming()
    for _ in prune():
        if stopping.wait(PAUSE_SECONDS):
            break


@dataclass(frozen=True)
class RetentionPreview:
    """What would be deleted: all calls from before a moment; None: nothing.

    `calls` is exact unless there `are_more` or counting took too long (None); `estimated` is then the database's
    estimate. `oldest` is when the oldest stored call started.
    """

    days: int
    before: datetime | None
    calls: int | None
    are_more: bool
    estimated: int | None
    oldest: datetime | None


def days_kept(tenant: Tenant) -> int:
    """Return how many days this tenant's calls are kept; 0 is forever."""
    return settings.MCPHUB_KEEP_DAYS if tenant.keep_days is None else tenant.keep_days


def preview(tenant: Tenant, days: int) -> RetentionPreview:
    """Return what would be deleted if this tenant's calls were kept for `days`; 0 is forever."""
    starts = Call.objects.filter(tenant_id=tenant.pk).order_by("started_at").values_list("started_at", flat=True)
    oldest = starts.first()
    if not 0 < days <= MAX_DAYS:
        return RetentionPreview(days, None, 0, are_more=False, estimated=None, oldest=oldest)
    before = timezone.now() - timedelta(days=days)
    rows = calls_before(tenant.pk, before).order_by()
    counted = None
    with suppress(OperationalError), guarded(COUNT_SECONDS):
        counted = rows[: MAX_COUNTED + 1].count()
    exactly = counted is not None and counted <= MAX_COUNTED
    estimated = None
    if not exactly and connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            sql, params = rows.values("pk").query.sql_with_params()
            cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", params)
            planned = cursor.fetchone()[0]
        estimated = (orjson.loads(planned) if isinstance(planned, str) else planned)[0]["Plan"]["Plan Rows"]
    return RetentionPreview(
        days,
        before,
        counted if exactly else MAX_COUNTED if counted else None,
        are_more=not exactly,
        estimated=estimated,
        oldest=oldest,
    )
