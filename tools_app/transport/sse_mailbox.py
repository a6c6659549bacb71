"""The mailbox for messages POSTed to one process for a stream in another (2024-11-05, transports, §HTTP with SSE).

Messages are stored before they are acknowledged, so that none is lost, and encrypted, because they may contain
sensitive data.
"""

from collections.abc import Sequence
from uuid import UUID

from django.db.models import Sum
from django.db.models.functions import Length

from tools_app.core import encryption
from tools_app.models import SessionMessage

MAX_AT_ONCE = 100
# The maximum number of sessions in one query.
MAX_POLLED = 1000
# The maximum size of the messages that wait for one stream.
MAX_BYTES = 4 * 1024 * 1024


def topic(session_id: UUID) -> str:
    """Return the notification topic for messages that wait for a session's stream."""
    return f"inbox:{session_id}"


def put(session_id: UUID, message: bytes) -> bool:
    """Store a message for the process that holds the session's stream. Return False if MAX_BYTES wait already."""
    waiting = SessionMessage.objects.filter(session_id=session_id).aggregate(size=Sum(Length("sealed")))
    if (waiting["size"] or 0) > MAX_BYTES:
        return False
    SessionMessage.objects.create(session_id=session_id, sealed=encryption.seal(message, _purpose(session_id)))
    return True


def take(session_id: UUID) -> list[bytes]:
    """Remove and return the waiting messages in order, at most MAX_AT_ONCE."""
    rows = list(SessionMessage.objects.filter(session_id=session_id)[:MAX_AT_ONCE])
    SessionMessage.objects.filter(pk__in=[row.pk for row in rows]).delete()
    return [encryption.unseal(bytes(row.sealed), _purpose(session_id)) for row in rows]


def waiting(session_ids: Sequence[UUID]) -> set[UUID]:
    """Return those of the sessions for which messages wait."""
    found: set[UUID] = set()
    messages = SessionMessage.objects.order_by()
    # Messages are taken as soon as they are stored: usually there are none.
    if not messages.exists():
        return found
    for start in range(0, len(session_ids), MAX_POLLED):
        some = session_ids[start : start + MAX_POLLED]
        found.update(messages.filter(session_id__in=some).values_list("session_id", flat=True).distinct())
    return found


def forget(session_id: UUID) -> None:
    """Delete the messages for a stream that has ended."""
    SessionMessage.objects.filter(session_id=session_id).delete()


def _purpose(session_id: UUID) -> str:
    return f"inbox:{session_id}"
