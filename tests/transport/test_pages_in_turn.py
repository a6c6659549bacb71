"""Scheduling of Django's pages after tenants' requests, and their use of threads."""

import asyncio
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse

from tools_app.core.fair_scheduler import FairScheduler
from tools_app.core.wait_queue import Background
from tools_app.transport import stranger_queue
from tools_app.transport.stranger_queue import page_time_middleware, queued_pages

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
    monkeypatch.setattr(stranger_queue, "PAGES", Background("pages", part=0.2, slots=1, max_waiting=2))

    async def scenario() -> None:
        going_on = asyncio.Event()

        async def pages(scope: Any, receive: Any, send: Any) -> None:
            await going_on.wait()
            await send({"type": "http.response.start", "status": 200})

        tasks = [asyncio.create_task(status(queued_pages(pages))) for _ in range(4)]
        refused, headers = await tasks[3]
        assert (refused, headers[b"retry-after"]) == (503, b"1")
        going_on.set()
        assert [(await task)[0] for task in tasks[:3]] == [200, 200, 200]

    asyncio.run(asyncio.wait_for(scenario(), WAIT_SECONDS))


def test_the_time_of_a_page_in_its_thread_is_charged(web: Web) -> None:
    def view(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(str(sum(range(300_000))))

    respond = page_time_middleware(view)

    async def pages(_scope: Any, _receive: Any, send: Any) -> None:
        await asyncio.to_thread(respond, HttpRequest())
        await send({"type": "http.response.start", "status": 200})

    async def scenario() -> None:
        await status(queued_pages(pages))
        assert web.scheduler._tenants[stranger_queue.PAGES].used > 0.001

    asyncio.run(asyncio.wait_for(scenario(), WAIT_SECONDS))
