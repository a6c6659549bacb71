"""Notifications to a channel layer that hangs or refuses: nobody waits, and the queue is bounded."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tools_app.core.notifications import publish
from tools_app.core.notifications.publish import Publisher

WAIT_SECONDS = 30.0


class Layer:
    """A channel layer that sends when a test releases it."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.reached, self.opened = threading.Event(), threading.Event()
        self.sending = 0
        self.refuses = False

    async def group_send(self, _group: str, message: dict[str, Any]) -> None:
        if self.refuses:
            raise ConnectionError("connection refused")
        self.sending += 1
        assert self.sending == 1, "one message at a time"
        self.reached.set()
        await asyncio.to_thread(self.opened.wait, WAIT_SECONDS)
        self.sent.append(message["topics"])
        self.sending -= 1


@pytest.fixture
def layer(monkeypatch: pytest.MonkeyPatch) -> Layer:
    fake = Layer()
    monkeypatch.setattr(publish, "get_channel_layer", lambda: fake)
    return fake


@pytest.fixture
def publisher(layer: Layer) -> Iterator[Publisher]:
    started = Publisher()
    yield started
    layer.opened.set()
    started.close()


def test_what_is_rung_while_the_layer_hangs_goes_out_together(
    publisher: Publisher, layer: Layer, eventually: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "MAX_TOPICS", 5)
    publisher.notify([("first", b"")])
    assert layer.reached.wait(WAIT_SECONDS)
    for number in range(20):
        publisher.notify([(f"topic {number}", b"")])
    layer.opened.set()
    assert eventually(lambda: len(layer.sent) == 2)
    assert layer.sent == [["first"], [f"topic {number}" for number in range(5)]]


def test_a_layer_that_refuses_is_named_once_until_it_is_back(
    publisher: Publisher, layer: Layer, eventually: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    layer.refuses = True
    for number in range(5):
        publisher.notify([(f"topic {number}", b"")])
        assert eventually(lambda: not publisher._pending)
    layer.refuses = False
    layer.opened.set()
    publisher.notify([("back", b"")])
    assert eventually(lambda: "available again" in caplog.text)
    assert caplog.text.count("is unavailable") == 1
