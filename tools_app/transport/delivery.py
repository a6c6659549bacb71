"""Writing an answer to its client: one JSON body if it ended before it said anything, else an event stream.

A stream begins with the first message, or after some seconds of silence, so that proxies see life. A client that
accepts only one of the two gets that one.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import aclosing, suppress
from typing import Any

from tools_app.models.config import config
from tools_app.protocol.errors import INTERNAL_ERROR, RpcError
from tools_app.protocol.sse import Frame
from tools_app.transport.incoming import Incoming, Send
from tools_app.transport.outbox import Outbox
from tools_app.transport.responses import EventStream, Header, Reply, refusal, send_reply
from tools_app.transport.state import WebState
from tools_app.transport.streams import OpenStream

log = logging.getLogger(__name__)

_unattended: set[asyncio.Task[Reply]] = set()


class Delivery:
    """The answer of one POST on its way to its client.

    `cancel_when_gone`: a client that leaves gives up its request. `primed`: a stream begins with an event that says
    where to come back to it. `many`: the answer is that of a batch.
    """

    def __init__(
        self,
        incoming: Incoming,
        send: Send,
        web: WebState,
        headers: Iterable[Header],
        *,
        cancel_when_gone: bool,
        primed: bool = False,
        many: bool = False,
    ) -> None:
        self._incoming = incoming
        self._send = send
        self._web = web
        self._headers = tuple(headers)
        self._cancel_when_gone = cancel_when_gone
        self._primed = primed
        self._gone = False
        self._stream: EventStream | None = None
        self.outbox = Outbox(web.loop, takes_messages=incoming.accepts_stream, many=many)

    async def deliver(self, work: Coroutine[Any, Any, Reply]) -> None:
        """Run `work` and write what it sends and returns. If the client leaves, its era says what becomes of it."""
        answering = self._web.loop.create_task(self._awaking(work))
        await self.outbox.wait_a_moment(self._web.moments)
        if answering.done():
            await self._finish(answering.result())
            return
        await self._attend(answering)

    async def _awaking(self, work: Coroutine[Any, Any, Reply]) -> Reply:
        """What `work` returns or raises, noticed in the same turn of the loop: a callback would come one later."""
        try:
            return await work
        finally:
            self.outbox.wake()

    async def _attend(self, answering: asyncio.Task[Reply]) -> None:
        watching = asyncio.create_task(self._watch())
        given_up = asyncio.create_task(self._web.given_up.wait())
        given_up.add_done_callback(self.outbox.wake)
        try:
            while not (answering.done() or self._gone or self.outbox.paused or self._web.given_up.is_set()):
                await self._write_messages()
                await self._wait(answering)
        finally:
            watching.cancel()
            given_up.cancel()
            self._leave(answering)
        if self.outbox.paused and not self._gone:
            await self._pause()
        elif answering.done():
            await self._finish(answering.result())
        elif not self._gone:
            await self._finish(_stopping())

    async def _wait(self, answering: asyncio.Task[Reply]) -> None:
        """Wait for something to happen; after some silence, begin the stream or keep it alive."""
        if answering.done() or self.outbox.has_messages:
            return
        begun = self._stream is not None
        seconds = config.MCPHUB_KEEPALIVE_SECONDS if begun else config.MCPHUB_STREAM_AFTER_SECONDS
        began = self._web.loop.time()
        await self.outbox.wait(seconds)
        silent = self._web.loop.time() - began >= seconds
        if silent and self._incoming.accepts_stream:
            await (await self._begun()).keep_alive()

    async def _write_messages(self) -> None:
        frames = self.outbox.take()
        if frames and self._incoming.accepts_stream:
            await (await self._begun()).write(frames)

    async def _pause(self) -> None:
        """End the stream before the answer: its client comes back for the rest."""
        await self._write_messages()
        await (await self._begun()).end()

    async def _finish(self, reply: Reply) -> None:
        """Write what is left and the answer itself."""
        await self._write_messages()
        as_stream = self._stream is not None or not self._incoming.accepts_json
        if not as_stream and reply.message is not None:
            await send_reply(self._send, reply, self._headers)
            return
        if not self._incoming.accepts_stream:
            await send_reply(self._send, Reply(None, 202), self._headers)
            return
        stream = await self._begun()
        await stream.write([Frame(reply.message)] if reply.message is not None else [])
        await stream.end()

    async def _begun(self) -> EventStream:
        if self._stream is None:
            self._stream = EventStream(self._send)
            self.outbox.begun = True
            await self._stream.begin(self._headers)
            if self._primed and self.outbox.call_id is not None:
                await self._stream.prime(f"{self.outbox.call_id}/0")
        return self._stream

    async def _watch(self) -> None:
        await self._incoming.disconnected()
        self._gone = True
        self.outbox.wake()

    def _leave(self, answering: asyncio.Task[Reply]) -> None:
        """Leave a call that still runs: cancelled in the modern era, running on in the handshake era."""
        if answering.done():
            return
        if self._cancel_when_gone and not self.outbox.paused and not self._web.given_up.is_set():
            answering.cancel()
        _unattended.add(answering)
        answering.add_done_callback(_unattended.discard)


def _stopping() -> Reply:
    return refusal(RpcError(INTERNAL_ERROR, "The hub is stopping.", retry_after=1))


async def deliver_stream(
    incoming: Incoming,
    send: Send,
    web: WebState,
    open_stream: OpenStream,
    messages: AsyncIterator[Frame],
    *,
    headers: Iterable[Header] = (),
    farewell: Iterable[bytes] = (),
) -> None:
    """Write `messages` as they come until they end, the client leaves, or the stream is ended from outside.

    Empty messages are skipped. Raises what the iterator raises before its first message: nothing is sent by then.
    """
    outbox = Outbox(web.loop)
    async with aclosing(messages):  # type: ignore[type-var]
        outbox.put(*await anext(messages))
        stream = EventStream(send)
        await stream.begin(headers)
        web.streams.add(open_stream)
        if web.draining:
            open_stream.ended.set()
        pumping = asyncio.create_task(_pump(messages, outbox))
        watching = asyncio.create_task(incoming.disconnected())
        ending = asyncio.create_task(open_stream.ended.wait())
        stops = (pumping, watching, ending)
        for stop in stops:
            stop.add_done_callback(outbox.wake)
        try:
            while not any(stop.done() for stop in stops):
                await _forward(web.loop, outbox, stream, stops)
            if not watching.done():
                await stream.write([frame for frame in outbox.take() if frame.message])
                await stream.write(map(Frame, farewell) if web.draining else ())
                await stream.end()
        finally:
            web.streams.remove(open_stream)
            await _cancelled(stops)


async def _forward(
    loop: asyncio.AbstractEventLoop, outbox: Outbox, stream: EventStream, stops: tuple[asyncio.Task[Any], ...]
) -> None:
    await stream.write([frame for frame in outbox.take() if frame.message])
    if outbox.has_messages or any(stop.done() for stop in stops):
        return
    began = loop.time()
    await outbox.wait(config.MCPHUB_KEEPALIVE_SECONDS)
    if loop.time() - began >= config.MCPHUB_KEEPALIVE_SECONDS:
        await stream.keep_alive()


async def _pump(messages: AsyncIterator[Frame], outbox: Outbox) -> None:
    """Hand messages on, no faster than they are written: what is replayed must not push out what came before it."""
    try:
        async for frame in messages:
            if frame.message:
                await outbox.room(len(frame.message))
                outbox.put(*frame)
    except Exception:
        log.exception("A stream broke")
        raise


async def _cancelled(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError, Exception):
            await task
