"""What a call said before its result, put for people: progress, log messages, questions to the client, pauses.

The data came from a tool, so it may be anything: what is not understood is shown as it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import orjson

from tools_app.admin import json_source
from tools_app.events.store import SEALED
from tools_app.models import CallEvent

MOST_EVENTS = 500
# How much of one event the page shows; the download has the whole.
MOST_TEXT: Final = 8_000


@dataclass(frozen=True)
class Told:
    """One event in words. `label` says more of its kind, `text` is what was said, `percent` how far the call was."""

    title: str
    text: str = ""
    label: str = ""
    percent: int | None = None


@dataclass(frozen=True)
class Row:
    """One event as the page lists it. `offset_us` is since the call's start, `raw` its data as recorded."""

    sequence: int
    offset_us: int
    at: datetime
    kind: str
    told: Told
    raw: str

    @property
    def offset(self) -> str:
        """Since the start of the call, in words."""
        return offset_text(self.offset_us)

    def as_json(self) -> dict[str, Any]:
        """The same for a page that runs."""
        told = self.told
        return {
            "sequence": self.sequence,
            "offset": self.offset,
            "kind": self.kind,
            "title": told.title,
            "text": told.text,
            "label": told.label,
            "percent": told.percent,
            "raw": self.raw,
        }


@dataclass(frozen=True)
class Events:
    """The events of a call that a page shows, in their order; `has_more` than those."""

    rows: list[Row]
    has_more: bool


def events_of(call_id: UUID, started_at: datetime, after: int = 0) -> Events:
    """The first events of a call with a sequence above `after`."""
    found = CallEvent.objects.filter(call_id=call_id, sequence__gt=after).order_by("sequence")[: MOST_EVENTS + 1]
    rows = [row_of(event, started_at) for event in found]
    return Events(rows[:MOST_EVENTS], len(rows) > MOST_EVENTS)


def row_of(event: CallEvent, started_at: datetime) -> Row:
    """An event as the page lists it."""
    offset_us = max(0, (event.at - started_at) // timedelta(microseconds=1))
    told, raw = _told(event)
    return Row(event.sequence, offset_us, event.at, event.kind, told, raw)


def offset_text(microseconds: int) -> str:
    """How long after the start of a call something was said."""
    seconds, rest = divmod(microseconds // 1000, 1000)
    minutes, seconds = divmod(seconds, 60)
    return f"+{minutes}:{seconds:02d}.{rest:03d}" if minutes else f"+{seconds}.{rest:03d} s"


def said(event: CallEvent) -> Any:
    """What was recorded of an event: its JSON, or a text that was cut off and is no JSON any more."""
    try:
        data = orjson.loads(event.data)
    except ValueError:
        return event.data
    if isinstance(data, dict):
        # A question is kept a second time, whole and sealed: nobody reads that here.
        data.pop(SEALED, None)
    return data


def _told(event: CallEvent) -> tuple[Told, str]:
    data = said(event)
    tell = TELLING.get(event.kind)
    if tell is None or not isinstance(data, dict):
        return Told("", _text(data)), ""
    return tell(data), cut(json_source.pretty(data))


def cut(text: str) -> str:
    """A text that does not fill a page."""
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} … ({len(text)} characters)"


def _progress(data: Mapping[str, Any]) -> Told:
    done, total = data.get("progress", "?"), data.get("total")
    of_total = f" of {_short(total)}" if "total" in data else ""
    return Told(f"{_short(done)}{of_total}", _text(data.get("message", "")), percent=_percent(done, total))


def _percent(done: Any, total: Any) -> int | None:
    # A bool is a number to Python; a total of nothing is no share of anything.
    if not (type(done) in (int, float) and type(total) in (int, float) and total > 0):
        return None
    share: float = min(1.0, max(0.0, done / total))
    return round(100 * share)


def _log(data: Mapping[str, Any]) -> Told:
    return Told(_short(data.get("logger", "")), _text(data.get("data", "")), _short(data.get("level", "")))


def _request(data: Mapping[str, Any]) -> Told:
    shown = data.get("shown", data)
    if not isinstance(shown, dict) or "method" not in shown:
        return Told("Asked the client", _text(shown))
    return Told(f"Asked the client: {_short(shown['method'])}", _text(shown.get("params") or ""))


def _withdrawal(data: Mapping[str, Any]) -> Told:
    return Told("Withdrew the question", _text(data.get("reason", "")))


def _pause(_data: Mapping[str, Any]) -> Told:
    return Told("The stream was closed; the client comes back for the rest.")


def _text(value: Any) -> str:
    return cut(value if isinstance(value, str) else json_source.pretty(value))


def _short(value: Any) -> str:
    return str(value)[:200]


TELLING: Mapping[str, Callable[[Mapping[str, Any]], Told]] = {
    "progress": _progress,
    "log": _log,
    "request": _request,
    "withdrawal": _withdrawal,
    "pause": _pause,
}
