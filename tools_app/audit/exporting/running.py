"""An export as it runs: bytes, piece by piece, and how far it is. It keeps one piece in memory, however long it is."""

import logging
from collections.abc import Callable, Iterator
from typing import Final

from django.http import QueryDict
from django.utils import timezone

from tools_app.audit.exporting.details import details_of
from tools_app.audit.exporting.formats import header, lines
from tools_app.audit.search.query import CallQuery
from tools_app.audit.search.scope import Scope, scope_of
from tools_app.audit.search.walking import walk_within
from tools_app.auth import access
from tools_app.models import Call, Export, ExportFormat, ExportState

log = logging.getLogger(__name__)

# With arguments and results a piece may be large: they are up to MCPHUB_PAYLOAD_BYTES each.
CHUNK, CHUNK_WITH_PAYLOADS = 1000, 250
TOLD_EVERY: Final = 2_000
BROKEN: Final = "The download ended before the file did. Start it again."


class Counted:
    """How far an export is."""

    def __init__(self) -> None:
        self.calls = 0
        self.bytes = 0


def pieces(
    query: CallQuery, scope: Callable[[], Scope], form: ExportFormat, *, with_payloads: bool, counted: Counted
) -> Iterator[bytes]:
    """The file of all that a query finds in a scope. What was said in calls comes where it may be read."""
    first = header(form, with_payloads=with_payloads)
    counted.bytes += len(first)
    yield first
    current = _Kept(scope)
    for calls in walk_within(query, current, CHUNK_WITH_PAYLOADS if with_payloads else CHUNK):
        piece = _piece(calls, current.scope, form, with_payloads=with_payloads)
        counted.calls += len(calls)
        counted.bytes += len(piece)
        yield piece


def download(export: Export, person: access.Person) -> Iterator[bytes]:
    """The file of an export, whose row says meanwhile how far it is, and at the end how that was."""
    query, counted = query_of(export), Counted()
    _tell(export, counted, ExportState.RUNNING)
    told, state, problem = 0, ExportState.BROKEN, BROKEN
    try:
        for piece in pieces(
            query,
            lambda: scope_of(query, person),
            ExportFormat(export.format),
            with_payloads=export.with_payloads,
            counted=counted,
        ):
            yield piece
            if counted.calls - told >= TOLD_EVERY:
                told = counted.calls
                _tell(export, counted, ExportState.RUNNING)
        state, problem = ExportState.DONE, ""
    finally:
        # Whoever closes the connection closes this, too.
        _tell(export, counted, state, problem)


def query_of(export: Export) -> CallQuery:
    """What an export is about."""
    return CallQuery.from_params(QueryDict(export.query))


class _Kept:
    """Asks for the scope again and again, and keeps what it was told last."""

    def __init__(self, ask: Callable[[], Scope]) -> None:
        self._ask = ask
        self.scope = ask()

    def __call__(self) -> Scope:
        self.scope = self._ask()
        return self.scope


def _piece(calls: list[Call], scope: Scope, form: ExportFormat, *, with_payloads: bool) -> bytes:
    read = [call for call in calls if with_payloads and scope.audits(call.tenant_id)]
    details = details_of(read, with_events=form == ExportFormat.JSONL) if read else {}
    return lines(form, ((call, details.get(call.pk)) for call in calls), with_payloads=with_payloads)


def _tell(export: Export, counted: Counted, state: ExportState, problem: str = "") -> None:
    finished = None if state == ExportState.RUNNING else timezone.now()
    Export.objects.filter(pk=export.pk).update(
        calls=counted.calls, bytes=counted.bytes, state=state, problem=problem, finished_at=finished
    )
