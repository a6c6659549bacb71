"""Notifications of changed resources (resources, §Subscriptions; 2026-07-28, subscriptions)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest

from tests.wire.client import MODERN, Peer, RawClient, Stream, error_of, message_of
from tools_app.calls import sessions
from tools_app.catalog import authoring
from tools_app.models import Resource, ResourceKind, Session, Tenant
from tools_app.tenants import keys
from tools_app.toolkit import resource, resource_updated

UPDATED = "notifications/resources/updated"
# The URI that is notified last: all other notifications have come before it.
LAST = "docs://z"

MakeClient = Callable[..., RawClient]


@pytest.fixture(autouse=True)
def readable(tenant: Tenant) -> None:
    """Resources whose changes code notifies, independently of their rows."""
    for uri in ("docs://a", LAST):
        create_resource(tenant, uri)


def create_resource(tenant: Tenant, uri: str) -> Resource:
    return authoring.save_resource(Resource(tenant=tenant, uri=uri, name="own", kind=ResourceKind.TEXT, text="old"))


@contextmanager
def listening_stream(peer: Peer, *uris: str) -> Iterator[Stream]:
    """A stream of `peer` with updates of these resources, in its era."""
    if peer.is_modern:
        wanted = {"notifications": {"resourceSubscriptions": list(uris)}}
        with peer.stream("subscriptions/listen", wanted, id="sub-1") as stream:
            stream.next()
            yield stream
        return
    for uri in uris:
        assert message_of(peer.request("resources/subscribe", {"uri": uri}))["result"] == {}
    with peer.listening() as stream:
        yield stream


def updated_uri(stream: Stream) -> str:
    """The URI in the next notification."""
    message = stream.next()
    assert message.keys() == {"jsonrpc", "method", "params"}
    assert message["method"] == UPDATED
    return str(message["params"]["uri"])


def test_an_edit_of_an_admin_is_notified_to_subscribers(peer: Peer, tenant: Tenant) -> None:
    row = create_resource(tenant, "docs://own")
    with listening_stream(peer, "docs://own") as stream:
        for text in ("new", "newer"):
            row.text = text
            authoring.save_resource(row)
            assert updated_uri(stream) == "docs://own"
            read = peer.request("resources/read", {"uri": "docs://own"})
            assert message_of(read)["result"]["contents"][0]["text"] == text


def test_a_message_names_the_subscription_in_the_modern_era_alone(peer: Peer, tenant: Tenant) -> None:
    with listening_stream(peer, LAST) as stream:
        resource_updated(tenant.pk, LAST)
        meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": "sub-1"}} if peer.is_modern else {}
        assert stream.next() == {"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": LAST, **meta}}


def test_code_notifies_about_one_resource_of_a_template(
    peer: Peer, tenant: Tenant, registries: None, offer_resources: Callable[..., object]
) -> None:
    @resource("docs://pages/{page}")
    def page(page: str) -> str:
        return page

    offer_resources("docs://pages/{page}")
    with listening_stream(peer, "docs://pages/a", LAST) as stream:
        for uri in ("docs://pages/b", "docs://pages/a", LAST):
            resource_updated(tenant.pk, uri)
        # Simultaneous changes are notified in any order.
        assert {updated_uri(stream), updated_uri(stream)} == {"docs://pages/a", LAST}


def test_code_notifies_about_a_resource_by_its_uri(
    peer: Peer, tenant: Tenant, registries: None, offer_resources: Callable[..., object]
) -> None:
    @resource("docs://guide")
    def guide() -> str:
        return "guide"

    offer_resources("docs://guide")
    with listening_stream(peer, "docs://guide") as stream:
        resource_updated(tenant.pk, "docs://guide")
        assert updated_uri(stream) == "docs://guide"


def test_unsubscribed_resources_are_not_notified(peer: Peer, tenant: Tenant) -> None:
    with listening_stream(peer, LAST) as stream:
        authoring.save_resource(Resource.objects.get(tenant=tenant, uri="docs://a"))
        resource_updated(tenant.pk, "docs://a")
        resource_updated(tenant.pk, LAST)
        assert updated_uri(stream) == LAST


def test_a_resource_of_another_tenant_with_the_same_uri_is_not_notified(
    peer: Peer, tenant: Tenant, other_tenant: Tenant
) -> None:
    foreign = create_resource(other_tenant, "docs://a")
    with listening_stream(peer, "docs://a", LAST) as stream:
        authoring.save_resource(foreign)
        resource_updated(other_tenant.pk, "docs://a")
        resource_updated(tenant.pk, LAST)
        assert updated_uri(stream) == LAST


@pytest.mark.shows("resources.access")
def test_resources_that_the_caller_may_not_read_are_not_notified(
    peer: Peer, tenant: Tenant, registries: None, offer_resources: Callable[..., list[Resource]]
) -> None:
    @resource("docs://pages/{page}")
    def page(page: str) -> str:
        return page

    unreadable = ("docs://a", "docs://pages/a")
    disabled = [*offer_resources("docs://pages/{page}"), Resource.objects.get(tenant=tenant, uri="docs://a")]
    for uri in () if peer.is_modern else unreadable:
        assert message_of(peer.request("resources/subscribe", {"uri": uri}))["result"] == {}
    for one in disabled:
        authoring.set_enabled(one, enabled=False)
    with listening_stream(peer, *(["docs://nothing", *unreadable] if peer.is_modern else []), LAST) as stream:
        for uri in ("docs://a", "docs://nothing", "docs://pages/a", LAST):
            resource_updated(tenant.pk, uri)
        assert updated_uri(stream) == LAST


def test_a_change_is_notified_to_each_subscriber(make_client: MakeClient, tenant: Tenant, key: str) -> None:
    second = keys.issue(tenant, "second")[1]
    row = create_resource(tenant, "docs://own")
    one, other = make_client(key).handshake(), make_client(second).peer(MODERN)
    with listening_stream(one, "docs://own") as first, listening_stream(other, "docs://own") as another:
        authoring.save_resource(row)
        assert (updated_uri(first), updated_uri(another)) == ("docs://own", "docs://own")


def test_unsubscribing_ends_the_notifications(session: Peer, tenant: Tenant) -> None:
    with listening_stream(session, "docs://a", LAST) as stream:
        resource_updated(tenant.pk, "docs://a")
        assert updated_uri(stream) == "docs://a"
        assert message_of(session.request("resources/unsubscribe", {"uri": "docs://a"}))["result"] == {}
        resource_updated(tenant.pk, "docs://a")
        resource_updated(tenant.pk, LAST)
        assert updated_uri(stream) == LAST


def test_one_may_subscribe_while_a_stream_is_open_and_more_than_once(session: Peer, tenant: Tenant) -> None:
    with listening_stream(session) as stream:
        for _ in range(2):
            assert message_of(session.request("resources/subscribe", {"uri": LAST}))["result"] == {}
        resource_updated(tenant.pk, LAST)
        assert updated_uri(stream) == LAST
        message_of(session.request("resources/subscribe", {"uri": "docs://a"}))
        resource_updated(tenant.pk, "docs://a")
        assert updated_uri(stream) == "docs://a"


def test_a_subscription_is_a_sessions_own(client: RawClient, tenant: Tenant) -> None:
    subscribed, other = client.handshake(), client.handshake()
    message_of(subscribed.request("resources/subscribe", {"uri": "docs://a"}))
    with listening_stream(other, LAST) as stream:
        resource_updated(tenant.pk, "docs://a")
        resource_updated(tenant.pk, LAST)
        assert updated_uri(stream) == LAST


def test_unsubscribing_without_a_subscription_is_no_error(session: Peer) -> None:
    assert message_of(session.request("resources/unsubscribe", {"uri": "docs://never"}))["result"] == {}


def test_a_subscription_to_an_unknown_resource_is_rejected_and_not_stored(session: Peer, other_tenant: Tenant) -> None:
    create_resource(other_tenant, "docs://theirs")
    for uri in ("docs://nothing", "docs://theirs", "docs://" + "x" * 8_000):
        refusal = error_of(session.request("resources/subscribe", {"uri": uri}))
        assert refusal == {"code": -32002, "message": "Resource not found", "data": {"uri": uri}}
    assert Session.objects.get().subscriptions == []


def test_a_listen_is_acknowledged_without_unknown_resources(client: RawClient) -> None:
    wanted = {"notifications": {"resourceSubscriptions": ["docs://nothing", LAST]}}
    with client.peer(MODERN).stream("subscriptions/listen", wanted) as stream:
        assert stream.next()["params"]["notifications"] == {"resourceSubscriptions": [LAST]}


@pytest.mark.parametrize("uri", ["docs://a" + "x" * 8_192, "docs://\x00"])
def test_a_uri_that_is_too_long_or_cannot_be_stored_is_refused(client: RawClient, uri: str) -> None:
    session = client.handshake()
    for method in ("resources/subscribe", "resources/unsubscribe"):
        assert error_of(session.request(method, {"uri": uri}))["code"] == -32602
    listen = client.modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri]}})
    assert (listen.status_code, error_of(listen)["code"]) == (400, -32602)


def test_the_uris_of_a_session_are_bounded_together(
    session: Peer, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_SUBSCRIBED_LENGTH", len("docs://a") + len(LAST) - 1)
    answers = [message_of(session.request("resources/subscribe", {"uri": uri})) for uri in ("docs://a", LAST)]
    assert ["result" in answer for answer in answers] == [True, False]
    assert tenant.sessions.get().subscriptions == ["docs://a"]


def test_subscriptions_are_bounded(session: Peer, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SUBSCRIPTIONS", 2)
    for uri in ("a://a", "a://b", "a://c"):
        create_resource(tenant, uri)
    answers = [session.request("resources/subscribe", {"uri": uri}) for uri in ("a://a", "a://b", "a://b", "a://c")]
    assert ["result" in message_of(answer) for answer in answers] == [True, True, True, False]
    assert error_of(answers[3])["message"].startswith("A session has at most 2 subscriptions")
    session.request("resources/unsubscribe", {"uri": "a://a"})
    assert "result" in message_of(session.request("resources/subscribe", {"uri": "a://c"}))


@pytest.mark.parametrize("method", ["resources/subscribe", "resources/unsubscribe"])
def test_a_uri_that_is_no_text_is_refused(client: RawClient, method: str) -> None:
    peer = client.handshake()
    for params in ({}, {"uri": None}, {"uri": 5}, {"uri": ["docs://a"]}):
        assert error_of(peer.request(method, params))["code"] == -32602


@pytest.mark.parametrize("wanted", ["docs://a", [5], {"uri": "docs://a"}, None])
def test_a_listen_takes_a_list_of_uris(client: RawClient, wanted: object) -> None:
    response = client.modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": wanted}})
    assert (response.status_code, error_of(response)["code"]) == (400, -32602)


@pytest.mark.parametrize("method", ["resources/subscribe", "resources/unsubscribe"])
def test_the_modern_era_has_no_such_methods(client: RawClient, method: str) -> None:
    response = client.modern(method, {"uri": "docs://a"})
    assert (response.status_code, error_of(response)["code"]) == (404, -32601)


def test_a_deleted_resource_is_notified_by_the_list_only(session: Peer, tenant: Tenant) -> None:
    row = create_resource(tenant, "docs://own")
    with listening_stream(session, "docs://own", LAST) as stream:
        authoring.delete(row)
        assert stream.next()["method"] == "notifications/resources/list_changed"
        resource_updated(tenant.pk, LAST)
        assert updated_uri(stream) == LAST


# --- Several streams of one session -----------------------------------------------------------------------------------


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each check of a change, whether the stream that checked was the one to notify."""
    results: list[bool] = []
    is_listener = sessions.is_listener

    async def noted(session: sessions.SessionFacts, stream: UUID) -> bool:
        results.append(await is_listener(session, stream))
        return results[-1]

    monkeypatch.setattr(sessions, "is_listener", noted)
    return results


@pytest.mark.shows("streamable-http.one-stream")
def test_the_newest_stream_of_a_session_has_the_notifications_and_the_other_takes_over(
    session: Peer, tenant: Tenant, checks: list[bool], eventually: Callable[..., object]
) -> None:
    with listening_stream(session, "docs://a", LAST) as first:
        with session.listening() as second:
            resource_updated(tenant.pk, "docs://a")
            assert updated_uri(second) == "docs://a"
            eventually(lambda: sorted(checks) == [False, True])
        eventually(lambda: tenant.sessions.get().listener is None)
        resource_updated(tenant.pk, LAST)
        assert updated_uri(first) == LAST


def test_a_stream_that_comes_back_misses_nothing_that_comes_after(session: Peer, tenant: Tenant) -> None:
    for uri in ("docs://a", LAST):
        with listening_stream(session, "docs://a", LAST) as stream:
            resource_updated(tenant.pk, uri)
            assert updated_uri(stream) == uri
