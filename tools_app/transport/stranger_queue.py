"""Background queues for unauthenticated requests and Django's pages, behind all tenants, by client address."""

import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_only_middleware

from tools_app.access.principal import rate_limit_key
from tools_app.core import fair_scheduler
from tools_app.core.wait_queue import Background
from tools_app.protocol.errors import RpcError
from tools_app.transport import state
from tools_app.transport.request import Application, remote_address
from tools_app.transport.request_head import head_of

# Requests without a known key, until they are authenticated. Those that wait for the database use a slot, too.
STRANGERS: Final = Background("strangers", part=0.2, slots=64, max_waiting=1000)
# Pages run in threads, which take the interpreter from the loop for longer than a request does: a few at a time, and
# beside tenants one after another, unless one takes long.
PAGES: Final = Background("pages", part=0.2, slots=4, max_waiting=1000, turn=0.1)


def queued_pages(pages: Application) -> Application:
    """Wrap `pages` so that each request waits for a slot, round-robin by client address."""

    async def page(scope: Any, receive: Any, send: Any) -> None:
        await _queued(PAGES, scope, pages(scope, receive, send), send)

    return page


async def queued(scope: Any, answer: Coroutine[Any, Any, None], send: Any) -> None:
    """Answer a request that needs no authentication, when its sender gets a slot."""
    await _queued(STRANGERS, scope, answer, send)


async def _queued(group: Background, scope: Any, answer: Coroutine[Any, Any, None], send: Any) -> None:
    try:
        await state.current().scheduler.run_background(group, _caller(scope), answer)
    except RpcError as refusal:
        await _refuse(send, refusal)


@sync_only_middleware
def page_time_middleware(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Django middleware that charges a page's thread time to its slot."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        began = time.thread_time()
        try:
            return get_response(request)
        finally:
            fair_scheduler.charge(time.thread_time() - began)

    return respond


def _caller(scope: Any) -> str:
    return rate_limit_key(remote_address(scope, head_of(scope).headers))


async def _refuse(send: Any, refusal: RpcError) -> None:
    body = refusal.message.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", str(refusal.retry_after).encode()),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
