"""HTTP+SSE, the transport of 2024-11-05, beyond what `test_channels.py` tests."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from django.db import OperationalError

from tests.wire.channels import SseClient, sse
from tests.wire.client import MODERN, SESSION, WAIT_SECONDS, RawClient, error_of, rpc
from tools_app.core.notifications import publish
from tools_app.models import ApiKey, Session, SessionMessage, Tenant
from tools_app.tenants import keys
from tools_app.tenants.keys import digest_of
from tools_app.transport import legacy_sse, sse_mailbox, state

pytestmark = pytest.mark.servers

MakeClient = Callable[..., RawClient]
PING = b'{"jsonrpc":"2.0","id":"p","method":"ping"}'
UNKNOWN = "/message?sessionId=" + "x" * 43
ALLOWED = "https://app.example.com"


@pytest.fixture
def stream(client: RawClient) -> Iterator[SseClient]:
    """An open stream."""
    with sse(client) as channel:
        yield channel


@pytest.fixture
def session(stream: SseClient) -> SseClient:
    stream.negotiate("2024-11-05")
    return stream


def session_of(stream: SseClient) -> Session:
    id = stream.address.partition("sessionId=")[2].partition("&")[0]
    return Session.objects.get(digest=digest_of(f"sse.{id}"))


# --- The two addresses ------------------------------------------------------------------------------------------------


@pytest.mark.shows("http-sse.two-addresses", "http-sse.endpoint-event")
@pytest.mark.parametrize("prefix", ["", "/t/acme"])
def test_the_stream_begins_with_the_address_to_post_to(client: RawClient, prefix: str) -> None:
    with sse(client, f"{prefix}/sse") as stream:
        head = stream.stream.response
        assert head.headers["content-type"] == "text/event-stream"
        assert head.headers["cache-control"] == "no-store, no-transform"
        assert re.fullmatch(rf"{prefix}/message\?sessionId=[\w-]{{43}}", stream.address)
        assert stream.negotiate("2024-11-05").response_to("ping")["result"] == {}


def test_messages_come_as_message_events_of_one_line(session: SseClient) -> None:
    session.request("ping", id=7)
    event = session.stream.next_event()
    assert event.fields == {"event": "message", "data": '{"jsonrpc":"2.0","id":7,"result":{}}'}


def test_each_stream_has_a_random_id_of_its_own(client: RawClient) -> None:
    with sse(client) as one, sse(client) as two:
        assert one.address != two.address
        assert str(session_of(one).pk) not in one.address


@pytest.mark.parametrize(("verb", "path", "allow"), [("POST", "/sse", "GET"), ("GET", UNKNOWN, "POST")])
def test_each_address_has_its_verb(client: RawClient, verb: str, path: str, allow: str) -> None:
    for wrong in (verb, "DELETE", "PUT"):
        response = client.http.request(wrong, path, headers=client.headers())
        assert response.status_code == 405
        assert response.headers["allow"] == f"{allow}, OPTIONS"
        assert error_of(response)["message"] == f"Use {allow}."


def test_the_stream_is_for_clients_that_take_one(client: RawClient) -> None:
    response = client.http.get("/sse", headers=client.headers({"Accept": "application/json"}))
    assert response.status_code == 406
    assert not Session.objects.exists()


def test_an_idle_stream_is_kept_alive(client: RawClient, settings: Any) -> None:
    settings.MCPHUB_KEEPALIVE_INTERVAL = 0.05
    with client.http.stream("GET", "/sse", headers=client.headers()) as response:
        lines = [line for line, _ in zip(response.iter_lines(), range(10), strict=False) if line]
        assert [line for line in lines if line.startswith(":")] == [": keep-alive"] * 4


# --- What a POST gets wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [UNKNOWN, "/message", "/message?sessionId=", "/message?sessionId=%01"])
def test_a_post_without_a_stream_is_not_found(client: RawClient, address: str) -> None:
    response = client.http.post(address, content=PING, headers=client.headers())
    assert (response.status_code, error_of(response)["message"]) == (404, "Session not found.")


def test_a_stream_that_ended_is_not_found(client: RawClient, eventually: Callable[..., Any]) -> None:
    with sse(client) as stream:
        pass
    eventually(lambda: Session.objects.get().ended_at)
    eventually(lambda: stream.post(PING).status_code == 404)


@pytest.mark.shows("http-sse.authentication")
def test_nobody_posts_to_the_stream_of_another_key(
    session: SseClient, make_client: MakeClient, tenant: Tenant, other_key: str
) -> None:
    for key in (other_key, keys.issue(tenant, "second")[1]):
        stranger = make_client(key)
        tried = stranger.http.post(session.address, content=PING, headers=stranger.headers())
        unknown = stranger.http.post(UNKNOWN, content=PING, headers=stranger.headers())
        assert (tried.status_code, tried.json()) == (unknown.status_code, unknown.json())
        assert tried.status_code == 404
    assert session.response_to("ping", id=2)["id"] == 2
    assert session.received == []


def test_the_sessions_of_the_two_http_transports_are_not_each_others(client: RawClient, session: SseClient) -> None:
    peer = client.handshake()
    address = f"/message?sessionId={peer.session_id}"
    assert client.http.post(address, content=PING, headers=client.headers()).status_code == 404
    id = session.address.partition("sessionId=")[2]
    assert client.post(rpc("ping"), {SESSION: id, "MCP-Protocol-Version": "2025-11-25"}).status_code == 404


def test_a_body_that_is_not_json_is_refused_at_once(session: SseClient) -> None:
    for raw in (b"{bad", b"", b"\xff\xfe", b"[" * 100 + b"]" * 100):
        response = session.post(raw)
        assert (response.status_code, error_of(response)["code"]) == (400, -32700)
    response = session.post(PING, Content_Type="text/plain")
    assert (response.status_code, error_of(response)["code"]) == (415, -32600)
    assert session.response_to("ping")["result"] == {}


def test_a_body_that_is_too_large_is_refused(session: SseClient, settings: Any) -> None:
    settings.MCPHUB_MAX_BODY_BYTES = 200
    assert session.post(b'"' + b"x" * 199 + b'"').status_code == 413
    assert session.post(PING.ljust(200)).status_code == 202


# --- Who may ----------------------------------------------------------------------------------------------------------


def on_both(stream: SseClient, headers: dict[str, str | None], prefix: str = "") -> list[httpx.Response]:
    """The responses of both endpoints to a request with these headers."""
    client = stream.client
    fields = client.headers({"Accept": "text/event-stream", **headers})
    posted = client.http.post(prefix + stream.address, content=PING, headers=fields)
    return [client.http.get(f"{prefix}/sse", headers=fields), posted]


@pytest.mark.shows("http-sse.authentication")
@pytest.mark.parametrize("authorization", [None, "Bearer nonsense"])
def test_both_addresses_need_a_key(stream: SseClient, authorization: str | None) -> None:
    for response in on_both(stream, {"Authorization": authorization}):
        assert response.status_code == 401
        assert response.headers["www-authenticate"].startswith('Bearer realm="mcphub"')


@pytest.mark.shows("http-sse.origin")
def test_both_addresses_check_the_origin(stream: SseClient, settings: Any) -> None:
    settings.MCPHUB_ALLOWED_ORIGINS = [ALLOWED]
    for response in on_both(stream, {"Origin": "https://evil.net"}):
        assert (response.status_code, error_of(response)["message"]) == (403, "Origin not allowed.")
    posted = stream.post(PING, Origin=ALLOWED)
    assert (posted.status_code, posted.headers["access-control-allow-origin"]) == (202, ALLOWED)
    with sse(stream.client, headers={"Origin": ALLOWED}) as allowed:
        assert allowed.stream.response.headers["access-control-allow-origin"] == ALLOWED


def test_both_addresses_check_the_host(stream: SseClient) -> None:
    assert [response.status_code for response in on_both(stream, {"Host": "evil.net"})] == [421, 421]


@pytest.mark.parametrize("slug", ["rival", "nobody"])
def test_both_addresses_know_only_the_keys_own_tenant(stream: SseClient, other_tenant: Tenant, slug: str) -> None:
    for response in on_both(stream, {}, f"/t/{slug}"):
        assert (response.status_code, error_of(response)["message"]) == (404, "Not found.")


@pytest.mark.parametrize(("path", "verb"), [("/sse", "GET"), ("/message", "POST")])
def test_a_preflight_needs_no_key(client: RawClient, settings: Any, path: str, verb: str) -> None:
    settings.MCPHUB_ALLOWED_ORIGINS = [ALLOWED]
    preflight_headers = {"Origin": ALLOWED, "Access-Control-Request-Headers": "authorization"}
    response = client.http.options(path, headers=preflight_headers)
    assert (response.status_code, response.headers["access-control-allow-methods"]) == (204, f"{verb}, OPTIONS")
    assert response.headers["access-control-allow-headers"] == "authorization"


def test_a_hub_that_stops_opens_no_streams_and_takes_no_messages(
    stream: SseClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    (web,) = [web for loop, web in state._states.items() if loop.is_running()]
    monkeypatch.setattr(web, "draining", True)
    for response in on_both(stream, {}):
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")


def test_a_key_in_the_url_has_to_be_in_the_address_too(make_client: MakeClient, tenant: Tenant, key: str) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(allow_query_key=True)
    with sse(make_client(None), f"/sse?api_key={key}") as stream:
        assert stream.address.endswith(f"&api_key={key}")
        assert stream.negotiate("2024-11-05").response_to("ping")["result"] == {}


def test_a_key_in_the_url_is_refused_where_the_tenant_does_not_allow_it(make_client: MakeClient, key: str) -> None:
    client = make_client(None)
    assert client.http.get(f"/sse?api_key={key}", headers={"Accept": "text/event-stream"}).status_code == 401


def test_a_key_in_a_header_is_not_in_the_address(stream: SseClient) -> None:
    assert stream.client.key not in stream.address


def test_a_key_that_was_revoked_posts_no_more(session: SseClient, eventually: Callable[..., Any]) -> None:
    keys.revoke(ApiKey.objects.get(digest=digest_of(session.client.key)))
    eventually(lambda: session.post(PING).status_code == 401)


# --- A POST that reaches another process ------------------------------------------------------------------------------


@pytest.mark.parametrize("rung", [True, False], ids=["doorbell", "no-doorbell"])
def test_messages_that_another_process_received_are_answered_on_the_stream(session: SseClient, rung: bool) -> None:
    id = session_of(session).pk
    sse_mailbox.put(id, PING)
    if rung:
        publish.notify(sse_mailbox.topic(id))
    assert session.response("p")["result"] == {}
    assert not SessionMessage.objects.exists()


def test_a_post_to_another_process_reaches_the_stream(session: SseClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy_sse, "_inboxes", {})
    for id in range(3):
        assert session.response_to("ping", id=id)["id"] == id
    session.version = MODERN
    assert session.response_to("server/discover", id="m")["result"]["resultType"] == "complete"


def test_messages_that_another_process_received_are_handled_in_order(session: SseClient) -> None:
    id = session_of(session).pk
    for number in range(250):
        sse_mailbox.put(id, b'{"jsonrpc":"1.0","id":%d,"method":"ping"}' % number)
    session.request("ping", id="last")
    session.response("last")
    assert [message["id"] for message in session.received] == list(range(250))


def test_idle_streams_look_for_their_messages_together(
    client: RawClient, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    polls: list[Sequence[UUID]] = []
    taken: list[UUID] = []
    waiting, take = sse_mailbox.waiting, sse_mailbox.take

    def noted(ids: Sequence[UUID]) -> set[UUID]:
        polls.append(ids)
        return waiting(ids)

    def took(session_id: UUID) -> list[bytes]:
        taken.append(session_id)
        return take(session_id)

    with sse(client) as one, sse(client) as two, sse(client) as three:
        two.negotiate("2024-11-05")
        streams = {session_of(stream).pk for stream in (one, two, three)}
        monkeypatch.setattr(sse_mailbox, "take", took)
        monkeypatch.setattr(sse_mailbox, "waiting", noted)
        eventually(lambda: len(polls) > 1)
        # Each stream has looked once when it was opened.
        taken.clear()
        eventually(lambda: len(polls) > 3)
        assert all(set(ids) == streams for ids in polls)
        assert not taken
        sse_mailbox.put(session_of(two).pk, PING)
        assert two.response("p")["result"] == {}
        assert set(taken) == {session_of(two).pk}


def test_the_streams_for_which_messages_wait_are_found_however_many_there_are(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse_mailbox, "MAX_POLLED", 2)
    ids = [uuid4() for _ in range(5)]
    assert sse_mailbox.waiting(ids) == set()
    for id in (ids[0], ids[0], ids[4], uuid4()):
        sse_mailbox.put(id, PING)
    assert sse_mailbox.waiting(ids) == {ids[0], ids[4]}


def test_messages_on_their_way_are_sealed(session: SseClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse_mailbox, "take", lambda session_id: [])
    sse_mailbox.put(session_of(session).pk, PING)
    assert b"ping" not in bytes(SessionMessage.objects.get().sealed)


def test_a_stream_outlives_a_store_that_is_away(session: SseClient, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = iter([OperationalError("away"), OperationalError("still away")])
    take = sse_mailbox.take

    def sometimes(session_id: Any) -> list[bytes]:
        if problem := next(failures, None):
            raise problem
        return take(session_id)

    monkeypatch.setattr(sse_mailbox, "take", sometimes)
    sse_mailbox.put(session_of(session).pk, PING)
    assert session.response("p")["result"] == {}


@pytest.mark.anyio
async def test_messages_that_nobody_waited_for_until_they_were_read_are_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A POST that is cancelled, or that waited too long for the database, has taken them from there."""
    messages, reading, taken = [[PING], []], threading.Event(), threading.Event()

    def take_slowly(_session_id: UUID) -> list[bytes]:
        reading.set()
        assert taken.wait(WAIT_SECONDS)
        return messages.pop(0)

    monkeypatch.setattr(sse_mailbox, "take", take_slowly)
    inbox = legacy_sse.Inbox(uuid4())
    fetching = asyncio.create_task(inbox.fetch())
    assert await asyncio.to_thread(reading.wait, WAIT_SECONDS)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    monkeypatch.setattr(legacy_sse, "MAX_SECONDS", 0.01)
    with pytest.raises(OperationalError):
        await inbox.fetch()
    monkeypatch.undo()
    monkeypatch.setattr(sse_mailbox, "take", take_slowly)
    taken.set()
    await inbox.fetch()
    assert await inbox.next() == PING


def test_unhandled_messages_are_dropped_with_the_stream(
    client: RawClient, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    with sse(client) as stream:
        monkeypatch.setattr(sse_mailbox, "take", lambda session_id: [])
        sse_mailbox.put(session_of(stream).pk, PING)
    eventually(lambda: not SessionMessage.objects.exists())
