"""Checks of the endpoint through its proxies, as a client: `--url` and `--key` of the command.

Proxies often cause problems of a healthy hub: they buffer streams, or hide the client's address.
"""

import asyncio
import ipaddress
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import httpcore2
from django.conf import settings
from django.utils import timezone

from tools_app.core.http.addresses import ANYWHERE
from tools_app.core.http.client import Outbound, Reply, RequestPolicy, exchange, stream
from tools_app.core.http.errors import RequestFailed
from tools_app.core.http.urls import InvalidUrl, parse_url
from tools_app.doctor.findings import Finding, grade, ok, problem
from tools_app.models import Session

TIMEOUT_SECONDS = 10.0
SLOW_SECONDS = 1.0
# A documentation address (RFC 5737): the hub must not trust it.
FORGED_ADDRESS = "203.0.113.77"
HANDSHAKE_VERSION = "2025-11-25"
MODERN_VERSION = "2026-07-28"
COUNT_TOOL, STEPS = "count", 5
MIN_SPREAD_SECONDS = 0.15
CLIENT_NAME = "mcphub doctor"
MAX_BYTES = 1024 * 1024
FIX_BUFFERING = (
    "Turn off buffering for this path in the proxy (nginx: proxy_buffering off), and compression of event streams."
)
STATUS_HINTS = {
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
class EndpointChecks:
    """The endpoint at `url`, called with `key`."""

    url: str
    key: str

    def checks(self) -> Iterator[Finding]:
        """Run the checks; the first decides whether the others follow."""
        result = self._open_session()
        if isinstance(result, Finding):
            yield result
            return
        session_id, seconds = result
        yield grade(
            "endpoint",
            f"initialize takes {seconds * 1000:.0f} ms",
            "Check the network and the proxies: a local call takes milliseconds.",
            is_warning=seconds > SLOW_SECONDS,
        )
        yield self._ping(session_id)
        yield self._address()
        yield self._stream()
        yield from self._progress(session_id)
        with suppress(RequestFailed):
            self._request("DELETE", None, {"Mcp-Session-Id": session_id})

    def _open_session(self) -> tuple[str, float] | Finding:
        """Return the id of a new session and the elapsed time, or why it could not be opened."""
        params = {
            "protocolVersion": HANDSHAKE_VERSION,
            "capabilities": {},
            "clientInfo": {"name": CLIENT_NAME, "version": "1"},
        }
        started_at = perf_counter()
        try:
            response = self._request("POST", _message("initialize", params), {"X-Forwarded-For": FORGED_ADDRESS})
        except (RequestFailed, InvalidUrl) as failure:
            fix = "Check the URL and its certificate."
            return problem("endpoint", f"{_without_secrets(self.url)} is unreachable: {failure}", fix)
        headers = response.headers
        if response.status != HTTPStatus.OK or "mcp-session-id" not in headers:
            fix = STATUS_HINTS.get(response.status, "See the hub's log, and the proxy's.")
            return problem(
                "endpoint", f"{_without_secrets(self.url)} responds to initialize with HTTP {response.status}", fix
            )
        return headers["mcp-session-id"], perf_counter() - started_at

    def _ping(self, session_id: str) -> Finding:
        headers = {"Mcp-Session-Id": session_id, "MCP-Protocol-Version": HANDSHAKE_VERSION}
        response = self._request("POST", _message("ping"), headers)
        fix = "The session is not found in every process. All processes need the same database and MCPHUB_SECRET_KEY."
        return grade(
            "session", f"ping returns HTTP {response.status}", fix, is_problem=response.status != HTTPStatus.OK
        )

    def _address(self) -> Finding:
        """Check the client address that the hub recorded for the new session."""
        session = Session.objects.filter(client_name=CLIENT_NAME, ended_at=None).order_by("-created_at").first()
        if session is None or session.created_at < timezone.now() - timedelta(minutes=1):
            return grade(
                "caller's address",
                "the session is not in this database: the URL belongs to another hub",
                "Run doctor with the settings of the hub at this URL.",
                is_problem=True,
            )
        trusted = settings.MCPHUB_TRUSTED_PROXIES
        if session.remote_address == FORGED_ADDRESS:
            return problem(
                "caller's address",
                "the hub trusts an address that the client sent",
                f"Lower MCPHUB_TRUSTED_PROXIES (now {trusted}) to the number of proxies in front of the hub, and let "
                "them append to X-Forwarded-For."
                if trusted
                else "The ASGI server trusts X-Forwarded-For. Start uvicorn with --no-proxy-headers.",
            )
        is_proxy_address = not trusted and _is_local(session.remote_address) and not _is_local_url(self.url)
        return grade(
            "caller's address",
            f"the hub sees {session.remote_address or 'none'}"
            + (", which is the proxy's address" if is_proxy_address else ""),
            "Set MCPHUB_TRUSTED_PROXIES to the number of proxies in front.",
            is_warning=is_proxy_address,
        )

    def _stream(self) -> Finding:
        """Check that the first event of an unfinished stream arrives before the stream ends."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": CLIENT_NAME, "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        message = _message("subscriptions/listen", {"notifications": {"toolsListChanged": True}, "_meta": meta})
        headers = {
            "Accept": "text/event-stream",
            "MCP-Protocol-Version": MODERN_VERSION,
            "Mcp-Method": "subscriptions/listen",
        }
        started_at = perf_counter()
        try:
            status = asyncio.run(self._status_of_stream(message, headers))
        except RequestFailed as failure:
            if not isinstance(failure.__cause__, httpcore2.ReadTimeout):
                return problem("stream", failure.message, "See the hub's log, and the proxy's.")
            return problem(
                "stream", f"no event within {TIMEOUT_SECONDS:g} seconds: the stream is buffered", FIX_BUFFERING
            )
        if status != HTTPStatus.OK:
            return problem("stream", f"HTTP {status}", STATUS_HINTS.get(status, "See the hub's log."))
        return ok("stream", f"its first event arrives after {(perf_counter() - started_at) * 1000:.0f} ms")

    def _progress(self, session_id: str) -> Iterator[Finding]:
        """Check that progress arrives while a tool runs, if the key permits the demo tool `count`."""
        params = {"name": COUNT_TOOL, "arguments": {"n": STEPS}, "_meta": {"progressToken": "doctor"}}
        headers = {
            "Accept": "text/event-stream, application/json",
            "Mcp-Session-Id": session_id,
            "MCP-Protocol-Version": HANDSHAKE_VERSION,
        }
        arrival_times: list[float] = []
        try:
            asyncio.run(self._note_progress(_message("tools/call", params), headers, arrival_times))
        except RequestFailed as failure:
            yield problem("progress", failure.message, "See the hub's log, and the proxy's.")
            return
        if not arrival_times:
            yield ok("progress", f"skipped: the key cannot use the tool {COUNT_TOOL!r}")
            return
        spread = arrival_times[-1] - arrival_times[0]
        yield grade(
            "progress",
            f"{len(arrival_times)} events came within {spread:.2f} seconds",
            f"They arrived all at once. {FIX_BUFFERING}",
            is_problem=spread < MIN_SPREAD_SECONDS,
        )

    async def _status_of_stream(self, message: bytes, headers: Mapping[str, str]) -> int:
        """Return the status of a stream, once its first event has arrived. Raises RequestFailed."""
        async with stream(self._outbound("POST", message, headers), request_policy()) as response:
            if response.status == HTTPStatus.OK:
                await anext(response, b"")
            return response.status

    async def _note_progress(self, message: bytes, headers: Mapping[str, str], arrival_times: list[float]) -> None:
        """Note when progress arrives until the stream ends. Raises RequestFailed."""
        async with stream(self._outbound("POST", message, headers), request_policy()) as response:
            async for chunk in response:
                arrival_times += [perf_counter()] * chunk.count(b"notifications/progress")

    def _request(self, method: str, message: bytes | None, headers: Mapping[str, str]) -> Reply:
        return asyncio.run(exchange(self._outbound(method, message, headers), request_policy()))

    def _outbound(self, method: str, message: bytes | None, headers: Mapping[str, str]) -> Outbound:
        parts = urlsplit(self.url)
        url = parse_url(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl())
        common_headers = {
            "Authorization": f"Bearer {self.key}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }
        return Outbound(method, url, tuple({**common_headers, **headers}.items()), message)


def request_policy() -> RequestPolicy:
    """Return the limits of a request to the hub, which is wherever its operator says."""
    return RequestPolicy(ANYWHERE, 6 * TIMEOUT_SECONDS, MAX_BYTES, idle_seconds=TIMEOUT_SECONDS)


def _message(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}).encode()


def _without_secrets(url: str) -> str:
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
