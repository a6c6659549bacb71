"""Export responses, streamed without a thread or a connection that waits for a slow client."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any, Final

from django.core.handlers.asgi import ASGIRequest
from django.db import close_old_connections, connection
from django.http import HttpRequest, StreamingHttpResponse

from tools_app.audit.export.runner import download as pieces_of
from tools_app.models import Export, ExportFormat

CONTENT_TYPES: Final = {
    ExportFormat.JSONL: "application/jsonl",
    ExportFormat.CSV: "text/csv; charset=utf-8; header=present",
}


def file_response(request: HttpRequest, export: Export) -> StreamingHttpResponse:
    """Return the file of an export, within the permissions of the requesting person."""
    pieces = pieces_of(export, request.user)
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
    step = None
    try:
        while True:
            step = asyncio.ensure_future(asyncio.to_thread(_next, pieces))
            piece = await asyncio.shield(step)
            if piece is None:
                return
            yield piece
    finally:
        # A client that disconnects must not leave the row in the running state.
        await asyncio.shield(_ended(step, pieces))


async def _ended(step: "asyncio.Future[bytes | None] | None", pieces: Iterator[bytes]) -> None:
    """Close `pieces` after the thread that produces the current one has finished."""
    if step is not None:
        with suppress(Exception):
            await step
    await asyncio.to_thread(_close, pieces)


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
