"""Reading what a call said: the store is the truth, doorbells only say when to look."""

import base64
from typing import Any
from uuid import UUID

import msgspec
import orjson

from tools_app.auth import vault
from tools_app.models import Call, CallAnswer, CallEvent, RunningCall

MOST_EVENTS = 500
# Where a question has the whole of what the audit log shows in part.
SEALED = "sealed"


class Event(msgspec.Struct, frozen=True):
    """One event of a call; `sequence` counts from 1."""

    sequence: int
    kind: str
    data: dict[str, Any]


class News(msgspec.Struct, frozen=True):
    """What happened to a call since somebody looked.

    `outcome` is set once it ended, `known` while it exists at all, `put_aside` if it is a task that waits for its
    client.
    """

    events: list[Event]
    outcome: str | None
    known: bool
    answer: bytes | None
    put_aside: bool = False


def news(call_id: UUID, after: int) -> News:
    """Events of a call with a sequence above `after`, at most MOST_EVENTS, and how it ended, if it did.

    The end is read first: events are written before it, so an end that was seen means that no event is missing.
    """
    outcome = Call.objects.filter(pk=call_id).values_list("outcome", flat=True).first()
    events = _events(call_id, after)
    if len(events) == MOST_EVENTS:
        return News(events, None, True, None)
    if outcome is None:
        row = RunningCall.objects.filter(pk=call_id).defer("arguments", "sealed_arguments").first()
        known = bool(events) or row is not None or _ended(call_id)
        return News(events, None, known, None, put_aside=row is not None and row.is_put_aside)
    return News(events, outcome, True, _answer(call_id))


class Origin(msgspec.Struct, frozen=True):
    """What began a call: the JSON-RPC id of its request, as JSON, and the name of what was asked for."""

    request_id: str
    name: str


def origin(call_id: UUID, session_id: UUID) -> Origin | None:
    """Where a call of this session, running or ended, came from."""
    for rows in (
        RunningCall.objects,
        Call.objects,
    ):  # in this order: a call that is settled moves from one to the other
        row = rows.filter(pk=call_id, session_id=session_id).values_list("request_id", "tool_name").first()
        if row is not None:
            return Origin(*row)
    return None


def answer_purpose(call_id: UUID) -> str:
    """What a call's answer is sealed for."""
    return f"answer:{call_id}"


def event_purpose(call_id: UUID, sequence: int) -> str:
    """What an event is sealed for."""
    return f"event:{call_id}:{sequence}"


def _events(call_id: UUID, after: int) -> list[Event]:
    rows = CallEvent.objects.filter(call_id=call_id, sequence__gt=after).order_by("sequence")
    return [Event(row.sequence, row.kind, _data(row)) for row in rows[:MOST_EVENTS]]


def _data(row: CallEvent) -> dict[str, Any]:
    """What was said, whole, even where the audit log shows less of it."""
    data: dict[str, Any] = orjson.loads(row.data)
    if row.kind != "request" or SEALED not in data:
        return data
    sealed = base64.b64decode(data[SEALED])
    whole: dict[str, Any] = orjson.loads(vault.unseal(sealed, event_purpose(row.call_id, row.sequence)))
    return whole


def _ended(call_id: UUID) -> bool:
    """Whether the call was settled since its end was looked for."""
    return Call.objects.filter(pk=call_id).exists()


def _answer(call_id: UUID) -> bytes | None:
    row = CallAnswer.objects.filter(pk=call_id).first()
    return vault.unseal(bytes(row.sealed), answer_purpose(call_id)) if row else None
