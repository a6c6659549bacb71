"""uvicorn, the faster server: its protocols under a loop of our own, because `uvicorn.Server` knows no drain."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from tools_app.management.servers import IDLE_SECONDS, Application, AsgiServer, Patience

CLOSE = (b"connection", b"close")
# A request's scope has its method once its head is complete; there is none before the first request.
COMPLETE = {"method": ""}
# As much as nginx takes, and more than Daphne does.
MOST_HEAD_BYTES = 32 * 1024
LAST_WRITES_SECONDS = 0.5


class _Answer:
    """What one answer is written to: its head waits for the beginning of its body, as ASGI lets a server do.

    Both leave in one packet and by one system call, which uvicorn spends on each of them.
    """

    __slots__ = ("_begun", "_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None
        self._begun = False

    def write(self, data: bytes) -> None:
        if self._begun:
            self._transport.write(data)
        elif self._head is None:
            self._head = data
        else:
            self._begun = True
            self._transport.write(self._head + data)

    def close(self) -> None:
        if self._head is not None and not self._begun:
            self._transport.write(self._head)
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


class _Http(HttpToolsProtocol):
    """A connection that gathers no endless head, waits for no request for ever, and can be told to end."""

    _head_bytes = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._patience = Patience()
        self._pieces = 0

    @property
    def _answering(self) -> RequestResponseCycle | None:
        """The request that is being answered."""
        cycle: Any = self.cycle  # None before the first one, whatever its annotation says
        return None if cycle is None or cycle.response_complete else cycle

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request of which nothing has come yet."""
        return self._answering is None and "method" in (self.scope or COMPLETE)

    @property
    def is_answering(self) -> bool:
        """Whether the application has a request to answer."""
        return self._answering is not None

    def answer_last(self) -> None:
        """Let the answer that is being made be the last, and say so in its head; the next one says it anyway."""
        cycle = self._answering
        if cycle is not None:
            cycle.keep_alive = False

    def close(self) -> None:
        """Close it when all is sent."""
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Take bytes. A head that does not end is refused: the parser would gather all of it."""
        super().data_received(data)
        if "method" in (self.scope or COMPLETE):
            self._head_bytes = 0
            self._pieces += 1
            return
        self._head_bytes += len(data)
        if self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def on_headers_complete(self) -> None:
        """Make the answer of a request that has come, and begin with it."""
        before = self.cycle
        super().on_headers_complete()
        # A "100 Continue" comes before the head, and at once; an answer to HEAD has no body to wait for.
        if self.cycle is not before and not self.expect_100_continue and self.scope["method"] != "HEAD":
            made: Any = self.cycle
            made.transport = _Answer(self.transport)

    def look(self) -> None:
        """Close it if it has waited too long for a request, or for the rest of one."""
        cycle = self._answering
        if self._patience.is_over(self._pieces, waits=cycle is None or cycle.more_body):
            self.close()


class UvicornServer(AsgiServer):
    """uvicorn with httptools, on uvloop where that is installed."""

    def __init__(self, application: Application, listener: socket.socket, most_bytes: int) -> None:
        self._config = Config(
            application,
            interface="asgi3",
            http=_Http,
            ws="websockets-sansio",
            ws_max_size=most_bytes,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            # What it warns of are requests that are malformed, which anybody can send.
            log_level=logging.ERROR,
            access_log=False,
            # MCPHUB_TRUSTED_PROXIES says whom to believe.
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=int(IDLE_SECONDS),
        )
        self._config.load()
        super().__init__(listener, (self._config.get_loop_factory() or asyncio.new_event_loop)())
        self._state = ServerState()
        self._stopped = asyncio.Event()

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until `stop`."""
        try:
            self._loop.run_until_complete(self._serve(ready))
        finally:
            # Not waited for: a tool's thread that never ends must not keep the process alive.
            self._loop.close()

    async def let_go(self, seconds: float) -> None:
        """Answer once more on each connection, and close those on which nothing is asked."""
        self._state.default_headers = [CLOSE]
        await super().let_go(seconds)

    def stop(self) -> None:
        """Close every connection and let `run` return."""
        self._stopped.set()

    async def _take(self, connection: socket.socket) -> None:
        await self._loop.connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> _Http:
        return _Http(self._config, self._state, {}, self._loop)

    def _connections(self) -> Iterator[_Http]:
        return (one for one in list(self._state.connections) if isinstance(one, _Http))

    async def _serve(self, ready: Callable[[], None]) -> None:
        self._listen()
        ready()
        await self._stopped.wait()
        for connection in list(self._state.connections):
            connection.shutdown()
        await self._end_tasks()

    async def _end_tasks(self) -> None:
        """Have what was said last on its way, and cancel what still runs."""
        tasks = asyncio.all_tasks(self._loop) - {asyncio.current_task()}
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=LAST_WRITES_SECONDS)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_WRITES_SECONDS)
