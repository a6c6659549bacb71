"""The buffer of a slow client: bounded in messages and bytes, the oldest are dropped first."""

import asyncio
from collections.abc import Callable

import pytest

from tools_app.transport import responses
from tools_app.transport.responses import ResponseBuffer


def remaining(fill: Callable[[ResponseBuffer], None]) -> list[bytes]:
    """The messages in a buffer after `fill`."""

    async def run() -> list[bytes]:
        filled = ResponseBuffer(asyncio.get_running_loop())
        fill(filled)
        return [frame.message for frame in filled.drain()]

    return asyncio.run(run())


@pytest.mark.parametrize(("max_messages", "max_bytes", "left"), [(2, 100, [b"two", b"three"]), (100, 7, [b"three"])])
def test_the_oldest_goes_first(
    monkeypatch: pytest.MonkeyPatch, max_messages: int, max_bytes: int, left: list[bytes]
) -> None:
    monkeypatch.setattr(responses, "MAX_MESSAGES", max_messages)
    monkeypatch.setattr(responses, "MAX_BYTES", max_bytes)

    def fill(filled: ResponseBuffer) -> None:
        for message in (b"one", b"two", b"three"):
            filled.put(message)

    assert remaining(fill) == left


def test_a_message_that_is_larger_than_all_that_may_wait_is_kept_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "MAX_BYTES", 4)

    def fill(filled: ResponseBuffer) -> None:
        filled.put(b"one")
        filled.put(b"much too large")

    assert remaining(fill) == [b"much too large"]


def test_what_is_taken_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "MAX_BYTES", 6)

    def fill(filled: ResponseBuffer) -> None:
        filled.put(b"gone")
        filled.drain()
        filled.put(b"one")
        filled.put(b"two")

    assert remaining(fill) == [b"one", b"two"]


def test_who_waits_for_room_waits_until_something_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "MAX_BYTES", 4)

    async def run() -> bool:
        filled = ResponseBuffer(asyncio.get_running_loop())
        await filled.wait_for_room(100)  # an empty buffer accepts any message
        filled.put(b"one")
        waiting = asyncio.create_task(filled.wait_for_room(3))
        await asyncio.sleep(0)
        waited = not waiting.done()
        filled.drain()
        async with asyncio.timeout(5):
            await waiting
        return waited

    assert asyncio.run(run())
