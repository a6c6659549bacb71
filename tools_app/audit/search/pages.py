"""One page of what a query finds, newest first, in bounded time.

Cursors are opaque and say where a page ends. A page that takes too long to fill comes as far as it got, and says so.
"""

import logging
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final

from django.db import OperationalError
from django.utils import timezone

from tools_app.audit.search.looking import Look, guarded, look
from tools_app.audit.search.marks import Mark
from tools_app.audit.search.pace import Pace
from tools_app.audit.search.plan import Plan, plan_of
from tools_app.audit.search.query import CallQuery
from tools_app.audit.search.scope import Scope, scope_of
from tools_app.auth import access
from tools_app.models import Call

log = logging.getLogger(__name__)

PAGE_SIZE: Final = 50
BUDGET_SECONDS: Final = 0.6
# So many statements, so that a page asks the database a bounded number of questions.
MOST_LOOKS: Final = 3
# The share of what is left of the budget that a statement is meant to take.
SHARE: Final = 0.5
# A second guard: the database gives up by itself.
STATEMENT_SECONDS: Final = 2.0


@dataclass(frozen=True)
class Page:
    """What was found. `next` leads to older calls and `previous` to newer ones; None where there are none.

    `complete`: whether the page is full, or there was no more to look at. If not, `searched` calls were looked at, as
    far as `searched_back_to`, and the cursor goes on from there. `narrowed`: a text was looked for in calls of only
    those tenants whose arguments and results the person may read.
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
    """What was found so far, in the order in which it was looked at."""

    last: Mark | None
    marks: list[Mark] = field(default_factory=list)
    searched: int = 0
    exhausted: bool = False

    def add(self, seen: Look, most: int) -> None:
        """Add what a statement found that might have looked at `most` calls."""
        self.marks += seen.found
        self.searched += seen.searched
        self.last = seen.last or self.last
        self.exhausted = seen.searched < most


def page(
    query: CallQuery,
    person: access.Person,
    *,
    after: str | None = None,
    before: str | None = None,
    size: int = PAGE_SIZE,
) -> Page:
    """A page of the calls that `person` may see: the newest ones, those after a cursor, or those before one.

    Raises BadQuery for a cursor that is none, and TextRefused where a text is looked for in calls of which the person
    may see facts only.
    """
    return page_of(query, scope_of(query, person), after=after, before=before, size=size)


def page_of(
    query: CallQuery, scope: Scope, *, after: str | None = None, before: str | None = None, size: int = PAGE_SIZE
) -> Page:
    """The same within a scope that is known already."""
    start = Mark.read(after, "after") if after else Mark.read(before, "before") if before else None
    newer = bool(before and not after)
    found = _found(plan_of(query, scope, timezone.now()), start, size, newer=newer)
    shown, more = found.marks[:size], len(found.marks) > size
    onward = shown[-1] if more else None if found.exhausted else found.last
    # Whence one came: there are calls on that side, or there were.
    backward = (shown[0] if shown else start.beside(newer=newer)) if start else None
    return Page(
        calls=calls_at(shown[::-1] if newer else shown, "tenant", "api_key"),
        next=_cursor(backward if newer else onward),
        previous=_cursor(onward if newer else backward),
        searched=found.searched,
        searched_back_to=found.last.at if found.last else None,
        complete=more or found.exhausted,
        narrowed=scope.narrowed,
    )


def calls_at(marks: list[Mark], *named: str) -> list[Call]:
    """The calls at these places, in this order, joined with the rows `named`. One that is gone by now is left out."""
    if not marks:
        return []
    rows = Call.objects.filter(pk__in=[mark.id for mark in marks]).order_by()
    if named:
        rows = rows.select_related(*named)
    by_id = {call.pk: call for call in rows}
    return [by_id[mark.id] for mark in marks if mark.id in by_id]


def _found(plan: Plan, start: Mark | None, size: int, *, newer: bool) -> _Found:
    """Look for one call more than a page has, until the budget is used up."""
    found, pace, deadline = _Found(last=start), Pace(plan, size + 1), monotonic() + BUDGET_SECONDS
    try:
        with guarded(STATEMENT_SECONDS):
            most = pace.first
            for _ in range(MOST_LOOKS):
                began = monotonic()
                seen = look(plan, found.last, most, newer=newer)
                found.add(seen, most)
                left = deadline - monotonic()
                if found.exhausted or len(found.marks) > size or left <= 0:
                    break
                most = pace.next(seen, monotonic() - began, left * SHARE)
    except OperationalError as problem:
        # What was found before the database gave up is worth showing.
        log.warning("A search of the audit log was broken off: %s", problem)
    return found


def _cursor(mark: Mark | None) -> str | None:
    return mark.cursor if mark else None
