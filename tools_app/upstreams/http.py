"""The Streamable HTTP transport of an upstream, on the guarded dialer: one exchange for each request.

A pool of connections belongs to one upstream and one credential, so that no connection is used under other rules. Every
connection checks its addresses. Bodies and streams are bounded in bytes, and redirects are not followed.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import httpcore
import orjson

from tools_app.catalog.http.addresses import CheckedDialer, Network
from tools_app.catalog.http.client import trusted_certificates
from tools_app.catalog.http.errors import TRANSPORT_ERRORS, AddressRefused, RequestFailed, Unresolved, explained
from tools_app.catalog.http.urls import Url
from tools_app.core import hub_path
from tools_app.protocol.errors import RpcError
from tools_app.protocol.inbound import SESSION_HEADER
from tools_app.protocol.jsonrpc import decode
from tools_app.upstreams.client import MAX_ANSWERING, unsupported
from tools_app.upstreams.errors import Refused, SessionExpired, TooLarge, UpstreamFailed
from tools_app.upstreams.pool import ConnectionPool
from tools_app.upstreams.sse import EventParser

SESSION_ID: Final = re.compile(r"[!-~]{1,1024}")
JSON: Final = "application/json"
STREAM: Final = "text/event-stream"
MAX_CONNECTIONS: Final = 64
KEEPALIVE_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 10.0
# A stream of a call: its result, and everything that is said before it.
MAX_STREAM_BYTES: Final = 64 * 1024 * 1024
MAX_ERROR_BYTES: Final = 64 * 1024
MAX_RECONNECTIONS: Final = 5
FOLLOW_SECONDS: Final = 1.0
# A stream that lasted this long did not fail at once.
STEADY_SECONDS: Final = 10.0
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.1, 5.0
OK, ACCEPTED, NOT_FOUND = 200, 202, 404
UNAUTHORIZED = frozenset({401, 403})
REDIRECTS = frozenset({301, 302, 303, 307, 308})
LOOP_DETECTED = 508

Message = dict[str, Any]
Headers = Mapping[str, str]
Listen = Callable[[Message], None]
Answer = Callable[[Message], Awaitable[Message]]


@dataclass(frozen=True)
class Bounds:
    """The bounds of an upstream's answers: seconds of silence, and bytes of one message."""

    idle_seconds: float
    max_bytes: int


class HttpTransport:
    """The endpoint of one upstream with one credential. `headers` are sent with every request."""

    def __init__(self, url: Url, headers: Headers, allowed: Sequence[Network], bounds: Bounds) -> None:
        self._url = url
        self._headers = dict(headers)
        self._bounds = bounds
        self._allowed = allowed
        self._pool = self._new_pool()
        self._former: list[ConnectionPool] = []
        idle = bounds.idle_seconds
        self._timeouts = {"connect": min(idle, CONNECT_SECONDS), "read": idle, "write": idle, "pool": CONNECT_SECONDS}
        self._answering: set[asyncio.Task[None]] = set()
        # The requests that are running, by their ids, with what answers the questions of each.
        self._running: dict[int, Answer] = {}
        self._following: asyncio.Task[None] | None = None
        self._refuses = False
        self.session_id = ""

    # Each request has a stream of its own, and the pool opens connections as needed.
    is_closed = False
    is_duplex = False

    def attach(self, listen: Listen) -> None:
        """Do nothing: `follow` gets the listener of its stream."""

    def forget_session(self) -> None:
        """Send no session id any more."""
        self.session_id = ""
        if self._following is not None:
            self._following.cancel()

    def refuse_unrelated(self) -> None:
        """Refuse the questions on the session's own stream from now on."""
        self._refuses = True

    async def follow(self, headers: Headers, listen: Listen) -> None:
        """Open the session's own stream, and open it again when it ends (2025-11-25, Streamable HTTP, §Listening).

        Waits a little for it: what an upstream has to say before it is open may be lost.
        """
        is_open = asyncio.Event()
        self._following = asyncio.get_running_loop().create_task(self._follow(headers, listen, is_open))
        with suppress(TimeoutError):
            async with asyncio.timeout(FOLLOW_SECONDS):
                await is_open.wait()

    async def close(self) -> None:
        """Close all connections."""
        for task in (*self._answering, *([self._following] if self._following else ())):
            task.cancel()
        for pool in (self._pool, *self._former):
            await pool.aclose()

    async def roundtrip(self, message: Message, headers: Headers, listen: Listen, answer: Answer) -> Message:
        """Send a request and return its response. `listen` gets the notifications that precede it.

        `answer` handles requests of the upstream. Raises UpstreamFailed.
        """
        self._running[message["id"]] = answer
        try:
            async with self._sent("POST", headers, orjson.dumps(message)) as response:
                self._note_session(message, response)
                if response.status != OK:
                    return await self._unsuccessful(message, response)
                if _media_type(response) != STREAM:
                    return _response(await self._body(response, self._bounds.max_bytes), message)
                found = _Reading(self, message, headers, listen, answer)
                if await found.read(response):
                    return found.response
            return await found.reconnected()
        finally:
            del self._running[message["id"]]

    async def post(self, message: Message, headers: Headers, url: Url | None = None) -> None:
        """Send a message whose response, if any, comes on another stream. Raises UpstreamFailed."""
        async with self._sent("POST", headers, orjson.dumps(message), url) as response:
            if response.status not in {OK, ACCEPTED, 204}:
                await self._unsuccessful(message, response)

    async def end_session(self, headers: Headers) -> None:
        """Tell the upstream that the session is over, as a courtesy."""
        async with self._sent("DELETE", headers, None):
            pass

    def respond_later(self, message: Message, headers: Headers, answer: Answer) -> None:
        """Answer a request of the upstream, while its stream is read on."""
        if len(self._answering) >= MAX_ANSWERING:
            return

        async def respond() -> None:
            try:
                await self.post(await answer(message), headers)
            except RequestFailed:
                return

        task = asyncio.get_running_loop().create_task(respond())
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _follow(self, headers: Headers, listen: Listen, is_open: asyncio.Event) -> None:
        """Read the session's own stream. A server that has none, or ends it at once repeatedly, is left alone."""
        failures, last_id = 0, ""
        while failures < MAX_RECONNECTIONS:
            began = monotonic()
            with suppress(UpstreamFailed, httpcore.RemoteProtocolError, httpcore.ReadError, OSError):
                try:
                    more = {"Last-Event-ID": last_id} if last_id else {}
                    async with self._sent("GET", {**headers, **more}, None) as response:
                        is_open.set()
                        if response.status != OK or _media_type(response) != STREAM:
                            return
                        parser = self.new_parser()
                        async for chunk in response.aiter_stream():
                            for event in parser.feed(chunk):
                                last_id = event.id or last_id
                                if event.data and event.kind == "message":
                                    self._take_unrelated(parsed(event.data), headers, listen)
                except (TooLarge, SessionExpired, Refused):
                    return
                finally:
                    is_open.set()
            failures = 0 if monotonic() - began > STEADY_SECONDS else failures + 1
            await asyncio.sleep(min(MAX_RETRY_SECONDS, MIN_RETRY_SECONDS * 2**failures))

    def _take_unrelated(self, message: Message, headers: Headers, listen: Listen) -> None:
        """Handle a message of the session's own stream. A question belongs to the only running request."""
        if "method" not in message:
            return
        if "id" not in message:
            listen(message)
            return
        running = [] if self._refuses else list(self._running.values())
        self.respond_later(message, headers, running[0] if len(running) == 1 else unsupported)

    @asynccontextmanager
    async def _sent(
        self, method: str, headers: Headers, content: bytes | None, url: Url | None = None
    ) -> AsyncIterator[httpcore.Response]:
        """Send a request; the errors of its exchange become UpstreamFailed."""
        url, sent = url or self._url, False
        fields = {
            "Accept": f"{JSON}, {STREAM}" if method == "POST" else STREAM,
            "Accept-Encoding": "identity",
            **({"Content-Type": JSON} if content is not None else {}),
            **self._headers,
            **headers,
        }
        if self.session_id:
            fields[SESSION_HEADER] = self.session_id
        try:
            async with self._pool.stream(
                method,
                httpcore.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target),
                [(b"Host", url.authority.encode()), *_encoded(fields)],
                content,
                self._timeouts,
            ) as response:
                sent = True
                if response_encoding(response) not in {"", "identity"}:
                    raise UpstreamFailed("The upstream sent a compressed response, which was not requested.")
                yield response
        except UpstreamFailed:
            raise
        except (AddressRefused, Unresolved, httpcore.PoolTimeout, *TRANSPORT_ERRORS) as error:
            failure = explained(error, url.host)
            never = not sent and isinstance(
                error, AddressRefused | Unresolved | httpcore.ConnectError | httpcore.ConnectTimeout
            )
            broken = not sent and isinstance(
                error, httpcore.RemoteProtocolError | httpcore.ReadError | httpcore.WriteError
            )
            if broken and not self._former:
                # It closes connections without saying so: from now on, each request opens its own.
                former, self._pool = self._pool, self._new_pool(0)
                self._former.append(former)
                await former.retire()
            raise UpstreamFailed(failure.message, failure.cause, sent=not never, broken=broken) from error

    def _new_pool(self, idle: int = MAX_CONNECTIONS) -> ConnectionPool:
        """Return a pool that keeps at most `idle` connections for further requests."""
        return ConnectionPool(
            CheckedDialer(self._allowed),
            trusted_certificates(),
            size=MAX_CONNECTIONS,
            idle=idle,
            seconds=KEEPALIVE_SECONDS,
        )

    def _note_session(self, message: Message, response: httpcore.Response) -> None:
        if message.get("method") == "initialize" and response.status == OK:
            given = _header(response, SESSION_HEADER)
            self.session_id = given if SESSION_ID.fullmatch(given) else ""

    async def _unsuccessful(self, message: Message, response: httpcore.Response) -> Message:
        """Return the JSON-RPC error of an unsuccessful status. Raises UpstreamFailed without one."""
        status = response.status
        if status == NOT_FOUND and self.session_id:
            raise SessionExpired
        if status in UNAUTHORIZED:
            raise Refused(f"The upstream refused the credential (HTTP {status}). An admin can set another one.", status)
        if status in REDIRECTS:
            raise Refused("The upstream redirects. An admin should enter the URL that it redirects to.", status)
        if _media_type(response) == JSON and "id" in message:
            try:
                body = await self._body(response, MAX_ERROR_BYTES)
                found = decode(body)
            except (RpcError, UpstreamFailed):
                found = None
            if isinstance(found, dict) and isinstance(found.get("error"), dict):
                if status == LOOP_DETECTED:
                    raise Refused(str(found["error"].get("message"))[:500], status)
                return {**found, "id": message["id"]}
        if status == ACCEPTED:
            raise Refused("The upstream accepted the request, and gives no answer to it.", status)
        raise Refused(f"HTTP {status} from the upstream.", status)

    async def _body(self, response: httpcore.Response, most: int) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_stream():
            body += chunk
            if len(body) > most:
                raise TooLarge(f"The upstream sent a message of more than {most} bytes.")
        return bytes(body)

    def new_parser(self) -> EventParser:
        """Return a parser of one stream."""
        return EventParser(self._bounds.max_bytes)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[httpcore.Response]:
        """Open the stream of a server of revision 2024-11-05."""
        async with self._sent("GET", {hub_path.HEADER: hub_path.outgoing()}, None) as response:
            if response.status != OK or _media_type(response) != STREAM:
                await self._unsuccessful({}, response)
                raise UpstreamFailed("The upstream opens no event stream.", sent=False)
            yield response

    @asynccontextmanager
    async def resumed(self, headers: Headers, last_id: str) -> AsyncIterator[httpcore.Response]:
        """Reconnect to a stream after its event `last_id` (2025-11-25, Streamable HTTP, §Resumability)."""
        async with self._sent("GET", {**headers, "Last-Event-ID": last_id}, None) as response:
            if response.status != OK or _media_type(response) != STREAM:
                raise UpstreamFailed("The upstream closed the stream before its result. The call may have run.")
            yield response


class _Reading:
    """The streams on which one response arrives."""

    def __init__(
        self, transport: HttpTransport, message: Message, headers: Headers, listen: Listen, answer: Answer
    ) -> None:
        self._transport = transport
        self._request = message
        self._headers = headers
        self._listen = listen
        self._answer = answer
        self._bytes = 0
        self._last_id = ""
        self._retry = MIN_RETRY_SECONDS
        self.response: Message = {}

    async def read(self, response: httpcore.Response) -> bool:
        """Read one stream. Returns whether it had the response."""
        parser = self._transport.new_parser()
        try:
            async for chunk in response.aiter_stream():
                self._bytes += len(chunk)
                if self._bytes > MAX_STREAM_BYTES:
                    raise TooLarge(f"The upstream sent more than {MAX_STREAM_BYTES} bytes for one request.")
                for event in parser.feed(chunk):
                    self._last_id = event.id or self._last_id
                    if event.retry_ms is not None:
                        self._retry = min(max(event.retry_ms / 1000, MIN_RETRY_SECONDS), MAX_RETRY_SECONDS)
                    if event.data and event.kind == "message" and self._handle(parsed(event.data)):
                        return True
        except (httpcore.RemoteProtocolError, httpcore.ReadError, OSError):
            if not self._last_id:
                raise
        return False

    async def reconnected(self) -> Message:
        """Read on after the stream ended early. The request is not sent again. Raises UpstreamFailed."""
        for _ in range(MAX_RECONNECTIONS):
            if not self._last_id:
                break
            before = self._last_id
            await asyncio.sleep(self._retry)
            async with self._transport.resumed(self._headers, before) as response:
                if await self.read(response):
                    return self.response
            if self._last_id == before:
                break
        raise UpstreamFailed("The upstream closed the stream before its result. The call may have run.")

    def _handle(self, message: Message) -> bool:
        if "method" not in message:
            if message.get("id") != self._request["id"]:
                return False
            self.response = message
            return True
        if "id" in message:
            self._transport.respond_later(message, self._headers, self._answer)
        else:
            self._listen(message)
        return False


def parsed(data: bytes) -> Message:
    """Return a message. Raises UpstreamFailed for anything else."""
    try:
        value = decode(data)
    except RpcError as problem:
        raise UpstreamFailed("The upstream sent an invalid message.", problem.message) from problem
    if not isinstance(value, dict):
        raise UpstreamFailed("The upstream sent an invalid message.", "not an object")
    return value


def response_encoding(response: httpcore.Response) -> str:
    """Return the content encoding of a response."""
    return _header(response, "content-encoding").strip().lower()


def _response(body: bytes, request: Message) -> Message:
    message = parsed(body)
    if message.get("id") != request["id"] and not ("error" in message and message.get("id") is None):
        raise UpstreamFailed("The upstream answered another request than the one that was sent.")
    return message


def _header(response: httpcore.Response, name: str) -> str:
    wanted = name.lower().encode()
    return next((value.decode("latin-1") for found, value in response.headers if found.lower() == wanted), "")


def _media_type(response: httpcore.Response) -> str:
    return _header(response, "content-type").partition(";")[0].strip().lower()


def _encoded(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
