"""What a call said before its result, put for people: progress, log messages, questions to the client, pauses.

The data came from a tool, so it may be anything: what is not understood is shown as it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from tools_app.admin import json_source
from tools_app.models import CallEvent

MOST_EVENTS = 500
LEVEL_COLOURS = {
    "debug": "",
    "info": "info",
    "notice": "info",
    "warning": "warning",
    "error": "danger",
    "critical": "danger",
    "alert": "danger",
    "emergency": "danger",
}


@dataclass(frozen=True)
class Told:
    """One event in words. `label` and its colour say more of its kind, `text` is what was said."""

    title: str
    text: str = ""
    label: str = ""
    colour: str = ""


@dataclass(frozen=True)
class Row:
    """One event as the page lists it. `raw` is its data as recorded."""

    sequence: int
    at: datetime
    kind: str
    told: Told
    raw: str


def events_block(call_id: UUID) -> SafeString:
    """The events of a call, in their order."""
    rows = CallEvent.objects.filter(call_id=call_id).order_by("sequence")[: MOST_EVENTS + 1]
    shown = [row_of(event) for event in rows]
    page = {"rows": shown[:MOST_EVENTS], "more": len(shown) > MOST_EVENTS}
    return render_to_string("admin/tools_app/call/events.html", page)


def row_of(event: CallEvent) -> Row:
    """An event as the page lists it."""
    try:
        data = orjson.loads(event.data)
    except ValueError:
        return Row(event.sequence, event.at, event.kind, Told("", event.data), "")
    tell = TELLING.get(event.kind)
    if tell is None or not isinstance(data, dict):
        return Row(event.sequence, event.at, event.kind, Told("", json_source.pretty(data)), "")
    return Row(event.sequence, event.at, event.kind, tell(data), json_source.pretty(data))


def _progress(data: Mapping[str, Any]) -> Told:
    total = f" of {data['total']}" if "total" in data else ""
    return Told(f"{data.get('progress', '?')}{total}", _text(data.get("message", "")))


def _log(data: Mapping[str, Any]) -> Told:
    level = str(data.get("level", ""))
    return Told(str(data.get("logger", "")), _text(data.get("data", "")), level, LEVEL_COLOURS.get(level, ""))


def _request(data: Mapping[str, Any]) -> Told:
    shown = data.get("shown", data)
    if not isinstance(shown, dict) or "method" not in shown:
        return Told("Asked the client", _text(shown))
    return Told(f"Asked the client: {shown['method']}", _text(shown.get("params") or ""))


def _withdrawal(data: Mapping[str, Any]) -> Told:
    return Told("Withdrew the question", _text(data.get("reason", "")))


def _pause(_data: Mapping[str, Any]) -> Told:
    return Told("The stream was closed; the client comes back for the rest.")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_source.pretty(value)


TELLING: Mapping[str, Callable[[Mapping[str, Any]], Told]] = {
    "progress": _progress,
    "log": _log,
    "request": _request,
    "withdrawal": _withdrawal,
    "pause": _pause,
}
