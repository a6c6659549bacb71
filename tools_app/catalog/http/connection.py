"""One HTTP/1.1 connection of a client: a request in one write, and its response by callbacks of a parser.

A small response wakes its reader once. Everything that the other side sends is bounded, and nothing is lenient: a
response whose length could be read in two ways is refused, and what follows a response ends the connection. A
connection carries one exchange at a time, and only one whose last exchange ended well carries another.
"""

import asyncio
import re
import select
import ssl
from collections.abc import AsyncIterator, Iterable
from functools import lru_cache
from typing import Final, cast

import httptools

from tools_app.catalog.http.addresses import CheckedDialer
from tools_app.catalog.http.errors import (
    ConnectError,
    ConnectTimeout,
    LocalProtocolError,
    ReadError,
    ReadTimeout,
    RemoteProtocolError,
    TransportError,
    WriteTimeout,
)
from tools_app.catalog.http.urls import Url

HTTP_1_1: Final = ["http/1.1"]
# Of the headers of one response, and of what surrounds its body without being part of it.
MAX_HEAD_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 256
MAX_INFORMATIONAL: Final = 10
# Bytes of a body that wait for their reader, before no more are read from the network.
MAX_BUFFERED_BYTES: Final = 256 * 1024
# A response that announces at most so many bytes wakes its reader when it is complete, others with every piece.
SMALL_BYTES: Final = 64 * 1024
SWITCHING_PROTOCOLS, OK = 101, 200
WITHOUT_BODY: Final = frozenset({204, 304})
LENGTH, ENCODING = "content-length", "transfer-encoding"
FRAMING: Final = frozenset({"host", LENGTH, ENCODING})

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_TARGET: Final = re.compile(r"[!-~]+")


def request_head(method: str, url: Url, headers: Iterable[tuple[str, str]], content: bytes | None) -> bytes:
    """Return a request up to its body. Raises LocalProtocolError for what could be read as another request."""
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(url.target):
        raise LocalProtocolError("the request line is invalid")
    lines = [f"{method} {url.target} HTTP/1.1\r\nHost: {url.authority}\r\n"]
    for name, value in headers:
        if not _VALUE.fullmatch(value) or not _may_be_sent(name):
            raise LocalProtocolError("a header cannot be sent")
        lines.append(f"{name}: {value}\r\n")
    lines.append("\r\n" if content is None else f"Content-Length: {len(content)}\r\n\r\n")
    return "".join(lines).encode("latin-1")


@lru_cache(maxsize=256)
def _may_be_sent(name: str) -> bool:
    """Return whether this is the name of a header that is no part of the framing of a request."""
    return _TOKEN.fullmatch(name) is not None and name.lower() not in FRAMING


class Response:
    """The head of a response, and its body as it arrives. Header names are lower case; the first of a name is used."""

    def __init__(self, connection: "HttpConnection", status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers
        self._connection = connection

    async def read(self) -> bytes:
        """Return the next piece of the body; nothing at its end. Raises TransportError."""
        return await self._connection.read()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Return the body piece by piece. Raises TransportError."""
        while piece := await self._connection.read():
            yield piece


class HttpConnection(asyncio.Protocol):
    """A connection. `seconds` bounds the silence of the other side, in reading and in writing."""

    # Of the current response.
    _headers: dict[str, str]
    _pieces: list[bytes]
    _status: int
    _informational: int
    _problem: TransportError | None

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._parser = httptools.HttpResponseParser(self)
        # Not on Windows.
        self._readable: select.poll | None = getattr(select, "poll", lambda: None)()
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._lost = self._loop.create_future()
        self._is_writing = self._is_paused = False
        self._is_usable = True
        self._most = SMALL_BYTES
        self._problem = None
        # How many requests were sent.
        self.exchanges = 0
        self._begin(is_head=False)
        # Nothing is expected before the first request.
        self._is_complete = True

    # --- What its user calls ---

    @property
    def is_reusable(self) -> bool:
        """Whether the last exchange ended so that another one can follow."""
        return self._is_usable and self._is_complete and not (self._is_writing or self._is_paused or self._pieces)

    def is_silent(self) -> bool:
        """Whether the other side has sent nothing since the last response, not even the end of the connection."""
        if not self.is_reusable or self._transport.is_closing():
            return False
        if self._readable is not None:
            return not self._readable.poll(0)
        return not select.select([self._transport.get_extra_info("socket").fileno()], [], [], 0)[0]

    async def send(
        self, head: bytes, content: bytes | None, *, is_head: bool = False, most: int = SMALL_BYTES
    ) -> Response:
        """Send a request, and return its response once the head has arrived. Raises TransportError.

        A small response is returned when it is complete. One that announces more than `most` bytes is not small.
        """
        self._begin(is_head=is_head)
        self.exchanges += 1
        self._most = min(most, SMALL_BYTES)
        if not self._transport.is_closing():
            self._transport.write(head + content if content else head)
        while not self._has_head or (self._is_small and not self._is_complete and self._problem is None):
            await self._wait()
        return Response(self, self._status, self._headers)

    async def read(self) -> bytes:
        """Return what arrived of the body; nothing at its end. Raises TransportError."""
        while not self._pieces:
            if self._is_complete:
                return b""
            await self._wait()
        pieces, self._pieces, self._buffered = self._pieces, [], 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def abort(self) -> None:
        """Close the connection at once."""
        self._is_usable = False
        self._transport.abort()

    async def aclose(self) -> None:
        """Close the connection at once, and wait until its socket is closed."""
        self.abort()
        await asyncio.shield(self._lost)

    # --- What the event loop calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(0)
        if self._readable is not None:
            self._readable.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived."""
        if self._is_complete:
            # It belongs to no request.
            self.abort()
            return
        self._deadline = self._loop.time() + self._seconds
        if len(data) <= MAX_HEAD_BYTES:
            self._feed(data)
        else:
            for start in range(0, len(data), MAX_HEAD_BYTES):
                if self._is_usable:
                    self._feed(data[start : start + MAX_HEAD_BYTES])
        if self._buffered > MAX_BUFFERED_BYTES and not self._is_paused and self._is_usable:
            self._is_paused = True
            self._transport.pause_reading()
        if self._is_ready():
            self._wake()

    def eof_received(self) -> None:
        """End a response that has no other end. The connection closes."""
        self._is_usable = False
        if self._has_head and self._needs_eof:
            self._is_complete = True
            self._wake()
        elif not self._is_complete:
            self._fail(RemoteProtocolError("the connection was closed before the response was complete"))

    def connection_lost(self, exc: Exception | None) -> None:
        """End the exchange."""
        self._is_usable = False
        if self._timer is not None:
            self._timer.cancel()
        if not self._is_complete and self._problem is None:
            self._problem = ReadError(str(exc or "the connection was closed"))
            self._problem.__cause__ = exc
        self._wake()
        if not self._lost.done():
            self._lost.set_result(None)

    def pause_writing(self) -> None:
        """Note that the request is not sent yet."""
        self._is_writing = True

    def resume_writing(self) -> None:
        """Note that the request is sent."""
        self._is_writing = False
        self._deadline = self._loop.time() + self._seconds

    # --- What the parser calls ---

    def on_message_begin(self) -> None:
        """Note a second response, which no request asked for."""
        if self._is_complete:
            self._is_usable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; those after the body count only."""
        self._head_bytes += len(name) + len(value)
        self._head_count += 1
        if self._head_bytes > MAX_HEAD_BYTES or self._head_count > MAX_HEADERS:
            raise RemoteProtocolError("the headers are too large")
        if self._has_head:
            return
        lower = name.decode("latin-1").lower()
        if lower in FRAMING and lower in self._headers:
            raise RemoteProtocolError(f"{lower} is repeated")
        self._headers.setdefault(lower, value.decode("latin-1").strip(" \t"))

    def on_headers_complete(self) -> None:
        """Find out where the response ends. Raises RemoteProtocolError where that is ambiguous."""
        if self._is_complete:
            return
        self._status = status = self._parser.get_status_code()
        version = self._parser.get_http_version()
        if version not in {"1.0", "1.1"} or status < 100 or status == SWITCHING_PROTOCOLS:  # noqa: PLR2004
            raise RemoteProtocolError(f"status {status} of HTTP/{version}")
        encoding, length = self._headers.get(ENCODING), self._headers.get(LENGTH)
        if encoding is not None and (encoding.lower() != "chunked" or length is not None or version == "1.0"):
            raise RemoteProtocolError("the length of the response is ambiguous")
        if status < OK:
            self._informational += 1
            if self._informational > MAX_INFORMATIONAL:
                raise RemoteProtocolError("too many informational responses")
            return
        self._has_head = True
        self._needs_eof = encoding is None and length is None and status not in WITHOUT_BODY
        self._is_small = length is not None and int(length) <= self._most
        if self._is_head:
            self._is_complete, self._is_usable = True, False

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body."""
        if not self._is_complete:
            self._pieces.append(body)
            self._buffered += len(body)
            self._unproductive = 0

    def on_message_complete(self) -> None:
        """Note the end of the response, or go on after an informational one."""
        if not self._has_head:
            self._headers = {}
        elif not self._is_complete:
            self._is_complete = True
            self._is_usable = self._is_usable and self._parser.should_keep_alive()

    # --- One exchange ---

    def _begin(self, *, is_head: bool) -> None:
        self._is_head = is_head
        self._has_head = self._is_complete = self._needs_eof = self._is_small = False
        self._status = self._head_bytes = self._head_count = self._informational = 0
        self._unproductive = self._buffered = 0
        self._headers = {}
        self._pieces = []

    def _feed(self, data: bytes) -> None:
        self._unproductive += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as problem:
            self._is_usable = False
            if not self._is_complete:
                why = problem.__context__ if isinstance(problem.__context__, RemoteProtocolError) else problem
                self._fail(RemoteProtocolError(str(why)))
        if self._unproductive > MAX_HEAD_BYTES and not self._is_complete:
            self._fail(RemoteProtocolError(f"more than {MAX_HEAD_BYTES} bytes that are no body"))

    def _is_ready(self) -> bool:
        return self._is_complete or (self._has_head and not self._is_small)

    async def _wait(self) -> None:
        if self._problem is not None:
            raise self._problem
        if not self._is_usable:
            raise ReadError("the connection was closed")
        self._waiter = self._loop.create_future()
        self._deadline = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline, self._check_time)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _check_time(self) -> None:
        """Fail if nothing happened for long. The timer follows the deadline, instead of being renewed."""
        self._timer = None
        if self._waiter is None:
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._check_time)
        else:
            self._fail(WriteTimeout() if self._is_writing else ReadTimeout())

    def _fail(self, problem: TransportError) -> None:
        if self._problem is None:
            self._problem = problem
        self.abort()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def connect(
    dialer: CheckedDialer, url: Url, certificates: ssl.SSLContext, *, connect_seconds: float, seconds: float
) -> HttpConnection:
    """Open a connection to the host of `url`, within `connect_seconds`.

    Raises NameNotResolved, AddressBlocked, ConnectError and ConnectTimeout.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + connect_seconds
    dialed = await dialer.connect_tcp(url.host, url.port, connect_seconds)
    tls: dict[str, ssl.SSLContext | str] = {}
    if url.scheme == "https":
        certificates.set_alpn_protocols(HTTP_1_1)
        tls = {"ssl": certificates, "server_hostname": url.host}
    try:
        async with asyncio.timeout_at(until):
            _, connection = await loop.create_connection(lambda: HttpConnection(seconds), sock=dialed, **tls)  # type: ignore[call-overload]
    except BaseException as problem:
        dialed.close()
        if isinstance(problem, TimeoutError):
            raise ConnectTimeout(f"{url.host}:{url.port}") from problem
        if isinstance(problem, OSError):
            raise ConnectError(str(problem)) from problem
        raise
    return cast("HttpConnection", connection)
