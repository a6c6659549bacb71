"""Last-used times of keys and sessions, written in batches instead of at every call."""

from collections.abc import Callable, Iterable
from uuid import UUID

from django.utils import timezone

from tools_app.models import ApiKey, Session

_keys: set[UUID] = set()
_sessions: set[UUID] = set()

key_used: Callable[[UUID], None] = _keys.add
session_used: Callable[[UUID], None] = _sessions.add
keys_used: Callable[[Iterable[UUID]], None] = _keys.update
sessions_used: Callable[[Iterable[UUID]], None] = _sessions.update


def write() -> None:
    """Set the last-used time of every key and session used since the previous write."""
    now = timezone.now()
    if keys := _drained(_keys):
        ApiKey.objects.filter(pk__in=keys).update(last_used_at=now)
    if sessions := _drained(_sessions):
        Session.objects.filter(pk__in=sessions).update(last_seen_at=now)


def _drained(used: set[UUID]) -> list[UUID]:
    taken = list(used.copy())
    used.difference_update(taken)
    return taken
