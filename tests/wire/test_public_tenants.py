"""Public tenants: what callers without a key may use, at which path, and their rate limits."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.conftest import reset_process_state
from tests.wire.client import MODERN, SESSION, Peer, RawClient, Stream, error_of, message_of
from tools_app.catalog import authoring
from tools_app.models import ApiKey, Call, Prompt, PromptKind, Resource, ResourceKind, Session, Tenant
from tools_app.tenants import keys
from tools_app.toolkit import resource_updated

PATTERNS = ["echo", "search_*", "open-*", "docs://open/*", "api://{page}"]
TENANT_PATH = "/t/acme/mcp"
VERSIONS = pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", MODERN])
HEADER = "X-Forwarded-For"

MakeClient = Callable[..., RawClient]


@pytest.fixture(autouse=True)
def public(tenant: Tenant, offer: Callable[..., object]) -> Tenant:
    """`tenant` is public, and has more than its public patterns name."""
    offer("echo", "calculator", "search_docs")
    for uri in ("docs://open/a", "docs://own/a"):
        add_resource(tenant, uri)
    for uri in ("api://{page}", "own://{page}"):
        add_resource(tenant, uri)
    for name in ("open-greet", "own-greet"):
        messages = [{"role": "user", "text": "Hello"}]
        authoring.save_prompt(Prompt(tenant=tenant, name=name, kind=PromptKind.TEMPLATE, messages=messages))
    change(tenant, is_public=True, public_tools=PATTERNS)
    return tenant


def add_resource(tenant: Tenant, uri: str) -> Resource:
    kind = ResourceKind.HTTP if "{" in uri else ResourceKind.TEXT
    config = {"base_url": "http://127.0.0.1:9", "path": "{page}"} if "{" in uri else {}
    return authoring.save_resource(Resource(tenant=tenant, uri=uri, name="a", kind=kind, text="words", config=config))


def change(tenant: Tenant, **fields: Any) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(**fields)
    reset_process_state()


@pytest.fixture
def anonymous_client(make_client: MakeClient) -> RawClient:
    """A client without a key, at the address of `tenant`."""
    return make_client(None, TENANT_PATH)


def names(peer: Peer, method: str, field: str, name: str) -> list[str]:
    return [one[name] for one in message_of(peer.request(method))["result"][field]]


def offered(peer: Peer) -> list[list[str]]:
    """The names in all lists."""
    return [
        names(peer, "tools/list", "tools", "name"),
        names(peer, "prompts/list", "prompts", "name"),
        names(peer, "resources/list", "resources", "uri"),
        names(peer, "resources/templates/list", "resourceTemplates", "uriTemplate"),
    ]


@VERSIONS
def test_callers_without_a_key_get_what_the_patterns_name(anonymous_client: RawClient, version: str) -> None:
    peer = anonymous_client.peer(version)
    assert offered(peer) == [["echo", "search_docs"], ["open-greet"], ["docs://open/a"], ["api://{page}"]]
    assert peer.result("echo", {"message": "x"})["content"][0]["text"] == "hello x"
    read = message_of(peer.request("resources/read", {"uri": "docs://open/a"}))
    assert read["result"]["contents"][0]["text"] == "words"
    assert message_of(peer.request("prompts/get", {"name": "open-greet"}))["result"]["messages"]


@VERSIONS
def test_items_that_no_pattern_names_look_like_unknown_ones(anonymous_client: RawClient, version: str) -> None:
    peer = anonymous_client.peer(version)
    for method, field, hidden, unknown in (
        ("tools/call", "name", "calculator", "never"),
        ("prompts/get", "name", "own-greet", "never"),
        ("resources/read", "uri", "docs://own/a", "docs://never"),
        ("resources/read", "uri", "own://a", "never://a"),
    ):
        response, response_for_unknown = (peer.request(method, {field: name}) for name in (hidden, unknown))
        assert response.text.replace(hidden, unknown) == response_for_unknown.text
        assert (response.status_code, "error" in message_of(response)) == (response_for_unknown.status_code, True)
    ref = {"type": "ref/resource", "uri": "own://{page}"}
    completion = peer.request("completion/complete", {"ref": ref, "argument": {"name": "page", "value": ""}})
    assert error_of(completion)["code"] == -32602


def test_without_patterns_there_is_nothing(anonymous_client: RawClient, tenant: Tenant) -> None:
    change(tenant, public_tools=[])
    peer = anonymous_client.handshake()
    assert offered(peer) == [[], [], [], []]
    assert error_of(peer.call("echo", {"message": "x"}))["code"] == -32602


def test_a_pattern_of_a_star_is_everything_and_of_other_signs_itself(
    anonymous_client: RawClient, tenant: Tenant
) -> None:
    change(tenant, public_tools=["*"])
    assert [len(listed) for listed in offered(anonymous_client.handshake())] == [3, 2, 2, 2]
    change(tenant, public_tools=["ech.", "[a-z]+", "ECHO", "cho", "ech"])
    assert offered(anonymous_client.handshake()) == [[], [], [], []]


@VERSIONS
def test_a_key_opens_everything_as_before(make_client: MakeClient, key: str, version: str) -> None:
    for path in (TENANT_PATH, "/mcp"):
        assert [len(listed) for listed in offered(make_client(key, path).peer(version))] == [3, 2, 2, 2]


@pytest.mark.parametrize("path", ["/mcp", "/t/rival/mcp", "/t/never/mcp"])
def test_without_a_key_only_the_address_of_an_open_tenant_answers(
    make_client: MakeClient, other_tenant: Tenant, path: str
) -> None:
    client = make_client(None, path)
    for response in (client.modern("tools/list"), client.initialize()):
        assert response.status_code == 401
        assert response.headers["www-authenticate"].startswith("Bearer")


def test_a_wrong_key_is_refused_where_none_is_needed(make_client: MakeClient, tenant: Tenant) -> None:
    row, revoked = keys.issue(tenant, "old")
    keys.revoke(row)
    for invalid in ("wrong", revoked):
        assert make_client(invalid, TENANT_PATH).modern("tools/list").status_code == 401
    headers = {"X-Api-Key": "wrong"}
    assert make_client(None, TENANT_PATH).modern("tools/list", headers=headers).status_code == 401


def test_a_key_of_another_tenant_opens_nothing_here(make_client: MakeClient, other_key: str) -> None:
    assert make_client(other_key, TENANT_PATH).modern("tools/list").status_code == 404


@VERSIONS
def test_a_call_is_recorded_as_anonymous(anonymous_client: RawClient, tenant: Tenant, version: str) -> None:
    anonymous_client.peer(version).call("echo", {"message": "x"})
    call = Call.objects.get()
    assert (call.tenant, call.api_key, call.remote_address) == (tenant, None, "127.0.0.1")
    assert (call.outcome, call.client_name) == ("ok", "raw")


# --- Limits -----------------------------------------------------------------------------------------------------------


def echo(peer: Peer, address: str) -> int:
    return peer.call("echo", {"message": "x"}, headers={HEADER: address}).status_code


@VERSIONS
def test_callers_are_limited_by_their_address(
    anonymous_client: RawClient, tenant: Tenant, settings: Any, version: str
) -> None:
    settings.MCPHUB_TRUSTED_PROXIES = 1
    change(tenant, public_calls_per_minute=2)
    one, other = anonymous_client.peer(version), anonymous_client.peer(version)
    assert [echo(one, "192.0.2.1"), echo(other, "192.0.2.1"), echo(one, "192.0.2.1")] == [200, 200, 429]
    assert echo(other, "192.0.2.2") == 200
    response = one.call("echo", {"message": "x"}, headers={HEADER: "192.0.2.1"})
    assert error_of(response)["data"]["scope"] == "address"
    assert 0 < int(response.headers["retry-after"]) <= 60


def test_an_address_at_one_tenant_is_not_the_same_at_another(
    anonymous_client: RawClient, make_client: MakeClient, tenant: Tenant, other_tenant: Tenant
) -> None:
    authoring.add_code_tools(other_tenant, ["echo"])
    change(other_tenant, is_public=True, public_tools=["*"], public_calls_per_minute=1)
    change(tenant, public_calls_per_minute=1)
    peers = [client.peer(MODERN) for client in (anonymous_client, make_client(None, "/t/rival/mcp"))]
    assert [peer.call("echo", {"message": "x"}).status_code for peer in peers * 2] == [200, 200, 429, 429]


def test_the_limit_of_the_public_is_none_of_a_keys(make_client: MakeClient, key: str, tenant: Tenant) -> None:
    change(tenant, public_calls_per_minute=0)
    assert make_client(None, TENANT_PATH).peer(MODERN).call("echo", {"message": "x"}).status_code == 429
    assert make_client(key, TENANT_PATH).peer(MODERN).call("echo", {"message": "x"}).status_code == 200


# --- Sessions and streams ---------------------------------------------------------------------------------------------


def test_a_session_without_a_key_is_of_its_tenant(
    anonymous_client: RawClient, make_client: MakeClient, key: str, tenant: Tenant, other_tenant: Tenant
) -> None:
    change(other_tenant, is_public=True, public_tools=["*"])
    peer = anonymous_client.handshake()
    row = Session.objects.get()
    assert (row.tenant, row.api_key) == (tenant, None)
    for client in (make_client(None, "/t/rival/mcp"), make_client(key), make_client(key, TENANT_PATH)):
        assert Peer(client, peer.version, peer.session_id).request("ping").status_code == 404
    assert Peer(make_client(None, TENANT_PATH), peer.version, peer.session_id).request("ping").status_code == 200


def test_a_session_of_a_key_is_unknown_to_callers_without_it(
    make_client: MakeClient, anonymous_client: RawClient, key: str
) -> None:
    peer = make_client(key, TENANT_PATH).handshake()
    for verb in ("GET", "DELETE"):
        headers = anonymous_client.headers({SESSION: peer.session_id})
        assert anonymous_client.http.request(verb, TENANT_PATH, headers=headers).status_code == 404
    assert Peer(anonymous_client, peer.version, peer.session_id).request("ping").status_code == 404
    assert peer.request("ping").status_code == 200


@contextmanager
def listening_stream(client: RawClient, version: str, *uris: str) -> Iterator[Stream]:
    """A stream of updates of these resources and of changes of the tools."""
    peer = client.peer(version)
    if peer.is_modern:
        params = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": list(uris)}}
        with peer.stream("subscriptions/listen", params, id="sub-1") as stream:
            stream.next()
            yield stream
        return
    for uri in uris:
        peer.request("resources/subscribe", {"uri": uri})
    with peer.listening() as stream:
        yield stream


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
def test_callers_without_a_key_get_updates_of_public_resources_only(
    anonymous_client: RawClient, tenant: Tenant, version: str
) -> None:
    uris = ("own://a", "docs://own/a", "docs://open/a")
    with listening_stream(anonymous_client, version, *uris) as stream:
        for uri in uris:
            resource_updated(tenant.pk, uri)
        assert stream.next()["params"]["uri"] == "docs://open/a"


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
@pytest.mark.parametrize("closed", [{"is_public": False}, pytest.param({"is_active": False}, marks=pytest.mark.slow)])
def test_a_tenant_that_is_no_longer_public_ends_streams_and_rejects_requests_within_about_a_second(
    anonymous_client: RawClient,
    tenant: Tenant,
    eventually: Callable[..., object],
    version: str,
    closed: dict[str, bool],
) -> None:
    with listening_stream(anonymous_client, version) as stream:
        Tenant.objects.filter(pk=tenant.pk).update(**closed)
        stream.read_to_end()
    eventually(lambda: anonymous_client.modern("tools/list").status_code == 401)
    assert anonymous_client.initialize().status_code == 401


def test_closing_a_tenant_leaves_those_with_a_key(
    make_client: MakeClient, key: str, tenant: Tenant, offer: Callable[..., object]
) -> None:
    with listening_stream(make_client(key, TENANT_PATH), MODERN) as stream:
        change(tenant, is_public=False)
        assert make_client(None, TENANT_PATH).modern("tools/list").status_code == 401
        offer("count")
        assert stream.next()["method"] == "notifications/tools/list_changed"
    assert not ApiKey.objects.exclude(tenant=tenant).exists()
