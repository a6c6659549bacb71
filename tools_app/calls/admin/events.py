"""Presentation of a call's events: progress, log messages, requests to the client, closed streams.

The data comes from a tool and can have any shape: unrecognized data is shown as it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from tools_app.calls.events import SEALED_KEY
from tools_app.models import CallEvent
from tools_app.protocol import exact_json
from tools_app.web.admin import json_source

MAX_EVENTS = 500
# Maximum length of an event on the page; the download is complete.
MAX_TEXT: Final = 8_000


@dataclass(frozen=True)
class Description:
    """The text of an event. `label` qualifies its kind, `text` is the message, `percent` the progress."""

    title: str
    text: str = ""
    label: str = ""
    percent: int | None = None


@dataclass(frozen=True)
class Row:
    """An event as shown on the page. `offset_us` is the time since the call's start, `raw` the recorded data."""

    sequence: int
    offset_us: int
    at: datetime
    kind: str
    description: Description
    raw: str

    @property
    def offset(self) -> str:
        """The time since the start of the call, formatted."""
        return offset_text(self.offset_us)

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON for the page of a running call."""
        text = self.description
        return {
            "sequence": self.sequence,
            "offset": self.offset,
            "kind": self.kind,
            "title": text.title,
            "text": text.text,
            "label": text.label,
            "percent": text.percent,
            "raw": self.raw,
        }


@dataclass(frozen=True)
class Events:
    """The events of a call shown on a page, in order. `has_more`: the call has more of them."""

    rows: list[Row]
    has_more: bool


def events_of(call_id: UUID, started_at: datetime, after: int = 0) -> Events:
    """Return the first events of a call with a sequence number above `after`."""
    found = CallEvent.objects.filter(call_id=call_id, sequence__gt=after).order_by("sequence")[: MAX_EVENTS + 1]
    rows = [row_of(event, started_at) for event in found]
    return Events(rows[:MAX_EVENTS], len(rows) > MAX_EVENTS)


def row_of(event: CallEvent, started_at: datetime) -> Row:
    """Return an event as shown on the page."""
    offset_us = max(0, (event.at - started_at) // timedelta(microseconds=1))
    data, describe = event_data(event), DESCRIBERS.get(event.kind)
    if describe is None or not isinstance(data, dict):
        description, raw = Description("", _text(data)), ""
    else:
        description, raw = describe(data), cut(json_source.pretty(data))
    return Row(event.sequence, offset_us, event.at, event.kind, description, raw)


def offset_text(microseconds: int) -> str:
    """Format the time of an event after the start of its call."""
    seconds, rest = divmod(microseconds // 1000, 1000)
    minutes, seconds = divmod(seconds, 60)
    return f"+{minutes}:{seconds:02d}.{rest:03d}" if minutes else f"+{seconds}.{rest:03d} s"


def event_data(event: CallEvent) -> Any:
    """Return the recorded data of an event: its JSON, or the text if it was truncated to invalid JSON."""
    try:
        data = exact_json.loads(event.data)
    except ValueError:
        return event.data
    if isinstance(data, dict):
        # The complete request is stored a second time, encrypted; it is not shown.
        data.pop(SEALED_KEY, None)
    return data


def cut(text: str) -> str:
    """Return the text, truncated to MAX_TEXT characters."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} … ({len(text)} characters)"


def _progress(data: Mapping[str, Any]) -> Description:
    done: Any = data.get("progress", "?")
    total: Any = data.get("total")
    of_total = f" of {_short(total)}" if "total" in data else ""
    percent = None
    # bool is an int in Python; a total of 0 has no percentage.
    if type(done) in (int, float) and type(total) in (int, float) and total > 0:
        percent = round(100 * min(1.0, max(0.0, done / total)))
    return Description(f"{_short(done)}{of_total}", _text(data.get("message", "")), percent=percent)


def _log(data: Mapping[str, Any]) -> Description:
    return Description(_short(data.get("logger", "")), _text(data.get("data", "")), _short(data.get("level", "")))


def _request(data: Mapping[str, Any]) -> Description:
    shown = data.get("shown", data)
    if not isinstance(shown, dict) or "method" not in shown:
        return Description("Asked the client", _text(shown))
    return Description(f"Asked the client: {_short(shown['method'])}", _text(shown.get("params") or ""))


def _answer(data: Mapping[str, Any]) -> Description:
    """Describe the response sent instead of the recorded one because the database confirmed the record too late."""
    return Description(
        "Different response sent to the client",
        _text(data.get("message", "")),
        f"HTTP {_short(data.get('status', ''))}",
    )


def _text(value: Any) -> str:
    return cut(value if isinstance(value, str) else json_source.pretty(value))


def _short(value: Any) -> str:
    return str(value)[:200]


DESCRIBERS: Mapping[str, Callable[[Mapping[str, Any]], Description]] = {
    "progress": _progress,
    "log": _log,
    "request": _request,
    "withdrawal": lambda data: Description("Cancelled the request to the client", _text(data.get("reason", ""))),
    "page": lambda data: Description(
        "A page that the client was sent to is done with", _text(data.get("elicitationId", ""))
    ),
    "task": lambda _data: Description("The upstream runs the call as a task."),
    "pause": lambda _data: Description("The stream was closed; the client reconnects for the rest."),
    "answer": _answer,
}
