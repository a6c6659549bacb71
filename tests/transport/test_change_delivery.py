"""Delivery of change notifications: nothing is written without changes, and every message is."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tools_app.protocol.sse import KEEPALIVE, Frame
from tools_app.transport.change_delivery import ChangeDelivery
from tools_app.transport.request import AsgiRequest
from tools_app.transport.streams import KeepAliveTimer

WAIT_SECONDS = 30.0
FAREWELL = b'"last_messages"'


class OpenStream:
    """A stream that the test ends."""

    def __init__(self) -> None:
        self.is_ended = False

    def on_end(self, call: Any) -> None:
        self._call = call

    def end(self) -> None:
        self.is_ended = True
        self._call()


class Changes:
    """Messages from the test, some of them ready while the stream is being opened."""

    def __init__(self, *meanwhile: bytes) -> None:
        self.ready = list(meanwhile)
        self.wake: Any = None
        self.is_closed = False
        self.is_broken = False

    async def open(self, wake: Any) -> list[Frame]:
        self.wake = wake
        if self.ready:
            wake()
        return [Frame(b'"opened"')]

    def publish(self, *messages: bytes) -> None:
        self.ready += messages
        self.wake()

    async def take(self) -> list[Frame]:
        if self.is_broken:
            raise ValueError("broken")
        ready, self.ready = self.ready, []
        return [Frame(message) for message in ready]

    async def close(self) -> None:
        self.is_closed = True


class Client:
    """A client that reads at the speed that the test sets."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.is_over = False
        self.writes = 0
        self.reads = asyncio.Event()
        self.reads.set()
        self.gone = asyncio.Event()
        self._something = asyncio.Condition()

    async def send(self, message: Any) -> None:
        self.writes += 1
        async with self._something:
            self.written += message.get("body", b"")
            self.is_over = message["type"] == "http.response.body" and not message.get("more_body")
            self._something.notify_all()
        await self.reads.wait()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def has(self, *texts: bytes) -> None:
        """Wait until all this has been written."""
        async with asyncio.timeout(WAIT_SECONDS), self._something:
            await self._something.wait_for(lambda: all(text in self.written for text in texts))


class Delivered:
    """A stream being delivered, with its client and changes."""

    def __init__(self, *meanwhile: bytes, draining: bool = False) -> None:
        loop = asyncio.get_running_loop()
        self.client, self.changes, self.open_stream = Client(), Changes(*meanwhile), OpenStream()
        self.streams: set[Any] = set()
        streams = SimpleNamespace(add=self.streams.add, remove=self.streams.discard)
        self.keep_alive = KeepAliveTimer(loop)
        web: Any = SimpleNamespace(loop=loop, keep_alive=self.keep_alive, streams=streams, draining=draining)
        stream_parts: Any = (self.open_stream, self.changes)
        delivery = ChangeDelivery(web, self.client.send, *stream_parts, self._last_messages)
        scope = {"method": "GET", "path": "/mcp", "headers": []}
        self.task = asyncio.create_task(delivery.deliver(AsgiRequest(scope, self.client.receive)))

    async def over(self) -> None:
        """Wait until the request has ended and left nothing behind."""
        async with asyncio.timeout(WAIT_SECONDS):
            await self.task
        assert self.changes.is_closed
        assert not self.streams
        assert not len(self.keep_alive)

    def _last_messages(self) -> Iterable[bytes]:
        return (FAREWELL,)


@asynccontextmanager
async def delivered() -> AsyncIterator[Delivered]:
    """An open stream that its client closes at the end."""
    stream = Delivered()
    await stream.client.has(b'"opened"')
    yield stream
    stream.client.gone.set()
    await stream.over()


def test_a_stream_that_has_nothing_to_say_is_one_task() -> None:
    async def scenario() -> int:
        before = len(asyncio.all_tasks())
        async with delivered() as stream:
            stream.changes.publish(b'"first"')
            await stream.client.has(b'"first"')
            # The writer ends in the next iteration of the loop.
            await asyncio.sleep(0)
            return len(asyncio.all_tasks()) - before

    assert asyncio.run(scenario()) == 1


def test_messages_are_written_as_they_come() -> None:
    async def scenario() -> bytes:
        async with delivered() as stream:
            for message in (b'"first"', b'"second"'):
                stream.changes.publish(message)
                await stream.client.has(message)
            return bytes(stream.client.written)

    written = asyncio.run(scenario())
    assert written.index(b'"opened"') < written.index(b'"first"') < written.index(b'"second"')


def test_what_changed_while_the_stream_was_opened_is_written() -> None:
    async def scenario() -> None:
        stream = Delivered(b'"meanwhile"')
        await stream.client.has(b'"opened"', b'"meanwhile"')
        stream.client.gone.set()
        await stream.over()

    asyncio.run(scenario())


def test_a_slow_client_is_written_to_once_for_all_that_it_missed() -> None:
    async def scenario() -> int:
        async with delivered() as stream:
            stream.client.reads.clear()
            stream.changes.publish(b'"slow"')
            await stream.client.has(b'"slow"')
            before = stream.client.writes
            for number in range(100):
                stream.changes.publish(b'"%d"' % number)
            stream.client.reads.set()
            await stream.client.has(b'"0"', b'"99"')
            return stream.client.writes - before

    assert asyncio.run(scenario()) == 1


def test_an_idle_stream_is_kept_alive(settings: Any) -> None:
    settings.MCPHUB_KEEPALIVE_INTERVAL = 0.02

    async def scenario() -> None:
        async with delivered() as stream:
            stream.client.written.clear()
            await stream.client.has(2 * KEEPALIVE)

    asyncio.run(scenario())


@pytest.mark.parametrize("is_waiting", [False, True])
def test_a_stream_that_the_hub_ends_says_so_last(is_waiting: bool) -> None:
    async def scenario() -> Client:
        stream = Delivered()
        await stream.client.has(b'"opened"')
        if is_waiting:
            stream.client.reads.clear()
            stream.changes.publish(b'"slow"')
            await stream.client.has(b'"slow"')
            stream.changes.publish(b'"last"')
        stream.open_stream.end()
        stream.client.reads.set()
        await stream.over()
        return stream.client

    client = asyncio.run(scenario())
    assert client.is_over
    assert (b'"last"' in client.written) is is_waiting
    assert bytes(client.written).split(b"data: ")[-1].startswith(FAREWELL)


def test_a_stream_that_is_opened_while_the_hub_stops_ends_at_once() -> None:
    async def scenario() -> Client:
        stream = Delivered(draining=True)
        await stream.over()
        return stream.client

    client = asyncio.run(scenario())
    assert client.is_over
    assert FAREWELL in client.written


def test_a_client_that_leaves_ends_its_stream_even_while_it_is_written_to() -> None:
    async def scenario() -> None:
        stream = Delivered()
        await stream.client.has(b'"opened"')
        stream.client.reads.clear()
        stream.changes.publish(b'"slow"')
        await stream.client.has(b'"slow"')
        stream.client.gone.set()
        await stream.over()

    asyncio.run(scenario())


def test_a_stream_that_breaks_ends(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> Client:
        stream = Delivered()
        await stream.client.has(b'"opened"')
        stream.changes.is_broken = True
        stream.changes.publish(b'"lost"')
        await stream.over()
        return stream.client

    assert asyncio.run(scenario()).is_over
    assert "A stream broke" in caplog.text
