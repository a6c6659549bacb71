"""Export formats: JSON Lines, and CSV (RFC 4180) that spreadsheets do not interpret as formulas.

Arguments, results and events are read for one chunk of an export at a time.
"""

import csv
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from io import StringIO
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

from tools_app.audit.recorder.entries import HASHED
from tools_app.calls.models import Texts
from tools_app.core.packing import UnpackError
from tools_app.core.relations import related
from tools_app.models import Call, CallEvent, CallPayload, ExportFormat

# For all calls of a chunk together, so that a call with a million events does not fill the memory.
MAX_EVENTS: Final = 20_000
UNREADABLE: Final = "[not readable]"

Event = tuple[datetime, str, str]


class Details(NamedTuple):
    """Arguments and result as JSON texts, and events: time, kind, and data as JSON text."""

    arguments: str
    result: str
    events: Sequence[Event]


def details_of(calls: Sequence[Call], *, with_events: bool) -> dict[UUID, Details]:
    """Return the payloads of these calls, and their events if requested."""
    payloads = CallPayload.objects.in_bulk([call.pk for call in calls])
    events = _events(calls) if with_events else {}
    return {call.pk: Details(*_texts(payloads.get(call.pk)), events.get(call.pk, ())) for call in calls}


def _texts(payload: CallPayload | None) -> Texts:
    try:
        return payload.texts() if payload else Texts("", "")
    except UnpackError:
        return Texts(UNREADABLE, UNREADABLE)


def _events(calls: Sequence[Call]) -> dict[UUID, list[Event]]:
    talked = [call.pk for call in calls if call.event_count]
    found: dict[UUID, list[Event]] = defaultdict(list)
    rows = CallEvent.objects.filter(call_id__in=talked).order_by("call_id", "sequence") if talked else ()
    for event in rows[:MAX_EVENTS]:
        found[event.call_id].append((event.at, event.kind, event.data))
    return found


_FIRST: Final = (
    *("id", "started_at", "finished_at", "duration_us", "waited_us", "outcome", "http_status", "rpc_error", "is_error"),
    *("tenant_id", "tenant", "method", "tool_name", "tool_revision", "api_key_id", "api_key", "session_id"),
    *("client_name", "client_version", "protocol_version", "remote_address", "request_id", "trace_id", "background"),
    *("repeated", "arguments_size", "result_size", "event_count", "shaped_size", "person"),
)
# The facts of a call, in the order of a file's columns: all that is recorded, except texts that operators don't read.
FACTS: Final = (*_FIRST, *(column for column in HASHED if column not in {*_FIRST, "person_id", "cause"}))
TEXTS: Final = ("cause", "arguments", "result")
# A spreadsheet evaluates cells that start with these, which can send requests (OWASP, CSV Injection). Full-width and
# other forms of these characters count, because some programs treat them alike.
FORMULAS: Final = frozenset("=+-@\N{MINUS SIGN}")
# Some programs first drop blanks and invisible characters; these are suspect at the beginning by themselves.
BREAKS: Final = ("\t", "\r", "\n")
# Where the list separator is not the comma, a cell also starts after these.
_AFTER_SEPARATOR: Final = re.compile(r"([;\t])(?=[ ]{0,8}[=+\-@\u2212\uff1d\uff0b\uff0d\uff20])")
# RFC 4180, section 2.1.
LINE_END: Final = "\r\n"

Write = Callable[[Iterable[tuple[Call, Details | None]]], bytes]


def header(form: ExportFormat, *, with_payloads: bool) -> bytes:
    """Return the beginning of a file."""
    if form == ExportFormat.JSONL:
        return b""
    return _rows([[*FACTS, *(TEXTS if with_payloads else ())]])


def lines(form: ExportFormat, calls: Iterable[tuple[Call, Details | None]], *, with_payloads: bool) -> bytes:
    """Return calls with their details, or with None where the details are not exported."""
    if form == ExportFormat.JSONL:
        objects = (_object(call, details) for call, details in calls)
        return b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in objects)
    return _rows(_cells(call, details, with_payloads=with_payloads) for call, details in calls)


def _object(call: Call, details: Details | None) -> dict[str, Any]:
    if details is None:
        return facts_of(call)
    texts = {"cause": call.cause, "arguments": _json(details.arguments), "result": _json(details.result)}
    return {**facts_of(call), **texts, "events": [_event(*event) for event in details.events]}


def facts_of(call: Call) -> dict[str, Any]:
    """Return the facts of a call, without its payload and events."""
    named = {
        "tenant": getattr(related(call, "tenant"), "slug", None),
        "api_key": getattr(related(call, "api_key"), "name", None),
        "person": call.person_name,
    }
    return {name: named[name] if name in named else getattr(call, name) for name in FACTS}


def _json(text: str) -> Any:
    """Return the value of a JSON text; the text itself if it was truncated."""
    if not text:
        return None
    try:
        orjson.loads(text)
    except ValueError:
        return text
    # Embedded as it is, however deep; on one line.
    return text if "\n" in text else orjson.Fragment(text)


def _event(at: Any, kind: str, data: str) -> Mapping[str, Any]:
    return {"at": at, "kind": kind, "data": _json(data)}


def _cells(call: Call, details: Details | None, *, with_payloads: bool) -> list[Any]:
    facts = [_cell(value) for value in facts_of(call).values()]
    if not with_payloads:
        return facts
    texts = (call.cause, details.arguments, details.result) if details else ("", "", "")
    return [*facts, *map(_cell, texts)]


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return _as_text(value)
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if hasattr(value, "isoformat") else value


def _as_text(value: str) -> str:
    """Return a text with an apostrophe before anything that a spreadsheet would take for a formula."""
    value = _AFTER_SEPARATOR.sub(r"\1'", value)
    first = next((character for character in value if character.isprintable() and not character.isspace()), "")
    is_formula = unicodedata.normalize("NFKC", first)[:1] in FORMULAS if first else False
    return f"'{value}" if is_formula or value.startswith(BREAKS) else value


def _rows(rows: Iterable[list[Any]]) -> bytes:
    text = StringIO()
    csv.writer(text, lineterminator=LINE_END).writerows(rows)
    return text.getvalue().encode()
