"""A single HTTP exchange over a connection that is not shared.

httpcore is used without a client above it: no cookies, no proxies, no netrc, no redirects, and no log line that
contains a URL. A connection is never shared, so that none is reused under another tenant's rules.
"""

import logging
import ssl
import zlib
from collections.abc import AsyncIterable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cache

import httpcore

from tools_app.catalog.http.addresses import CheckedDialer, Network, Resolver, system_addresses
from tools_app.catalog.http.errors import TRANSPORT_ERRORS, AddressRefused, RequestFailed, Unresolved, explained
from tools_app.catalog.http.urls import Url

MAX_CONNECT_SECONDS = 10.0
_EXPECT_BODY = frozenset({"POST", "PUT", "PATCH"})

# At DEBUG, httpcore logs response headers, which may repeat a secret.
logging.getLogger("httpcore").setLevel(logging.INFO)


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
    return httpcore.default_ssl_context()


@dataclass(frozen=True)
class Terms:
    """The limits of an exchange: allowed networks, idle timeouts, and maximum response size."""

    allowed: tuple[Network, ...]
    seconds: float
    max_bytes: int
    resolve: Resolver = system_addresses
    certificates: Callable[[], ssl.SSLContext] = trusted_certificates


async def exchange(request: Outbound, terms: Terms) -> Reply:
    """Send `request` and read the complete response. Raises RequestFailed."""
    try:
        async with _connections(terms) as pool, _sent(pool, request, terms) as response:
            return await _reply(request, response, terms)
    except (AddressRefused, Unresolved, *TRANSPORT_ERRORS) as error:
        raise explained(error, request.url.host) from error


def _connections(terms: Terms) -> httpcore.AsyncConnectionPool:
    dialer = CheckedDialer(terms.allowed, terms.resolve)
    return httpcore.AsyncConnectionPool(ssl_context=terms.certificates(), network_backend=dialer, max_connections=1)


def _sent(
    pool: httpcore.AsyncConnectionPool, request: Outbound, terms: Terms
) -> AbstractAsyncContextManager[httpcore.Response]:
    url = request.url
    return pool.stream(
        request.method,
        httpcore.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target),
        headers=[(b"Host", url.authority.encode()), *_encoded(request.headers), (b"Connection", b"close")],
        content=_content(request),
        extensions={"timeout": _timeouts(terms.seconds)},
    )


def _encoded(headers: tuple[tuple[str, str], ...]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers]


def _content(request: Outbound) -> bytes | None:
    """Declare an absent body as empty where a server may expect one (RFC 9110, section 8.6)."""
    if request.body is None and request.method in _EXPECT_BODY:
        return b""
    return request.body


def _timeouts(seconds: float) -> dict[str, float]:
    """The timeouts for connecting and for idle periods. The execution enforces the total time."""
    return {"connect": min(seconds, MAX_CONNECT_SECONDS), "read": seconds, "write": seconds, "pool": seconds}


async def _reply(request: Outbound, response: httpcore.Response, terms: Terms) -> Reply:
    headers = _decoded(response.headers)
    if request.method == "HEAD":
        return Reply(response.status, headers, b"")
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > terms.max_bytes:
        raise too_large(terms.max_bytes)
    body = await read_body(response.aiter_stream(), headers.get("content-encoding", ""), terms.max_bytes)
    return Reply(response.status, headers, body)


def _decoded(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in reversed(headers)}


_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


async def read_body(chunks: AsyncIterable[bytes], encoding: str, most: int) -> bytes:
    """Return the decoded body. Raises RequestFailed at more than `most` bytes, compressed or decompressed."""
    unpack = _unpacker(encoding)
    received = 0
    body = bytearray()
    async for chunk in chunks:
        received += len(chunk)
        body += unpack.feed(chunk, most - len(body) + 1)
        if received > most or len(body) > most:
            raise too_large(most)
    if received:
        unpack.finish()
    return bytes(body)


def too_large(most: int) -> RequestFailed:
    """Return the error for a response above its size limit."""
    return RequestFailed(f"The response is larger than the {most} bytes that this tool accepts.")


class _Plain:
    def feed(self, chunk: bytes, _most: int) -> bytes:
        return chunk

    def finish(self) -> None:
        """Do nothing: no data is pending."""


class _Inflating:
    """A gzip or deflate decoder with bounded output, which protects against decompression bombs."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)

    def feed(self, chunk: bytes, most: int) -> bytes:
        try:
            piece = self._stream.decompress(chunk, most)
        except zlib.error as problem:
            raise _broken(str(problem)) from problem
        if self._stream.unused_data:
            raise _broken("bytes after the end of the compressed data")
        return piece

    def finish(self) -> None:
        if not self._stream.eof:
            raise _broken("the compressed data ends too early")


_UNPACKERS: dict[str, Callable[[], _Plain | _Inflating]] = {
    "": _Plain,
    "identity": _Plain,
    "gzip": _Inflating,
    "x-gzip": _Inflating,
    "deflate": _Inflating,
}


def _unpacker(encoding: str) -> _Plain | _Inflating:
    make = _UNPACKERS.get(encoding.strip().lower())
    if make is None:
        raise RequestFailed("The response has a content encoding that was not requested.", encoding)
    return make()


def _broken(cause: str) -> RequestFailed:
    return RequestFailed("The response has an invalid content encoding.", cause)
