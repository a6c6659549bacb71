"""Messages that reach one process and belong to a stream in another (2024-11-05, transports, §HTTP with SSE).

They are stored before the client hears that they were taken, so that none is lost on the way, and sealed, for they
hold whatever clients say.
"""

from uuid import UUID

from tools_app.auth import vault
from tools_app.models import SessionMessage

MOST_AT_ONCE = 100


def topic(session_id: UUID) -> str:
    """What is rung when a message waits for a session's stream."""
    return f"inbox:{session_id}"


def put(session_id: UUID, message: bytes) -> None:
    """Keep a message for whoever holds the session's stream."""
    SessionMessage.objects.create(session_id=session_id, sealed=vault.seal(message, _purpose(session_id)))


def take(session_id: UUID) -> list[bytes]:
    """The messages that wait, in their order, at most MOST_AT_ONCE; they are the caller's now."""
    rows = list(SessionMessage.objects.filter(session_id=session_id)[:MOST_AT_ONCE])
    SessionMessage.objects.filter(pk__in=[row.pk for row in rows]).delete()
    return [vault.unseal(bytes(row.sealed), _purpose(session_id)) for row in rows]


def forget(session_id: UUID) -> None:
    """Drop what waits for a stream that is gone."""
    SessionMessage.objects.filter(session_id=session_id).delete()


def _purpose(session_id: UUID) -> str:
    return f"inbox:{session_id}"
