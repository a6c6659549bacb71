"""A low-level MCP client: tests choose every byte of the requests and see every message of the responses."""

import http.client
import json
import socket
import ssl
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

WAIT_SECONDS = 30.0
# No test uses TLS here, and loading the system's certificates takes longer than most tests.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
MODERN = "2026-07-28"
HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
ALL_VERSIONS = (*HANDSHAKES, MODERN)
# For parametrize. The last revision of an era is quick; the others are slow tests.
EACH_HANDSHAKE = [*(pytest.param(one, marks=pytest.mark.slow) for one in HANDSHAKES[:-1]), HANDSHAKES[-1]]
EACH_VERSION = [*EACH_HANDSHAKE, MODERN]
ACCEPT_BOTH = "application/json, text/event-stream"
META = "io.modelcontextprotocol/"
# The parameter that the header Mcp-Name repeats.
NAME_PARAMETERS = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
SESSION = "Mcp-Session-Id"

Headers = Mapping[str, str | None]


@dataclass(frozen=True)
class ReceivedMessage:
    """One message of an event stream, the id of its event, and when it arrived, by the monotonic clock."""

    message: dict[str, Any]
    at: float
    id: str = ""


@dataclass(frozen=True)
class Event:
    """One event of a stream. `data` is empty if the event has an id only, to resume after."""

    fields: Mapping[str, str]

    @property
    def id(self) -> str:
        return self.fields.get("id", "")

    @property
    def data(self) -> str:
        return self.fields.get("data", "")


@dataclass
class RawClient:
    """One key at one address. A header given as None is not sent."""

    url: str
    key: str | None
    path: str = "/mcp"
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        transport = httpx.HTTPTransport(verify=NO_TLS, trust_env=False)
        self.http = httpx.Client(base_url=self.url, timeout=WAIT_SECONDS, trust_env=False, transport=transport)
        # An open socket that is dropped is a warning, and a failure of the test that runs then.
        weakref.finalize(self.http, transport.close)

    def headers(self, more: Headers | None = None) -> dict[str, str]:
        bearer = f"Bearer {self.key}" if self.key else None
        fields = {"Authorization": bearer, "Accept": ACCEPT_BOTH, "Content-Type": "application/json", **(more or {})}
        return {name: value for name, value in fields.items() if value is not None}

    def post(self, body: Any, headers: Headers | None = None) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.http.post(self.path, content=content, headers=self.headers(headers))

    def modern(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        id: Any = 1,
        headers: Headers | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> httpx.Response:
        body, fields = modern_request(method, params, id=id, capabilities=capabilities)
        return self.post(body, {**fields, **(headers or {})})

    def initialize(self, version: str = HANDSHAKES[-1], **more: Any) -> httpx.Response:
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "raw", "version": "7"}}
        return self.post(rpc("initialize", {**params, **more}))

    def handshake(self, version: str = HANDSHAKES[-1], capabilities: Mapping[str, Any] | None = None) -> "Peer":
        """A peer with a session of its own."""
        declared = dict(capabilities or {})
        opened = self.initialize(version, capabilities=declared)
        assert opened.status_code == 200, opened.text
        peer = Peer(self, version, opened.headers[SESSION], declared)
        assert peer.notify("notifications/initialized").status_code == 202
        return peer

    def peer(self, version: str, capabilities: Mapping[str, Any] | None = None) -> "Peer":
        """A peer of any revision that declares these capabilities."""
        if version == MODERN:
            return Peer(self, version, None, dict(capabilities or {}))
        return self.handshake(version, capabilities)


@dataclass(frozen=True)
class Peer:
    """A client of one revision, with one interface for all revisions."""

    client: RawClient
    version: str
    session_id: str | None
    capabilities: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_modern(self) -> bool:
        return self.session_id is None

    def headers(self) -> dict[str, str | None]:
        if self.session_id is None:
            return {}
        return {SESSION: self.session_id, "MCP-Protocol-Version": self.version}

    def build_request(
        self, method: str, params: Mapping[str, Any] | None, id: Any, headers: Headers | None
    ) -> tuple[dict[str, Any], dict[str, str | None]]:
        if self.is_modern:
            body, fields = modern_request(method, params, id=id, capabilities=self.capabilities)
        else:
            body, fields = rpc(method, params, id=id), {}
        return body, {**fields, **self.headers(), **(headers or {})}

    def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, id: Any = 1, headers: Headers | None = None
    ) -> httpx.Response:
        return self.client.post(*self.build_request(method, params, id, headers))

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> httpx.Response:
        body = {"jsonrpc": "2.0", "method": method, "params": dict(params or {})}
        return self.client.post(body, self.headers())

    def respond(self, id: Any, result: Any = None, error: Any = None) -> httpx.Response:
        """Answer a request of the hub."""
        outcome = {"error": error} if error is not None else {"result": result}
        return self.client.post({"jsonrpc": "2.0", "id": id, **outcome}, self.headers())

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        id: Any = 1,
        meta: Mapping[str, Any] | None = None,
        headers: Headers | None = None,
    ) -> httpx.Response:
        return self.request("tools/call", call_params(tool, arguments, meta), id=id, headers=headers)

    def result(self, tool: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return message_of(self.call(tool, arguments))["result"]

    @contextmanager
    def stream(
        self, method: str, params: Mapping[str, Any] | None = None, *, id: Any = 1, headers: Headers | None = None
    ) -> Iterator["Stream"]:
        """Send a request, and read the messages of its response as they arrive."""
        body, fields = self.build_request(method, params, id, headers)
        sent = {"content": json.dumps(body).encode(), "headers": self.client.headers(fields)}
        with self.client.http.stream("POST", self.client.path, **sent) as response:
            yield Stream(response)

    @contextmanager
    def listening(self, headers: Headers | None = None) -> Iterator["Stream"]:
        """The session's GET stream."""
        fields = self.client.headers({**self.headers(), "Content-Type": None, **(headers or {})})
        with self.client.http.stream("GET", self.client.path, headers=fields) as response:
            yield Stream(response)

    def delete(self) -> httpx.Response:
        return self.client.http.delete(self.client.path, headers=self.client.headers(self.headers()))


class Stream:
    """A response stream. Waits are bounded: no message for WAIT_SECONDS is an error."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._events = _events(response)
        self._received = _messages(self._events)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self._received

    def next(self) -> dict[str, Any]:
        return next(self._received).message

    def next_event(self) -> Event:
        """The next event, with or without a message."""
        return next(self._events)

    def read_to_end(self) -> list[dict[str, Any]]:
        """The messages until the end of the stream."""
        return [item.message for item in self._received]


def _events(response: httpx.Response) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        name, _, value = line.partition(": ")
        if name:
            fields[name] = value
        elif fields:
            yield Event(fields)
            fields = {}


def _messages(events: Iterator[Event]) -> Iterator[ReceivedMessage]:
    for event in events:
        if event.data:
            yield ReceivedMessage(json.loads(event.data), time.monotonic(), event.id)


def rpc(method: str, params: Mapping[str, Any] | None = None, *, id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": dict(params or {})}


def modern_meta(version: str = MODERN) -> dict[str, Any]:
    return {
        META + "protocolVersion": version,
        META + "clientInfo": {"name": "raw", "version": "7"},
        META + "clientCapabilities": {},
    }


def modern_request(
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    id: Any = 1,
    capabilities: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], dict[str, str | None]]:
    """A request of the modern era and the headers that go with it."""
    full_params = dict(params or {})
    full_params["_meta"] = {
        **modern_meta(),
        META + "clientCapabilities": dict(capabilities or {}),
        **full_params.get("_meta", {}),
    }
    fields = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, "Mcp-Name": None}
    name = full_params.get(NAME_PARAMETERS.get(method, ""))
    if isinstance(name, str) and name.isascii() and name.isprintable():
        fields["Mcp-Name"] = name
    return rpc(method, full_params, id=id), fields


def call_params(
    tool: str, arguments: Mapping[str, Any] | None = None, meta: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    params: dict[str, Any] = {"name": tool, "arguments": dict(arguments or {})}
    return params | ({"_meta": dict(meta)} if meta else {})


def message_of(response: httpx.Response) -> Any:
    """The message of a response, whether it came as JSON or as the last event of a stream."""
    if response.headers["content-type"] == "text/event-stream":
        data = [line for line in response.text.splitlines() if line.startswith("data: ") and line != "data: "]
        return json.loads(data[-1][len("data: ") :])
    return response.json()


def error_of(response: httpx.Response) -> dict[str, Any]:
    return message_of(response)["error"]


def text_of(response: httpx.Response) -> str:
    """The text of a tool's result."""
    return message_of(response)["result"]["content"][0]["text"]


@contextmanager
def raw_connection(url: str) -> Iterator[socket.socket]:
    """A raw connection, for requests that no HTTP library sends."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=WAIT_SECONDS) as connection:
        yield connection


@contextmanager
def read_response(connection: socket.socket) -> Iterator[http.client.HTTPResponse]:
    response = http.client.HTTPResponse(connection)
    try:
        response.begin()
        yield response
    finally:
        response.close()


def head_of(url: str, method: str, headers: list[tuple[str, str]], path: str = "/mcp") -> bytes:
    """A request head with exactly these headers, in this order."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {urlsplit(url).netloc}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
