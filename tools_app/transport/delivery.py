"""Delivery of a response: one JSON body if no message precedes the response, else an event stream.

A stream starts with the first message, or after STREAM_AFTER_SECONDS without one, so that proxies receive data.
A client that accepts only one of the two forms gets that one.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

from tools_app.calls.stop_reasons import CLIENT_LEFT
from tools_app.protocol.errors import INTERNAL_ERROR, RpcError
from tools_app.protocol.sse import Frame
from tools_app.transport.request import AsgiRequest, Send
from tools_app.transport.responses import EventStream, Header, Reply, ResponseBuffer, refusal, send_reply
from tools_app.transport.state import WebState
from tools_app.transport.streams import KeepAliveTimer, OpenStream

log = logging.getLogger(__name__)

# Most calls end within this time and need no task that watches for a disconnect.
QUICK_SECONDS = 0.05
# After this time without an event, a response becomes a stream: proxies and clients expect data.
STREAM_AFTER_SECONDS = 2.5

_unattended: set[asyncio.Task[Reply]] = set()


class Delivery:
    """The delivery of one POST's response.

    `cancel_when_gone`: a disconnect cancels the request. `primed`: a stream starts with an event id to resume from.
    `is_batch`: the response is that of a batch.
    """

    def __init__(
        self,
        http_request: AsgiRequest,
        send: Send,
        web: WebState,
        headers: Iterable[Header],
        *,
        cancel_when_gone: bool,
        primed: bool = False,
        is_batch: bool = False,
    ) -> None:
        self._http_request = http_request
        self._send = send
        self._web = web
        self._accepted = http_request.accepted
        self._headers = tuple(headers)
        self._cancel_when_gone = cancel_when_gone
        self._primed = primed
        self._is_disconnected = False
        self._stream: EventStream | None = None
        self.buffer = ResponseBuffer(web.loop, accepts_messages=self._accepted.stream, is_batch=is_batch)

    async def deliver(self, work: Coroutine[Any, Any, Reply]) -> None:
        """Run `work` and write its messages and reply. After a disconnect, the era decides whether it continues."""
        answering = self._web.loop.create_task(work)
        answering.add_done_callback(self.buffer.wake)
        try:
            await self.buffer.wait(QUICK_SECONDS)
            if answering.done():
                await self._finish(answering.result())
            else:
                await self._attend(answering)
        finally:
            # Last, because a stream may start with its final message.
            if self._stream is not None:
                self._web.keep_alive.remove(self.buffer.request_keep_alive)

    async def _attend(self, answering: asyncio.Task[Reply]) -> None:
        watching = asyncio.create_task(self._watch())
        given_up = asyncio.create_task(self._web.given_up.wait())
        given_up.add_done_callback(self.buffer.wake)
        try:
            while not self._is_over(answering):
                await self._write_messages()
                await self._wait(answering)
        finally:
            watching.cancel()
            given_up.cancel()
            self._leave(answering)
        if self.buffer.paused and not self._is_disconnected:
            await self._pause()
        elif answering.done():
            await self._finish(answering.result())
        elif not self._is_disconnected:
            await self._finish(
                Reply(self.buffer.answer)
                if self.buffer.has_responded
                else refusal(RpcError(INTERNAL_ERROR, "The hub is stopping.", retry_after=1))
            )

    def _is_over(self, answering: asyncio.Task[Reply]) -> bool:
        buffer = self.buffer
        return (
            answering.done()
            or self._is_disconnected
            or buffer.paused
            or buffer.has_responded
            or self._web.given_up.is_set()
        )

    async def _wait(self, answering: asyncio.Task[Reply]) -> None:
        """Wait for an event; without one, start the stream or keep it alive."""
        if self._is_over(answering) or self.buffer.messages:
            return
        if self._stream is not None:
            await self.buffer.wait()
            if self.buffer.take_keep_alive_request() and not self.buffer.messages:
                await self._stream.keep_alive()
        elif self._accepted.stream:
            seconds, began = STREAM_AFTER_SECONDS, self._web.loop.time()
            await self.buffer.wait(seconds)
            if self._web.loop.time() - began >= seconds:
                await self._event_stream()
        else:
            await self.buffer.wait()

    async def _write_messages(self) -> None:
        frames = self.buffer.drain()
        if frames and self._accepted.stream:
            await (await self._event_stream()).write(frames)
            self._web.keep_alive.note_activity(self.buffer.request_keep_alive)

    async def _pause(self) -> None:
        """End the stream before the response: its client resumes it for the rest."""
        await self._write_messages()
        await (await self._event_stream()).end()

    async def _finish(self, reply: Reply) -> None:
        """Write the remaining messages and the reply."""
        if self.buffer.messages:
            await self._write_messages()
        as_stream = self._stream is not None or not self._accepted.json
        if not as_stream and reply.message is not None:
            await send_reply(self._http_request, self._send, reply, self._headers)
            return
        if not self._accepted.stream:
            await send_reply(self._http_request, self._send, Reply(None, 202), self._headers)
            return
        stream = await self._event_stream()
        await stream.write([Frame(reply.message)] if reply.message is not None else [])
        await stream.end()

    async def _event_stream(self) -> EventStream:
        if self._stream is None:
            self._stream = EventStream(self._send)
            self.buffer.has_stream = True
            await self._stream.begin(self._headers)
            self._web.keep_alive.note_activity(self.buffer.request_keep_alive)
            if self._primed and self.buffer.call_id is not None:
                await self._stream.prime(f"{self.buffer.call_id}/0")
        return self._stream

    async def _watch(self) -> None:
        await self._http_request.disconnected()
        self._is_disconnected = True
        self.buffer.wake()

    def _leave(self, answering: asyncio.Task[Reply]) -> None:
        """Detach from a call in progress: cancel it in the modern era, let it run in the handshake era."""
        if answering.done():
            return
        if self._cancel_when_gone and not self.buffer.paused and not self._web.given_up.is_set():
            answering.cancel(CLIENT_LEFT)
        _unattended.add(answering)
        answering.add_done_callback(_unattended.discard)


async def deliver_stream(
    http_request: AsgiRequest,
    send: Send,
    web: WebState,
    open_stream: OpenStream,
    messages: AsyncIterator[Frame],
    *,
    headers: Iterable[Header] = (),
) -> None:
    """Write `messages` as they come until they end, the client disconnects, or the stream is ended externally.

    Empty messages are skipped. Raises what the iterator raises before its first message, when nothing has been sent.
    """
    buffer = ResponseBuffer(web.loop)
    async with aclosing(messages):  # type: ignore[type-var]
        buffer.put(*await anext(messages))
        stream = EventStream(send)
        await stream.begin(headers)
        web.streams.add(open_stream)
        web.keep_alive.note_activity(buffer.request_keep_alive)
        pumping = asyncio.create_task(_pump(messages, buffer))
        watching = asyncio.create_task(http_request.disconnected())
        ending = web.loop.create_future()
        open_stream.on_end(partial(_resolve, ending))
        if web.draining:
            open_stream.end()
        stops = (pumping, watching, ending)
        for stop in stops:
            stop.add_done_callback(buffer.wake)
        try:
            while not any(stop.done() for stop in stops):
                await _forward(web.keep_alive, buffer, stream, stops)
            if not watching.done():
                await stream.write([frame for frame in buffer.drain() if frame.message])
                await stream.end()
        finally:
            web.streams.remove(open_stream)
            web.keep_alive.remove(buffer.request_keep_alive)
            await _cancelled(stops)


async def _forward(
    timer: KeepAliveTimer, buffer: ResponseBuffer, stream: EventStream, stops: tuple[asyncio.Future[Any], ...]
) -> None:
    frames = [frame for frame in buffer.drain() if frame.message]
    if frames:
        await stream.write(frames)
        timer.note_activity(buffer.request_keep_alive)
    if buffer.messages or any(stop.done() for stop in stops):
        return
    await buffer.wait()
    if buffer.take_keep_alive_request() and not buffer.messages:
        await stream.keep_alive()


async def _pump(messages: AsyncIterator[Frame], buffer: ResponseBuffer) -> None:
    """Forward messages no faster than they are written, so that a replay drops no earlier messages."""
    try:
        async for frame in messages:
            if frame.message:
                await buffer.wait_for_room(len(frame.message))
                buffer.put(*frame)
    except Exception:
        log.exception("A stream broke")
        raise


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _cancelled(tasks: Iterable[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError, Exception):
            await task
