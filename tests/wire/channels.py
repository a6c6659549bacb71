"""Clients of the transports that carry messages both ways, HTTP+SSE and WebSocket, with one interface."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.wire.client import MODERN, WAIT_SECONDS, RawClient, Stream, call_params, modern_request, rpc

Message = dict[str, Any]
TRANSPORTS = ("sse", "ws")


class ChannelClient:
    """A client on one channel. Waits are bounded. `received` has the messages that came before the responses."""

    version = ""

    def __init__(self) -> None:
        self.received: list[Message] = []
        self.capabilities: Mapping[str, Any] = {}

    @property
    def is_modern(self) -> bool:
        return self.version == MODERN

    def write(self, raw: bytes) -> Any:
        """Send bytes, whatever they are."""
        raise NotImplementedError

    def next(self) -> Message:
        """The next message of the hub."""
        raise NotImplementedError

    def read_to_end(self) -> list[Message]:
        """Wait until the hub ends the channel, and return the messages that came until then."""
        raise NotImplementedError

    def send(self, message: Any) -> Any:
        return self.write(json.dumps(message).encode())

    def negotiate(self, version: str, capabilities: Mapping[str, Any] | None = None) -> "ChannelClient":
        """Negotiate a revision: initialize a session, or use the modern one without."""
        self.version, self.capabilities = version, dict(capabilities or {})
        if not self.is_modern:
            assert self.initialize(version)["result"]["protocolVersion"] == version
            self.notify("notifications/initialized")
        return self

    def initialize(self, version: str, id: Any = "opening") -> Message:
        client = {"name": "raw", "version": "7"}
        params = {"protocolVersion": version, "capabilities": dict(self.capabilities), "clientInfo": client}
        self.send(rpc("initialize", params, id=id))
        return self.response(id)

    def request(self, method: str, params: Mapping[str, Any] | None = None, *, id: Any = 1) -> Any:
        if self.is_modern:
            return self.send(modern_request(method, params, id=id, capabilities=self.capabilities)[0])
        return self.send(rpc(method, params, id=id))

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        id: Any = 1,
        meta: Mapping[str, Any] | None = None,
    ) -> Any:
        return self.request("tools/call", call_params(tool, arguments, meta), id=id)

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        return self.send({"jsonrpc": "2.0", "method": method, "params": dict(params or {})})

    def cancel(self, id: Any, reason: str = "enough") -> Any:
        return self.notify("notifications/cancelled", {"requestId": id, "reason": reason})

    def respond(self, id: Any, result: Any) -> Any:
        return self.send({"jsonrpc": "2.0", "id": id, "result": result})

    def response(self, id: Any) -> Message:
        """The response to a request. The messages that come before it are added to `received`."""
        while True:
            message = self.next()
            if message.get("id") == id and "method" not in message:
                return message
            self.received.append(message)

    def response_to(self, method: str, params: Mapping[str, Any] | None = None, *, id: Any = 1) -> Message:
        self.request(method, params, id=id)
        return self.response(id)

    def tool_response(self, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Message:
        self.call(tool, arguments, **more)
        return self.response(more.get("id", 1))


@dataclass
class SseClient(ChannelClient):
    """HTTP+SSE of 2024-11-05. `address` is the URL of the `endpoint` event."""

    client: RawClient
    stream: Stream
    address: str = field(init=False)

    def __post_init__(self) -> None:
        super().__init__()
        event = self.stream.next_event()
        assert event.fields["event"] == "endpoint", event
        self.address = event.data

    def write(self, raw: bytes) -> httpx.Response:
        response = self.post(raw)
        assert (response.status_code, response.content) == (202, b""), response.text
        return response

    def post(self, raw: bytes, **headers: str | None) -> httpx.Response:
        fields = self.client.headers({name.replace("_", "-"): value for name, value in headers.items()})
        return self.client.http.post(self.address, content=raw, headers=fields)

    def next(self) -> Message:
        return self.stream.next()

    def read_to_end(self) -> list[Message]:
        return self.stream.read_to_end()


class WebSocketClient(ChannelClient):
    """A WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        super().__init__()
        self.socket = socket

    def write(self, raw: bytes) -> None:
        self.socket.send(raw, text=True)

    def next(self) -> Message:
        message = self.socket.recv(WAIT_SECONDS)
        assert isinstance(message, str)
        assert "\n" not in message
        return json.loads(message)

    def read_to_end(self) -> list[Message]:
        messages = []
        with suppress(ConnectionClosed):
            while True:
                messages.append(self.next())
        return messages

    @property
    def close_code(self) -> int | None:
        """The code with which the hub closed it."""
        return self.socket.close_code


@contextmanager
def sse(client: RawClient, path: str = "/sse", headers: Mapping[str, str | None] | None = None) -> Iterator[SseClient]:
    """Open an event stream."""
    fields = client.headers({"Accept": "text/event-stream", "Content-Type": None, **(headers or {})})
    with client.http.stream("GET", path, headers=fields) as response:
        assert response.status_code == 200, response.read()
        yield SseClient(client, Stream(response))


@contextmanager
def socket(client: RawClient, path: str = "/ws", headers: Mapping[str, str] | None = None) -> Iterator[WebSocketClient]:
    """Open a WebSocket."""
    bearer = {"Authorization": f"Bearer {client.key}"} if client.key else {}
    with connect(
        client.url.replace("http", "ws", 1) + path,
        subprotocols=["mcp"],
        additional_headers={**bearer, **(headers or {})},
        open_timeout=WAIT_SECONDS,
        close_timeout=WAIT_SECONDS,
        max_size=None,
        proxy=None,
    ) as opened:
        yield WebSocketClient(opened)


OPENERS: Mapping[str, Callable[..., Any]] = {"sse": sse, "ws": socket}
