"""A single HTTP exchange over a connection that is not shared.

There is no client above the connection: no cookies, no proxies, no netrc, no redirects, and no log line that contains
a URL. A connection is never shared, so that none is reused under another tenant's rules.
"""

import asyncio
import math
import ssl
import zlib
from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass
from functools import cache

import certifi

from tools_app.catalog.http.addresses import CheckedDialer, Network, Resolver, system_addresses
from tools_app.catalog.http.connection import Response, connect, request_head
from tools_app.catalog.http.errors import (
    TRANSPORT_ERRORS,
    AddressBlocked,
    NameNotResolved,
    RequestFailed,
    explain_error,
)
from tools_app.catalog.http.urls import Url
from tools_app.core import request_memory
from tools_app.core.fair_scheduler import LARGE_BYTES

MAX_CONNECT_SECONDS = 10.0
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


@dataclass(frozen=True)
class RequestPolicy:
    """The limits of an exchange: allowed networks, times, and maximum response size.

    `seconds` bounds the whole exchange with its redirects, however steadily the other side sends. `idle_seconds` bounds
    its silence, where that is less. `public_only`: the networks are of no tenant, so that no admin can allow more.
    """

    allowed: tuple[Network, ...]
    seconds: float
    max_bytes: int
    idle_seconds: float = math.inf
    resolve: Resolver = system_addresses
    certificates: Callable[[], ssl.SSLContext] = trusted_certificates
    public_only: bool = False


async def exchange(request: Outbound, policy: RequestPolicy, *, until: float | None = None) -> Reply:
    """Send `request` and read the complete response. Raises RequestFailed.

    `until`: the time of the event loop at which the requests that belong together end.
    """
    url, content = request.url, _content(request)
    until = deadline(policy) if until is None else until
    idle_seconds = min(until - asyncio.get_running_loop().time(), policy.idle_seconds)
    connect_seconds = min(idle_seconds, MAX_CONNECT_SECONDS)
    try:
        head = request_head(request.method, url, (*request.headers, ("Connection", "close")), content)
        dialer = CheckedDialer(policy.allowed, policy.resolve)
        opening = connect(dialer, url, policy.certificates(), connect_seconds=connect_seconds, seconds=idle_seconds)
        connection = await opening
        try:
            async with asyncio.timeout_at(until):
                response = await connection.send(head, content, is_head=request.method == "HEAD", most=policy.max_bytes)
                return await _reply(request, response, policy)
        finally:
            await connection.aclose()
    except (AddressBlocked, NameNotResolved, *TRANSPORT_ERRORS) as error:
        raise explain_error(error, url.host, public_only=policy.public_only) from error


def deadline(policy: RequestPolicy) -> float:
    """Return the time of the running event loop at which an exchange that begins now ends."""
    return asyncio.get_running_loop().time() + policy.seconds


def _content(request: Outbound) -> bytes | None:
    """Declare an absent body as empty where a server may expect one (RFC 9110, section 8.6)."""
    if request.body is None and request.method in _EXPECT_BODY:
        return b""
    return request.body


async def _reply(request: Outbound, response: Response, policy: RequestPolicy) -> Reply:
    headers = response.headers
    if request.method == "HEAD":
        return Reply(response.status, headers, b"")
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > policy.max_bytes:
        raise too_large(policy.max_bytes)
    body = await read_body(response.chunks(), headers.get("content-encoding", ""), policy.max_bytes)
    return Reply(response.status, headers, body)


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
