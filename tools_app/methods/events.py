"""Encoding of a call's events as messages to its client, live or after a resumed stream."""

from time import monotonic
from typing import Any
from uuid import UUID

import msgspec

from tools_app.calls.events import Event
from tools_app.calls.inputs import request_id
from tools_app.calls.invocation import PROGRESS_KEY
from tools_app.catalog.tool_api.context import PAGE_EVENT
from tools_app.catalog.tool_api.results import without
from tools_app.protocol.jsonrpc import notification_message, request_message
from tools_app.protocol.versions import has_annotations, has_page_ids, is_heard

PAUSE = "pause"
MAX_DIGITS = 9
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


def parsed_event_id(value: str) -> tuple[UUID, int] | None:
    """Return the call id and the sequence number of an event id; None if it is invalid."""
    call, _, sequence = value.partition("/")
    if not (sequence.isascii() and sequence.isdigit() and len(sequence) <= MAX_DIGITS):
        return None
    try:
        return UUID(call), int(sequence)
    except ValueError:
        return None
