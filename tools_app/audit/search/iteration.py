"""All calls that a query finds, newest first, for exports: in chunks, with memory for one chunk."""

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Final

from django.db import OperationalError
from django.db.models import prefetch_related_objects
from django.utils import timezone

from tools_app.audit.search.pages import calls_at
from tools_app.audit.search.plan import plan_of
from tools_app.audit.search.query import CallQuery
from tools_app.audit.search.scan import BatchSizer, PagePosition, count, guarded, scan
from tools_app.audit.search.scope import Scope, scope_of
from tools_app.models import Call
from tools_app.tenants import permissions

CHUNK: Final = 500
# The target duration of a statement, and the maximum number of calls that it scans.
SCAN_SECONDS: Final = 0.25
MAX_SCANNED: Final = 50_000
# The maximum number of calls that are counted in advance.
MAX_COUNTED: Final = 300_000
COUNT_SECONDS: Final = 2.0


def iterate_calls(query: CallQuery, person: permissions.Person, chunk: int = CHUNK) -> Iterator[list[Call]]:
    """Yield the calls that `person` may see, `chunk` at a time. A chunk may be empty: nothing was found for a while.

    Permissions are checked again for each statement. Raises TextRefused as a page of the search does.
    """
    return iterate_calls_in_scope(query, lambda: scope_of(query, person), chunk)


def iterate_calls_in_scope(query: CallQuery, scope: Callable[[], Scope], chunk: int = CHUNK) -> Iterator[list[Call]]:
    """Like `iterate_calls`, within a scope that is fetched again for each statement."""
    now = timezone.now()
    last: PagePosition | None = None
    plan = plan_of(query, scope(), now)
    pace = BatchSizer(plan, MAX_SCANNED)
    most = min(pace.first, chunk)
    while True:
        began = monotonic()
        seen = scan(plan, last, most)
        took = monotonic() - began
        for first in range(0, max(len(seen.found), 1), chunk):
            yield _named(calls_at(seen.found[first : first + chunk]))
        if seen.searched < most:
            return
        last, most = seen.last, min(pace.next(seen, took, SCAN_SECONDS), MAX_SCANNED)
        plan = plan_of(query, scope(), now)


def _named(calls: list[Call]) -> list[Call]:
    """Load the tenants and keys of calls: there are few of these, and each is read once per chunk."""
    prefetch_related_objects(calls, "tenant", "api_key", "person")
    return calls


def expected(query: CallQuery, scope: Scope) -> int | None:
    """Return how many calls `iterate_calls` will find; None for a text search, or if counting takes too long."""
    plan = plan_of(query, scope, timezone.now())
    if plan.text:
        return None
    try:
        with guarded(COUNT_SECONDS):
            found = count(plan, MAX_COUNTED)
            return found.found if found.is_complete else None
    except OperationalError:
        return None
