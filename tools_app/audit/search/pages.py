"""Pages of search results, newest first, in bounded time.

Cursors are opaque and mark where a page ends. A page that takes too long to fill is returned as far as it got, and says
so. Exports iterate over all calls that a query finds, newest first, in chunks, with memory for one chunk.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final

from django.db import OperationalError
from django.db.models import prefetch_related_objects
from django.utils import timezone

from tools_app.audit.search.query import CallQuery
from tools_app.audit.search.scan import BatchSizer, Count, PagePosition, Plan, ScanResult, count, guarded, plan_of, scan
from tools_app.audit.search.scope import Scope, scope_of
from tools_app.models import Call
from tools_app.tenants import permissions

log = logging.getLogger(__name__)

PAGE_SIZE: Final = 50
BUDGET_SECONDS: Final = 0.6
# The maximum number of statements for a page.
MAX_LOOKS: Final = 3
# The share of the remaining budget that a statement is meant to take.
SHARE: Final = 0.5
# A second limit, enforced by the database.
STATEMENT_SECONDS: Final = 2.0
CHUNK: Final = 500
# Of an iteration: the target duration of a statement, and the maximum number of calls that it scans.
SCAN_SECONDS: Final = 0.25
MAX_SCANNED: Final = 50_000
# The maximum number of calls that are counted in advance.
MAX_EXPECTED: Final = 300_000
EXPECT_SECONDS: Final = 2.0


@dataclass(frozen=True)
class Page:
    """A page of results. `next` leads to older calls and `previous` to newer ones; None if there are none.

    `complete`: whether the page is full, or there was no more to scan. If not, `searched` calls were scanned, back to
    `searched_back_to`, and the cursor continues from there. `narrowed`: a text was searched only in calls of tenants
    whose arguments and results the person may read.
    """

    calls: list[Call]
    next: str | None
    previous: str | None
    searched: int
    searched_back_to: datetime | None
    complete: bool
    narrowed: bool = False


@dataclass
class _Found:
    """The results so far, in the order of the scan."""

    last: PagePosition | None
    marks: list[PagePosition] = field(default_factory=list)
    searched: int = 0
    exhausted: bool = False

    def add(self, seen: ScanResult, most: int) -> None:
        """Add the result of a statement that was limited to `most` calls."""
        self.marks += seen.found
        self.searched += seen.searched
        self.last = seen.last or self.last
        self.exhausted = seen.searched < most


def page(
    query: CallQuery,
    person: permissions.Person,
    *,
    after: str | None = None,
    before: str | None = None,
    size: int = PAGE_SIZE,
) -> Page:
    """Return a page of the calls that `person` may see: the newest, those after a cursor, or those before one.

    Raises BadQuery for an invalid cursor, and TextRefused for a text search in calls of which the person may see only
    the facts.
    """
    return page_of(query, scope_of(query, person), after=after, before=before, size=size)


def page_of(
    query: CallQuery, scope: Scope, *, after: str | None = None, before: str | None = None, size: int = PAGE_SIZE
) -> Page:
    """Like `page`, within a known scope."""
    start = PagePosition.read(after, "after") if after else PagePosition.read(before, "before") if before else None
    newer = bool(before and not after)
    found = _found(plan_of(query, scope, timezone.now()), start, size, newer=newer)
    shown, more = found.marks[:size], len(found.marks) > size
    onward = shown[-1] if more else None if found.exhausted else found.last
    # The way back: there are calls on that side, or there were.
    backward = (shown[0] if shown else start.beside(newer=newer)) if start else None
    older, younger = (backward, onward) if newer else (onward, backward)
    return Page(
        calls=calls_at(shown[::-1] if newer else shown, "tenant", "api_key"),
        next=older.cursor if older else None,
        previous=younger.cursor if younger else None,
        searched=found.searched,
        searched_back_to=found.last.at if found.last else None,
        complete=more or found.exhausted,
        narrowed=scope.narrowed,
    )


def calls_at(marks: list[PagePosition], *named: str) -> list[Call]:
    """Return the calls at these positions, in this order, with the related rows `named`. Deleted calls are omitted."""
    if not marks:
        return []
    rows = Call.objects.filter(pk__in=[mark.id for mark in marks]).order_by()
    if named:
        rows = rows.select_related(*named)
    by_id = {call.pk: call for call in rows}
    return [by_id[mark.id] for mark in marks if mark.id in by_id]


def counted(query: CallQuery, scope: Scope, most: int) -> Count | None:
    """Return how many of the newest `most` calls match; None if that takes too long. Not for texts."""
    try:
        with guarded(BUDGET_SECONDS):
            return count(plan_of(query, scope, timezone.now()), most)
    except OperationalError:
        return None


def _found(plan: Plan, start: PagePosition | None, size: int, *, newer: bool) -> _Found:
    """Search for one call more than a page has, until the budget is used up."""
    found, pace, deadline = _Found(last=start), BatchSizer(plan, size + 1), monotonic() + BUDGET_SECONDS
    try:
        with guarded(STATEMENT_SECONDS):
            most = pace.first
            for _ in range(MAX_LOOKS):
                began = monotonic()
                seen = scan(plan, found.last, most, newer=newer)
                found.add(seen, most)
                left = deadline - monotonic()
                if found.exhausted or len(found.marks) > size or left <= 0:
                    break
                most = pace.next(seen, monotonic() - began, left * SHARE)
    except OperationalError as problem:
        # What was found before the database's timeout is still shown.
        log.warning("A search of the audit log was broken off: %s", problem)
    return found


def iterate_calls(query: CallQuery, scope: Callable[[], Scope], chunk: int = CHUNK) -> Iterator[list[Call]]:
    """Yield the calls that a query finds, `chunk` at a time. A chunk may be empty: nothing was found for a while.

    The scope is fetched again for each statement: permissions may have changed.
    """
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
            calls = calls_at(seen.found[first : first + chunk])
            # There are few of these, and each is read once per chunk.
            prefetch_related_objects(calls, "tenant", "api_key", "person")
            yield calls
        if seen.searched < most:
            return
        last, most = seen.last, min(pace.next(seen, took, SCAN_SECONDS), MAX_SCANNED)
        plan = plan_of(query, scope(), now)


def expected(query: CallQuery, scope: Scope) -> int | None:
    """Return how many calls `iterate_calls` will find; None for a text search, or if counting takes too long."""
    plan = plan_of(query, scope, timezone.now())
    if plan.text:
        return None
    try:
        with guarded(EXPECT_SECONDS):
            found = count(plan, MAX_EXPECTED)
            return found.found if found.is_complete else None
    except OperationalError:
        return None
