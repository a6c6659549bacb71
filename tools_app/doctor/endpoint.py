"""Checks of the endpoint through its proxies, as a client: `--url` and `--key` of the command.

Proxies often cause problems of a healthy hub: they buffer streams, or hide the client's address.
"""

import ipaddress
import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import httpcore
from django.conf import settings
from django.utils import timezone

from tools_app.doctor.findings import Finding, graded, ok, problem
from tools_app.models import Session

SECONDS = 10.0
SLOW_SECONDS = 1.0
# A documentation address (RFC 5737): the hub must not trust it.
FORGED = "203.0.113.77"
VERSION = "2025-11-25"
MODERN = "2026-07-28"
COUNTING, STEPS = "count", 5
LEAST_SPREAD_SECONDS = 0.15
NAME = "mcphub doctor"
UNREACHABLE = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError)
FIX_BUFFERING = (
    "Turn off buffering for this path in the proxy (nginx: proxy_buffering off), and compression of event streams."
)
EXPLAINED = {
    301: "The proxy does not forward the scheme. Set X-Forwarded-Proto in the proxy, or use the https:// URL.",
    401: "The API key is missing, unknown, expired or revoked, or the proxy removes the Authorization header.",
    403: "A proxy rejects the request, or the client's address is not allowed.",
    404: "No MCP endpoint at this path. It ends in /mcp.",
    413: "The proxy rejects large bodies. Raise its limit to MCPHUB_MAX_BODY_BYTES.",
    421: "The host is not allowed. Add it to MCPHUB_ALLOWED_HOSTS.",
    429: "The rate limit of the API key is exceeded. Use another key.",
    502: "The proxy cannot reach the hub.",
    503: "The hub cannot record calls, or is stopping. See its log.",
    504: "The proxy cannot reach the hub.",
}


@dataclass
class Endpoint:
    """The endpoint at `url`, called with `key`."""

    url: str
    key: str
    pool: httpcore.ConnectionPool = field(default_factory=httpcore.ConnectionPool)

    def checks(self) -> Iterator[Finding]:
        """Run the checks; the first decides whether the others follow."""
        with closing(self.pool):
            opened = self._opened()
            if isinstance(opened, Finding):
                yield opened
                return
            wire_id, seconds = opened
            yield graded(
                "endpoint",
                f"initialize takes {seconds * 1000:.0f} ms",
                "Check the network and the proxies: a local call takes milliseconds.",
                is_warning=seconds > SLOW_SECONDS,
            )
            yield self._ping(wire_id)
            yield self._address()
            yield self._stream()
            yield from self._progress(wire_id)
            with suppress(*UNREACHABLE):
                self._ask("DELETE", None, {"Mcp-Session-Id": wire_id})

    def _opened(self) -> tuple[str, float] | Finding:
        """Return the id of a new session and the elapsed time, or why it could not be opened."""
        params = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": NAME, "version": "1"}}
        began = perf_counter()
        try:
            answer = self._ask("POST", _message("initialize", params), {"X-Forwarded-For": FORGED})
        except UNREACHABLE as failure:
            fix = "Check the URL and its certificate."
            return problem("endpoint", f"{_place(self.url)} is unreachable: {type(failure).__name__} {failure}", fix)
        headers = _headers(answer)
        if answer.status != HTTPStatus.OK or "mcp-session-id" not in headers:
            fix = EXPLAINED.get(answer.status, "See the hub's log, and the proxy's.")
            return problem("endpoint", f"{_place(self.url)} responds to initialize with HTTP {answer.status}", fix)
        return headers["mcp-session-id"], perf_counter() - began

    def _ping(self, wire_id: str) -> Finding:
        headers = {"Mcp-Session-Id": wire_id, "MCP-Protocol-Version": VERSION}
        answer = self._ask("POST", _message("ping"), headers)
        fix = "The session is not found in every process. All processes need the same database and MCPHUB_SECRET_KEY."
        return graded("session", f"ping returns HTTP {answer.status}", fix, is_problem=answer.status != HTTPStatus.OK)

    def _address(self) -> Finding:
        """Check the client address that the hub recorded for the new session."""
        made = Session.objects.filter(client_name=NAME, ended_at=None).order_by("-created_at").first()
        if made is None or made.created_at < timezone.now() - timedelta(minutes=1):
            return graded(
                "caller's address",
                "the session is not in this database: the URL belongs to another hub",
                "Run doctor with the settings of the hub at this URL.",
                is_problem=True,
            )
        trusted = settings.MCPHUB_TRUSTED_PROXIES
        if made.remote_address == FORGED:
            return problem(
                "caller's address",
                "the hub trusts an address that the client sent",
                f"Lower MCPHUB_TRUSTED_PROXIES (now {trusted}) to the number of proxies in front of the hub, and let "
                "them append to X-Forwarded-For."
                if trusted
                else "The ASGI server trusts X-Forwarded-For. Start uvicorn with --no-proxy-headers.",
            )
        hidden = not trusted and _is_local(made.remote_address) and not _is_local_url(self.url)
        return graded(
            "caller's address",
            f"the hub sees {made.remote_address or 'none'}" + (", which is the proxy's address" if hidden else ""),
            "Set MCPHUB_TRUSTED_PROXIES to the number of proxies in front.",
            is_warning=hidden,
        )

    def _stream(self) -> Finding:
        """Check that the first event of an unfinished stream arrives before the stream ends."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": NAME, "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        message = _message("subscriptions/listen", {"notifications": {"toolsListChanged": True}, "_meta": meta})
        headers = {
            "Accept": "text/event-stream",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "subscriptions/listen",
        }
        began = perf_counter()
        try:
            with self._sent("POST", message, headers) as answer:
                if answer.status != HTTPStatus.OK:
                    return problem(
                        "stream", f"HTTP {answer.status}", EXPLAINED.get(answer.status, "See the hub's log.")
                    )
                next(iter(answer.iter_stream()))
        except httpcore.ReadTimeout:
            return problem("stream", f"no event within {SECONDS:g} seconds: the stream is buffered", FIX_BUFFERING)
        return ok("stream", f"its first event arrives after {(perf_counter() - began) * 1000:.0f} ms")

    def _progress(self, wire_id: str) -> Iterator[Finding]:
        """Check that progress arrives while a tool runs, if the key permits the demo tool `count`."""
        params = {"name": COUNTING, "arguments": {"n": STEPS}, "_meta": {"progressToken": "doctor"}}
        headers = {
            "Accept": "text/event-stream, application/json",
            "Mcp-Session-Id": wire_id,
            "MCP-Protocol-Version": VERSION,
        }
        arrived: list[float] = []
        with self._sent("POST", _message("tools/call", params), headers) as answer:
            for chunk in answer.iter_stream():
                arrived += [perf_counter()] * chunk.count(b"notifications/progress")
        if not arrived:
            yield ok("progress", f"skipped: the key cannot use the tool {COUNTING!r}")
            return
        spread = arrived[-1] - arrived[0]
        yield graded(
            "progress",
            f"{len(arrived)} events came within {spread:.2f} seconds",
            f"They arrived all at once. {FIX_BUFFERING}",
            is_problem=spread < LEAST_SPREAD_SECONDS,
        )

    def _ask(self, verb: str, message: bytes | None, headers: Mapping[str, str]) -> httpcore.Response:
        with self._sent(verb, message, headers) as answer:
            answer.read()
            return answer

    def _sent(
        self, verb: str, message: bytes | None, headers: Mapping[str, str]
    ) -> AbstractContextManager[httpcore.Response]:
        said = {
            "Host": urlsplit(self.url).netloc.rpartition("@")[2],
            "Authorization": f"Bearer {self.key}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            **headers,
        }
        timeout = {"connect": SECONDS, "read": SECONDS, "write": SECONDS, "pool": SECONDS}
        return self.pool.stream(
            verb, self.url, headers=list(said.items()), content=message, extensions={"timeout": timeout}
        )


def _message(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}).encode()


def _headers(answer: httpcore.Response) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers}


def _place(url: str) -> str:
    """Return a URL without parts that may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _is_local(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_private
    except ValueError:
        return True


def _is_local_url(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host == "localhost" or (_is_literal(host) and _is_local(host))


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
