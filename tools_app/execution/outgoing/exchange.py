"""One request and its answer, over a connection of its own.

httpcore is used without a client above it: no cookies, no proxies, no netrc, no redirects, and no log line that
holds a URL. A connection is never shared, so that none is reused under another tenant's rules.
"""

import logging
import ssl
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cache

import httpcore

from tools_app.execution.outgoing.addresses import Network
from tools_app.execution.outgoing.bodies import read_body, too_large
from tools_app.execution.outgoing.dialing import CheckedDialer, Resolver, system_addresses
from tools_app.execution.outgoing.failures import TRANSPORT_ERRORS, AddressRefused, Unresolved, explained
from tools_app.execution.outgoing.urls import Url

LONGEST_CONNECT_SECONDS = 10.0
_EXPECT_BODY = frozenset({"POST", "PUT", "PATCH"})

# At DEBUG it logs the headers of answers, which may repeat a secret.
logging.getLogger("httpcore").setLevel(logging.INFO)


@dataclass(frozen=True)
class Outbound:
    """A request as it will be sent, without the headers that frame it (Host, Content-Length)."""

    method: str
    url: Url
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


@dataclass(frozen=True)
class Reply:
    """An answer with its whole, decoded body. Header names are lower case; the first of a name counts."""

    status: int
    headers: dict[str, str]
    body: bytes


@cache
def trusted_certificates() -> ssl.SSLContext:
    """What the operating system trusts (or SSL_CERT_FILE names), and the well-known authorities."""
    return httpcore.default_ssl_context()


@dataclass(frozen=True)
class Terms:
    """On what terms the hub exchanges: where it may go, how long it waits in silence, how much it reads."""

    allowed: tuple[Network, ...]
    seconds: float
    most_bytes: int
    resolve: Resolver = system_addresses
    certificates: Callable[[], ssl.SSLContext] = trusted_certificates


async def exchange(request: Outbound, terms: Terms) -> Reply:
    """Send `request` and read the whole answer. Raises RequestFailed."""
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
    """An absent body is announced as empty where a service may wait for one (RFC 9110, section 8.6)."""
    if request.body is None and request.method in _EXPECT_BODY:
        return b""
    return request.body


def _timeouts(seconds: float) -> dict[str, float]:
    """The whole time is the execution's to enforce; this ends waiting in silence, and a connection sooner."""
    return {"connect": min(seconds, LONGEST_CONNECT_SECONDS), "read": seconds, "write": seconds, "pool": seconds}


async def _reply(request: Outbound, response: httpcore.Response, terms: Terms) -> Reply:
    headers = _decoded(response.headers)
    if request.method == "HEAD":
        return Reply(response.status, headers, b"")
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > terms.most_bytes:
        raise too_large(terms.most_bytes)
    body = await read_body(response.aiter_stream(), headers.get("content-encoding", ""), terms.most_bytes)
    return Reply(response.status, headers, body)


def _decoded(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in reversed(headers)}
