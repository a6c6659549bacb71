"""The input of a WebSocket: when its connection is read."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.web_services import WAIT_SECONDS
from tools_app.core import request_memory
from tools_app.core.fair_scheduler import LARGE_BYTES
from tools_app.core.request_memory import COPIES
from tools_app.server.websocket_input import MAX_UNPARSED_BYTES, WebSocketInput

MAX_MESSAGE_BYTES = 1024 * 1024


class Connection:
    """A WebSocket connection that records the calls of its input."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.resumed = asyncio.Event()
        self.parsed = 0
        self.unparsed_bytes = 0
        self.input = WebSocketInput(self, self.parse, MAX_MESSAGE_BYTES)

    def parse(self, piece: bytes) -> None:
        self.parsed += len(piece)

    def message_bytes(self) -> int:
        return self.unparsed_bytes

    def fail(self, code: int, reason: str) -> None:
        self.calls.append(f"fail {code}")

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")
        self.resumed.set()


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), WAIT_SECONDS))


def test_reading_is_not_resumed_for_each_piece() -> None:
    async def scenario() -> None:
        connection = Connection()
        for _ in range(3):
            connection.input.receive(b"x" * 1000)
        assert (connection.parsed, connection.calls) == (3000, [])

    run(scenario)


def test_a_connection_is_not_read_while_much_is_unparsed() -> None:
    async def scenario() -> None:
        connection = Connection()
        connection.input.pause()
        connection.input.receive(b"x" * MAX_UNPARSED_BYTES)
        assert connection.calls == []
        connection.input.receive(b"x")
        assert (connection.parsed, connection.calls) == (0, ["pause"])
        connection.input.resume()
        assert (connection.parsed, connection.calls) == (MAX_UNPARSED_BYTES + 1, ["pause", "resume"])

    run(scenario)


def test_a_connection_is_read_again_once_there_is_memory_for_its_large_message() -> None:
    async def scenario() -> None:
        connection = Connection()
        connection.unparsed_bytes = LARGE_BYTES + 1
        connection.input.receive(b"x")
        assert connection.calls == ["pause"]
        await connection.resumed.wait()
        assert connection.calls == ["pause", "resume"]
        connection.input.receive(b"x")
        assert (connection.parsed, connection.calls) == (2, ["pause", "resume"])
        connection.input.stop()

    run(scenario)


def test_a_large_message_behind_messages_that_are_not_received_holds_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its time is that of its client: it would run out while the hub reads nothing.
    budget = request_memory.MemoryBudget(lambda: (COPIES * MAX_MESSAGE_BYTES,) * 2)
    monkeypatch.setattr(request_memory, "_bodies", budget)

    class Busy(Connection):
        """Its application has messages to receive from the first piece on."""

        def parse(self, piece: bytes) -> None:
            super().parse(piece)
            self.unparsed_bytes = MAX_MESSAGE_BYTES
            self.input.pause()

    async def scenario() -> None:
        connection = Busy()
        connection.input.receive(b"x")
        await asyncio.sleep(0)
        assert budget.try_hold(None, COPIES * MAX_MESSAGE_BYTES)
        budget.free(None, COPIES * MAX_MESSAGE_BYTES)
        connection.input.resume()
        await connection.resumed.wait()
        assert not budget.try_hold(None, 1)
        connection.input.stop()

    run(scenario)


def test_what_follows_the_reason_of_a_close_is_read_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    # A connection that is closed with unread bytes is reset, and the client does not learn why.
    monkeypatch.setattr(request_memory, "_bodies", request_memory.MemoryBudget(lambda: (100, 100)))
    monkeypatch.setattr(request_memory, "WAIT_SECONDS", 0.01)

    async def scenario() -> None:
        connection = Connection()
        assert request_memory._bodies.try_hold(None, 100)
        connection.unparsed_bytes = LARGE_BYTES + 1
        connection.input.receive(b"x")
        await connection.resumed.wait()
        assert connection.calls == ["pause", "resume", "fail 4429"]
        connection.input.receive(b"x" * 1000)
        assert connection.parsed == 1

    run(scenario)
