"""When keys and sessions were last used, written now and then instead of at every call."""

from collections.abc import Callable
from uuid import UUID

from django.utils import timezone

from tools_app.models import ApiKey, Session

_keys: set[UUID] = set()
_sessions: set[UUID] = set()

key_used: Callable[[UUID], None] = _keys.add
session_used: Callable[[UUID], None] = _sessions.add


def write() -> None:
    """Note the present as the last use of every key and session that was used since the last time."""
    now = timezone.now()
    if keys := _drained(_keys):
        ApiKey.objects.filter(pk__in=keys).update(last_used_at=now)
    if sessions := _drained(_sessions):
        Session.objects.filter(pk__in=sessions).update(last_seen_at=now)


def _drained(used: set[UUID]) -> list[UUID]:
    taken = list(used.copy())
    used.difference_update(taken)
    return taken
