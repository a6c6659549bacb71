"""How long calls are kept, and the pruning of those that are older: in small batches, or by whole months.

What is pruned is gone with its payload and its events. Where its chain begins now is noted in the same transaction,
so that the audit log still verifies. A pruning that is broken off is taken up by the next one.
"""

import logging
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from time import sleep
from typing import Final, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import OperationalError
from django.db.models import QuerySet
from django.utils import timezone

from tools_app.audit import figures_kept, partitions, pruned
from tools_app.audit.partitions import Month, Span
from tools_app.models import Call, CallEvent, CallPayload, RunningCall, Session, Tenant
from tools_app.models.ids import least_id

log = logging.getLogger(__name__)

BATCH: Final = 500
MOST_ROWS: Final = 10_000
PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 60.0
# Longer is for ever.
MOST_DAYS: Final = 100 * 365
# An id is made when its call starts; processes' clocks may differ by less than this.
CLOCKS_DIFFER: Final = timedelta(days=1)
TRIES, TRY_AGAIN_SECONDS = 3, 1.0

Owner = UUID | None


class Step(NamedTuple):
    """What one transaction pruned: `rows` of `what`, of a tenant or of a month. `until`: how far it came."""

    of: str
    what: str
    rows: int
    until: datetime


class Due(NamedTuple):
    """How many calls of a tenant are older than it keeps them."""

    of: str
    calls: int
    before: datetime


class Keeping:
    """From when on calls are kept, by tenant, as it is set at this moment."""

    def __init__(self) -> None:
        self._now = timezone.now()
        rows = Tenant.objects.values_list("pk", "slug", "keep_days")
        self._days = {pk: days for pk, _, days in rows if days is not None}
        self._names = {pk: slug for pk, slug, _ in rows}

    def since(self, owner: Owner) -> datetime | None:
        """The moment before which an owner's calls are pruned, None for never.

        Denials without a tenant, and what a deleted tenant left behind, are kept as the hub is set.
        """
        days = settings.MCPHUB_KEEP_DAYS if owner is None else self._days.get(owner, settings.MCPHUB_KEEP_DAYS)
        return self._now - timedelta(days=days) if 0 < days <= MOST_DAYS else None

    def newest(self) -> datetime | None:
        """The latest of these moments."""
        since = [self.since(owner) for owner in (None, *self._days)]
        return max(filter(None, since), default=None)

    def name(self, owner: Owner) -> str:
        """What an owner of calls is called on the way."""
        return "no tenant" if owner is None else self._names.get(owner, str(owner))

    def past(self, month: Month, owners: Iterable[Owner]) -> bool:
        """Whether none of `owners` keeps anything of a month any more."""
        since = [self.since(owner) for owner in owners]
        return month.end < self._now - CLOCKS_DIFFER and all(moment and moment >= month.end for moment in since)


def prune(tenant: Tenant | None = None, *, batch: int = BATCH) -> Iterator[Step]:
    """Prune what is older than it is kept, of one tenant or of all; a step for each transaction.

    Whoever iterates rests between the steps.
    """
    keeping = Keeping()
    if tenant is None:
        tried: set[Month] = set()
        yield from _months(keeping, tried)
        yield from _batches(keeping, list(_owners(Call.objects.all())), batch)
        # Those that only the pruned calls kept.
        yield from _months(keeping, tried)
    else:
        yield from _batches(keeping, [tenant.pk], batch)
    for pk in [tenant.pk] if tenant else list(Tenant.objects.values_list("pk", flat=True)):
        yield from _sessions(keeping, pk, batch)
    if newest := keeping.newest():
        pruned.drop_checkpoints(newest)
    if tenant is None:
        for rows, until in figures_kept.prune(batch):
            yield Step("all tenants", "figures", rows, until)


def due(tenant: Tenant | None = None) -> list[Due]:
    """What `prune` would find now."""
    keeping = Keeping()
    found = []
    for owner in _owners(Call.objects.all()) if tenant is None else [tenant.pk]:
        since = keeping.since(owner)
        if since is not None and (calls := older(owner, since).count()):
            found.append(Due(keeping.name(owner), calls, since))
    return found


def _owners(calls: "QuerySet[Call]") -> Iterator[Owner]:
    """The tenants that have some of `calls`, those that were deleted too: a look at the index for each, no scan."""
    if calls.filter(tenant_id__isnull=True).exists():
        yield None
    calls = calls.filter(tenant_id__isnull=False).order_by("tenant_id")
    owner = calls.values_list("tenant_id", flat=True).first()
    while owner is not None:
        yield owner
        owner = calls.filter(tenant_id__gt=owner).values_list("tenant_id", flat=True).first()


def older(owner: Owner, before: datetime) -> "QuerySet[Call]":
    """The calls of a tenant, or of none, that started before a moment."""
    # The bound of the id tells PostgreSQL which partitions it need not look at.
    calls = Call.objects.filter(tenant_id__isnull=True) if owner is None else Call.objects.filter(tenant_id=owner)
    return calls.filter(started_at__lt=before, pk__lt=least_id(before + CLOCKS_DIFFER))


def _batches(keeping: Keeping, owners: list[Owner], batch: int) -> Iterator[Step]:
    for owner in owners:
        if before := keeping.since(owner):
            yield from _calls(owner, keeping.name(owner), before, batch)


def _calls(owner: Owner, name: str, before: datetime, batch: int) -> Iterator[Step]:
    rows = older(owner, before)
    while step := _batch(rows, name, before, batch):
        yield step
        # What was deleted stays in the index for a while: the next batch does not go through it again.
        rows = older(owner, before).filter(started_at__gte=step.until)


def _batch(rows: "QuerySet[Call]", name: str, before: datetime, batch: int) -> Step | None:
    with partitions.alone():
        found = list(rows.order_by("started_at").values_list("pk", "started_at")[:batch])
        if not found:
            return None
        ids = [pk for pk, _ in found]
        doomed = Call.objects.filter(pk__in=ids)
        pruned.note(pruned.links_of(doomed), why=_why(before))
        CallEvent.objects.filter(call_id__in=ids).delete()
        CallPayload.objects.filter(call_id__in=ids).delete()
        doomed.delete()
    return Step(name, "calls", len(ids), found[-1][1])


def _why(before: datetime) -> str:
    return f"older than {before:%Y-%m-%dT%H:%M:%SZ}"


def _sessions(keeping: Keeping, tenant_id: UUID, batch: int) -> Iterator[Step]:
    """Sessions that ended before the calls begin that are kept: they have none left."""
    before = keeping.since(tenant_id)
    while before is not None:
        ended = Session.objects.filter(tenant_id=tenant_id, ended_at__lt=before, created_at__lt=before)
        found = list(ended.order_by("created_at").values_list("pk", "created_at")[:batch])
        if not found:
            return
        Session.objects.filter(pk__in=[pk for pk, _ in found]).delete()
        yield Step(keeping.name(tenant_id), "sessions", len(found), found[-1][1])


def _months(keeping: Keeping, tried: set[Month]) -> Iterator[Step]:
    for month, span in partitions.months().items():
        if month not in tried and keeping.past(month, _owners(_calls_in(span))):
            tried.add(month)
            count = _dropped(keeping, month)
            if count is not None:
                yield Step(str(month), "calls with their month", count, month.end)


def _calls_in(span: Span) -> "QuerySet[Call]":
    return Call.objects.filter(pk__gte=span.first, pk__lt=span.end)


def _dropped(keeping: Keeping, month: Month) -> int | None:
    """Drop a month that nobody keeps; how many calls it had. None if it has to stay, or is in use: batches get it."""
    gone: list[int] = []

    def may_go(span: Span) -> bool:
        calls = _calls_in(span)
        if RunningCall.objects.filter(pk__lt=span.end).exists() or not keeping.past(month, _owners(calls)):
            return False
        gone.append(calls.count())
        pruned.note(pruned.links_of(calls), why=_why(month.end))
        return True

    for left in reversed(range(TRIES)):
        try:
            return gone[-1] if partitions.drop(month, may_go) else None
        except OperationalError as problem:
            if not left:
                log.warning("The partitions of %s could not be dropped yet: %s", month, problem)
        sleep(TRY_AGAIN_SECONDS)
    return None
