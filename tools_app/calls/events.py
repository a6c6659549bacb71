"""Events, answers and origins of calls, as the database stores them."""

import base64
from collections.abc import Callable
from typing import Any
from uuid import UUID

import msgspec

from tools_app.core import encryption
from tools_app.models import Call, CallAnswer, RunningCall
from tools_app.protocol import exact_json

# The key of a question's unredacted form, encrypted.
SEALED_KEY = "sealed"


class Event(msgspec.Struct, frozen=True):
    """One event of a call; `sequence` counts from 1."""

    sequence: int
    kind: str
    data: dict[str, Any]


SendEvent = Callable[[Event], None]


class CallUpdate(msgspec.Struct, frozen=True):
    """What happened to a call since the last read.

    `outcome` is set once it ended, `known` while it exists, `is_awaiting_input` if it is a task that waits for its
    client, `is_partial` if there is more to read.
    """

    events: list[Event]
    outcome: str | None
    known: bool
    answer: bytes | None
    is_awaiting_input: bool = False
    is_partial: bool = False


def recorded_outcome(call_id: UUID) -> tuple[str | None, bytes | None]:
    """Return the outcome of a call and its answer, each None if missing."""
    outcome = Call.objects.filter(pk=call_id).values_list("outcome", flat=True).first()
    return outcome, _answer(call_id)


class Origin(msgspec.Struct, frozen=True):
    """The request of a call: its JSON-RPC id, as JSON, and the requested name."""

    request_id: str
    name: str


def origin_of(call_id: UUID, session_id: UUID) -> Origin | None:
    """Return the request of a call of this session, running or ended."""
    for rows in (
        RunningCall.objects,
        Call.objects,
    ):  # in this order: settling a call moves it from the first to the second
        row = rows.filter(pk=call_id, session_id=session_id).values_list("request_id", "tool_name").first()
        if row is not None:
            return Origin(*row)
    return None


def answer_purpose(call_id: UUID) -> str:
    """Return the encryption purpose of a call's answer."""
    return f"answer:{call_id}"


def event_purpose(call_id: UUID, sequence: int) -> str:
    """Return the encryption purpose of an event."""
    return f"event:{call_id}:{sequence}"


def whole_event(call_id: UUID, sequence: int, kind: str, text: str) -> Event:
    """Return an event from its recorded data, with its unredacted form, even if the audit log shows less."""
    data: dict[str, Any] = exact_json.loads(text)
    if kind == "request" and SEALED_KEY in data:
        data = exact_json.loads(encryption.unseal(base64.b64decode(data[SEALED_KEY]), event_purpose(call_id, sequence)))
    return Event(sequence, kind, data)


def _answer(call_id: UUID) -> bytes | None:
    row = CallAnswer.objects.filter(pk=call_id).first()
    return encryption.unseal(bytes(row.sealed), answer_purpose(call_id)) if row else None
