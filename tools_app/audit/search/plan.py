"""Search plans: which indexes a query uses, and which conditions are checked on each call.

Conditions that an index serves select the calls, in one *arm* or in several that are merged. All others are checked on
these calls. So a statement scans as many calls as it is told to and no more, however rare the matches are.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any, Final
from uuid import UUID

from django.db import connection
from django.db.models import Q

from tools_app.audit.search.query import ANONYMOUS, CallQuery, expression, has_stars
from tools_app.audit.search.scope import Scope
from tools_app.core.ids import least_id
from tools_app.models import Outcome, methods_like

# More are not merged: a statement with many arms takes longer to plan than to run.
MAX_ARMS: Final = 30
# An id is created when its call starts, in the same process: the two times never differ by more.
IDS_DIFFER: Final = timedelta(minutes=10)
MILLISECOND_US: Final = 1000


@dataclass(frozen=True)
class Plan:
    """The calls to scan, and the conditions that are checked on each.

    Without arms nothing is found. `by_id`: in the order of ids, which is that of the starts, to the millisecond.
    """

    arms: tuple[Q, ...]
    condition: Q
    by_id: bool
    text: str


def plan_of(query: CallQuery, scope: Scope, now: datetime) -> Plan:
    """Return the plan of a query within a scope."""
    since, condition = query.starts(now), _condition(query)
    if scope.tenants is not None:
        lead, left = _leads(query)
        if len(scope.tenants) * len(lead) <= MAX_ARMS:
            span = _span(since, query.until) & (Q(pk__gte=least_id(since - IDS_DIFFER)) if since else Q())
            arms = tuple(Q(tenant_id=tenant) & way & span for tenant in scope.tenants for way in lead)
            return Plan(arms, condition & left, by_id=False, text=query.text)
        condition &= Q(tenant_id__in=scope.tenants)
    condition &= _led(query) & _span(since, query.until)
    return Plan((_ids(since, query.until),), condition, by_id=True, text=query.text)


def _leads(query: CallQuery) -> tuple[list[Q], Q]:
    """Return the conditions that an index serves, one index at a time, and those of them that are only checked."""
    exact = Q(tool_name=query.tool) if query.tool and not has_stars(query.tool) else Q()
    if query.outcome and Outcome.OK not in query.outcome:
        # The second condition is that of the partial index, which contains no others.
        ways = [Q(outcome=outcome) & ~Q(outcome=Outcome.OK) for outcome in query.outcome]
        return ways, exact
    return [exact], Q(outcome__in=query.outcome) if query.outcome else Q()


def _led(query: CallQuery) -> Q:
    lead, left = _leads(query)
    return reduce(or_, lead) & left


def _span(since: datetime | None, until: datetime | None) -> Q:
    return (Q(started_at__gte=since) if since else Q()) & (Q(started_at__lte=until) if until else Q())


def _ids(since: datetime | None, until: datetime | None) -> Q:
    first = Q(pk__gte=least_id(since - IDS_DIFFER)) if since else Q()
    return first & (Q(pk__lt=least_id(until + IDS_DIFFER)) if until else Q())


def _condition(query: CallQuery) -> Q:
    condition = _sizes(query)
    backtracks = connection.vendor == "sqlite"
    if has_stars(query.tool):
        condition &= Q(tool_name__regex=expression(query.tool, backtracks=backtracks))
    if query.key == ANONYMOUS:
        condition &= Q(api_key_id=None, tenant_id__isnull=False)
    elif query.key:
        condition &= Q(api_key_id=UUID(query.key))
    if has_stars(query.address):
        condition &= Q(remote_address__regex=expression(query.address, backtracks=backtracks))
    elif query.address:
        condition &= Q(remote_address=query.address)
    if query.request:
        # Stored as JSON: a string has quotes around it, which people omit.
        condition &= Q(request_id__in=[query.request, f'"{query.request}"'])
    if query.method:
        condition &= Q(method__in=methods_like(query.method))
    plain: dict[str, Any] = {
        "client_name__icontains": query.client,
        "session_id": query.session,
        "trace_id": query.trace,
    }
    return condition & Q(**{lookup: value for lookup, value in plain.items() if value})


def _sizes(query: CallQuery) -> Q:
    condition = Q()
    if query.duration_min is not None:
        condition &= Q(duration_us__gte=query.duration_min * MILLISECOND_US)
    if query.duration_max is not None:
        condition &= Q(duration_us__lte=query.duration_max * MILLISECOND_US)
    if query.size_min is not None:
        condition &= Q(size__gte=query.size_min)
    if query.size_max is not None:
        condition &= Q(size__lte=query.size_max)
    return condition
