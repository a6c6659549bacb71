"""Everything that a query finds, newest first, for exports: in pieces, with memory for one piece."""

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Final

from django.db import OperationalError
from django.db.models import prefetch_related_objects
from django.utils import timezone

from tools_app.audit.search.looking import count, guarded, look
from tools_app.audit.search.marks import Mark
from tools_app.audit.search.pace import Pace
from tools_app.audit.search.pages import calls_at
from tools_app.audit.search.plan import plan_of
from tools_app.audit.search.query import CallQuery
from tools_app.audit.search.scope import Scope, scope_of
from tools_app.auth import access
from tools_app.models import Call

CHUNK: Final = 500
# What a statement is meant to take, and the most that it looks at.
LOOK_SECONDS: Final = 0.25
MOST_LOOKED_AT: Final = 50_000
# As far as calls are counted before they are walked through.
MOST_COUNTED: Final = 300_000
COUNT_SECONDS: Final = 2.0


def walk(query: CallQuery, person: access.Person, chunk: int = CHUNK) -> Iterator[list[Call]]:
    """The calls that `person` may see, `chunk` at a time. A piece may be empty: then nothing was found for a while.

    What the person may see is asked again for each statement. Raises TextRefused as a page of the search does.
    """
    return walk_within(query, lambda: scope_of(query, person), chunk)


def walk_within(query: CallQuery, scope: Callable[[], Scope], chunk: int = CHUNK) -> Iterator[list[Call]]:
    """The same within a scope, which is asked for again for each statement."""
    now = timezone.now()
    last: Mark | None = None
    plan = plan_of(query, scope(), now)
    pace = Pace(plan, MOST_LOOKED_AT)
    most = min(pace.first, chunk)
    while True:
        began = monotonic()
        seen = look(plan, last, most)
        took = monotonic() - began
        for first in range(0, max(len(seen.found), 1), chunk):
            yield _named(calls_at(seen.found[first : first + chunk]))
        if seen.searched < most:
            return
        last, most = seen.last, min(pace.next(seen, took, LOOK_SECONDS), MOST_LOOKED_AT)
        plan = plan_of(query, scope(), now)


def _named(calls: list[Call]) -> list[Call]:
    """Calls with their tenants and keys: there are few of these, and each is read once for all its calls."""
    prefetch_related_objects(calls, "tenant", "api_key")
    return calls


def expected(query: CallQuery, scope: Scope) -> int | None:
    """How many calls `walk` will find; None where to count them would be a search of its own, or take too long."""
    plan = plan_of(query, scope, timezone.now())
    if plan.text:
        return None
    try:
        with guarded(COUNT_SECONDS):
            return count(plan, MOST_COUNTED)
    except OperationalError:
        return None
