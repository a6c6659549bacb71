"""A WebSocket whose client disconnects: servers differ in how they say so."""

import asyncio
import logging
from typing import Any

import pytest

from tools_app.transport import state
from tools_app.transport.websocket import WebSocketConsumer

WAIT_SECONDS = 30.0
PING = '{"jsonrpc":"2.0","id":1,"method":"ping"}'


async def serve(consumer: WebSocketConsumer, key: str) -> list[str]:
    """Serve a client that is gone when it is answered: sending to it raises OSError. Return what it was sent."""
    sent: list[str] = []
    closed = asyncio.Event()
    frames = iter([{"type": "websocket.connect"}, {"type": "websocket.receive", "text": PING}])

    async def receive() -> dict[str, Any]:
        if frame := next(frames, None):
            return frame
        await closed.wait()
        return {"type": "websocket.disconnect", "code": 1006}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message["type"])
        if message["type"] == "websocket.close":
            closed.set()
        if message["type"] != "websocket.accept":
            raise ConnectionResetError

    scope = {
        "type": "websocket",
        "path": "/ws",
        "query_string": b"",
        "scheme": "ws",
        "client": ("127.0.0.1", 1),
        "headers": [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {key}".encode())],
        "subprotocols": ["mcp"],
    }
    try:
        await asyncio.wait_for(consumer(scope, receive, send), WAIT_SECONDS)
    finally:
        state.discard()
    return sent


def test_a_client_that_is_gone_is_no_error(
    transactional_db: None, key: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools_app.transport.state.process.start", lambda _: None)
    monkeypatch.setattr("tools_app.core.notifications.listener.TopicListener.start", lambda _: None)
    consumer = WebSocketConsumer()
    assert asyncio.run(serve(consumer, key)) == ["websocket.accept", "websocket.send", "websocket.close"]
    assert consumer._serving is not None
    assert consumer._serving.exception() is None
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
