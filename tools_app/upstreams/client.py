"""A client of one upstream: negotiation of the era, requests with their notifications, lists, cancellation.

Modern upstreams (2026-07-28) get metadata with each request. Older ones get `initialize`, and a session that is renewed
when the upstream forgot it. A request that the upstream may have received is never sent again.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import orjson

from tools_app.catalog.tool_api.elicitation import declares
from tools_app.catalog.tool_api.results import size_of
from tools_app.core import hub_path, large_work
from tools_app.core.http.errors import RequestFailed
from tools_app.protocol import exact_json
from tools_app.protocol.errors import METHOD_NOT_FOUND, UNSUPPORTED_VERSION
from tools_app.protocol.inbound import (
    CAPABILITIES_META,
    CLIENT_META,
    LOG_META,
    METHOD_HEADER,
    NAME_HEADER,
    NAMED_BY,
    SERVER_META,
    VERSION_HEADER,
    VERSION_META,
    encoded,
)
from tools_app.protocol.versions import HANDSHAKE_VERSIONS, LATEST_HANDSHAKE, LATEST_MODERN, MODERN_VERSIONS
from tools_app.upstreams.errors import ErrorResponse, Refused, SessionExpired, TooLarge, UpstreamFailed, result_of

CLIENT: Final = {"name": "mcphub", "version": "0.1.0"}
CONNECT_SECONDS: Final = 30.0
# How long an upstream may take to be told that a request was cancelled.
CANCEL_SECONDS: Final = 5.0
MAX_PAGES: Final = 200
MAX_ITEMS: Final = 5000
MAX_LIST_BYTES: Final = 16 * 1024 * 1024
# Requests of an upstream that are answered at the same time. Further ones are dropped.
MAX_ANSWERING: Final = 64

# Requests that may be sent twice: they are repeated if a connection broke before the answer.
RETRYABLE: Final = frozenset({"tools/list", "prompts/list", "resources/list", "resources/templates/list"}).union(
    ("completion/complete", "ping", "prompts/get", "resources/read", "tasks/get", "tasks/result"),
    ("initialize", "resources/subscribe", "resources/unsubscribe", "server/discover"),
)

# The capability of the extension, as a path.
TASKS_CAPABILITY: Final = "extensions.io.modelcontextprotocol/tasks"

Message = dict[str, Any]
Listen = Callable[[Message], None]
Answer = Callable[[Message], Awaitable[Message]]
HANDSHAKE, MODERN, AUTO = "handshake", "modern", "auto"


class Transport:
    """Carries the messages of one client."""

    # Whether it can carry nothing more.
    is_closed = False
    # Whether all messages share one stream, so that closing it cancels no single request.
    is_duplex = False
    # Whether connections are kept for further requests: not if the upstream closes them without saying so.
    keeps_connections = True
    # Whether what belongs to no request is received, and how often its stream was opened.
    is_followed = False
    openings = 0
    # Whether questions that do not name the request that they belong to are refused.
    refuses_questions = False

    def __init__(self) -> None:
        self._answering: set[asyncio.Task[None]] = set()

    def answer_later(self, message: Message, answer: Answer, send: Callable[[Message], Awaitable[None]]) -> None:
        """Answer a request of the upstream, while what it says is read on. Beyond MAX_ANSWERING, it gets no answer."""
        if len(self._answering) >= MAX_ANSWERING:
            return

        async def respond() -> None:
            with suppress(RequestFailed):
                await send(await answer(message))

        task = asyncio.get_running_loop().create_task(respond())
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def roundtrip(self, message: Message, headers: Mapping[str, str], listen: Listen, answer: Answer) -> Message:
        """Send a request and return its response. `listen` gets the notifications that precede it.

        `answer` handles requests of the upstream. Raises UpstreamFailed.
        """
        raise NotImplementedError

    async def post(self, message: Message, headers: Mapping[str, str]) -> None:
        """Send a notification or a response. Raises UpstreamFailed."""
        raise NotImplementedError

    async def close(self) -> None:
        """Release what the transport holds."""

    async def retire(self) -> None:
        """Release what no request uses, and the rest once its requests have ended."""
        await self.close()

    def attach(self, listen: Listen) -> None:
        """Set the listener of notifications that belong to no request, where they need no stream of their own."""

    def forget_session(self) -> None:
        """Forget the session, because another one is opened."""

    async def follow(self, headers: Mapping[str, str], listen: Listen) -> None:
        """Receive what belongs to no request, if that needs a stream of its own (from 2025-03-26)."""


@dataclass
class ServerInfo:
    """What the upstream says about itself."""

    era: str = ""
    version: str = ""
    name: str = ""
    title: str = ""
    server_version: str = ""
    capabilities: Mapping[str, Any] = field(default_factory=dict)

    @property
    def makes_tasks(self) -> bool:
        """Whether it may answer calls with tasks (extension of 2026-07-28)."""
        return self.era == MODERN and declares(self.capabilities, TASKS_CAPABILITY)


def ignore(_message: Message) -> None:
    """Ignore a notification."""


class Client:
    """One connection to an upstream. `transport` makes its transport; `era` is auto, modern or handshake.

    `on_change` is called with each notification that belongs to no request, such as a changed list. `capabilities` are
    declared in a handshake; in the modern era, each request has its own.
    """

    def __init__(
        self,
        transport: Transport,
        era: str = AUTO,
        on_change: Listen = ignore,
        capabilities: Mapping[str, Any] | None = None,
    ) -> None:
        self.transport = transport
        self._era = era
        self._on_change = on_change
        self._capabilities = dict(capabilities or {})
        transport.attach(self._on_unrelated)
        # By the progress tokens of requests whose tasks outlast them (up to 2025-11-25).
        self.listeners: dict[str, Listen] = {}
        self._ids = itertools.count(1)
        self._renewing = asyncio.Lock()
        # The number of the session: what was subscribed to in an earlier one is forgotten.
        self.session_number = 0
        self._has_expired = False
        self._cancelling: set[asyncio.Task[None]] = set()
        self.server = ServerInfo()

    async def connect(self) -> ServerInfo:
        """Negotiate the era and the revision. Raises UpstreamFailed and ErrorResponse."""
        async with _in_time():
            if self._era == HANDSHAKE or not await self._discover():
                await self._initialize()
        return self.server

    async def close(self) -> None:
        """Close the transport, once the upstream knows which requests were cancelled."""
        if self._cancelling:
            await asyncio.wait(self._cancelling)
        await self.transport.close()

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended."""
        return self.transport.is_closed

    @property
    def is_modern(self) -> bool:
        """Whether the upstream gets metadata with each request, instead of a session."""
        return self.server.era == MODERN

    @property
    def is_duplex(self) -> bool:
        """Whether all requests share one stream, so that a question names no request that it belongs to."""
        return self.transport.is_duplex

    async def reopen_stream(self) -> None:
        """Open the stream of what belongs to no request again, in a new session if need be.

        Raises UpstreamFailed without one, and ErrorResponse.
        """
        await self.request("ping", {})
        if not self.transport.is_followed:
            await self.transport.follow(self._headers("ping", {}), self._on_unrelated)
        if not self.transport.is_followed:
            raise UpstreamFailed("The upstream opens no stream for notifications.")

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        listen: Listen = ignore,
        *,
        headers: Mapping[str, str] | None = None,
        answer: Answer | None = None,
    ) -> dict[str, Any]:
        """Return the result of a request. If its task is cancelled, the upstream is told so.

        Raises ErrorResponse for a JSON-RPC error of the upstream, and UpstreamFailed.
        """
        session = await self._current_session()
        try:
            return await self._request(method, params, listen, headers or {}, answer)
        except SessionExpired:
            await self._current_session(expired=session)
            return await self._request(method, params, listen, headers or {}, answer)

    async def items(self, method: str, key: str) -> list[dict[str, Any]]:
        """Return all entries of a list, page by page. Raises ErrorResponse and UpstreamFailed."""
        items: list[dict[str, Any]] = []
        size = 0
        params: dict[str, Any] = {}
        for _ in range(MAX_PAGES):
            result = await self.request(method, params)
            page = result.get(key, "")
            if page is None:  # as some servers write an empty list
                page = []
            if not isinstance(page, list) or not all(isinstance(item, dict) for item in page):
                raise UpstreamFailed(f"The upstream gave no valid answer to {method}.")
            encoded = await large_work.run(size_of(page), partial(exact_json.dumps, page))
            size += len(encoded)
            if size > MAX_LIST_BYTES:
                raise TooLarge(f"The upstream lists more than {MAX_LIST_BYTES} bytes of {key}.")
            # With the nearest floats: the database's JSON has no Decimals.
            items += await large_work.run(len(encoded), partial(orjson.loads, encoded))
            if len(items) > MAX_ITEMS:
                raise UpstreamFailed(f"The upstream lists more than {MAX_ITEMS} {key}.")
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str) or cursor == params.get("cursor"):
                return items
            params = {"cursor": cursor}
        raise UpstreamFailed(f"The upstream lists its {key} in more than {MAX_PAGES} pages.")

    def offers(self, capability: str) -> bool:
        """Whether the upstream declares a capability."""
        return isinstance(self.server.capabilities.get(capability), dict)

    def declares(self, area: str, name: str) -> bool:
        """Whether the upstream declares that it has a part of a capability, such as `listChanged` of `tools`."""
        capability = self.server.capabilities.get(area)
        return isinstance(capability, dict) and capability.get(name) is True

    async def _request(
        self, method: str, params: Mapping[str, Any], listen: Listen, headers: Mapping[str, str], answer: Answer | None
    ) -> dict[str, Any]:
        request_id = next(self._ids)
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": self._with_meta(params, request_id)}
        fields = {**self._headers(method, params), **headers}

        def on_notification(notification: Message) -> None:
            self._dispatch_notification(notification, request_id, listen)

        roundtrip = partial(self.transport.roundtrip, message, fields, on_notification, answer or answer_unsupported)
        try:
            try:
                response = await roundtrip()
            except UpstreamFailed as error:
                if method not in RETRYABLE or not error.broken:
                    raise
                response = await roundtrip()
        except asyncio.CancelledError:
            # In the modern era over HTTP, closing its stream tells the upstream so.
            if not self.is_modern or self.is_duplex:
                reason = {"requestId": request_id, "reason": "The client cancelled the call."}
                self.tell_later(self._notify("notifications/cancelled", reason, fields))
            raise
        return result_of(response)

    def _dispatch_notification(self, message: Message, request_id: int, listen: Listen) -> None:
        """Hand a notification to its request: progress with its token, and log messages."""
        method, params = message.get("method"), message.get("params")
        if method == "notifications/progress":
            token = params.get("progressToken") if isinstance(params, dict) else None
            listener = listen if token == request_id else self.listeners.get(token) if isinstance(token, str) else None
            if listener is not None:
                listener(message)
        elif method == "notifications/message":
            listen(message)
        else:
            self._on_change(message)

    def _on_unrelated(self, message: Message) -> None:
        """Hand on a notification that came with no request."""
        if message.get("method") == "notifications/progress":
            self._dispatch_notification(message, 0, ignore)
        else:
            self._on_change(message)

    def _with_meta(self, params: Mapping[str, Any], request_id: int) -> dict[str, Any]:
        client_meta = params.get("_meta")
        meta: dict[str, Any] = dict(client_meta) if isinstance(client_meta, dict) else {}
        if meta.get("progressToken") == 0:
            meta["progressToken"] = request_id
        if self.is_modern:
            meta |= {VERSION_META: LATEST_MODERN, CLIENT_META: CLIENT}
            meta.setdefault(CAPABILITIES_META, {})
        else:
            meta = {name: value for name, value in meta.items() if name not in {CAPABILITIES_META, LOG_META}}
        return {**params, "_meta": meta} if meta else dict(params)

    def _headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        headers = {hub_path.HEADER: hub_path.outgoing()}
        if self.is_modern:
            headers |= {VERSION_HEADER: LATEST_MODERN, METHOD_HEADER: method}
            resource_name = params.get(NAMED_BY.get(method, ""))
            if isinstance(resource_name, str):
                headers[NAME_HEADER] = encoded(resource_name)
        elif self.server.version and method != "initialize":
            headers[VERSION_HEADER] = self.server.version
        return headers

    def tell_later(self, telling: Coroutine[Any, Any, object]) -> None:
        """Tell the upstream something without waiting for it."""

        async def send() -> None:
            with suppress(RequestFailed, ErrorResponse, TimeoutError):
                async with asyncio.timeout(CANCEL_SECONDS):
                    await telling

        task = asyncio.get_running_loop().create_task(send())
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    async def _notify(self, method: str, params: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        await self.transport.post({"jsonrpc": "2.0", "method": method, "params": dict(params)}, headers)

    # --- Negotiation ---

    async def _discover(self) -> bool:
        """Ask for the revisions of the upstream. Returns False if it only knows the handshake."""
        self.server = ServerInfo(era=MODERN, version=LATEST_MODERN)
        try:
            result = await self._request("server/discover", {}, ignore, {}, None)
        except ErrorResponse as error:
            if self._era == MODERN:
                raise
            supported = error.data.get("supported") if isinstance(error.data, dict) else None
            has_handshake = not isinstance(supported, list) or not set(HANDSHAKE_VERSIONS).isdisjoint(
                map(str, supported)
            )
            if error.code == UNSUPPORTED_VERSION and not has_handshake:
                raise UpstreamFailed(
                    "The upstream supports no revision of the protocol that this hub knows.", error.message
                ) from error
            return False
        except Refused as error:
            # An older server refuses what it does not know with a status of its choice; a bad credential stays one.
            if self._era == MODERN or error.status in {401, 403, 508}:
                raise
            return False
        supported = result.get("supportedVersions")
        if not isinstance(supported, list) or not set(MODERN_VERSIONS).intersection(map(str, supported)):
            if self._era == MODERN:
                raise UpstreamFailed(f"The upstream does not support {LATEST_MODERN}.")
            return False
        meta = result.get("_meta")
        server_info = meta.get(SERVER_META) if isinstance(meta, dict) else None
        self._set_server(MODERN, LATEST_MODERN, server_info, result.get("capabilities"))
        return True

    async def _initialize(self) -> None:
        if self.server.era != HANDSHAKE:  # during a renewal, others still read what the upstream offers
            self.server = ServerInfo(era=HANDSHAKE)
        params = {"protocolVersion": LATEST_HANDSHAKE, "capabilities": self._capabilities, "clientInfo": CLIENT}
        result = await self._request("initialize", params, ignore, {}, None)
        version = result.get("protocolVersion")
        if version not in HANDSHAKE_VERSIONS:
            raise UpstreamFailed(f"The upstream chose the unknown revision {str(version)[:40]!r}.")
        self._set_server(HANDSHAKE, version, result.get("serverInfo"), result.get("capabilities"))
        headers = self._headers("notifications/initialized", {})
        await self._notify("notifications/initialized", {}, headers)
        self.session_number += 1
        areas = self.server.capabilities.values()
        has_changes = any(
            isinstance(area, dict) and (area.get("listChanged") or area.get("subscribe")) for area in areas
        )
        if self._capabilities or has_changes or self.offers("tasks"):
            await self.transport.follow(headers, self._on_unrelated)

    def _set_server(self, era: str, version: str, server_info: Any, capabilities: Any) -> None:
        info = server_info if isinstance(server_info, dict) else {}
        texts = {key: str(info.get(key) or "")[:200].replace("\0", "") for key in ("name", "title", "version")}
        self.server = ServerInfo(
            era=era,
            version=version,
            name=texts["name"],
            title=texts["title"],
            server_version=texts["version"],
            capabilities=capabilities if isinstance(capabilities, dict) else {},
        )

    async def _current_session(self, expired: int | None = None) -> int:
        """Return the number of the session to send a request in: a new one in place of an expired one.

        Waits while another request renews it: what is sent without a session meanwhile would be refused.
        """
        async with self._renewing:
            if expired == self.session_number:
                self._has_expired = True
            if self._has_expired:  # also if the last renewal failed or was cancelled
                self.transport.forget_session()
                async with _in_time():
                    await self._initialize()
                self._has_expired = False
            return self.session_number


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            yield
    except TimeoutError as error:
        raise UpstreamFailed(f"The upstream did not connect within {CONNECT_SECONDS:g} seconds.") from error


async def answer_unsupported(message: Message) -> Message:
    """Answer a request of the upstream: a ping, or that the method is not supported."""
    answer: Message = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "ping":
        return {**answer, "result": {}}
    return {**answer, "error": {"code": METHOD_NOT_FOUND, "message": f"Not supported: {str(message['method'])[:100]}"}}
