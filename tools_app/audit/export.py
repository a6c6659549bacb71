"""Exports of calls: the start, with its record in the change log, the file, and its response.

Files are JSON Lines, or CSV (RFC 4180) that spreadsheets do not interpret as formulas. A run keeps one piece in memory.
"""

import asyncio
import csv
import logging
import re
import unicodedata
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from io import StringIO
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.core.handlers.asgi import ASGIRequest
from django.db import close_old_connections, connection, transaction
from django.http import HttpRequest, QueryDict, StreamingHttpResponse
from django.utils import timezone

from tools_app.audit.changes import changes
from tools_app.audit.recorder.entries import HASHED
from tools_app.audit.search.pages import expected, iterate_calls
from tools_app.audit.search.query import CallQuery
from tools_app.audit.search.scope import Scope, scope_of
from tools_app.calls.models import Texts
from tools_app.core.packing import UnpackError
from tools_app.core.relations import related
from tools_app.models import Action, Call, CallEvent, CallPayload, Export, ExportFormat, ExportState
from tools_app.tenants import permissions

log = logging.getLogger(__name__)

# With payloads a piece may be large: arguments and results have up to MCPHUB_MAX_PAYLOAD_BYTES each.
CHUNK, CHUNK_WITH_PAYLOADS = 1000, 250
REPORT_EVERY: Final = 2_000
BROKEN: Final = "The download ended before the file did. Start it again."
# Beyond this many tenants, an export is recorded as the hub's.
MAX_RECORDED: Final = 50
# For all calls of a chunk together, so that a call with a million events does not fill the memory.
MAX_EVENTS: Final = 20_000
Event = tuple[datetime, str, str]
UNREADABLE: Final = "[not readable]"
CONTENT_TYPES: Final = {
    ExportFormat.JSONL: "application/jsonl",
    ExportFormat.CSV: "text/csv; charset=utf-8; header=present",
}
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


def start_export(query: CallQuery, person: User, form: ExportFormat, *, with_payloads: bool) -> Export:
    """Create an export that is ready to be downloaded. Raises TextRefused if the person may not search for the text.

    It covers the calls up to now, however often it is downloaded.
    """
    query = query.at(timezone.now())
    scope = scope_of(query, person)
    export = Export(
        person=person,
        query=query.to_string(),
        format=form,
        with_payloads=with_payloads,
        expected=expected(query, scope),
    )
    with transaction.atomic():
        export.save()
        record_export(export, scope)
    return export


def record_export(export: Export, scope: Scope) -> None:
    """Record an export in the open transaction, for each tenant whose calls it contains."""
    tenants = scope.tenants if scope.tenants and len(scope.tenants) <= MAX_RECORDED else (None,)
    after = {"query": export.query, "format": export.format, "with_payloads": export.with_payloads}
    for tenant_id in tenants:
        changes.record(Action.EXPORTED, export, after=after, tenant_id=tenant_id, name="Calls")


class ExportProgress:
    """The progress of an export."""

    def __init__(self) -> None:
        self.calls = 0
        self.bytes = 0


def pieces(
    query: CallQuery, scope: Callable[[], Scope], form: ExportFormat, *, with_payloads: bool, counted: ExportProgress
) -> Iterator[bytes]:
    """Yield the file of all calls that a query finds in a scope, with payloads where they may be read."""
    first = header(form, with_payloads=with_payloads)
    counted.bytes += len(first)
    yield first
    latest = scope()

    def scope_now() -> Scope:
        nonlocal latest
        latest = scope()
        return latest

    for calls in iterate_calls(query, scope_now, CHUNK_WITH_PAYLOADS if with_payloads else CHUNK):
        read = [call for call in calls if with_payloads and latest.audits(call.tenant_id)]
        details = details_of(read, with_events=form == ExportFormat.JSONL) if read else {}
        piece = lines(form, ((call, details.get(call.pk)) for call in calls), with_payloads=with_payloads)
        counted.calls += len(calls)
        counted.bytes += len(piece)
        yield piece


def download(export: Export, person: permissions.Person) -> Iterator[bytes]:
    """Yield the file of an export, and save its progress and final state in its row."""
    query, counted = CallQuery.from_params(QueryDict(export.query)), ExportProgress()
    _report_progress(export, counted, ExportState.RUNNING)
    count, state, problem = 0, ExportState.BROKEN, BROKEN
    try:
        for piece in pieces(
            query,
            lambda: scope_of(query, person),
            ExportFormat(export.format),
            with_payloads=export.with_payloads,
            counted=counted,
        ):
            yield piece
            if counted.calls - count >= REPORT_EVERY:
                count = counted.calls
                _report_progress(export, counted, ExportState.RUNNING)
        state, problem = ExportState.DONE, ""
    finally:
        # Also runs when the client disconnects.
        _report_progress(export, counted, state, problem)


def _report_progress(export: Export, counted: ExportProgress, state: ExportState, problem: str = "") -> None:
    finished = None if state == ExportState.RUNNING else timezone.now()
    Export.objects.filter(pk=export.pk).update(
        calls=counted.calls, bytes=counted.bytes, state=state, problem=problem, finished_at=finished
    )


class Details(NamedTuple):
    """Arguments and result as JSON texts, and events: time, kind, and data as JSON text."""

    arguments: str
    result: str
    events: Sequence[Event]


def details_of(calls: Sequence[Call], *, with_events: bool) -> dict[UUID, Details]:
    """Return the payloads of these calls, and their events if requested."""
    texts: dict[UUID, Texts] = {}
    for payload in CallPayload.objects.filter(pk__in=[call.pk for call in calls]):
        try:
            texts[payload.pk] = payload.texts()
        except UnpackError:
            texts[payload.pk] = Texts(UNREADABLE, UNREADABLE)
    events: dict[UUID, list[Event]] = defaultdict(list)
    with_some = [call.pk for call in calls if with_events and call.event_count]
    rows = CallEvent.objects.filter(call_id__in=with_some).order_by("call_id", "sequence") if with_some else ()
    for event in rows[:MAX_EVENTS]:
        events[event.call_id].append((event.at, event.kind, event.data))
    return {call.pk: Details(*texts.get(call.pk, ("", "")), events.get(call.pk, ())) for call in calls}


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
    rows = []
    for call, details in calls:
        texts = (call.cause, details.arguments, details.result) if details else ("", "", "")
        rows.append([_cell(value) for value in (*facts_of(call).values(), *(texts if with_payloads else ()))])
    return _rows(rows)


def _object(call: Call, details: Details | None) -> dict[str, Any]:
    if details is None:
        return facts_of(call)
    texts = {"cause": call.cause, "arguments": _json(details.arguments), "result": _json(details.result)}
    events = [{"at": at, "kind": kind, "data": _json(data)} for at, kind, data in details.events]
    return {**facts_of(call), **texts, "events": events}


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


def _cell(value: Any) -> Any:
    """Return a value as a cell, with an apostrophe before anything that a spreadsheet would take for a formula."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return value.isoformat() if isinstance(value, datetime) else value
    value = _AFTER_SEPARATOR.sub(r"\1'", value)
    first = next((character for character in value if character.isprintable() and not character.isspace()), "")
    is_formula = unicodedata.normalize("NFKC", first)[:1] in FORMULAS if first else False
    return f"'{value}" if is_formula or value.startswith(BREAKS) else value


def _rows(rows: Iterable[list[Any]]) -> bytes:
    text = StringIO()
    csv.writer(text, lineterminator=LINE_END).writerows(rows)
    return text.getvalue().encode()


def file_response(request: HttpRequest, export: Export) -> StreamingHttpResponse:
    """Return the file of an export, within the permissions of the requesting person."""
    pieces = download(export, request.user)
    if isinstance(request, ASGIRequest):
        # A request holds its thread until its last byte is sent, and the thread would keep its connection.
        if not connection.in_atomic_block:
            connection.close()
        content: Any = _later(pieces)
    else:
        content = pieces
    return StreamingHttpResponse(
        content,
        content_type=CONTENT_TYPES[ExportFormat(export.format)],
        headers={
            "Content-Disposition": f'attachment; filename="calls-{export.created_at:%Y-%m-%d-%H%M%S}.{export.format}"',
            "X-Accel-Buffering": "no",
        },
    )


async def _later(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces, each produced in a thread that is released while the client reads."""
    step: asyncio.Future[bytes | None] | None = None
    try:
        while True:
            step = asyncio.ensure_future(asyncio.to_thread(_next, pieces))
            piece = await asyncio.shield(step)
            if piece is None:
                return
            yield piece
    finally:

        async def end() -> None:
            # After the thread that produces the current piece has finished.
            if step is not None:
                with suppress(Exception):
                    await step
            await asyncio.to_thread(_close, pieces)

        # A client that disconnects must not leave the row in the running state.
        await asyncio.shield(end())


def _next(pieces: Iterator[bytes]) -> bytes | None:
    close_old_connections()
    try:
        return next(pieces, None)
    finally:
        close_old_connections()


def _close(pieces: Any) -> None:
    try:
        pieces.close()
    finally:
        close_old_connections()
