"""An export as the answer to a request: streamed, without a thread or a connection that waits for a slow client."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any, Final

from django.core.handlers.asgi import ASGIRequest
from django.db import close_old_connections, connection
from django.http import HttpRequest, StreamingHttpResponse

from tools_app.audit.exporting.running import download as pieces_of
from tools_app.models import Export, ExportFormat

CONTENT_TYPES: Final = {
    ExportFormat.JSONL: "application/jsonl",
    ExportFormat.CSV: "text/csv; charset=utf-8; header=present",
}


def file_answer(request: HttpRequest, export: Export) -> StreamingHttpResponse:
    """The file of an export, as the person behind the request may have it."""
    pieces = pieces_of(export, request.user)
    if isinstance(request, ASGIRequest):
        # The thread of a request is its own until its last byte is sent, and would keep its connection.
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
    """The pieces, each made in a thread that is free again while the client takes it."""
    step = None
    try:
        while True:
            step = asyncio.ensure_future(asyncio.to_thread(_next, pieces))
            piece = await asyncio.shield(step)
            if piece is None:
                return
            yield piece
    finally:
        # A client that went away must not leave the row as if it were still coming.
        await asyncio.shield(_ended(step, pieces))


async def _ended(step: "asyncio.Future[bytes | None] | None", pieces: Iterator[bytes]) -> None:
    """Close `pieces`, once the thread is through that makes one at this moment."""
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
