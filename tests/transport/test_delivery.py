"""Delivery of responses: as JSON or as an event stream."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tools_app.transport.delivery import QUICK_SECONDS, Delivery
from tools_app.transport.request import AsgiRequest
from tools_app.transport.responses import Reply
from tools_app.transport.streams import KeepAliveTimer

pytestmark = pytest.mark.servers


@pytest.mark.parametrize("seconds", [0, 2 * QUICK_SECONDS])
def test_a_stream_that_ended_is_not_kept_alive(seconds: float) -> None:
    async def run() -> tuple[int, bytes]:
        loop = asyncio.get_running_loop()
        web: Any = SimpleNamespace(loop=loop, keep_alive=KeepAliveTimer(loop), given_up=asyncio.Event())
        sent = bytearray()

        async def send(message: Any) -> None:
            sent.extend(message.get("body", b""))

        async def work() -> Reply:
            await asyncio.sleep(seconds)
            return Reply(b"{}")

        scope = {"method": "POST", "path": "/mcp", "headers": [(b"accept", b"text/event-stream")]}
        delivery = Delivery(AsgiRequest(scope, asyncio.Event().wait), send, web, (), cancel_when_gone=True)  # type: ignore[arg-type]
        await asyncio.wait_for(delivery.deliver(work()), 5)
        return len(web.keep_alive), bytes(sent)

    left, sent = asyncio.run(run())
    assert b"data: {}" in sent
    assert left == 0
