"""Notices: events and ends of calls, encrypted, as notifications carry them to the process that follows the call.

A notice saves its receiver a read of the database. The database stays the truth: a notice is sent once its record is
durable, and a receiver that misses one reads.
"""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

import msgspec

from tools_app.calls.events import CallUpdate, Event, whole_event
from tools_app.core import encryption
from tools_app.models import Outcome

# Of an event or an answer; a larger one is read from the database.
MAX_NOTICE_BYTES: Final = 8 * 1024


class _End(msgspec.Struct, frozen=True, array_like=True, tag=True):
    event_count: int
    outcome: str
    answer: bytes


class _Event(msgspec.Struct, frozen=True, array_like=True, tag=True):
    sequence: int
    kind: str
    text: str


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_End | _Event).decode


def event_notice(call_id: UUID, sequence: int, kind: str, text: str) -> bytes:
    """Return the notice of an event, whose recorded data is `text`; empty if it is too large."""
    return _sealed(call_id, _Event(sequence, kind, text)) if len(text) <= MAX_NOTICE_BYTES else b""


def end_notice(call_id: UUID, event_count: int, outcome: Outcome, answer: bytes) -> bytes:
    """Return the notice of the end of a call after `event_count` events; empty if the answer is too large."""
    return _sealed(call_id, _End(event_count, outcome.value, answer)) if len(answer) <= MAX_NOTICE_BYTES else b""


def update_from(call_id: UUID, after: int, notices: Iterable[bytes]) -> CallUpdate | None:
    """Return what notices say of a call after event `after`; None if one is missing or cannot be decrypted."""
    events: list[Event] = []
    end: _End | None = None
    for notice in notices:
        try:
            opened = _decode(encryption.unseal(notice, _purpose(call_id)))
        except encryption.DecryptionError:
            return None
        if isinstance(opened, _End):
            end = opened
        elif opened.sequence > after:
            if opened.sequence != after + 1:
                return None
            after += 1
            events.append(whole_event(call_id, opened.sequence, opened.kind, opened.text))
    if end is None:
        return CallUpdate(events, None, True, None)
    return CallUpdate(events, end.outcome, True, end.answer) if end.event_count == after else None


def _sealed(call_id: UUID, notice: _End | _Event) -> bytes:
    return encryption.seal(_encode(notice), _purpose(call_id))


def _purpose(call_id: UUID) -> str:
    return f"notice:{call_id}"
