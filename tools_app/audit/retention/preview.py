"""A preview of what pruning would delete of one tenant's calls, with its current retention or another.

Nothing is deleted. Calls are counted as far as that is fast; beyond, PostgreSQL estimates their number.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import orjson
from django.conf import settings
from django.db import OperationalError, connection
from django.db.models import QuerySet
from django.utils import timezone

from tools_app.audit.retention.retention import MAX_DAYS, calls_before
from tools_app.audit.search.scan import guarded
from tools_app.models import Call, Tenant

MAX_COUNTED: Final = 100_000
COUNT_SECONDS: Final = 1.0


@dataclass(frozen=True)
class RetentionPreview:
    """What would be deleted: all calls from before a moment; None: nothing.

    `calls` is exact unless there `are_more` or counting took too long (None); `believed` is then the database's
    estimate. `oldest` is when the oldest stored call started.
    """

    days: int
    before: datetime | None
    calls: int | None
    are_more: bool
    believed: int | None
    oldest: datetime | None


def days_kept(tenant: Tenant) -> int:
    """Return how many days this tenant's calls are kept; 0 is forever."""
    return settings.MCPHUB_KEEP_DAYS if tenant.keep_days is None else tenant.keep_days


def preview(tenant: Tenant, days: int) -> RetentionPreview:
    """Return what would be deleted if this tenant's calls were kept for `days`; 0 is forever."""
    starts = Call.objects.filter(tenant_id=tenant.pk).order_by("started_at").values_list("started_at", flat=True)
    oldest = starts.first()
    if not 0 < days <= MAX_DAYS:
        return RetentionPreview(days, None, 0, are_more=False, believed=None, oldest=oldest)
    before = timezone.now() - timedelta(days=days)
    rows = calls_before(tenant.pk, before).order_by()
    counted = _counted(rows)
    exactly = counted is not None and counted <= MAX_COUNTED
    return RetentionPreview(
        days,
        before,
        counted if exactly else MAX_COUNTED if counted else None,
        are_more=not exactly,
        believed=None if exactly else _estimated(rows),
        oldest=oldest,
    )


def _counted(rows: "QuerySet[Call]") -> int | None:
    try:
        with guarded(COUNT_SECONDS):
            return rows[: MAX_COUNTED + 1].count()
    except OperationalError:
        return None


def _estimated(rows: "QuerySet[Call]") -> int | None:
    if connection.vendor != "postgresql":
        return None
    sql, params = rows.values("pk").query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", params)
        plan = cursor.fetchone()[0]
    believed: int = (orjson.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]["Plan Rows"]
    return believed
