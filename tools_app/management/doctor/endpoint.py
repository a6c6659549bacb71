"""The hub as a client reaches it, through whatever stands in front: `--url` and `--key` of the command.

Proxies are the usual reason why a hub that is well looks ill: they hold streams back, or hide who calls.
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

from tools_app.management.doctor.findings import Finding, judged, ok, problem
from tools_app.models import Session

SECONDS = 10.0
SLOW_SECONDS = 1.0
# Nobody's address (RFC 5737): the hub must not believe it.
FORGED = "203.0.113.77"
VERSION = "2025-11-25"
MODERN = "2026-07-28"
COUNTING, STEPS = "count", 5
LEAST_SPREAD_SECONDS = 0.15
NAME = "mcphub doctor"
UNREACHABLE = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError)
MEND_BUFFERING = (
    "Turn off buffering for this path in the proxy (nginx: proxy_buffering off), and compression of event streams."
)
EXPLAINED = {
    301: "The proxy does not say that TLS was used: let it set X-Forwarded-Proto, or call the https:// address.",
    401: "The key is none, expired or revoked, or the proxy drops the Authorization header.",
    403: "Something in front refuses the request, or the address is not allowed.",
    404: "There is no hub at this path: it ends in /mcp.",
    413: "The proxy refuses large bodies: raise its limit to MCPHUB_MAX_BODY_BYTES.",
    421: "The hub does not answer for this host: name it in MCPHUB_ALLOWED_HOSTS.",
    429: "This key is over its limits: use another one.",
    502: "The proxy does not reach the hub.",
    503: "The hub cannot record, or is stopping: see its log.",
    504: "The proxy does not reach the hub.",
}


@dataclass
class Endpoint:
    """The endpoint at `url`, called with `key`."""

    url: str
    key: str
    pool: httpcore.ConnectionPool = field(default_factory=httpcore.ConnectionPool)

    def checks(self) -> Iterator[Finding]:
        """One check after the other; what the first finds decides whether there are others."""
        with closing(self.pool):
            opened = self._opened()
            if isinstance(opened, Finding):
                yield opened
                return
            wire_id, seconds = opened
            yield judged(
                "endpoint",
                f"initialize is answered in {seconds * 1000:.0f} ms",
                "Look at what stands between: a local call takes milliseconds.",
                doubtful=seconds > SLOW_SECONDS,
            )
            yield self._ping(wire_id)
            yield self._address()
            yield self._stream()
            yield from self._progress(wire_id)
            with suppress(*UNREACHABLE):
                self._ask("DELETE", None, {"Mcp-Session-Id": wire_id})

    def _opened(self) -> tuple[str, float] | Finding:
        """The id of a session and how long it took, or why there is none."""
        params = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": NAME, "version": "1"}}
        began = perf_counter()
        try:
            answer = self._ask("POST", _message("initialize", params), {"X-Forwarded-For": FORGED})
        except UNREACHABLE as failure:
            mend = "See that the address is right, and its certificate good."
            return problem(
                "endpoint", f"{_place(self.url)} cannot be reached: {type(failure).__name__} {failure}", mend
            )
        headers = _headers(answer)
        if answer.status != HTTPStatus.OK or "mcp-session-id" not in headers:
            mend = EXPLAINED.get(answer.status, "See the hub's log, and the proxy's.")
            return problem("endpoint", f"{_place(self.url)} answers initialize with {answer.status}", mend)
        return headers["mcp-session-id"], perf_counter() - began

    def _ping(self, wire_id: str) -> Finding:
        headers = {"Mcp-Session-Id": wire_id, "MCP-Protocol-Version": VERSION}
        answer = self._ask("POST", _message("ping"), headers)
        mend = "The session is not found in every process: do all share one database and one MCPHUB_SECRET_KEY?"
        return judged(
            "session", f"a ping in it is answered with {answer.status}", mend, bad=answer.status != HTTPStatus.OK
        )

    def _address(self) -> Finding:
        """What the hub takes for the caller's address, from the session that was just made."""
        made = Session.objects.filter(client_name=NAME, ended_at=None).order_by("-created_at").first()
        if made is None or made.created_at < timezone.now() - timedelta(minutes=1):
            return judged(
                "caller's address",
                "the session is not in this database: the address leads to another hub",
                "Run the doctor with the settings of the hub behind the address.",
                bad=True,
            )
        trusted = settings.MCPHUB_TRUSTED_PROXIES
        if made.remote_address == FORGED:
            return problem(
                "caller's address",
                "the hub believes what a caller says of its own address",
                f"Lower MCPHUB_TRUSTED_PROXIES (now {trusted}) to the number of proxies that are really in front, and "
                "let them append to X-Forwarded-For."
                if trusted
                else "The ASGI server believes X-Forwarded-For: start uvicorn with --no-proxy-headers.",
            )
        hidden = not trusted and _is_local(made.remote_address) and not _is_local_url(self.url)
        return judged(
            "caller's address",
            f"the hub sees {made.remote_address or 'none'}" + (", which is the proxy's" if hidden else ""),
            "Set MCPHUB_TRUSTED_PROXIES to the number of proxies in front.",
            doubtful=hidden,
        )

    def _stream(self) -> Finding:
        """Whether the first event of a stream that goes on arrives before its end."""
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
                        "stream", f"answered with {answer.status}", EXPLAINED.get(answer.status, "See the log.")
                    )
                next(iter(answer.iter_stream()))
        except httpcore.ReadTimeout:
            return problem("stream", f"nothing came within {SECONDS:g} seconds: it is held back", MEND_BUFFERING)
        return ok("stream", f"its first event arrives after {(perf_counter() - began) * 1000:.0f} ms")

    def _progress(self, wire_id: str) -> Iterator[Finding]:
        """Whether progress comes while a tool runs, where the key has the demo tool that counts."""
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
            yield ok("progress", f"not tried: this key has no tool {COUNTING!r}")
            return
        spread = arrived[-1] - arrived[0]
        yield judged(
            "progress",
            f"{len(arrived)} events came within {spread:.2f} seconds",
            f"They came all at once. {MEND_BUFFERING}",
            bad=spread < LEAST_SPREAD_SECONDS,
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
    """An address without what may be secret in it."""
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
