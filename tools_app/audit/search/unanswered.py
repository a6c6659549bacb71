"""Searches for tools that led to no call: what clients looked for and did not find, or did not use."""

import logging
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

import orjson
from django.db import OperationalError, connection
from django.db.models import BinaryField, DateTimeField, Exists, ExpressionWrapper, OuterRef, Q
from django.db.models.functions import Left, Substr
from django.utils import timezone

from tools_app.audit.search.scan import guarded
from tools_app.core import packing
from tools_app.models import Call, CallPayload, Outcome

log = logging.getLogger(__name__)

# A call of a tool by the same caller within this time counts as the use of what the search found.
USED_WITHIN: Final = timedelta(minutes=10)
PERIOD: Final = timedelta(days=7)
# The newest searches of the period that are examined, in all tenants together.
MAX_SEARCHES: Final = 200
# Enforced by the database, for each statement.
STATEMENT_SECONDS: Final = 2.0
# Far more than the arguments of a search take: a query has at most 500 characters.
MAX_ARGUMENTS: Final = 8_000
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
    """The queries, the latest first. `is_partial`: there were more searches than are examined.

    `is_late`: the database took too long, so there are none.
    """

    searches: list[UnansweredSearch]
    is_partial: bool
    is_late: bool = False


def unanswered_searches(tenant_ids: Collection[UUID]) -> Report:
    """Return the searches of the last PERIOD in these tenants that led to no call, by tenant and query.

    Queries are those of the audit log: redacted like the arguments of any call.
    """
    try:
        with guarded(STATEMENT_SECONDS):
            return _report(tenant_ids)
    except OperationalError as problem:
        log.warning("The report of searches without a call was broken off: %s", problem)
        return Report([], is_partial=False, is_late=True)


def _report(tenant_ids: Collection[UUID]) -> Report:
    newest = _newest(tenant_ids)
    started = OuterRef("started_at")
    until = ExpressionWrapper(started + USED_WITHIN, output_field=DateTimeField())
    caller = Q(api_key=OuterRef("api_key")) | Q(api_key=None, remote_address=OuterRef("remote_address"))
    uses = Call.objects.filter(caller, tenant=OuterRef("tenant"), tool__isnull=False)
    was_used = Exists(uses.filter(started_at__gte=started, started_at__lte=until))
    examined = Call.objects.filter(pk__in=newest[:MAX_SEARCHES], tenant__isnull=False)
    rows = list(examined.filter(~was_used).order_by("-started_at").values_list("pk", "tenant_id", "started_at"))
    packed = Substr("packed", 1, MAX_ARGUMENTS, output_field=BinaryField())
    payloads = CallPayload.objects.filter(pk__in=[pk for pk, _, _ in rows])
    queries = {
        pk: _query_of(text if head is None else packing.unpack_beginnings(bytes(head), MAX_ARGUMENTS)[0])
        for pk, text, head in payloads.values_list("pk", Left("arguments", MAX_ARGUMENTS), packed)
    }
    found: dict[tuple[UUID, str], UnansweredSearch] = {}
    for pk, tenant_id, started_at in rows:
        query = queries.get(pk, HIDDEN)
        key = (tenant_id, query.casefold())
        known = found.get(key, UnansweredSearch(tenant_id, query, 0, started_at, pk))
        found[key] = known._replace(times=known.times + 1)
    return Report(list(found.values()), len(newest) > MAX_SEARCHES)


def _newest(tenant_ids: Collection[UUID]) -> list[UUID]:
    """Return the newest searches by the hub's own tool, one more than are examined. Its calls have no tool."""
    now = timezone.now()
    searched = Call.objects.filter(
        tool_name=TOOL,
        tool__isnull=True,
        method="tools/call",
        outcome=Outcome.OK,
        started_at__gte=now - PERIOD,
        started_at__lte=now,
    )
    ordered, most = searched.order_by("-started_at").values_list("pk", "started_at"), MAX_SEARCHES + 1
    if len(tenant_ids) <= 1 or not connection.features.supports_slicing_ordering_in_compound:
        return [id for id, _ in ordered.filter(tenant__in=tenant_ids)[:most]]
    # Along the index of each tenant: together, the database would sort all searches of the period.
    first, *others = [ordered.filter(tenant=tenant_id)[:most] for tenant_id in tenant_ids]
    return [id for id, _ in first.union(*others, all=True).order_by("-started_at")[:most]]


def _query_of(arguments: str) -> str:
    """Return the recorded query of a call; HIDDEN where its record has none that can be read."""
    try:
        values = orjson.loads(arguments)
    except ValueError:
        return HIDDEN
    query = values.get("query") if isinstance(values, dict) else None
    return query if isinstance(query, str) else HIDDEN
