"""Calls whose clients were told that nothing ran, because the intent could not be recorded: yet it may have been.

A database that goes away in the middle of a commit does not say what became of it. A row that stands after all must
not be run: the sweeper settles it.
"""

from time import monotonic
from uuid import UUID

# After this it is known that the database has no such row, once it could be asked.
KEEP_SECONDS = 60.0

_noted: dict[UUID, float] = {}


def note(call_id: UUID) -> None:
    """A call was refused though it may stand as queued."""
    _noted[call_id] = monotonic()


def noted() -> frozenset[UUID]:
    """The calls that are in doubt."""
    return frozenset(_noted)


def forget(call_ids: frozenset[UUID]) -> None:
    """The database was asked about these calls: those that have been in doubt for long are so no more."""
    past = monotonic() - KEEP_SECONDS
    for call_id in call_ids:
        if _noted[call_id] < past:
            del _noted[call_id]
