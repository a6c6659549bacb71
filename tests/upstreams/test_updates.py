"""Resource updates and list changes of upstreams reach clients, in both eras of each."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from tests.upstreams.scripted import reply
from tests.web_services import Received, Service, http_response
from tests.wire.client import MODERN, Peer, RawClient, Stream, error_of, message_of
from tools_app.calls import sessions
from tools_app.catalog import authoring
from tools_app.models import ItemState, Resource, ResourceKind, Tenant, Upstream, UpstreamItem
from tools_app.upstreams import connections, service
from tools_app.upstreams.client import Client
from tools_app.upstreams.credentials.store import TENANT, save_value
from tools_app.upstreams.updates import ACKNOWLEDGED, ConnectionUpdates

pytestmark = pytest.mark.slow

GUIDE, PAGE, SECRET = "docs://guide", "docs://page/7", "docs://secret"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
WAIT_SECONDS = 20.0


class Publisher:
    """An upstream of either era with resources that change. `publish` notifies the streams that are open."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.streams: list[Queue[bytes | None]] = []
        # The subscribed URIs: of each stream (modern), or of the only session (handshake).
        self.filters: list[dict[str, Any]] = []
        self.subscribed: set[str] = set()
        self.sessions = 0
        # The credentials of the requests to subscribe.
        self.tokens: list[str] = []
        self.tools = [{"name": "look", "inputSchema": {"type": "object"}}]
        # A request to subscribe is answered when this is set.
        self.answers = threading.Event()
        self.answers.set()

    def answer(self, request: Received) -> Any:
        if request.method == "GET":
            known = request.headers.get("mcp-session-id") == f"s{self.sessions}"
            return self._stream([]) if known else http_response(404)
        message = json.loads(request.body) if request.method == "POST" else {}
        if "id" not in message:
            return http_response(202)
        if message["method"] in {"resources/subscribe", "subscriptions/listen"}:
            self.tokens.append(request.headers.get("x-token", ""))
            assert self.answers.wait(WAIT_SECONDS)
        session = request.headers.get("mcp-session-id")
        if session and session != f"s{self.sessions}":
            return http_response(404)
        if message["method"] == "subscriptions/listen":
            return self._listen(message)
        result = self._result(message["method"], message.get("params", {}))
        if message["method"] != "initialize":
            return reply(message["id"], result)
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        return http_response(
            200, body, "application/json", Connection="close", **{"Mcp-Session-Id": f"s{self.sessions}"}
        )

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
        with self.lock:
            match method:
                case "initialize":
                    self.sessions += 1
                    self.subscribed.clear()
                    info = {"name": "publisher", "version": "1"}
                    return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
                case "server/discover":
                    return {"supportedVersions": [MODERN], "capabilities": capabilities}
                case "resources/subscribe":
                    self.subscribed.add(params["uri"])
                case "resources/unsubscribe":
                    self.subscribed.discard(params["uri"])
                case "tools/list":
                    return {"resultType": "complete", "tools": self.tools}
                case "resources/list":
                    named = [{"uri": uri, "name": uri[7:]} for uri in (GUIDE, SECRET)]
                    return {"resultType": "complete", "resources": named}
                case "resources/templates/list":
                    template = {"uriTemplate": "docs://page/{number}", "name": "page"}
                    return {"resultType": "complete", "resourceTemplates": [template]}
            return {}

    def _listen(self, message: dict[str, Any]) -> Iterator[bytes]:
        filters = message["params"]["notifications"]
        acknowledged = {"method": "notifications/subscriptions/acknowledged", "params": {"notifications": filters}}
        with self.lock:
            self.filters.append(filters)
        return self._stream([acknowledged])

    def _stream(self, first: list[dict[str, Any]]) -> Iterator[bytes]:
        queue: Queue[bytes | None] = Queue()
        for message in first:
            queue.put(_event(message))
        with self.lock:
            self.streams.append(queue)
        yield HEAD
        while (piece := queue.get(timeout=WAIT_SECONDS)) is not None:
            yield piece

    def publish(self, method: str, **params: Any) -> None:
        for queue in list(self.streams):
            queue.put(_event({"method": method, "params": params}))

    def updated(self, uri: str) -> None:
        self.publish("notifications/resources/updated", uri=uri)

    def hang_up(self) -> None:
        """End all streams, and forget the session."""
        with self.lock:
            self.sessions += 1
            streams, self.streams = self.streams, []
        for queue in streams:
            queue.put(None)

    def uris(self) -> set[str]:
        """The URIs that the hub subscribes to."""
        with self.lock:
            return self.subscribed | set(self.filters[-1].get("resourceSubscriptions", ()) if self.filters else ())


def _event(message: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n\n"


@pytest.fixture(params=["handshake", "modern"])
def publisher(
    request: pytest.FixtureRequest,
    serve: Callable[..., Service],
    loopback_tenant: Tenant,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Publisher]:
    """An upstream of either era. All of its definitions but one are accepted. Subscriptions wait until it was asked."""
    monkeypatch.setattr("tools_app.methods.catalog_watch.UPSTREAM_SECONDS", WAIT_SECONDS)
    publisher = Publisher()
    url = f"{serve(publisher.answer).url}/mcp"
    upstream = Upstream.objects.create(tenant=loopback_tenant, name="books", prefix="books", url=url, era=request.param)
    good, _ = service.partition_acceptable(service.discover(upstream).items)
    service.accept([item for item in good if item.name != SECRET])
    yield publisher
    connections.current.stop()
    publisher.hang_up()


@contextmanager
def subscribed(peer: Peer, *uris: str) -> Iterator[Stream]:
    """A stream of a client that has subscribed to resources."""
    if peer.is_modern:
        with peer.stream("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}) as stream:
            stream.next()
            yield stream
        return
    with peer.listening() as stream:
        for uri in uris:
            assert message_of(peer.request("resources/subscribe", {"uri": uri}))["result"] == {}
        yield stream


def updated(stream: Stream) -> str:
    notification = stream.next()
    assert notification["method"] == "notifications/resources/updated"
    return str(notification["params"]["uri"])


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
def test_a_client_gets_the_updates_of_its_subscriptions_and_no_others(
    publisher: Publisher, client: RawClient, eventually: Callable[..., Any], version: str
) -> None:
    peer = client.peer(version)
    with subscribed(peer, PAGE) as one, subscribed(client.peer(version), PAGE, GUIDE) as both:
        assert publisher.uris() == {PAGE, GUIDE}
        for uri in (SECRET, "docs://page/8", GUIDE):
            publisher.updated(uri)
        assert updated(both) == GUIDE
        publisher.updated(PAGE)
        assert (updated(one), updated(both)) == (PAGE, PAGE)
    eventually(lambda: publisher.uris() == set())


def test_a_second_request_to_subscribe_is_answered_when_the_upstream_was_asked(
    publisher: Publisher, client: RawClient, eventually: Callable[..., Any]
) -> None:
    peer = client.peer("2025-11-25")
    with peer.listening(), ThreadPoolExecutor() as threads:
        publisher.tokens.clear()
        publisher.answers.clear()
        first = threads.submit(peer.request, "resources/subscribe", {"uri": GUIDE})
        eventually(lambda: publisher.tokens)
        second = threads.submit(peer.request, "resources/subscribe", {"uri": GUIDE})
        with pytest.raises(TimeoutError):
            second.result(0.3)
        publisher.answers.set()
        for request in (first, second):
            assert message_of(request.result(WAIT_SECONDS))["result"] == {}
        assert publisher.uris() == {GUIDE}


def test_of_two_subscriptions_at_a_time_neither_is_lost(
    publisher: Publisher, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that reads the session first goes on last."""
    peer = client.peer("2025-11-25")
    read, goes_on = threading.Event(), threading.Event()
    fresh = sessions.cache.fresh

    async def held_once(digest: str) -> Any:
        known = await fresh(digest)
        if known and known.subscriptions == {PAGE} and not read.is_set():
            read.set()
            assert await asyncio.to_thread(goes_on.wait, WAIT_SECONDS)
        return known

    with peer.listening(), ThreadPoolExecutor() as threads:
        monkeypatch.setattr(sessions.cache, "fresh", held_once)
        first = threads.submit(peer.request, "resources/subscribe", {"uri": PAGE})
        assert read.wait(WAIT_SECONDS)
        second = threads.submit(peer.request, "resources/subscribe", {"uri": GUIDE})
        wait([second], 0.5)
        goes_on.set()
        for request in (first, second):
            assert message_of(request.result(WAIT_SECONDS))["result"] == {}
        assert publisher.uris() == {PAGE, GUIDE}


def test_what_is_not_accepted_cannot_be_subscribed_to(publisher: Publisher, client: RawClient) -> None:
    old = client.peer("2025-11-25")
    assert error_of(old.request("resources/subscribe", {"uri": SECRET}))["code"] == -32002
    with subscribed(client.peer(MODERN), SECRET, GUIDE) as stream:
        assert publisher.uris() == {GUIDE}
        publisher.updated(SECRET)
        publisher.updated(GUIDE)
        assert updated(stream) == GUIDE


def test_another_tenant_with_the_same_uri_gets_no_update(
    publisher: Publisher, client: RawClient, other_key: str, other_tenant: Tenant
) -> None:
    for uri in (GUIDE, "docs://own"):
        authoring.save_resource(Resource(tenant=other_tenant, kind=ResourceKind.TEXT, uri=uri, name="own", text="x"))
    neighbour = RawClient(client.url, other_key)
    with (
        subscribed(client.peer(MODERN), GUIDE) as own,
        subscribed(neighbour.peer(MODERN), GUIDE, "docs://own") as other,
    ):
        publisher.updated(GUIDE)
        assert updated(own) == GUIDE
        authoring.resource_updated(other_tenant.pk, "docs://own")
        assert updated(other) == "docs://own"


def test_resources_are_followed_with_the_tenants_credential_and_soon_with_a_new_one(
    publisher: Publisher, client: RawClient, eventually: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools_app.methods.catalog_watch.POLLS_TO_READ", 1)
    upstream = Upstream.objects.get()
    upstream.credential, upstream.credential_header = "header", "X-Token"
    upstream.save()
    publisher.tokens.clear()
    with subscribed(client.peer(MODERN), GUIDE) as stream:
        assert not publisher.tokens, "without a credential, the upstream is not asked"
        for value in ("one", "other"):
            save_value(upstream, TENANT, value)
            eventually(lambda value=value: value in publisher.tokens)
        publisher.updated(GUIDE)
        assert updated(stream) == GUIDE


def test_a_changed_definition_is_no_longer_followed(
    publisher: Publisher, client: RawClient, eventually: Callable[..., Any]
) -> None:
    with subscribed(client.peer(MODERN), GUIDE):
        assert publisher.uris() == {GUIDE}
        item = UpstreamItem.objects.get(name=GUIDE)
        item.state = ItemState.CHANGED
        item.save()
        eventually(lambda: publisher.uris() == set())


def test_subscriptions_are_renewed_and_what_was_missed_counts_as_updated(
    publisher: Publisher, client: RawClient
) -> None:
    with subscribed(client.peer(MODERN), GUIDE) as stream:
        publisher.updated(GUIDE)
        assert updated(stream) == GUIDE
        publisher.hang_up()
        assert updated(stream) == GUIDE
        assert publisher.uris() == {GUIDE}


def test_an_announced_change_of_a_list_is_observed(publisher: Publisher, eventually: Callable[..., Any]) -> None:
    eventually(lambda: publisher.streams)
    publisher.tools = [{**publisher.tools[0], "description": "Something else."}]
    publisher.publish("notifications/tools/list_changed")
    eventually(lambda: UpstreamItem.objects.get(name="look").state == ItemState.CHANGED)


class SlowToEnd:
    """A client of a modern upstream that announces no lists. Its streams end when they may."""

    is_modern, is_closed = True, False
    server = SimpleNamespace(capabilities={"resources": {"subscribe": True}})
    declares = Client.declares

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.ends, self.may_end = asyncio.Event(), asyncio.Event()

    async def request(self, method: str, params: dict[str, Any], on_message: Callable[[Any], None]) -> None:
        self.asked.append(params["notifications"]["resourceSubscriptions"])
        on_message({"method": ACKNOWLEDGED})
        try:
            await asyncio.Event().wait()
        finally:
            self.ends.set()
            await self.may_end.wait()


@pytest.mark.anyio
async def test_what_is_wanted_while_the_last_stream_ends_is_asked_for_at_once() -> None:
    client, told = SlowToEnd(), list[frozenset[str]]()

    async def connect() -> Any:
        return client

    updates = ConnectionUpdates(connect, told.append)
    async with asyncio.timeout(WAIT_SECONDS):
        updates.set_uris([PAGE])
        await updates.wait_requested()
        updates.set_uris([])
        await client.ends.wait()
        updates.set_uris([GUIDE])
        client.may_end.set()
        await updates.wait_requested()
        assert client.asked == [[PAGE], [GUIDE]]
        await updates.close()
    assert not told, "nothing was missed"
