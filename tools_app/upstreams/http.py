"""The Streamable HTTP transport of an upstream, on the guarded dialer: one exchange for each request.

A pool of connections belongs to one upstream and one credential, so that no connection is used under other rules. Every
connection checks its addresses. Bodies and streams are bounded in bytes, and redirects are not followed.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Hashable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import Final

import httpcore2

from tools_app.core import hub_path, large_work
from tools_app.core.fair_scheduler import LARGE_BYTES
from tools_app.core.http.addresses import Network
from tools_app.core.http.client import ConnectionPool, Outbound, Response
from tools_app.core.http.errors import (
    NEVER_CONNECTED,
    TRANSPORT_ERRORS,
    AddressBlocked,
    NameNotResolved,
    explain_error,
)
from tools_app.core.http.network import CONNECT_SECONDS, CheckedNetwork, system_addresses
from tools_app.core.http.urls import Url
from tools_app.protocol import exact_json
from tools_app.protocol.errors import RpcError
from tools_app.protocol.inbound import SESSION_HEADER
from tools_app.protocol.jsonrpc import decode
from tools_app.upstreams.client import Answer, Listen, Message, Transport, answer_unsupported
from tools_app.upstreams.errors import LoopRefused, Refused, SessionExpired, TooLarge, UpstreamFailed, hold_result

MAX_ID_LENGTH: Final = 1024
SESSION_ID: Final = re.compile(r"[!-~]{1,1024}")
JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
MAX_CONNECTIONS: Final = 64
KEEPALIVE_SECONDS: Final = 30.0
# A stream of a call: its result, and everything that is said before it.
MAX_STREAM_BYTES: Final = 64 * 1024 * 1024
MAX_ERROR_BYTES: Final = 64 * 1024
MAX_CHALLENGE_LENGTH: Final = 4096
MAX_RECONNECTIONS: Final = 5
FOLLOW_SECONDS: Final = 1.0
# A stream that lasted this long did not fail at once.
STABLE_SECONDS: Final = 10.0
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.1, 5.0
OK, ACCEPTED, NO_CONTENT, NOT_FOUND = 200, 202, 204, 404
UNAUTHORIZED = frozenset({401, 403})
REDIRECTS = frozenset({301, 302, 303, 307, 308})
COMMON_HEADERS: Final = {"Accept-Encoding": "identity"}
POST_HEADERS: Final = {"Accept": f"{JSON}, {EVENT_STREAM}", **COMMON_HEADERS, "Content-Type": JSON}
GET_HEADERS: Final = {"Accept": EVENT_STREAM, **COMMON_HEADERS}
# Errors before which nothing was sent, and those of a connection that broke before the response.
NEVER_SENT: Final = (
    AddressBlocked,
    NameNotResolved,
    *NEVER_CONNECTED,
    httpcore2.PoolTimeout,
    httpcore2.LocalProtocolError,
)
BROKEN_CONNECTION: Final = (httpcore2.RemoteProtocolError, httpcore2.ReadError)

STREAM_CLOSED: Final = "The upstream closed the stream before its result. The call may have run."

Headers = Mapping[str, str]


@dataclass(frozen=True)
class StreamEvent:
    """One event. `retry_ms` is the delay before a reconnection that the upstream asks for; None if it asks for none."""

    kind: str
    data: bytes
    id: str = ""
    retry_ms: int | None = None


@dataclass
class EventParser:
    """Collects chunks of a stream into events. `max_bytes` bounds one event, and a line that does not end."""

    max_bytes: int
    _line: bytearray = field(default_factory=bytearray)
    _kind: str = ""
    _data: list[bytes] = field(default_factory=list)
    _size: int = 0
    _id: str = ""
    _retry_ms: int | None = None
    _after_cr: bool = False

    def feed(self, chunk: bytes) -> Iterator[StreamEvent]:
        """Return the events that `chunk` completes. Raises TooLarge."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r") if chunk else self._after_cr
        *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            self._line += line
            self._check()
            complete, self._line = bytes(self._line), bytearray()
            if complete:
                self._read(complete)
            elif event := self._dispatch():
                yield event
        self._line += rest
        self._check()

    @property
    def unfinished(self) -> int:
        """The bytes of the event that is not complete yet."""
        return len(self._line) + self._size

    def _check(self) -> None:
        if self.unfinished > self.max_bytes:
            raise TooLarge(f"The upstream sent a message of more than {self.max_bytes} bytes.")

    def _read(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
        elif name == b"event":
            self._kind = value[:100].decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value and len(value) <= MAX_ID_LENGTH:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= 9:  # noqa: PLR2004
            self._retry_ms = int(value)

    def _dispatch(self) -> StreamEvent | None:
        """Return the event that an empty line ends; None if nothing but comments preceded it."""
        if not self._data and not self._id and self._retry_ms is None:
            self._kind = ""
            return None
        event = StreamEvent(self._kind or "message", b"\n".join(self._data), self._id, self._retry_ms)
        # Unlike a browser, which keeps the last id for later events, the caller keeps it.
        self._kind, self._data, self._size, self._id, self._retry_ms = "", [], 0, "", None
        return event


@dataclass(frozen=True)
class Bounds:
    """The bounds of an upstream's answers: seconds of silence, and bytes of one message."""

    idle_seconds: float
    max_bytes: int


class HttpTransport(Transport):
    """The endpoint of one upstream with one credential. `headers` are sent with every request.

    Each request has a stream of its own, and the pool opens connections as needed.
    """

    def __init__(
        self, url: Url, headers: Headers, allowed: Sequence[Network], bounds: Bounds, tenant: Hashable = None
    ) -> None:
        super().__init__()
        self._url = url
        self._tenant = tenant
        self._headers = dict(headers)
        self._bounds = bounds
        self._allowed = allowed
        self._pool = self._new_pool()
        self._retired_pools: list[ConnectionPool] = []
        # The requests that are running, by their ids, with what answers the questions of each.
        self._running: dict[int, Answer] = {}
        self._following: asyncio.Task[None] | None = None
        self.session_id = ""

    def forget_session(self) -> None:
        """Send no session id any more."""
        self.session_id = ""
        if self._following is not None:
            self._following.cancel()

    async def follow(self, headers: Headers, listen: Listen) -> None:
        """Open the session's own stream, and open it again when it ends (2025-11-25, Streamable HTTP, §Listening).

        Waits a little for it: what an upstream has to say before it is open may be lost.
        """
        is_open = asyncio.Event()
        if self._following is not None:
            self._following.cancel()
        self.is_followed = False
        self._following = asyncio.get_running_loop().create_task(self._follow(headers, listen, is_open))
        with suppress(TimeoutError):
            async with asyncio.timeout(FOLLOW_SECONDS):
                await is_open.wait()

    async def close(self) -> None:
        """Close all connections."""
        for task in (*self._answering, *([self._following] if self._following else ())):
            task.cancel()
        for pool in (self._pool, *self._retired_pools):
            await pool.aclose()

    async def retire(self) -> None:
        """Close the connections that are not in use, and each of the others when its request has ended."""
        for pool in (self._pool, *self._retired_pools):
            await pool.retire()

    async def roundtrip(self, message: Message, headers: Headers, listen: Listen, answer: Answer) -> Message:
        """Send a request and return its response. `listen` gets the notifications that precede it.

        `answer` handles requests of the upstream. Raises UpstreamFailed.
        """
        self._running[message["id"]] = answer
        session_id = self.session_id
        try:
            async with self._exchange("POST", headers, exact_json.dumps(message)) as response:
                if response.status != OK:
                    return await self._error_response(message, response, session_id)
                if message["method"] == "initialize":
                    self.session_id = response.headers.get(SESSION_HEADER.lower(), "")
                    if not SESSION_ID.fullmatch(self.session_id):
                        self.session_id = ""
                if _media_type(response) != EVENT_STREAM:
                    answered = await parsed(await self._body(response, self._bounds.max_bytes))
                    id = answered.get("id")
                    if id != message["id"] and not ("error" in answered and id is None):
                        raise UpstreamFailed("The upstream answered another request than the one that was sent.")
                    return answered
                reader = _ResponseReader(self, message, headers, listen, answer)
                if await reader.read(response):
                    return reader.response
            return await reader.read_resumed()
        finally:
            del self._running[message["id"]]

    async def post(self, message: Message, headers: Headers, url: Url | None = None) -> None:
        """Send a message whose response, if any, comes on another stream. Raises UpstreamFailed.

        All but requests are repeated if the connection broke before the upstream answered.
        """
        may_repeat = not ("method" in message and "id" in message)
        while True:
            session_id = self.session_id
            try:
                async with self._exchange("POST", headers, exact_json.dumps(message), url) as response:
                    if response.status not in {OK, ACCEPTED, NO_CONTENT}:
                        await self._error_response(message, response, session_id)
                return
            except UpstreamFailed as error:
                if not (may_repeat and error.broken):
                    raise
            may_repeat = False

    async def _follow(self, headers: Headers, listen: Listen, is_open: asyncio.Event) -> None:
        """Read the session's own stream. A server that has none, or ends it at once repeatedly, is left alone."""
        failures, last_id = 0, ""
        while failures < MAX_RECONNECTIONS:
            started_at = monotonic()
            with suppress(UpstreamFailed, *BROKEN_CONNECTION, OSError):
                try:
                    resume_header = {"Last-Event-ID": last_id} if last_id else {}
                    async with self._exchange("GET", {**headers, **resume_header}, None) as response:
                        if not _is_stream(response):
                            return
                        self.is_followed = True
                        self.openings += 1
                        is_open.set()
                        parser = self.new_parser()
                        async for chunk in response:
                            for event in parser.feed(chunk):
                                last_id = event.id or last_id
                                if event.data and event.kind == "message":
                                    self._handle_unrelated(await parsed(event.data), headers, listen)
                except (TooLarge, SessionExpired, Refused):
                    return
                finally:
                    # Another stream may have replaced this one meanwhile.
                    if asyncio.current_task() is self._following:
                        self.is_followed = False
                    is_open.set()
            failures = 0 if monotonic() - started_at > STABLE_SECONDS else failures + 1
            await asyncio.sleep(min(MAX_RETRY_SECONDS, MIN_RETRY_SECONDS * 2**failures))

    def _handle_unrelated(self, message: Message, headers: Headers, listen: Listen) -> None:
        """Handle a message of the session's own stream. A question belongs to the only running request."""
        if "method" in message and "id" not in message:
            listen(message)
        if not {"method", "id"} <= message.keys():
            return
        running = [] if self.refuses_questions else list(self._running.values())
        answer = running[0] if len(running) == 1 else answer_unsupported
        self.answer_later(message, answer, lambda response: self.post(response, headers))

    @asynccontextmanager
    async def _exchange(
        self, method: str, headers: Headers, content: bytes | None, url: Url | None = None
    ) -> AsyncIterator[Response]:
        """Send a request; the errors of its exchange become UpstreamFailed."""
        url = url or self._url
        fields = {**(POST_HEADERS if method == "POST" else GET_HEADERS), **self._headers, **headers}
        if self.session_id:
            fields[SESSION_HEADER] = self.session_id
        if not self.keeps_connections and not self._retired_pools:
            self._retired_pools.append(self._pool)
            self._pool = self._new_pool(0)
            await self._retired_pools[0].retire()
        response = None
        try:
            async with self._pool.stream(Outbound(method, url, tuple(fields.items()), content)) as response:
                if response.headers.get("content-encoding", "").strip().lower() not in {"", "identity"}:
                    raise UpstreamFailed("The upstream sent a compressed response, which was not requested.")
                yield response
        except (AddressBlocked, NameNotResolved, *TRANSPORT_ERRORS) as error:
            failure = explain_error(error, url.host)
            was_not_sent = response is None and isinstance(error, NEVER_SENT)
            is_broken = response is None and isinstance(error, BROKEN_CONNECTION)
            # It may close connections without saying so: from now on, each request opens its own.
            self.keeps_connections = self.keeps_connections and not is_broken
            raise UpstreamFailed(failure.message, failure.cause, sent=not was_not_sent, broken=is_broken) from error

    def _new_pool(self, idle: int = MAX_CONNECTIONS) -> ConnectionPool:
        """Return a pool that keeps at most `idle` connections for further requests."""
        return ConnectionPool(
            CheckedNetwork(self._allowed, partial(system_addresses, tenant=self._tenant)),
            size=MAX_CONNECTIONS,
            max_idle=idle,
            keep_alive_seconds=KEEPALIVE_SECONDS,
            connect_seconds=min(self._bounds.idle_seconds, CONNECT_SECONDS),
            read_seconds=self._bounds.idle_seconds,
        )

    async def _error_response(self, message: Message, response: Response, session_id: str) -> Message:
        """Return the JSON-RPC error of an unsuccessful status. Raises UpstreamFailed without one.

        `session_id` is the one that the request was sent with: another request may have renewed the session since.
        """
        status = response.status
        if status == NOT_FOUND and session_id:
            raise SessionExpired
        if status in UNAUTHORIZED:
            text = f"The upstream refused the credential (HTTP {status}). An admin can set another one."
            raise Refused(text, status, response.headers.get("www-authenticate", "")[:MAX_CHALLENGE_LENGTH])
        if status in REDIRECTS:
            raise Refused("The upstream redirects. An admin should enter the URL that it redirects to.", status)
        is_loop = status == HTTPStatus.LOOP_DETECTED
        if _media_type(response) == JSON and ("id" in message or is_loop):
            try:
                body = await self._body(response, MAX_ERROR_BYTES)
                decoded = decode(body)
            except (RpcError, UpstreamFailed):
                decoded = None
            if isinstance(decoded, dict) and isinstance(decoded.get("error"), dict):
                if is_loop:
                    raise LoopRefused(str(decoded["error"].get("message")))
                return {**decoded, "id": message["id"]}
        if status == ACCEPTED:
            raise Refused("The upstream accepted the request, and gives no answer to it.", status)
        raise Refused(f"HTTP {status} from the upstream.", status)

    async def _body(self, response: Response, max_bytes: int) -> bytearray:
        body = bytearray()
        async for chunk in response:
            body += chunk
            if len(body) > max_bytes:
                raise TooLarge(f"The upstream sent a message of more than {max_bytes} bytes.")
            if len(body) - len(chunk) <= LARGE_BYTES < len(body):
                length = response.headers.get("content-length", "")
                await hold_result(min(max_bytes, int(length) if length.isdecimal() else max_bytes))
        return body

    def new_parser(self) -> EventParser:
        """Return a parser of one stream."""
        return EventParser(self._bounds.max_bytes)

    @asynccontextmanager
    async def open_legacy_stream(self) -> AsyncIterator[Response]:
        """Open the stream of a server of revision 2024-11-05."""
        async with self._exchange("GET", {hub_path.HEADER: hub_path.outgoing()}, None) as response:
            if not _is_stream(response):
                await self._error_response({}, response, "")
                raise UpstreamFailed("The upstream opens no event stream.", sent=False)
            yield response

    @asynccontextmanager
    async def resume_stream(self, headers: Headers, last_id: str) -> AsyncIterator[Response]:
        """Reconnect to a stream after its event `last_id` (2025-11-25, Streamable HTTP, §Resumability)."""
        async with self._exchange("GET", {**headers, "Last-Event-ID": last_id}, None) as response:
            if not _is_stream(response):
                raise UpstreamFailed(STREAM_CLOSED)
            yield response


class _ResponseReader:
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
        self._has_reserved_memory = False
        self._last_id = ""
        self._retry = MIN_RETRY_SECONDS
        self.response: Message = {}

    async def read(self, response: Response) -> bool:
        """Read one stream. Returns whether it had the response."""
        parser = self._transport.new_parser()
        try:
            async for chunk in response:
                self._bytes += len(chunk)
                if self._bytes > MAX_STREAM_BYTES:
                    raise TooLarge(f"The upstream sent more than {MAX_STREAM_BYTES} bytes for one request.")
                for event in parser.feed(chunk):
                    self._last_id = event.id or self._last_id
                    if event.retry_ms is not None:
                        self._retry = min(max(event.retry_ms / 1000, MIN_RETRY_SECONDS), MAX_RETRY_SECONDS)
                    if event.data and event.kind == "message" and self._handle(await parsed(event.data)):
                        return True
                if parser.unfinished > LARGE_BYTES and not self._has_reserved_memory:
                    self._has_reserved_memory = True
                    await hold_result(parser.max_bytes)
        except (*BROKEN_CONNECTION, OSError):
            if not self._last_id:
                raise
        return False

    async def read_resumed(self) -> Message:
        """Read on after the stream ended early. The request is not sent again. Raises UpstreamFailed."""
        for _ in range(MAX_RECONNECTIONS):
            if not self._last_id:
                break
            before = self._last_id
            await asyncio.sleep(self._retry)
            async with self._transport.resume_stream(self._headers, before) as response:
                if await self.read(response):
                    return self.response
            if self._last_id == before:
                break
        raise UpstreamFailed(STREAM_CLOSED)

    def _handle(self, message: Message) -> bool:
        if "method" not in message:
            if message.get("id") != self._request["id"]:
                return False
            self.response = message
            return True
        if "id" in message:
            post = self._transport.post
            self._transport.answer_later(message, self._answer, lambda response: post(response, self._headers))
        else:
            self._listen(message)
        return False


async def parsed(data: bytes | bytearray) -> Message:
    """Return a message. Raises UpstreamFailed for anything else."""
    try:
        value = await large_work.run(len(data), partial(decode, data))
    except RpcError as error:
        raise UpstreamFailed("The upstream sent an invalid message.", error.message) from error
    if not isinstance(value, dict):
        raise UpstreamFailed("The upstream sent an invalid message.", "not an object")
    return value


def _is_stream(response: Response) -> bool:
    return response.status == OK and _media_type(response) == EVENT_STREAM


def _media_type(response: Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()
