"""Calls whose state in the database is uncertain after a failed commit.

If the database becomes unavailable during a commit, its result is unknown. A call that did not start may have a
queued or running row: the sweeper settles it as not started. A call whose client was told that it may have run may
have a final record: the sweeper adds to it what the client was told.
"""

from time import monotonic
from uuid import UUID

# How long the database is queried for a call, from the first successful query: after that it has no such row.
KEEP_SECONDS = 60.0
MAX_KEPT = 10_000
UNKNOWN = -1.0


class UncertainCalls:
    """Calls by id, until the database has been queried for them for KEEP_SECONDS.

    In a long outage the first MAX_KEPT are kept: only its start can interrupt commits.
    """

    def __init__(self) -> None:
        self._asked_at: dict[UUID, float | None] = {}

    def note(self, call_id: UUID) -> None:
        """Add an uncertain call."""
        if len(self._asked_at) < MAX_KEPT:
            self._asked_at[call_id] = None

    def noted(self) -> frozenset[UUID]:
        """Return the uncertain calls."""
        return frozenset(self._asked_at)

    def queried(self, call_ids: frozenset[UUID]) -> None:
        """Note that the database was queried for these calls. Those queried for KEEP_SECONDS are removed."""
        now = monotonic()
        for call_id in call_ids & self._asked_at.keys():
            first = self._asked_at[call_id] or now
            self._asked_at[call_id] = first
            if now - first > KEEP_SECONDS:
                self.settled(call_id)

    def settled(self, call_id: UUID) -> bool:
        """Remove a call whose state is known. False if it was removed before."""
        return self._asked_at.pop(call_id, UNKNOWN) is not UNKNOWN


# Calls whose client was told that they did not start.
not_started = UncertainCalls()
# Calls whose client was told that they may have run, because their end could not be recorded in time.
may_have_run = UncertainCalls()
