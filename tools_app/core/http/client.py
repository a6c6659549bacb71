"""The HTTP client of the hub: every request that it sends to another server goes through here.

httpcore2 speaks HTTP/1.1 and pools connections, on the network of `core.http.network`. There are no cookies, no
proxies, no netrc, no redirects, and no log line that contains a URL. What other servers send is bounded in bytes and in
time, and nothing is lenient: a response whose length could be read in two ways is refused.
"""

import asyncio
import math
import re
import ssl
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Final, Self

import certifi
import httpcore2

from tools_app.core import request_memory
from tools_app.core.fair_scheduler import LARGE_BYTES
from tools_app.core.http.addresses import Network
from tools_app.core.http.errors import TRANSPORT_ERRORS, AddressBlocked, NameNotResolved, RequestFailed, explain_error
from tools_app.core.http.network import CONNECT_SECONDS, CheckedNetwork, CheckedStream, Resolver, system_addresses
from tools_app.core.http.urls import Url

# How long a request waits for one of the connections of a pool.
POOL_SECONDS: Final = 10.0
# After so many pieces of a body, other tasks of the event loop have their turn: each piece may be one byte.
PIECES_IN_TURN: Final = 16
SWITCHING_PROTOCOLS: Final = 101
LENGTH, ENCODING = "content-length", "transfer-encoding"
FRAMING: Final = frozenset({"host", LENGTH, ENCODING})
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_EXPECT_BODY = frozenset({"POST", "PUT", "PATCH"})


@dataclass(frozen=True)
class Outbound:
    """An outgoing request without its framing headers (Host, Content-Length)."""

    method: str
    url: Url
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


@dataclass(frozen=True)
class Reply:
    """A response with its complete, decoded body. Header names are lower case; the first of a name is used."""

    status: int
    headers: dict[str, str]
    body: bytes


@cache
def trusted_certificates() -> ssl.SSLContext:
    """Return the CAs of the operating system (or of SSL_CERT_FILE), and the well-known public CAs."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


class Response:
    """The head of a response, and its body as it arrives. Header names are lower case; the first of a name is used.

    Raises RemoteProtocolError for one that could be read in two ways.
    """

    def __init__(self, response: httpcore2.Response, stream: CheckedStream) -> None:
        self.status = response.status
        self.headers: dict[str, str] = {}
        for name, value in response.headers:
            self.headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
        self._response = response
        self._pieces = response.aiter_stream()
        self._piece_count = 0
        self._stream = stream
        version = response.extensions["http_version"]
        if version not in {b"HTTP/1.0", b"HTTP/1.1"} or self.status == SWITCHING_PROTOCOLS:
            raise httpcore2.RemoteProtocolError(f"status {self.status} of {version.decode('latin-1')}")
        if ENCODING in self.headers and (LENGTH in self.headers or version == b"HTTP/1.0"):
            raise httpcore2.RemoteProtocolError("the length of the response is ambiguous")
        if not stream.has_read:
            raise httpcore2.RemoteProtocolError("a response arrived that no request had asked for")
        stream.note_head(is_chunked=ENCODING in self.headers)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece of the body. Raises httpcore2's errors of a connection."""
        piece = await anext(self._pieces)
        self._stream.note_progress()
        self._piece_count += 1
        if self._piece_count % PIECES_IN_TURN == 0:
            await asyncio.sleep(0)
        return piece

    async def aclose(self) -> None:
        """Leave the connection to the next request, or close it if the body was not read to its end."""
        await self._pieces.aclose()
        await self._response.aclose()


class ConnectionPool:
    """Persistent connections to one server with one credential: at most `size`, and `max_idle` of them in no use.

    One that was not used for `keep_alive_seconds` is closed with the next request. `connect_seconds` and `read_seconds`
    bound the opening of a connection and its silence. Belongs to one event loop.
    """

    def __init__(
        self,
        network: CheckedNetwork,
        *,
        size: int,
        max_idle: int,
        keep_alive_seconds: float,
        connect_seconds: float,
        read_seconds: float,
    ) -> None:
        self._network = network
        self._timeouts = {"connect": connect_seconds, "read": read_seconds, "pool": POOL_SECONDS}
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=trusted_certificates(),
            max_connections=size,
            max_keepalive_connections=max_idle,
            keepalive_expiry=keep_alive_seconds,
            network_backend=network,
        )

    @asynccontextmanager
    async def stream(self, request: Outbound) -> AsyncIterator[Response]:
        """Send a request, and give its response once the head has arrived.

        Raises NameNotResolved, AddressBlocked and httpcore2's errors.
        """
        self._network.check_open()
        answered = await self._pool.handle_async_request(_prepared(request, self._timeouts))
        try:
            response = Response(answered, answered.extensions["network_stream"])
        except httpcore2.RemoteProtocolError:
            await answered.aclose()
            raise
        try:
            yield response
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        """Close all connections, also those in use. Further requests fail with ConnectError."""
        self._network.is_closed = True
        await self._pool.aclose()

    async def retire(self) -> None:
        """Close the connections that are not in use, and each of the others when its request has ended."""
        self._network.is_retired = True
        for connection in self._pool.connections:
            if connection.is_idle():
                await connection.aclose()


@dataclass(frozen=True)
class RequestPolicy:
    """The limits of an exchange: allowed networks, times, and maximum response size.

    `seconds` bounds the whole exchange with its redirects, however steadily the other side sends. `idle_seconds` bounds
    its silence, where that is less. `public_only`: the networks are of no tenant, so that no admin can allow more.
    `tenant`, by default that of the current request or call, shares the threads that resolve names with others.
    """

    allowed: tuple[Network, ...]
    seconds: float
    max_bytes: int
    idle_seconds: float = math.inf
    resolve: Resolver | None = None
    certificates: Callable[[], ssl.SSLContext] = trusted_certificates
    public_only: bool = False
    tenant: Hashable = None


async def exchange(request: Outbound, policy: RequestPolicy, *, until: float | None = None) -> Reply:
    """Send `request` on a connection of its own and read the complete response. Raises RequestFailed.

    `until`: the time of the event loop at which the requests that belong together end.
    """
    async with stream(request, policy, until=until) as response:
        headers = response.headers
        if request.method == "HEAD":
            return Reply(response.status, headers, b"")
        announced = headers.get(LENGTH, "")
        if announced.isdecimal() and int(announced) > policy.max_bytes:
            raise too_large(policy.max_bytes)
        body = await read_body(response, headers.get("content-encoding", ""), policy.max_bytes)
        return Reply(response.status, headers, body)


@asynccontextmanager
async def stream(request: Outbound, policy: RequestPolicy, *, until: float | None = None) -> AsyncIterator[Response]:
    """Send `request` on a connection of its own, and give its response once the head has arrived.

    Raises RequestFailed, with the error of the network as its cause; the body of the response too.
    """
    url = request.url
    until = deadline(policy) if until is None else until
    idle_seconds = min(until - asyncio.get_running_loop().time(), policy.idle_seconds)
    network = CheckedNetwork(policy.allowed, policy.resolve or partial(system_addresses, tenant=policy.tenant))
    opened: CheckedStream | None = None
    try:
        prepared = _prepared(request, {"read": idle_seconds}, (b"Connection", b"close"))
        opened = await network.connect_tcp(url.host, url.port, min(idle_seconds, CONNECT_SECONDS))
        if url.scheme == "https":
            certificates = policy.certificates()
            certificates.set_alpn_protocols(["http/1.1"])
            await opened.start_tls(certificates, url.host)
        async with asyncio.timeout_at(until):
            connection = httpcore2.AsyncHTTP11Connection(prepared.url.origin, opened)
            response = Response(await connection.handle_async_request(prepared), opened)
            try:
                yield response
            finally:
                await response.aclose()
    except (AddressBlocked, NameNotResolved, *TRANSPORT_ERRORS) as error:
        raise explain_error(error, url.host, public_only=policy.public_only) from error
    finally:
        if opened is not None:
            await opened.aclose()


def deadline(policy: RequestPolicy) -> float:
    """Return the time of the running event loop at which an exchange that begins now ends."""
    return asyncio.get_running_loop().time() + policy.seconds


def _prepared(request: Outbound, timeouts: dict[str, float], *more_headers: tuple[bytes, bytes]) -> httpcore2.Request:
    """Return a request with its framing. Raises LocalProtocolError for what could be read as another request."""
    url, body = request.url, request.body
    if body is None and request.method in _EXPECT_BODY:
        # A server may expect one (RFC 9110, section 8.6).
        body = b""
    headers = [(b"Host", url.authority.encode()), *more_headers]
    for name, value in request.headers:
        if not _VALUE.fullmatch(value) or name.lower() in FRAMING:
            raise httpcore2.LocalProtocolError("a header cannot be sent")
        headers.append((name.encode(), value.strip(" \t").encode("latin-1")))
    if body is not None:
        headers.append((b"Content-Length", b"%d" % len(body)))
    target = httpcore2.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target.encode())
    return httpcore2.Request(
        request.method.encode(), target, headers=headers, content=body, extensions={"timeout": timeouts}
    )


_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


async def read_body(chunks: AsyncIterable[bytes], encoding: str, most: int) -> bytes:
    """Return the decoded body. Raises RequestFailed at more than `most` bytes, compressed or decompressed."""
    unpack = _decoder(encoding)
    received, is_held = 0, False
    body = bytearray()
    async for chunk in chunks:
        received += len(chunk)
        body += unpack.feed(chunk, most - len(body) + 1)
        if received > most or len(body) > most:
            raise too_large(most)
        if len(body) > LARGE_BYTES and not is_held:
            is_held = True
            await _hold(most)
    if received:
        unpack.finish()
    return bytes(body)


async def _hold(size: int) -> None:
    try:
        await request_memory.hold_result(size)
    except request_memory.TooMuchMemory as problem:
        raise RequestFailed(str(problem)) from None


def too_large(most: int) -> RequestFailed:
    """Return the error for a response above its size limit."""
    return RequestFailed(f"The response is larger than the {most} bytes that this tool accepts.")


class _Identity:
    def feed(self, chunk: bytes, _most: int) -> bytes:
        return chunk

    def finish(self) -> None:
        """Do nothing: no data is pending."""


class _Inflater:
    """A gzip or deflate decoder with bounded output, which protects against decompression bombs."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)

    def feed(self, chunk: bytes, most: int) -> bytes:
        try:
            piece = self._stream.decompress(chunk, most)
        except zlib.error as problem:
            raise _broken_response(str(problem)) from problem
        if self._stream.unused_data:
            raise _broken_response("bytes after the end of the compressed data")
        return piece

    def finish(self) -> None:
        if not self._stream.eof:
            raise _broken_response("the compressed data ends too early")


_DECODERS: dict[str, Callable[[], _Identity | _Inflater]] = {
    "": _Identity,
    "identity": _Identity,
    "gzip": _Inflater,
    "x-gzip": _Inflater,
    "deflate": _Inflater,
}


def _decoder(encoding: str) -> _Identity | _Inflater:
    make = _DECODERS.get(encoding.strip().lower())
    if make is None:
        raise RequestFailed("The response has a content encoding that was not requested.", encoding)
    return make()


def _broken_response(cause: str) -> RequestFailed:
    return RequestFailed("The response has an invalid content encoding.", cause)
