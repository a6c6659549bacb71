"""Upstreams over HTTP: sessions, resumed streams, invalid responses, credentials, and loops of hubs."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.upstreams import scripted
from tests.upstreams.scripted import JSON, LOOK, discovered, reply, result
from tests.upstreams.servers import SdkServer
from tests.web_services import Received, Service, http_response
from tests.wire.client import Peer, RawClient
from tools_app.catalog import authoring
from tools_app.core.http.addresses import parse_networks
from tools_app.core.http.urls import parse_url
from tools_app.models import Call, CallEvent, Outcome, Tenant, Upstream
from tools_app.server.embedded import EmbeddedHub
from tools_app.upstreams import client as upstream_client
from tools_app.upstreams import connections, service
from tools_app.upstreams.client import HANDSHAKE, MODERN, Client
from tools_app.upstreams.errors import LoopRefused, UpstreamFailed
from tools_app.upstreams.http import Bounds, HttpTransport

WAIT_SECONDS = 30.0
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def event(message: dict[str, Any] | None, id: str = "", retry: int | None = None) -> bytes:
    lines = [f"id: {id}"] if id else []
    lines += [f"retry: {retry}"] if retry is not None else []
    return "\n".join([*lines, f"data: {json.dumps(message) if message else ''}", "", ""]).encode()


def response(id: Any, text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result(text)}


@pytest.fixture
def peer(client: RawClient) -> Peer:
    return client.peer("2026-07-28")


@pytest.fixture
def call_look(serve: Callable[..., Service], add_upstream: Callable[..., Upstream], peer: Peer) -> Callable[..., Any]:
    """Add a scripted upstream whose calls are answered by a function, and call its tool."""
    served: list[Service] = []

    def call(answer: Callable[[Received, dict[str, Any]], Any] | None = None, **more: Any) -> dict[str, Any]:
        if answer is not None:
            served.append(serve(scripted.modern(answer)))
            add_upstream(f"{served[-1].url}/mcp", prefix="", **more)
        outcome: dict[str, Any] = peer.result("look")
        return outcome

    call.served = served  # type: ignore[attr-defined]
    return call


def text_of(outcome: dict[str, Any]) -> str:
    text: str = outcome["content"][0]["text"]
    return text


# --- Handshake sessions ---


class ForgetfulServer:
    """A handshake server that forgets its sessions when a test clears `session_ids`."""

    def __init__(self) -> None:
        self.session_count = 0
        self.calls = 0
        self.session_ids: set[str] = set()

    def __call__(self, request: Received) -> bytes:  # noqa: PLR0911 - one for each kind of request
        if request.method != "POST":
            return http_response(405)
        message = json.loads(request.body)
        if message["method"] == "server/discover":
            return http_response(400, b"Bad Request", Connection="close")
        if message["method"] == "initialize":
            self.session_count += 1
            self.session_ids.add(f"s{self.session_count}")
            found = {"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}, "serverInfo": {"name": "old"}}
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": found}).encode()
            return http_response(200, body, JSON, Mcp_Session_Id=f"s{self.session_count}", Connection="close")
        if (session_id := request.headers.get("mcp-session-id")) not in self.session_ids:
            return http_response(404 if session_id else 400, b"no such session", Connection="close")
        if "id" not in message:
            return http_response(202, Connection="close")
        if message["method"] == "tools/list":
            return reply(message["id"], {"tools": [LOOK]})
        self.calls += 1
        assert request.headers["mcp-protocol-version"] == "2025-03-26"
        assert "io.modelcontextprotocol/protocolVersion" not in message["params"]["_meta"]
        return reply(message["id"], result(f"run {self.calls}"))


def test_a_forgotten_session_is_renewed_and_the_call_runs_once(
    serve: Callable[..., Service], add_upstream: Callable[..., Upstream], peer: Peer
) -> None:
    server = ForgetfulServer()
    upstream = add_upstream(f"{serve(server).url}/mcp", prefix="")
    assert (upstream.status.era, upstream.status.version) == ("handshake", "2025-03-26")
    assert text_of(peer.result("look")) == "run 1"
    # One session lists, and the other one calls.
    assert server.session_count == 2
    server.session_ids.clear()
    assert text_of(peer.result("look")) == "run 2"
    assert (server.session_count, server.calls) == (3, 2)


class RestartedServer(ForgetfulServer):
    """Opens a session when `may_initialize` is set, and answers what has the cursor "late" once that was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.late_arrived, self.initializing, self.may_initialize = (threading.Event() for _ in range(3))

    def __call__(self, request: Received) -> bytes:
        message = json.loads(request.body)
        if message["method"] == "initialize":
            self.initializing.set()
            assert self.may_initialize.wait(WAIT_SECONDS)
        elif message.get("params", {}).get("cursor") == "late":
            self.late_arrived.set()
            assert self.initializing.wait(WAIT_SECONDS)
        return super().__call__(request)

    @asynccontextmanager
    async def client(self, url: str) -> AsyncIterator[Client]:
        """Connect a client, and forget its session."""
        transport = HttpTransport(parse_url(url), {}, parse_networks(["127.0.0.0/8"]), Bounds(WAIT_SECONDS, 10**6))
        client = Client(transport, HANDSHAKE)
        async with asyncio.timeout(WAIT_SECONDS):
            self.may_initialize.set()
            await client.connect()
            self.session_ids.clear()
            self.initializing.clear()
            self.may_initialize.clear()
            try:
                yield client
            finally:
                self.may_initialize.set()
                await client.close()


def list_tools(client: Client, cursor: str) -> "asyncio.Task[dict[str, Any]]":
    return asyncio.create_task(client.request("tools/list", {"cursor": cursor}))


async def reached(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, WAIT_SECONDS)


@pytest.mark.anyio
async def test_requests_during_the_renewal_of_a_session_wait_for_it(serve: Callable[..., Service]) -> None:
    """One was sent in the old session, and is refused after another one began to renew it. One begins meanwhile."""
    server = RestartedServer()
    async with server.client(f"{serve(server).url}/mcp") as client:
        late = list_tools(client, "late")
        await reached(server.late_arrived)
        first = list_tools(client, "first")
        await reached(server.initializing)
        new = list_tools(client, "new")
        assert client.offers("tools")
        await asyncio.wait([late, new], timeout=0.3)
        server.may_initialize.set()
        assert await asyncio.gather(first, late, new) == [{"tools": [LOOK]}] * 3
    assert server.session_count == 2


@pytest.mark.anyio
async def test_a_session_whose_renewal_was_cancelled_is_renewed_by_the_next_request(
    serve: Callable[..., Service],
) -> None:
    server = RestartedServer()
    async with server.client(f"{serve(server).url}/mcp") as client:
        first = list_tools(client, "first")
        await reached(server.initializing)
        first.cancel()
        await asyncio.wait([first])
        server.may_initialize.set()
        assert await list_tools(client, "next") == {"tools": [LOOK]}


@pytest.mark.anyio
async def test_a_renewal_that_takes_too_long_is_a_failure_of_the_upstream(
    serve: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = RestartedServer()
    async with server.client(f"{serve(server).url}/mcp") as client:
        monkeypatch.setattr(upstream_client, "CONNECT_SECONDS", 0.05)
        with pytest.raises(UpstreamFailed, match="did not connect"):
            await list_tools(client, "first")


# --- Connections ---


@pytest.mark.anyio
async def test_an_upstream_that_closes_connections_without_saying_so_loses_no_call() -> None:
    served: list[str] = []
    ended = asyncio.Semaphore(0)

    async def serve_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        message = json.loads(await reader.readexactly(length))
        served.append(message["method"])
        found = discovered() if message["method"] == "server/discover" else {"resultType": "complete", "tools": []}
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": found}).encode()
        writer.write(http_response(200, body, JSON))
        await reader.read(1)  # the next request, or the end
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()
        ended.release()

    async with asyncio.timeout(WAIT_SECONDS), await asyncio.start_server(serve_once, "127.0.0.1", 0) as listener:
        url = parse_url(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp")
        first, second = (
            Client(HttpTransport(url, {}, parse_networks(["127.0.0.0/8"]), Bounds(WAIT_SECONDS, 10**6)), MODERN)
            for _ in range(2)
        )
        await first.connect()
        assert first.transport.keeps_connections
        await first.request("tools/list", {})
        assert not first.transport.keeps_connections
        second.server, second.transport.keeps_connections = first.server, first.transport.keeps_connections
        for client in (first, first, second, second):
            await client.request("tools/call", {"name": "look", "arguments": {}})
        await first.close()
        await second.close()
        for _ in served:
            await ended.acquire()
    assert served == ["server/discover", "tools/list", *["tools/call"] * 4]


# --- Streams ---


def test_a_stream_that_ends_early_is_resumed_and_the_call_is_not_sent_again(call_look: Callable[..., Any]) -> None:
    calls: list[Any] = []

    def begin(_request: Received, message: dict[str, Any]) -> bytes:
        calls.append(message["id"])
        return EVENTS + event(None, "7", retry=1)

    def answer(request: Received) -> Any:
        if request.method == "GET":
            assert request.headers["last-event-id"] == "7"
            return EVENTS + event(response(calls[0], "resumed"), "8")
        return scripted.modern(begin)(request)

    assert text_of(_with(call_look, answer)) == "resumed"
    assert len(calls) == 1


def _with(call_look: Callable[..., Any], answer: Callable[[Received], Any]) -> dict[str, Any]:
    """Call the tool of an upstream that answers each request with `answer`."""
    result_before = call_look(lambda _request, _message: "before")
    assert text_of(result_before) == "before"
    call_look.served[0].answer = answer  # type: ignore[attr-defined]
    outcome: dict[str, Any] = call_look()
    return outcome


def test_a_stream_that_breaks_without_an_id_is_an_error_and_not_repeated(call_look: Callable[..., Any]) -> None:
    calls: list[Any] = []

    def answer(_request: Received, message: dict[str, Any]) -> bytes:
        calls.append(message["id"])
        return EVENTS + b": nothing more\n\n"

    outcome = call_look(answer)
    assert "The call may have run." in text_of(outcome)
    assert len(calls) == 1
    assert Call.objects.get(tool_name="look").outcome == Outcome.TOOL_ERROR


def test_a_connection_that_breaks_before_the_answer_is_not_repeated(call_look: Callable[..., Any]) -> None:
    calls: list[Any] = []

    def answer(_request: Received, message: dict[str, Any]) -> bytes:
        calls.append(message["id"])
        return b""

    assert call_look(answer)["isError"]
    assert len(calls) == 1


def test_logs_and_progress_arrive_in_order_and_before_the_result(
    call_look: Callable[..., Any], peer: Peer, serve: Callable[..., Service], add_upstream: Callable[..., Upstream]
) -> None:
    def answer(_request: Received, message: dict[str, Any]) -> bytes:
        token = message["params"]["_meta"]["progressToken"]
        notifications = [
            {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1, "total": 2}},
            {"method": "notifications/message", "params": {"level": "warning", "data": "hm", "logger": "shelf"}},
            {"method": "notifications/progress", "params": {"progressToken": "other", "progress": 9}},
        ]
        events = b"".join(event({"jsonrpc": "2.0", **one}) for one in notifications)
        return EVENTS + events + event(response(message["id"], "done"))

    add_upstream(f"{serve(scripted.modern(answer)).url}/mcp", prefix="")
    meta = {"progressToken": 5, "io.modelcontextprotocol/logLevel": "info"}
    with peer.stream("tools/call", {"name": "look", "arguments": {}, "_meta": meta}) as stream:
        messages = stream.read_to_end()
    assert [one.get("method") for one in messages] == ["notifications/progress", "notifications/message", None]
    assert messages[1]["params"]["logger"] == "shelf"
    assert list(CallEvent.objects.order_by("sequence").values_list("kind", flat=True)) == ["progress", "log"]


# --- Invalid responses ---


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"not json", "invalid message"),
        (b"[" * 100 + b"]" * 100, "invalid message"),
        (b'{"jsonrpc":"2.0","id":999,"result":{}}', "answered another request"),
        (b'{"jsonrpc":"2.0","id":ID,"result":[]}', "no valid result"),
        (b'{"jsonrpc":"2.0","id":ID,"result":{"content":"text"}}', "is not a list of objects"),
        (b'{"jsonrpc":"2.0","id":ID,"result":{"resultType":"input_required"}}', "asks for input"),
        (
            b'{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"No shelf."}}',
            "returned error -32602: No shelf.",
        ),
        (b'{"jsonrpc":"2.0","id":ID,"error":"odd"}', "returned error 0"),
    ],
)
def test_an_invalid_answer_is_an_error_of_the_tool(call_look: Callable[..., Any], body: bytes, message: str) -> None:
    outcome = call_look(
        lambda _request, request: http_response(200, body.replace(b"ID", str(request["id"]).encode()), JSON)
    )
    assert outcome["isError"]
    assert message in text_of(outcome)


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "refused the credential"), (302, "redirects"), (500, "HTTP 500"), (202, "gives no answer")],
)
def test_an_error_status_is_an_error_of_the_tool(call_look: Callable[..., Any], status: int, message: str) -> None:
    assert message in text_of(call_look(lambda _request, _message: http_response(status, b"")))


def test_a_result_above_the_limit_is_refused_while_it_comes(call_look: Callable[..., Any], settings: Any) -> None:
    settings.MCPHUB_MAX_RESULT_BYTES = 10_000

    def flood(_request: Received, _message: dict[str, Any]) -> Iterator[bytes]:
        yield EVENTS + b"data: "
        for _ in range(1000):
            yield b"x" * 100_000

    assert "a message of more than" in text_of(call_look(flood))


def test_one_that_is_away_is_not_tried_for_each_call(
    call_look: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert text_of(call_look(lambda _request, _message: http_response(503, b"")))
    upstream_service = call_look.served[0]  # type: ignore[attr-defined]
    call_look()
    call_look()
    received = len(upstream_service.received)
    assert "is not available. The next attempt is in" in text_of(call_look())
    assert len(upstream_service.received) == received


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_a_cancelled_call_is_cancelled_at_the_upstream(
    sdk_server: Callable[..., SdkServer], add_upstream: Callable[..., Upstream], client: RawClient, era: str
) -> None:
    server = sdk_server()
    add_upstream(server, era=era)
    peer = client.peer("2025-06-18")
    caller = threading.Thread(target=lambda: peer.call("books_wait", id="w"))
    caller.start()
    assert server.began.wait(WAIT_SECONDS)
    peer.notify("notifications/cancelled", {"requestId": "w"})
    assert server.cancelled.wait(WAIT_SECONDS)
    caller.join(WAIT_SECONDS)
    assert Call.objects.get(tool_name="books_wait").outcome == Outcome.CANCELLED


def test_definitions_are_listed_once_a_minute_and_not_for_each_call(call_look: Callable[..., Any]) -> None:
    call_look(lambda _request, _message: "fine")
    call_look()
    call_look()
    methods = [json.loads(request.body)["method"] for request in call_look.served[0].received]  # type: ignore[attr-defined]
    assert (methods.count("tools/list"), methods.count("tools/call")) == (1, 3)


# --- Credentials and addresses ---


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({"result": result("Bearer hush-hush-1")}, "Bearer [redacted]"),
        ({"result": result(r'{"key": "hush\u002dhush\\u002D1", "n": 1e999}')}, '{"key": "[redacted]", "n": 1e999}'),
        # What is too long is cut after its secrets were hidden.
        ({"error": {"code": 1, "message": f"{'.' * 1990} hush-hush-1"}}, f"error 1: {'.' * 1990} [redacted]"[:2009]),
    ],
)
def test_a_secret_reaches_the_upstream_and_no_client(
    said: dict[str, Any], shown: str, call_look: Callable[..., Any], loopback_tenant: Tenant
) -> None:
    progress = {"progressToken": 1, "progress": 1, "message": f"{'.' * 9_995}hush-hush-1"}
    log = {"level": "error", "logger": f"{'.' * 195}hush-hush-1", "data": {"hush-hush-1": [r"hush\u002dhush-1"]}}

    def answer(request: Received, message: dict[str, Any]) -> list[bytes]:
        assert request.headers["authorization"] == "Bearer hush-hush-1"
        token = {"progressToken": message["params"]["_meta"]["progressToken"]}
        notifications = {"notifications/progress": progress | token, "notifications/message": log}
        events = [{"jsonrpc": "2.0", "method": method, "params": params} for method, params in notifications.items()]
        return [EVENTS, *map(event, events), event({"jsonrpc": "2.0", "id": message["id"], **said})]

    authoring.set_secret(loopback_tenant, "BOOKS", "hush-hush-1")
    outcome = call_look(answer, headers={"Authorization": "Bearer {secret:BOOKS}"})
    assert text_of(outcome).endswith(shown)
    recorded = [row.data for row in CallEvent.objects.order_by("sequence")]
    assert [json.dumps(one).count("[reda") for one in recorded] == [1, 3]
    assert "hush" not in json.dumps(recorded)


def test_a_missing_secret_is_named(call_look: Callable[..., Any], loopback_tenant: Tenant) -> None:
    secret = authoring.set_secret(loopback_tenant, "BOOKS", "hush-hush-1")
    call_look(lambda _request, _message: "fine", headers={"Authorization": "Bearer {secret:BOOKS}"})
    authoring.delete_secret(secret)
    assert "requires the secret 'BOOKS'" in text_of(call_look())


def test_an_address_that_is_no_longer_allowed_is_not_called(
    call_look: Callable[..., Any], loopback_tenant: Tenant, eventually: Callable[..., Any]
) -> None:
    assert text_of(call_look(lambda _request, _message: "fine")) == "fine"
    loopback_tenant.allowed_networks = []
    loopback_tenant.save()
    eventually(lambda: "its address is private or reserved" in text_of(call_look()))


# --- Loops ---


@pytest.mark.parametrize(("path", "transport"), [("/mcp", "http"), ("/t/acme/mcp", "http"), ("/sse", "sse")])
def test_a_circle_is_named_before_a_sign_in_is_asked_for(
    hub: EmbeddedHub, loopback_tenant: Tenant, path: str, transport: str
) -> None:
    upstream = Upstream.objects.create(tenant=loopback_tenant, name="self", url=f"{hub.url}{path}", transport=transport)
    with pytest.raises(LoopRefused, match="the URL of the upstream leads back to it"):
        service.discover(upstream)
    assert "leads back to it" in upstream.status.problem


@pytest.mark.parametrize(
    ("header", "status"), [("0" * 16, 200), (",".join(["0" * 16] * 8), 508), ("zz", 508), ("0" * 160, 508)]
)
def test_a_request_names_the_hubs_that_it_passed(client: RawClient, header: str, status: int) -> None:
    assert client.modern("tools/list", headers={"X-Mcphub-Path": header}).status_code == status


def test_the_path_of_hubs_is_sent_to_the_upstream(call_look: Callable[..., Any], peer: Peer) -> None:
    assert len(text_of(call_look(lambda request, _message: request.headers["x-mcphub-path"]))) == 16
    call = peer.call("look", headers={"X-Mcphub-Path": "0" * 16})
    assert call.json()["result"]["content"][0]["text"].startswith("0" * 16 + ",")


def test_idle_connections_are_closed(call_look: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.0)
    call_look(lambda _request, _message: "fine")
    holder = connections.current()
    holder.submit(holder._close_idle()).result(10)
