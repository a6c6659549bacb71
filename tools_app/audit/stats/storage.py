"""Compaction of figures: rows of several processes and short periods become one row of a long period.

Any number of processes may merge at once. Each step is one transaction that adds what it deletes.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from time import monotonic
from typing import Final, NamedTuple

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from tools_app.audit.recorder import writers
from tools_app.audit.stats import counters
from tools_app.audit.stats.counters import KIND_COLUMNS, NIL, NUMBER_COLUMNS, Kind, Numbers, period_of
from tools_app.core.relations import distinct_values
from tools_app.models import CallFigures, Tenant

HOUR: Final = 3600
QUARTER: Final = 6 * HOUR
DAY: Final = 24 * HOUR
# Each length of a period, and up to which age there are rows of it. Periods shown by the hour, or by the quarter of a
# day, are compared with the preceding period, so their rows are kept that long.
LENGTHS: Final = {
    counters.SECONDS: timedelta(hours=6),
    HOUR: timedelta(hours=54),
    QUARTER: timedelta(days=62),
    DAY: timedelta(days=400),
}
MERGE_SECONDS: Final = 60.0
# The time limit of a housekeeping run, which has other work to do.
MERGE_BUDGET_SECONDS: Final = 0.5
BATCH: Final = 500


class MergedRows(NamedTuple):
    """Figures that one transaction pruned, up to a moment."""

    rows: int
    until: datetime


def merge(turn_seconds: float = MERGE_BUDGET_SECONDS) -> int:
    """Merge old rows for about `turn_seconds` and return how many were merged. The next run continues."""
    deadline, merged = monotonic() + turn_seconds, 0
    for seconds, longer in pairwise(LENGTHS):
        while count := _merged(seconds, longer):
            merged += count
            if monotonic() > deadline:
                return merged
    return merged


def seconds_at(moment: datetime, now: datetime) -> int:
    """Return the length of the periods in which figures of a moment are stored by now."""
    for seconds, longer in pairwise(LENGTHS):
        if moment >= _merged_before(seconds, longer, now):
            return seconds
    return DAY


def _merged_before(seconds: int, longer: int, now: datetime) -> datetime:
    """Return the moment before which rows are merged, on the boundary of a longer period."""
    return period_of(now - LENGTHS[seconds], longer)


def _merged(seconds: int, longer: int) -> int:
    old = CallFigures.objects.filter(seconds=seconds, begins_at__lt=_merged_before(seconds, longer, timezone.now()))
    with transaction.atomic():
        # Rows locked by the recorder of a late call, or by another process that merges, are left for the next run.
        rows = old.select_for_update(skip_locked=True).order_by("begins_at")
        found = list(rows.values_list("pk", *KIND_COLUMNS, *NUMBER_COLUMNS)[:BATCH])
        if found:
            total: dict[Kind, Numbers] = {}
            for _, tenant_id, begins_at, _, _, tool_name, api_key_id, client_name, *numbers in found:
                kind = (tenant_id, period_of(begins_at, longer), tool_name, api_key_id, client_name)
                counters.add_to(total, kind, numbers)
            add(total, longer)
            CallFigures.objects.filter(pk__in=[row[0] for row in found]).delete()
    return len(found)


def add(numbers: dict[Kind, Numbers], seconds: int) -> None:
    """Add figures that belong to no single process. Call it inside a transaction."""
    if numbers:
        # Other processes may add to the same rows: a fixed lock order avoids deadlocks.
        rows = [(*kind[:2], seconds, NIL, *kind[2:], *numbers[kind]) for kind in sorted(numbers)]
        statements = writers.statements()
        statements.insert(writers.FIGURES, rows)
        statements.flush()


def within(begin: datetime, end: datetime) -> "QuerySet[CallFigures]":
    """Return the figures of periods that start from `begin` on and before `end`, by their index."""
    return CallFigures.objects.filter(seconds__in=list(LENGTHS), begins_at__gte=begin, begins_at__lt=end)


def prune(batch: int) -> Iterator[MergedRows]:
    """Delete figures that are too old or of deleted tenants; yield a step for each transaction."""
    too_old = timezone.now() - LENGTHS[DAY]
    yield from _deleted(CallFigures.objects.filter(seconds__in=list(LENGTHS), begins_at__lt=too_old), batch)
    for tenant_id in distinct_values(CallFigures.objects.all(), "tenant_id"):
        # Checked one by one: tenants may be created between two steps.
        if tenant_id != NIL and not Tenant.objects.filter(pk=tenant_id).exists():
            yield from _deleted(CallFigures.objects.filter(tenant_id=tenant_id), batch)


def _deleted(rows: "QuerySet[CallFigures]", batch: int) -> Iterator[MergedRows]:
    while found := list(rows.order_by("begins_at").values_list("pk", "begins_at")[:batch]):
        count, _ = CallFigures.objects.filter(pk__in=[pk for pk, _ in found]).delete()
        yield MergedRows(count, found[-1][1])
