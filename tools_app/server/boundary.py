"""What the hub asks of clients at the ASGI boundary, under every server: that they send and read without long pauses.

It counts open requests and marks responses as the last ones of their connections, for a server that stops. The sizes of
bodies depend on who sends them where: `transport.request` and `transport.page_guard` have their bounds.
"""

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Final, TypeVar

from tools_app.transport.request import CLOSE, Application, BodyTooSlow, Disconnected, Receive, Scope, Send

T = TypeVar("T")

# How long the next piece of a request may take, or its client to read the next piece of the response.
IDLE_SECONDS = 75.0
# The number of checks within this time: a timer for each message would be expensive.
IDLE_CHECKS = 5
GIVEN_UP: Final = -inf
# A server is given no more of a response at once, so that a client that reads slowly is told from one that does not.
MAX_PIECE_BYTES = 256 * 1024
POLL_SECONDS = 0.02


class Boundary:
    """An ASGI application for one event loop, which calls another one."""

    def __init__(self, application: Application) -> None:
        self._application = application
        # The clock of the event loop, once it runs.
        self._now: Callable[[], float] | None = None
        # Until when each task waits for its client.
        self._waiting: dict[asyncio.Task[Any], float] = {}
        # Requests, streams and WebSockets.
        self.open_requests = 0
        # Whether responses that start say `Connection: close`.
        self.is_closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request or a WebSocket. Returns early if the client made it wait for too long."""
        if self._now is None:
            self._now = asyncio.get_running_loop().time
            self._check_later()
        exchange = _Exchange(self, scope["type"], receive, send)
        self.open_requests += 1
        try:
            await self._application(scope, exchange.receive, exchange.send)
        except Disconnected:
            pass
        finally:
            self.open_requests -= 1

    async def finish_requests(self, seconds: float) -> None:
        """Wait at most `seconds` until no request is open."""
        deadline = asyncio.get_running_loop().time() + seconds
        # Polled: it happens only once in the lifetime of a process.
        while self.open_requests and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)

    async def wait_for_client(self, work: Awaitable[T], seconds: float) -> T:
        """Return what `work` returns. Raises TimeoutError if it takes longer, by up to a check, or is given up."""
        task = asyncio.current_task()
        assert task is not None
        assert self._now is not None
        self._waiting[task] = self._now() + seconds
        try:
            return await work
        except asyncio.CancelledError:
            # Somebody else may have cancelled the task as well.
            if self._waiting[task] == GIVEN_UP and not task.uncancel():
                raise TimeoutError from None
            raise
        finally:
            del self._waiting[task]

    def give_up(self, task: asyncio.Task[Any] | None) -> None:
        """Let a task wait no longer, if it does."""
        if task is not None and self._waiting.get(task, GIVEN_UP) != GIVEN_UP:
            self._waiting[task] = GIVEN_UP
            task.cancel()

    def _check_later(self) -> None:
        asyncio.get_running_loop().call_later(IDLE_SECONDS / IDLE_CHECKS, self._check)

    def _check(self) -> None:
        now = asyncio.get_running_loop().time()
        for task, end in self._waiting.items():
            if end < now:
                self.give_up(task)
        self._check_later()


class _Exchange:
    """One request and its response, or a WebSocket."""

    __slots__ = ("_boundary", "_disconnect", "_is_body_pending", "_is_given_up", "_receive", "_receiver", "_send")

    def __init__(self, boundary: Boundary, kind: str, receive: Receive, send: Send) -> None:
        self._boundary = boundary
        self._receive = receive
        self._send = send
        self._receiver: asyncio.Task[Any] | None = None
        self._is_body_pending = kind == "http"
        self._is_given_up = False
        self._disconnect = {"type": f"{kind}.disconnect"}

    async def receive(self) -> Any:
        """Return the next event. Raises BodyTooSlow."""
        if self._is_given_up:
            return self._disconnect
        self._receiver = asyncio.current_task()
        seconds = IDLE_SECONDS if self._is_body_pending else inf
        try:
            message = await self._boundary.wait_for_client(self._receive(), seconds)
        except TimeoutError:
            if self._is_body_pending:
                raise BodyTooSlow from None
            return self._disconnect
        finally:
            self._receiver = None
        if self._is_body_pending:
            self._is_body_pending = message.get("more_body", False)
        return message

    async def send(self, message: Any) -> None:
        """Send a message. Raises Disconnected if the client does not read."""
        if self._boundary.is_closing and message["type"] == "http.response.start":
            headers = [*message.get("headers", ())]
            message = {**message, "headers": headers if CLOSE in headers else [*headers, CLOSE]}
        if self._is_given_up:
            raise Disconnected
        wait, body = self._boundary.wait_for_client, message.get("body", b"")
        try:
            start = 0
            while len(body) - start > MAX_PIECE_BYTES:
                piece = {**message, "body": body[start : start + MAX_PIECE_BYTES], "more_body": True}
                await wait(self._send(piece), IDLE_SECONDS)
                start += MAX_PIECE_BYTES
            if start:
                message = {**message, "body": body[start:]}
            await wait(self._send(message), IDLE_SECONDS)
        except TimeoutError:
            self._is_given_up = True
            self._boundary.give_up(self._receiver)
            raise Disconnected from None
