"""Scheduling of Django's pages after tenants' requests."""

import asyncio
from typing import Any

import pytest

from tools_app.core.fair_scheduler import FairScheduler, Group
from tools_app.transport import stranger_queue
from tools_app.transport.stranger_queue import queued_pages

pytestmark = pytest.mark.servers

WAIT_SECONDS = 30.0


class Web:
    """The parts of a web process's state that a page needs."""

    def __init__(self) -> None:
        self.scheduler = FairScheduler(alone=8, together=4)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Web:
    web = Web()
    monkeypatch.setattr("tools_app.transport.state.current", lambda: web)
    return web


async def status(application: Any, address: str = "192.0.2.1") -> tuple[int, dict[bytes, bytes]]:
    messages: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    await application({"type": "http", "client": (address, 1), "headers": []}, None, send)
    return messages[0]["status"], dict(messages[0].get("headers", ()))


def test_beyond_the_pages_that_may_wait_the_answer_is_503(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stranger_queue, "PAGES", Group("pages", slots=1, max_waiting=2, interval=0.0))

    async def scenario() -> None:
        running, going_on = asyncio.Event(), asyncio.Event()

        async def pages(scope: Any, receive: Any, send: Any) -> None:
            running.set()
            await going_on.wait()
            await send({"type": "http.response.start", "status": 200})

        tasks = [asyncio.create_task(status(queued_pages(pages)))]
        await running.wait()
        tasks += [asyncio.create_task(status(queued_pages(pages))) for _ in range(3)]
        refused, headers = await tasks[3]
        assert (refused, headers[b"retry-after"]) == (503, b"1")
        going_on.set()
        assert [(await task)[0] for task in tasks[:3]] == [200, 200, 200]

    asyncio.run(asyncio.wait_for(scenario(), WAIT_SECONDS))
