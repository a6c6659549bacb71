"""Calls as lines of a file: JSON lines, or CSV by RFC 4180 that no spreadsheet takes for formulas."""

import csv
from collections.abc import Callable, Iterable, Mapping
from io import StringIO
from typing import Any, Final

import orjson

from tools_app.audit.exporting.details import Details
from tools_app.models import Call, ExportFormat
from tools_app.models.reading import related

# The facts of a call, in the order of a file's columns.
FACTS: Final = (
    *("id", "started_at", "finished_at", "duration_us", "waited_us", "outcome", "http_status", "rpc_error", "is_error"),
    *("tenant_id", "tenant", "method", "tool_name", "tool_revision", "api_key_id", "api_key", "session_id"),
    *("client_name", "client_version", "protocol_version", "remote_address", "request_id", "trace_id", "background"),
    *("repeated", "arguments_size", "result_size", "event_count"),
)
TEXTS: Final = ("cause", "arguments", "result")
# A cell that begins so would be calculated by a spreadsheet, which can call out. As OWASP advises.
FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
# RFC 4180, 2.1.
LINE_END: Final = "\r\n"

Write = Callable[[Iterable[tuple[Call, Details | None]]], bytes]


def header(form: ExportFormat, *, with_payloads: bool) -> bytes:
    """What a file begins with."""
    if form == ExportFormat.JSONL:
        return b""
    return _rows([[*FACTS, *(TEXTS if with_payloads else ())]])


def lines(form: ExportFormat, calls: Iterable[tuple[Call, Details | None]], *, with_payloads: bool) -> bytes:
    """Calls with their details, or with None where these are not to be told."""
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
    """What is known of a call beside what was said in it."""
    named = {
        "tenant": getattr(related(call, "tenant"), "slug", None),
        "api_key": getattr(related(call, "api_key"), "name", None),
    }
    return {name: named[name] if name in named else getattr(call, name) for name in FACTS}


def _json(text: str) -> Any:
    """The value of a JSON text; the text itself, where it was cut off."""
    if not text:
        return None
    try:
        orjson.loads(text)
    except ValueError:
        return text
    # As it is, however deep; on one line.
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
        return f"'{value}" if value.startswith(FORMULAS) else value
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if hasattr(value, "isoformat") else value


def _rows(rows: Iterable[list[Any]]) -> bytes:
    text = StringIO()
    csv.writer(text, lineterminator=LINE_END).writerows(rows)
    return text.getvalue().encode()
