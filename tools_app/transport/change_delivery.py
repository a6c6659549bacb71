"""Delivery of a stream of changes, which is idle almost always.

An idle stream is the task of its request, which waits for the client to disconnect. Messages and keep-alives are
written by a task that exists only meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import copy_context

from tools_app.methods.subscriptions import ChangeStream
from tools_app.protocol.sse import Frame
from tools_app.transport.request import AsgiRequest, Send
from tools_app.transport.responses import EventStream, Header
from tools_app.transport.state import WebState
from tools_app.transport.streams import OpenStream

log = logging.getLogger(__name__)


class ChangeDelivery:
    """The delivery of one stream. `last_messages` returns the last messages of a stream that the hub ends."""

    __slots__ = (
        "_changes",
        "_context",
        "_has_news",
        "_is_silent",
        "_last_messages",
        "_open_stream",
        "_stream",
        "_until_over",
        "_web",
        "_writing",
    )

    def __init__(
        self,
        web: WebState,
        send: Send,
        open_stream: OpenStream,
        changes: ChangeStream,
        last_messages: Callable[[], Iterable[bytes]] = tuple,
    ) -> None:
        self._web = web
        self._stream = EventStream(send)
        self._open_stream = open_stream
        self._changes = changes
        self._last_messages = last_messages
        # Its messages are written in the context of its own request, also if another one wakes it.
        self._context = copy_context()
        self._until_over: asyncio.Timeout | None = None
        self._writing: asyncio.Task[None] | None = None
        self._has_news = False
        self._is_silent = False

    async def deliver(self, http_request: AsgiRequest, headers: Iterable[Header] = ()) -> None:
        """Write the messages as they come until the client disconnects, or the stream is ended externally.

        Raises what opening the stream raises, when nothing has been sent.
        """
        try:
            first = await self._changes.open(self._note_news)
            await self._stream.begin(headers, first)
            self._open_stream.on_end(self._write_soon)
            self._web.streams.add(self._open_stream)
            self._web.keep_alive.note_activity(self._keep_alive)
            if self._web.draining:
                self._open_stream.end()
            with suppress(TimeoutError):
                async with asyncio.timeout(None) as self._until_over:
                    self._write_soon()
                    await http_request.disconnected()
        finally:
            self._until_over = None
            self._web.streams.remove(self._open_stream)
            self._web.keep_alive.remove(self._keep_alive)
            if self._writing is not None:
                self._writing.cancel()
                # The traceback of its end refers to this delivery, a reference cycle.
                self._writing = None
            await self._changes.close()

    def _note_news(self) -> None:
        self._has_news = True
        self._write_soon()

    def _keep_alive(self) -> None:
        self._is_silent = True
        self._write_soon()

    def _write_soon(self) -> None:
        """Start the writer, unless there is nothing to write, or it writes already and will see what is new."""
        has_work = self._has_news or self._is_silent or self._open_stream.is_ended
        if has_work and self._writing is None and self._until_over is not None:
            self._writing = self._web.loop.create_task(self._write(), context=self._context)

    async def _write(self) -> None:
        try:
            await self._write_all()
        except Exception:
            log.exception("A stream broke")
            with suppress(Exception):
                await self._end()
            self._finish()
        self._writing = None

    async def _write_all(self) -> None:
        while not self._open_stream.is_ended:
            if self._has_news:
                await self._write_news()
            elif self._is_silent:
                self._is_silent = False
                await self._stream.keep_alive()
            else:
                return
        await self._write_news()
        await self._end()
        self._finish()

    async def _write_news(self) -> None:
        if not self._has_news:
            return
        self._has_news = False
        messages = await self._changes.take()
        if messages:
            await self._stream.write(messages)
            self._is_silent = False
            self._web.keep_alive.note_activity(self._keep_alive)

    async def _end(self) -> None:
        await self._stream.write(map(Frame, self._last_messages()))
        await self._stream.end()

    def _finish(self) -> None:
        """End the request."""
        if self._until_over is not None:
            self._until_over.reschedule(self._web.loop.time())
