"""The network below HTTP: names are resolved, addresses checked and connections opened, and what they bring is bounded.

The check is below HTTP and TLS, so that no layer above can bypass it: every connection of a request or of a redirect is
checked here. A host's addresses are resolved once, all are checked, and only those are dialed. The name is never
resolved a second time, so that a DNS answer that changes between check and use (rebinding) has no effect; TLS still
verifies the name.
"""

import asyncio
import select
import socket
import ssl
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from functools import partial
from ipaddress import ip_address
from typing import Any, Final, cast

import httpcore2

from tools_app.core import large_work
from tools_app.core.http.addresses import Address, Network, block_reason
from tools_app.core.http.errors import AddressBlocked, NameNotResolved
from tools_app.core.process.fair_threads import FairThreads, QueueFull
from tools_app.core.process.runtime import Service

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

MAX_ATTEMPTS: Final = 4
CONNECT_SECONDS: Final = 10.0
# Names are resolved in threads, since servers of names that do not answer keep one for many seconds: so many threads
# for all tenants, and for one of them.
NAME_THREADS: Final = 32
NAME_THREADS_OF_TENANT: Final = 4
MAX_NAMES_OF_TENANT: Final = 256
# Bytes and lines of what surrounds a body: the head of a response, or what is between two pieces of its body.
MAX_HEAD_BYTES: Final = 64 * 1024
MAX_HEAD_LINES: Final = 256
# What has more lines is parsed in steps of so many bytes, since short lines take long to parse: heads, and bodies in
# chunks, whose lines may be text.
HEAD_STEP_BYTES: Final = 2048
CHUNKED_STEP_BYTES: Final = 8192
# Bytes that wait for their reader, before no more are read from the network.
MAX_BUFFERED_BYTES: Final = 256 * 1024

_name_threads = Service(
    lambda: FairThreads("names", NAME_THREADS, max_of_one=MAX_NAMES_OF_TENANT, threads_of_one=NAME_THREADS_OF_TENANT),
    FairThreads.stop,
)


async def system_addresses(host: str, port: int, tenant: Hashable = None) -> Sequence[str]:
    """Resolve `host` with the operating system, best address first. Raises NameNotResolved.

    A `tenant`, by default that of the current request or call, has NAME_THREADS_OF_TENANT of the threads.
    """
    resolve = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = await _name_threads().run(large_work.current_owner() if tenant is None else tenant, resolve)
    except QueueFull as problem:
        raise NameNotResolved(f"{host}: too many names wait to be resolved") from problem
    except (OSError, UnicodeError) as problem:
        raise NameNotResolved(f"{host}: {problem}") from problem
    return [str(entry[4][0]) for entry in found]


class CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Opens connections to public addresses, and to those in `allowed`, until it is closed."""

    def __init__(self, allowed: Sequence[Network], resolve: Resolver = system_addresses) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self.is_closed = False
        # From then on, no connection carries another request.
        self.is_retired = False

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - of httpcore2's interface
        local_address: str | None = None,  # noqa: ARG002
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> "CheckedStream":
        """Connect to `host`. `timeout` is also that of its TLS.

        Raises NameNotResolved, AddressBlocked, ConnectError and ConnectTimeout.
        """
        self.check_open()
        seconds = CONNECT_SECONDS if timeout is None else timeout
        until = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(until):
                dialed = await self._first(await self.addresses(host, port), port, seconds)
        except TimeoutError as problem:
            raise httpcore2.ConnectTimeout(f"{host}:{port}") from problem
        return CheckedStream(self, dialed, until)

    async def addresses(self, host: str, port: int) -> list[Address]:
        """Return the addresses of `host`, all of them checked. Raises NameNotResolved and AddressBlocked."""
        try:
            texts: Sequence[str] = [str(ip_address(host))]
        except ValueError:
            texts = await self._resolve(host, port)
        found = list(dict.fromkeys(ip_address(text) for text in texts))
        if not found:
            raise NameNotResolved(host)
        for address in found:
            if why := block_reason(address, self._allowed):
                raise AddressBlocked(f"{host}: {why}")
        return found

    async def _first(self, addresses: Sequence[Address], port: int, seconds: float) -> socket.socket:
        """Return the first connection that succeeds; each attempt has an equal share of the time."""
        attempts = addresses[:MAX_ATTEMPTS]
        for address in attempts[:-1]:
            try:
                return await _dialed(address, port, seconds / len(attempts))
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await _dialed(attempts[-1], port, seconds)

    def check_open(self) -> None:
        """Raise ConnectError if the network was closed: a connection that it opens would never be closed."""
        if self.is_closed:
            raise httpcore2.ConnectError("the connections were closed")


async def _dialed(address: Address, port: int, seconds: float) -> socket.socket:
    """Return a socket that is connected to `address`. Raises ConnectError and ConnectTimeout."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004
    # With its protocol, without which event loops do not turn off the delay of small packets.
    dialing = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        dialing.setblocking(False)
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().sock_connect(dialing, (str(address), port))
    except BaseException as problem:
        dialing.close()
        if isinstance(problem, TimeoutError):
            raise httpcore2.ConnectTimeout(f"{address}:{port}") from problem
        if isinstance(problem, OSError):
            raise httpcore2.ConnectError(str(problem)) from problem
        raise
    return dialing


class CheckedStream(asyncio.Protocol, httpcore2.AsyncNetworkStream):
    """One connection: a request leaves in one piece with the first read of its response.

    What is no body is bounded before it is parsed: `note_head` and `note_progress` say what was.
    """

    def __init__(self, network: CheckedNetwork, dialed: socket.socket, until: float) -> None:
        self._network = network
        self._dialed = dialed
        # From then on the event loop closes it: to close it twice would close another's of the same number.
        self._is_handed_over = self._is_closed = False
        self._open_until = until
        self._transport: asyncio.Transport | None = None
        self._readable: Any = None
        self._unsent: list[bytes] = []
        self._received = bytearray()
        self._waiter: asyncio.Future[None] | None = None
        self._is_paused = self._has_ended = self._is_lost = False
        self._problem: Exception | None = None
        # Whether anything was read since the last request.
        self.has_read = False
        self._bytes_left, self._lines_left, self._step_bytes = MAX_HEAD_BYTES, MAX_HEAD_LINES, HEAD_STEP_BYTES

    # --- What httpcore2 calls ---

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002, ASYNC109 - `connect_tcp` has set the time of both
    ) -> "CheckedStream":
        """Verify the server and encrypt the connection. Raises ConnectError and ConnectTimeout."""
        await self._open(ssl=ssl_context, server_hostname=server_hostname)
        return self

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109
        """Keep a part of a request, which `read` sends."""
        self.has_read = False
        if buffer:
            self._unsent.append(buffer)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        """Return what arrived; nothing at the end. Raises ConnectError, ReadError, ReadTimeout, RemoteProtocolError."""
        if self._transport is None:
            await self._open()
        assert self._transport is not None
        if self._unsent:
            if self._received:
                raise httpcore2.RemoteProtocolError("data arrived that no request had asked for")
            self.note_progress()
            self._step_bytes = HEAD_STEP_BYTES
            if not self._transport.is_closing():
                self._transport.write(b"".join(self._unsent))
            self._unsent.clear()
        if self._bytes_left <= 0 or self._lines_left < 0:
            raise httpcore2.RemoteProtocolError("the headers are too large")
        await self._arrival(timeout)
        piece = bytes(self._received[: min(max_bytes, self._bytes_left)])
        lines = piece.count(b"\n")
        if lines > MAX_HEAD_LINES:
            piece = piece[: self._step_bytes]
            lines = piece.count(b"\n")
        del self._received[: len(piece)]
        if not self.has_read and piece[:5] != b"HTTP/"[: len(piece)]:
            raise httpcore2.RemoteProtocolError("the server does not speak HTTP")
        self.has_read = True
        self._bytes_left -= len(piece)
        self._lines_left -= lines
        if self._is_paused and not self._received:
            self._is_paused = False
            self._transport.resume_reading()
        return piece

    async def aclose(self) -> None:
        """Close the connection at once."""
        self._is_closed = True
        if self._transport is not None:
            self._transport.abort()
        elif not self._is_handed_over:
            self._dialed.close()

    def get_extra_info(self, info: str) -> Any:
        """Return what httpcore2 asks for: whether the connection, in no use, cannot be used again ("is_readable").

        It cannot when the server has ended it or sent anything, or has not read all of the last request.
        """
        if info != "is_readable" or self._transport is None:
            return None if self._transport is None else self._transport.get_extra_info(info)
        if self._network.is_retired or self._transport.is_closing() or self._has_ended or self._received:
            return True
        if self._transport.get_write_buffer_size():
            return True
        if self._readable is None:
            # Not on Windows.
            return bool(select.select([self._transport.get_extra_info("socket").fileno()], [], [], 0)[0])
        return bool(self._readable.poll(0))

    # --- What the client of HTTP calls ---

    def note_head(self, *, is_chunked: bool) -> None:
        """Note that the head of a response was parsed."""
        self._step_bytes = CHUNKED_STEP_BYTES if is_chunked else MAX_HEAD_BYTES
        self.note_progress()

    def note_progress(self) -> None:
        """Note that something was parsed: what is no body is counted from zero."""
        self._bytes_left, self._lines_left = MAX_HEAD_BYTES, MAX_HEAD_LINES

    # --- What the event loop calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        if hasattr(select, "poll"):
            self._readable = select.poll()
            self._readable.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """Keep what arrived, and read no more once that is much."""
        self._received += data
        if len(self._received) > MAX_BUFFERED_BYTES and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """Note the end. The connection closes."""
        self._has_ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the exchange."""
        self._is_lost, self._problem = True, exc
        self._wake()

    async def _arrival(self, seconds: float | None) -> None:
        """Wait until something has arrived, or the end. Raises ReadError and ReadTimeout."""
        if not self._received and not self._has_ended and not self._is_lost:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(seconds):
                    await self._waiter
            except TimeoutError as problem:
                raise httpcore2.ReadTimeout from problem
            finally:
                self._waiter = None
        if not self._received and not self._has_ended:
            raise httpcore2.ReadError(str(self._problem or "the connection was closed")) from self._problem

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _open(self, **tls: Any) -> None:
        loop = asyncio.get_running_loop()
        self._is_handed_over = True
        try:
            async with asyncio.timeout_at(self._open_until):
                await loop.create_connection(lambda: self, sock=self._dialed, **tls)
            self._network.check_open()
            if self._is_closed:
                raise httpcore2.ConnectError("the connection was closed while it opened")
        except BaseException as problem:
            await self.aclose()
            if isinstance(loop, asyncio.BaseEventLoop):
                self._dialed.close()
            else:
                # uvloop has closed the descriptor, and the socket does not know.
                self._dialed.detach()
            if isinstance(problem, TimeoutError):
                raise httpcore2.ConnectTimeout("the TLS handshake took too long") from problem
            if isinstance(problem, OSError):
                raise httpcore2.ConnectError(str(problem)) from problem
            raise
