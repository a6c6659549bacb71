"""The newest records, for a look at the audit log that must be over soon: found by their ids, which grow with time.

Of a chain they are not always all: a call that took long began before its neighbours. Such records are looked for
among those that began somewhat earlier.
"""

from collections.abc import Iterator
from itertools import groupby, islice, pairwise
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone

from tools_app.audit.recent import calls_from
from tools_app.audit.verification.records import Place, places_of
from tools_app.models import Call

# A chain with more holes than this is broken, whatever is found.
MOST_HOLES = 2000


class Newest:
    """The newest `count` of `calls`, which are all or those of one tenant. `since`: when the first of them began."""

    def __init__(self, calls: QuerySet[Call], count: int, *, of_one_tenant: bool) -> None:
        # By the index at hand: one begins with the tenant, and ids grow with time.
        newest = calls.order_by("-started_at" if of_one_tenant else "-id").only("started_at")
        first = newest[count - 1 : count].first() or newest.last()
        self.since = first.started_at if first else timezone.now()
        if of_one_tenant or first is None:
            self.calls = calls.filter(started_at__gte=self.since)
        else:
            self.calls = calls.filter(id__gte=first.pk)

    def places(self) -> list[Place]:
        """Where they stand, and those that stand between them."""
        found = list(places_of(self.calls))
        wanted = set(islice(_holes(found), MOST_HOLES))
        return sorted([*found, *self._earlier(wanted)], key=_order) if wanted else found

    def _earlier(self, wanted: set[tuple[UUID, UUID | None, int]]) -> Iterator[Place]:
        earlier = calls_from(self.since).filter(
            writer__in={writer for writer, _, _ in wanted},
            chain_position__in={position for _, _, position in wanted},
        )
        for place in places_of(earlier):
            if place[:3] in wanted:
                wanted.discard(place[:3])
                yield place


def _holes(places: list[Place]) -> Iterator[tuple[UUID, UUID | None, int]]:
    """Positions that are missing between others of their chain."""
    for (writer, tenant_id), of_chain in groupby(places, key=lambda place: place[:2]):
        for one, next_one in pairwise(of_chain):
            for position in range(one.position + 1, next_one.position):
                yield writer, tenant_id, position


def _order(place: Place) -> tuple[UUID, str, int, UUID]:
    return place.writer, str(place.tenant_id), place.position, place.call_id
