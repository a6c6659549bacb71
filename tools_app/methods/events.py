"""What a call says before its result, as messages to its client: the same for those who listen and who come back."""

from time import monotonic
from typing import Any
from uuid import UUID

import msgspec

from tools_app.events.store import Event
from tools_app.execution.inputs import request_id
from tools_app.execution.invocation import HEARD_UNDER
from tools_app.execution.results import without
from tools_app.protocol.jsonrpc import notification_message, request_message
from tools_app.protocol.versions import has_annotations, is_heard

PAUSE = "pause"
MOST_DIGITS = 9
MOST_LOGS_A_SECOND = 100


class Hearing(msgspec.Struct, frozen=True):
    """A call's client, of this revision, that wants log messages from `log_level` on; None for none.

    `meta` goes with every message.
    """

    call_id: UUID
    version: str
    log_level: str | None
    meta: dict[str, Any] = {}

    def event_id(self, sequence: int) -> str:
        """Where a stream is taken up again after an event."""
        return f"{self.call_id}/{sequence}"

    def message_of(self, event: Event) -> bytes | None:
        """An event as a message; None if this client is not to hear it."""
        if event.kind == "progress":
            return self._progress(event.data)
        if event.kind == "log":
            return self._log(event.data)
        if event.kind == "request":
            id = request_id(self.call_id, event.data["name"])
            return request_message(id, event.data["method"], self._with_meta(event.data["params"]))
        if event.kind == "withdrawal":
            told = {"requestId": request_id(self.call_id, event.data["name"]), "reason": event.data["reason"]}
            return notification_message("notifications/cancelled", self._with_meta(told))
        return None

    def _progress(self, data: dict[str, Any]) -> bytes | None:
        """A progress notification (progress, §Progress Flow), for clients that gave a token; messages came later."""
        if HEARD_UNDER not in data:
            return None
        known = without(data, HEARD_UNDER) if has_annotations(self.version) else without(data, HEARD_UNDER, "message")
        return notification_message(
            "notifications/progress", self._with_meta({"progressToken": data[HEARD_UNDER], **known})
        )

    def _log(self, data: dict[str, Any]) -> bytes | None:
        """A log message (logging, §Log Message Notifications)."""
        if self.log_level is None or not is_heard(data["level"], self.log_level):
            return None
        return notification_message("notifications/message", self._with_meta(data))

    def _with_meta(self, params: dict[str, Any]) -> dict[str, Any]:
        return {**params, "_meta": self.meta} if self.meta else params


class Flood:
    """What log messages a client gets of one call: of each level, so that none drowns another, so many in a second."""

    def __init__(self) -> None:
        self._second = 0.0
        self._sent: dict[str, int] = {}

    def swallows(self, event: Event) -> bool:
        """Whether an event is one too many. It is in the call's record all the same."""
        if event.kind != "log":
            return False
        now = monotonic()
        if now - self._second >= 1.0:
            self._second = now
            self._sent.clear()
        level = event.data["level"]
        sent = self._sent[level] = self._sent.get(level, 0) + 1
        return sent > MOST_LOGS_A_SECOND


def parsed_event_id(value: str) -> tuple[UUID, int] | None:
    """The call and the sequence of an event's id; None if it is no such id."""
    call, _, sequence = value.partition("/")
    if not (sequence.isascii() and sequence.isdigit() and len(sequence) <= MOST_DIGITS):
        return None
    try:
        return UUID(call), int(sequence)
    except ValueError:
        return None
