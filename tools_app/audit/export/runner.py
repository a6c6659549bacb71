"""Exports: the start, with its record in the change log, and the run, whose bytes are produced piece by piece.

A run keeps one piece in memory.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Final

from django.contrib.auth.models import User
from django.db import transaction
from django.http import QueryDict
from django.utils import timezone

from tools_app.audit.changes import changes
from tools_app.audit.export.formats import details_of, header, lines
from tools_app.audit.search.iteration import expected, iterate_calls_in_scope
from tools_app.audit.search.query import CallQuery
from tools_app.audit.search.scope import Scope, scope_of
from tools_app.models import Action, Call, Export, ExportFormat, ExportState
from tools_app.tenants import permissions

log = logging.getLogger(__name__)

# With payloads a piece may be large: arguments and results have up to MCPHUB_MAX_PAYLOAD_BYTES each.
CHUNK, CHUNK_WITH_PAYLOADS = 1000, 250
REPORT_EVERY: Final = 2_000
BROKEN: Final = "The download ended before the file did. Start it again."


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
    current = _Kept(scope)
    for calls in iterate_calls_in_scope(query, current, CHUNK_WITH_PAYLOADS if with_payloads else CHUNK):
        piece = _piece(calls, current.scope, form, with_payloads=with_payloads)
        counted.calls += len(calls)
        counted.bytes += len(piece)
        yield piece


def download(export: Export, person: permissions.Person) -> Iterator[bytes]:
    """Yield the file of an export, and save its progress and final state in its row."""
    query, counted = query_of(export), ExportProgress()
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


def query_of(export: Export) -> CallQuery:
    """Return the query of an export."""
    return CallQuery.from_params(QueryDict(export.query))


class _Kept:
    """Gets the scope on each call, and keeps the latest."""

    def __init__(self, load_scope: Callable[[], Scope]) -> None:
        self._load_scope = load_scope
        self.scope = load_scope()

    def __call__(self) -> Scope:
        self.scope = self._load_scope()
        return self.scope


def _piece(calls: list[Call], scope: Scope, form: ExportFormat, *, with_payloads: bool) -> bytes:
    read = [call for call in calls if with_payloads and scope.audits(call.tenant_id)]
    details = details_of(read, with_events=form == ExportFormat.JSONL) if read else {}
    return lines(form, ((call, details.get(call.pk)) for call in calls), with_payloads=with_payloads)


def _report_progress(export: Export, counted: ExportProgress, state: ExportState, problem: str = "") -> None:
    finished = None if state == ExportState.RUNNING else timezone.now()
    Export.objects.filter(pk=export.pk).update(
        calls=counted.calls, bytes=counted.bytes, state=state, problem=problem, finished_at=finished
    )


# Beyond this many tenants, an export is recorded as the hub's.
MAX_RECORDED: Final = 50


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
