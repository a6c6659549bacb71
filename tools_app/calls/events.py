"""Events of calls: as the database stores them, as notifications carry them, and as messages to clients.

A notice is an event or the end of a call, encrypted, in a notification to the process that follows the call. It saves
its receiver a read of the database, which stays the truth: a notice is sent once its record is durable, and a receiver
that misses one reads.
"""

import base64
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any, Final
from uuid import UUID

import msgspec

from tools_app.calls.inputs import request_id
from tools_app.catalog.tool_api.context import PAGE_EVENT
from tools_app.catalog.tool_api.results import without
from tools_app.core import encryption
from tools_app.models import Call, CallAnswer, Outcome, RunningCall
from tools_app.protocol import exact_json
from tools_app.protocol.jsonrpc import notification_message, request_message
from tools_app.protocol.versions import has_annotations, has_page_ids, is_heard

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


# --- Notices ---

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


# --- Messages to clients ---

PAUSE = "pause"
# Key of the progress token in recorded progress: a name that ends in "token" would be redacted as a secret.
PROGRESS_KEY = "to"
MAX_LOGS_A_SECOND = 100


class NotificationEncoder(msgspec.Struct, frozen=True):
    """Encodes the events of a call for a client's revision; log messages are sent from `log_level` on, None for none.

    `meta` is added to every message.
    """

    call_id: UUID
    version: str
    log_level: str | None
    meta: dict[str, Any] = {}

    def event_id(self, sequence: int) -> str:
        """Return the event id from which a stream resumes after an event."""
        return f"{self.call_id}/{sequence}"

    def message_of(self, event: Event) -> bytes | None:
        """Return an event as a message; None if it is not sent to this client."""
        if event.kind == "progress":
            return self._progress(event.data)
        if event.kind == "log":
            return self._log(event.data)
        if event.kind == "request":
            id = request_id(self.call_id, event.data["name"])
            return request_message(id, event.data["method"], self._with_meta(event.data["params"]))
        if event.kind == "withdrawal":
            params = {"requestId": request_id(self.call_id, event.data["name"]), "reason": event.data["reason"]}
            return notification_message("notifications/cancelled", self._with_meta(params))
        if event.kind == PAGE_EVENT:
            return page_completed(event.data["elicitationId"], self.version, self.meta)
        return None

    def _progress(self, data: dict[str, Any]) -> bytes | None:
        """Return a progress notification (progress, §Progress Flow) if the client gave a token."""
        if PROGRESS_KEY not in data:
            return None
        known = without(data, PROGRESS_KEY) if has_annotations(self.version) else without(data, PROGRESS_KEY, "message")
        return notification_message(
            "notifications/progress", self._with_meta({"progressToken": data[PROGRESS_KEY], **known})
        )

    def _log(self, data: dict[str, Any]) -> bytes | None:
        """Return a log message (logging, §Log Message Notifications)."""
        if self.log_level is None or not is_heard(data["level"], self.log_level):
            return None
        return notification_message("notifications/message", self._with_meta(data))

    def _with_meta(self, params: dict[str, Any]) -> dict[str, Any]:
        return {**params, "_meta": self.meta} if self.meta else params


def page_completed(id: str, version: str, meta: dict[str, Any] | None = None) -> bytes | None:
    """Return the notification that a page is done with; None for a revision in which pages have no ids."""
    if not has_page_ids(version):
        return None
    params = {"elicitationId": id, **({"_meta": meta} if meta else {})}
    return notification_message("notifications/elicitation/complete", params)


class LogRateLimiter(msgspec.Struct):
    """Limits the log messages of one call to a client per second, with a separate limit for each level."""

    second: float = 0.0
    sent: dict[str, int] = {}

    def exceeded(self, event: Event) -> bool:
        """Whether an event exceeds the limit. It is recorded in the call's audit log in any case."""
        if event.kind != "log":
            return False
        now = monotonic()
        if now - self.second >= 1.0:
            self.second = now
            self.sent.clear()
        level = event.data["level"]
        sent = self.sent[level] = self.sent.get(level, 0) + 1
        return sent > MAX_LOGS_A_SECOND
