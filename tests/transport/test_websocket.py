"""Disconnects of WebSocket clients, which servers report in different ways."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from django.conf import settings

from tools_app.calls import sessions
from tools_app.core import request_memory
from tools_app.core.request_memory import MemoryBudget
from tools_app.models import Session
from tools_app.protocol.close_codes import TOO_LARGE
from tools_app.transport import state
from tools_app.transport.connection import Connection
from tools_app.transport.websocket import MAX_WAITING_MESSAGES, WebSocketConsumer

pytestmark = pytest.mark.servers

WAIT_SECONDS = 30.0
INITIALIZE = (
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":'
    '{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}'
)
PING = '{"jsonrpc":"2.0","id":1,"method":"ping"}'


def scope_of(key: str) -> dict[str, Any]:
    return {
        "type": "websocket",
        "path": "/ws",
        "query_string": b"",
        "scheme": "ws",
        "client": ("127.0.0.1", 1),
        "headers": [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {key}".encode())],
        "subprotocols": ["mcp"],
    }


@pytest.fixture(autouse=True)
def _without_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start neither the process's heartbeat nor its listener."""
    monkeypatch.setattr("tools_app.transport.state.process.start", lambda _: None)
    monkeypatch.setattr("tools_app.core.notifications.listener.TopicListener.start", lambda _: None)


def receiving(texts: list[str], closed: asyncio.Event) -> Callable[[], Awaitable[dict[str, Any]]]:
    """Return the `receive` of a client that connects, sends these texts, and disconnects once `closed` is set."""
    frames = iter([{"type": "websocket.connect"}, *({"type": "websocket.receive", "text": text} for text in texts)])

    async def receive() -> dict[str, Any]:
        if frame := next(frames, None):
            return frame
        await closed.wait()
        return {"type": "websocket.disconnect", "code": 1006}

    return receive


async def serve(consumer: WebSocketConsumer, key: str) -> list[str]:
    """Serve a client that disconnects before the response: sending raises OSError. Return the sent message types."""
    message_types: list[str] = []
    closed = asyncio.Event()

    async def send(message: dict[str, Any]) -> None:
        message_types.append(message["type"])
        if message["type"] == "websocket.close":
            closed.set()
        if message["type"] != "websocket.accept":
            raise ConnectionResetError

    try:
        await asyncio.wait_for(consumer(scope_of(key), receiving([PING], closed), send), WAIT_SECONDS)
    finally:
        state.discard()
    return message_types


def test_a_client_that_is_gone_is_no_error(transactional_db: None, key: str, caplog: pytest.LogCaptureFixture) -> None:
    consumer = WebSocketConsumer()
    assert asyncio.run(serve(consumer, key)) == ["websocket.accept", "websocket.send", "websocket.close"]
    # asyncio logs an exception of a task that nobody has asked for when the task is freed.
    gc.collect()
    assert consumer._serving is not None
    assert consumer._serving.exception() is None
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_what_arrives_after_a_connection_was_closed_is_ignored(transactional_db: None, key: str) -> None:
    sent: list[dict[str, Any]] = []

    async def scenario() -> None:
        closed = asyncio.Event()

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)
            if message["type"] == "websocket.close":
                closed.set()

        too_large = "x" * (settings.MCPHUB_MAX_BODY_BYTES + 1)
        receive = receiving([too_large, too_large, PING], closed)
        try:
            await asyncio.wait_for(WebSocketConsumer()(scope_of(key), receive, send), WAIT_SECONDS)
        finally:
            state.discard()

    asyncio.run(scenario())
    assert [message["type"] for message in sent] == ["websocket.accept", "websocket.close"]
    assert sent[-1]["code"] == TOO_LARGE


def test_a_client_that_leaves_while_its_session_is_stored_leaves_no_open_session(
    transactional_db: None, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, stored, closed = sessions.start, asyncio.Event(), asyncio.Event()

    async def start_slowly(*args: Any) -> str:
        """Store the session, and return it once its client was seen to leave."""
        wire_id = await start(*args)
        stored.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.3)
        return wire_id

    async def scenario() -> None:
        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "websocket.send":
                await stored.wait()
                closed.set()
                raise ConnectionResetError

        receive = receiving([PING, INITIALIZE], closed)
        try:
            await asyncio.wait_for(WebSocketConsumer()(scope_of(key), receive, send), WAIT_SECONDS)
        finally:
            state.discard()

    monkeypatch.setattr(sessions, "start", start_slowly)
    asyncio.run(scenario())
    assert Session.objects.get().ended_at is not None


def test_the_memory_of_messages_that_are_not_served_any_more_is_given_back(
    transactional_db: None, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = MemoryBudget(lambda: (10_000_000, 10_000_000))
    monkeypatch.setattr(request_memory, "_bodies", budget)
    consumer = WebSocketConsumer()

    async def scenario() -> None:
        served, is_over, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def serve_nothing(_self: Connection, _messages: Any) -> None:
            served.set()
            await is_over.wait()

        async def end_while_one_waits() -> None:
            while not consumer._inbox._putters:  # type: ignore[attr-defined] # noqa: ASYNC110
                await asyncio.sleep(0)
            is_over.set()

        async def events() -> AsyncIterator[dict[str, Any]]:
            yield {"type": "websocket.connect"}
            await served.wait()
            ending = asyncio.create_task(end_while_one_waits())
            for _ in range(MAX_WAITING_MESSAGES + 1):
                yield {"type": "websocket.receive", "text": "x" * 100_000}
            await ending
            await closed.wait()
            yield {"type": "websocket.disconnect", "code": 1006}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "websocket.close":
                closed.set()

        monkeypatch.setattr(Connection, "serve", serve_nothing)
        received = events()
        try:
            await asyncio.wait_for(consumer(scope_of(key), received.__anext__, send), WAIT_SECONDS)
        finally:
            state.discard()

    asyncio.run(scenario())
    assert budget._held == {}


def test_the_memory_of_a_message_that_waits_is_given_back_when_the_server_ends_the_connection(
    transactional_db: None, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = MemoryBudget(lambda: (10_000_000, 10_000_000))
    monkeypatch.setattr(request_memory, "_bodies", budget)
    consumer = WebSocketConsumer()

    async def scenario() -> None:
        is_over = asyncio.Event()

        async def serve_nothing(_self: Connection, _messages: Any) -> None:
            await is_over.wait()

        async def send(_message: dict[str, Any]) -> None:
            """Tell nobody."""

        monkeypatch.setattr(Connection, "serve", serve_nothing)
        receive = receiving(["x" * 100_000] * (MAX_WAITING_MESSAGES + 1), asyncio.Event())
        running = asyncio.create_task(consumer(scope_of(key), receive, send))
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not (hasattr(consumer, "_inbox") and consumer._inbox._putters):  # type: ignore[attr-defined] # noqa: ASYNC110
                    await asyncio.sleep(0)
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running
                is_over.set()
                assert consumer._serving is not None
                await consumer._serving
            consumer._empty_inbox()
        finally:
            state.discard()

    asyncio.run(scenario())
    assert budget._held == {}
