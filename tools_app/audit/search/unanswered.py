"""Searches for tools that led to no call: what clients looked for and did not find, or did not use."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

import orjson
from django.db.models import DateTimeField, Exists, ExpressionWrapper, OuterRef, Q
from django.utils import timezone

from tools_app.core.packing import NotPacked
from tools_app.models import Call, CallPayload, Outcome

# A call of a tool by the same caller within this time counts as the use of what the search found.
USED_WITHIN: Final = timedelta(minutes=10)
PERIOD: Final = timedelta(days=7)
# The newest searches of the period that are examined, in all tenants together.
MAX_SEARCHES: Final = 200
HIDDEN: Final = "(hidden)"
TOOL: Final = "find_tools"


class UnansweredSearch(NamedTuple):
    """A query that led to no call: its text as recorded, how often it was searched, and the last call of it."""

    tenant_id: UUID
    query: str
    times: int
    last_at: datetime
    call_id: UUID


class Report(NamedTuple):
    """The queries, the latest first. `is_partial`: there were more searches than are examined."""

    searches: list[UnansweredSearch]
    is_partial: bool


def unanswered_searches(tenant_ids: Collection[UUID]) -> Report:
    """Return the searches of the last PERIOD in these tenants that led to no call, by tenant and query.

    Queries are those of the audit log: redacted like the arguments of any call.
    """
    now = timezone.now()
    searched = Call.objects.filter(
        tenant__in=tenant_ids,
        tool_name=TOOL,
        tool__isnull=True,
        method="tools/call",
        outcome=Outcome.OK,
        started_at__gte=now - PERIOD,
        started_at__lte=now,
    )
    rows = list(searched.filter(~_was_used()).order_by("-started_at")[: MAX_SEARCHES + 1])
    shown = rows[:MAX_SEARCHES]
    payloads = CallPayload.objects.in_bulk([row.pk for row in shown])
    found: dict[tuple[UUID, str], UnansweredSearch] = {}
    for row in shown:
        query, tenant_id = _query_of(payloads.get(row.pk)), row.tenant_id
        if tenant_id is None:
            continue
        key = (tenant_id, query.casefold())
        known = found.get(key)
        found[key] = (
            UnansweredSearch(tenant_id, query, 1, row.started_at, row.pk)
            if known is None
            else known._replace(times=known.times + 1)
        )
    return Report(list(found.values()), len(rows) > MAX_SEARCHES)


def _was_used() -> Exists:
    started = OuterRef("started_at")
    until = ExpressionWrapper(started + USED_WITHIN, output_field=DateTimeField())
    same = Q(api_key=OuterRef("api_key")) | Q(api_key=None, remote_address=OuterRef("remote_address"))
    calls = Call.objects.filter(same, tenant=OuterRef("tenant"), tool__isnull=False)
    return Exists(calls.filter(started_at__gte=started, started_at__lte=until))


def _query_of(payload: CallPayload | None) -> str:
    """Return the recorded query; HIDDEN if the record has none that can be read."""
    try:
        said = orjson.loads(payload.texts().arguments) if payload is not None else {}
    except (NotPacked, ValueError):
        return HIDDEN
    query = said.get("query") if isinstance(said, dict) else None
    return query if isinstance(query, str) else HIDDEN
