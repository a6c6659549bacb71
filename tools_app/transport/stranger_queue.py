"""Background queues for unauthenticated requests and Django's pages, behind all tenants, by client address."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from tools_app.core.fair_scheduler import Group
from tools_app.identity.principal import client_ip, rate_limit_key
from tools_app.protocol.errors import RpcError
from tools_app.transport import state
from tools_app.transport.request import FORWARDED_FOR, Application, head_of

# Requests without a known key, until they are authenticated. Those that wait for the database use a slot, too.
STRANGERS: Final = Group("strangers", slots=64, max_waiting=1000, interval=0.005)
# Pages run in threads, which take the interpreter from the loop for longer than a request does.
PAGES: Final = Group("pages", slots=4, max_waiting=1000, interval=0.03)


def queued_pages(pages: Application) -> Application:
    """Wrap `pages` so that each request waits for a slot, round-robin by client address."""

    async def page(scope: Any, receive: Any, send: Any) -> None:
        await _queued(PAGES, scope, partial(pages, scope, receive, send), send)

    return page


async def queued(scope: Any, answer: Callable[[], Coroutine[Any, Any, None]], send: Any) -> None:
    """Answer a request that needs no authentication, when its sender gets a slot."""
    await _queued(STRANGERS, scope, answer, send)


async def _queued(group: Group, scope: Any, answer: Callable[[], Coroutine[Any, Any, None]], send: Any) -> None:
    try:
        await state.current().scheduler.run(group, answer, _caller(scope))
    except RpcError as refusal:
        await _refuse(send, refusal)


def _caller(scope: Any) -> str:
    headers = head_of(scope).headers
    return rate_limit_key(client_ip(str((scope.get("client") or [""])[0]), headers.get(FORWARDED_FOR, "")))


async def _refuse(send: Any, refusal: RpcError) -> None:
    body = refusal.message.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", str(refusal.retry_after).encode()),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
