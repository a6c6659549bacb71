"""Scopes of keys: names, methods and networks, over every transport."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.conftest import reset_process_state
from tests.wire.channels import OPENERS, TRANSPORTS, socket
from tests.wire.client import MODERN, SESSION, Peer, RawClient, error_of, message_of, rpc
from tests.wire.task_tools import EXTENSION, Gate, register
from tests.wire.test_public_tenants import add_resource, listening_stream, offered
from tools_app.catalog import authoring
from tools_app.core import refresh_ahead_cache
from tools_app.models import ApiKey, Call, Prompt, PromptKind, Tenant, Tool
from tools_app.tenants import keys
from tools_app.toolkit import resource_updated

VERSIONS = pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", MODERN])
NAMES = ["echo", "search_*", "open-*", "docs://open/*", "api://{page}"]

MakeClient = Callable[..., RawClient]
MakeKey = Callable[..., RawClient]


@pytest.fixture(autouse=True)
def catalog(tenant: Tenant, offer: Callable[..., object]) -> None:
    """More than a scoped key may see."""
    offer("echo", "calculator", "search_docs")
    for uri in ("docs://open/a", "docs://own/a", "api://{page}", "own://{page}"):
        add_resource(tenant, uri)
    for name in ("open-greet", "own-greet"):
        messages = [{"role": "user", "text": "Hello"}]
        authoring.save_prompt(Prompt(tenant=tenant, name=name, kind=PromptKind.TEMPLATE, messages=messages))


@pytest.fixture
def with_key(make_client: MakeClient, tenant: Tenant) -> MakeKey:
    """A client of a key with scopes: `with_key(methods=["tools/*"])`."""
    return lambda **scopes: make_client(keys.issue(tenant, "narrow", **scopes)[1])


def change(client: RawClient, **fields: Any) -> None:
    ApiKey.objects.filter(digest=keys.digest_of(client.key or "")).update(**fields)


Denial = Callable[[str], Call]


@pytest.fixture
def denial(eventually: Callable[..., Any]) -> Denial:
    """The record of the last denied request of a method, which is written in the background."""
    return lambda method: eventually(lambda: Call.objects.filter(outcome="denied", method=method).last())


def is_method_denied(error: Mapping[str, Any], method: str) -> bool:
    return error["code"] == -32003 and error["data"] == {"scope": "methods", "method": method}


# --- Names ------------------------------------------------------------------------------------------------------------


@VERSIONS
def test_a_key_with_patterns_gets_what_they_name(with_key: MakeKey, version: str) -> None:
    peer = with_key(tool_patterns=NAMES).peer(version)
    assert offered(peer) == [["echo", "search_docs"], ["open-greet"], ["docs://open/a"], ["api://{page}"]]
    assert peer.result("echo", {"message": "x"})["content"][0]["text"] == "hello x"
    assert "result" in message_of(peer.request("resources/read", {"uri": "docs://open/a"}))
    assert "result" in message_of(peer.request("prompts/get", {"name": "open-greet"}))


@VERSIONS
def test_items_outside_its_patterns_look_like_unknown_ones(with_key: MakeKey, version: str) -> None:
    peer = with_key(tool_patterns=NAMES).peer(version)
    for method, field, hidden, unknown in (
        ("tools/call", "name", "calculator", "never"),
        ("prompts/get", "name", "own-greet", "never"),
        ("resources/read", "uri", "docs://own/a", "docs://never"),
        ("resources/read", "uri", "own://a", "never://a"),
    ):
        response, response_for_unknown = (peer.request(method, {field: name}) for name in (hidden, unknown))
        assert response.text.replace(hidden, unknown) == response_for_unknown.text
        assert "error" in message_of(response)
    ref = {"type": "ref/resource", "uri": "own://{page}"}
    completion = peer.request("completion/complete", {"ref": ref, "argument": {"name": "page", "value": ""}})
    assert error_of(completion)["code"] == -32602
    assert Call.objects.filter(tool_name="calculator", outcome="rejected").exists()


@pytest.mark.parametrize(
    ("entries", "usable"),
    [
        (["tool=wipe"], {"tool wipe"}),
        (["prompt=wipe"], {"prompt wipe"}),
        (["w*"], {"tool wipe", "prompt wipe"}),
        (["resource=hr://*"], {"hr://*"}),
        (["hr://*"], {"hr://*", "hr://salaries"}),
        (["resource=api://{page}"], {"api://{page}"}),
    ],
)
def test_what_a_key_lists_is_what_it_can_use(
    with_key: MakeKey, tenant: Tenant, offer: Callable[..., object], entries: list[str], usable: set[str]
) -> None:
    Tool.objects.filter(tenant=tenant, name="echo").update(name="wipe")
    messages = [{"role": "user", "text": "Hello {{name}}"}]
    arguments = [{"name": "name", "description": "", "required": False}]
    authoring.save_prompt(
        Prompt(tenant=tenant, name="wipe", kind=PromptKind.TEMPLATE, messages=messages, arguments=arguments)
    )
    for uri in ("hr://*", "hr://salaries"):
        add_resource(tenant, uri)
    items = {"tool wipe", "prompt wipe", "hr://*", "hr://salaries", "api://{page}"}
    client = with_key(tool_patterns=entries)
    for version in ("2025-11-25", MODERN):
        peer = client.peer(version)
        tools, prompts, uris, templates = offered(peer)
        listed = {*(f"tool {name}" for name in tools), *(f"prompt {name}" for name in prompts), *uris, *templates}
        assert listed == usable
        for item in items:
            kind, _, name = item.rpartition(" ")
            uri = name.replace("{page}", "a")
            tries = {
                "tool": [("tools/call", {"name": name, "arguments": {"message": "x"}})],
                "prompt": [("prompts/get", {"name": name}), (COMPLETE, completion("prompt", name, "name"))],
                "": [("resources/read", {"uri": uri})],
            }[kind]
            if "{" in item:
                tries.append((COMPLETE, completion("resource", name, "page")))
            if not kind and version != MODERN:
                tries.append(("resources/subscribe", {"uri": uri}))
            for method, params in tries:
                # A template's request fails where nobody listens, after it was permitted.
                error = message_of(peer.request(method, params)).get("error", {})
                assert (error.get("code") in (-32602, -32002)) is (item not in usable), (version, method, item)
    wanted = {"resourceSubscriptions": [item.replace("{page}", "a") for item in sorted(items) if ":" in item]}
    with client.peer(MODERN).stream("subscriptions/listen", {"notifications": wanted}, id="sub") as stream:
        agreed = stream.next()["params"]["notifications"].get("resourceSubscriptions", [])
    assert agreed == [item.replace("{page}", "a") for item in sorted(usable) if ":" in item]


COMPLETE = "completion/complete"


def completion(kind: str, name: str, argument: str) -> dict[str, Any]:
    ref = {"type": f"ref/{kind}", "uri" if kind == "resource" else "name": name}
    return {"ref": ref, "argument": {"name": argument, "value": ""}}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_channels_keep_to_the_patterns_too(with_key: MakeKey, transport: str) -> None:
    with OPENERS[transport](with_key(tool_patterns=["echo"])) as channel:
        channel.negotiate("2024-11-05")
        assert [tool["name"] for tool in channel.response_to("tools/list")["result"]["tools"]] == ["echo"]
        assert channel.tool_response("calculator", {}, id=2)["error"]["code"] == -32602
        assert "result" in channel.tool_response("echo", {"message": "x"}, id=3)


@pytest.fixture
def task_tools(registries: None, offer: Callable[..., object]) -> None:
    """Tools whose calls become tasks where the client wants."""
    register(Gate(), background=False)
    offer("quick")


@pytest.mark.usefixtures("task_tools")
def test_a_key_loses_its_tasks_of_tools_that_its_scopes_hide(with_key: MakeKey) -> None:
    client = with_key()
    peer = client.handshake("2025-11-25")
    params = {"name": "quick", "arguments": {"word": "x"}, "task": {}}
    task = message_of(peer.request("tools/call", params))["result"]["task"]["taskId"]
    assert "result" in message_of(peer.request("tasks/get", {"taskId": task}))
    change(client, tool_patterns=["echo"])
    reset_process_state()
    assert error_of(peer.request("tasks/get", {"taskId": task}))["code"] == -32602
    assert message_of(peer.request("tasks/list"))["result"]["tasks"] == []


# --- Methods ----------------------------------------------------------------------------------------------------------


@VERSIONS
def test_a_method_that_a_key_does_not_open_is_refused_by_name_and_recorded(
    with_key: MakeKey, denial: Denial, version: str
) -> None:
    client = with_key(methods=["tools/list", "resources/*"])
    peer = client.peer(version)
    assert peer.request("tools/list").status_code == 200
    assert peer.request("resources/read", {"uri": "docs://open/a"}).status_code == 200
    for method, params in (
        ("tools/call", {"name": "echo", "arguments": {"message": "x"}}),
        ("prompts/list", {}),
        ("completion/complete", {}),
    ):
        response = peer.request(method, params)
        assert response.status_code == 403
        assert is_method_denied(error_of(response), method)
        row = denial(method)
        assert (row.http_status, row.rpc_error) == (403, -32003)
        assert row.api_key.digest == keys.digest_of(client.key or "")
    assert not Call.objects.filter(outcome="ok", tool_name="echo").exists()


@VERSIONS
def test_the_life_of_a_client_is_open_to_every_key(with_key: MakeKey, version: str) -> None:
    peer = with_key(methods=["tools/call"]).peer(version)
    for method in ["server/discover"] if peer.is_modern else ["ping", "logging/setLevel"]:
        assert "result" in message_of(peer.request(method, {"level": "info"} if "log" in method else {}))
    assert "result" in message_of(peer.call("echo", {"message": "x"}))


def test_an_unknown_method_is_not_found_if_the_key_would_allow_it(with_key: MakeKey) -> None:
    assert error_of(with_key(methods=["tools/*"]).modern("tools/never"))["code"] == -32601
    assert is_method_denied(error_of(with_key(methods=["tools/*"]).modern("never/was")), "never/was")


def test_each_request_of_a_batch_is_checked_separately(with_key: MakeKey, denial: Denial) -> None:
    peer = with_key(methods=["tools/*"]).handshake("2025-03-26")
    batch = [rpc("tools/list", {}, id=1), rpc("prompts/list", {}, id=2), rpc("ping", {}, id=3)]
    answers = {one["id"]: one for one in peer.client.post(batch, peer.headers()).json()}
    assert "result" in answers[1]
    assert is_method_denied(answers[2]["error"], "prompts/list")
    assert "result" in answers[3]
    assert denial("prompts/list").rpc_error == -32003


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_channels_refuse_methods_too(with_key: MakeKey, denial: Denial, transport: str) -> None:
    with OPENERS[transport](with_key(methods=["tools/*"])) as channel:
        channel.negotiate("2024-11-05")
        assert "result" in channel.response_to("tools/list")
        assert is_method_denied(channel.response_to("prompts/list", id=2)["error"], "prompts/list")
    assert denial("prompts/list").rpc_error == -32003


def test_a_key_without_the_method_cannot_listen_over_any_transport(
    with_key: MakeKey, eventually: Callable[..., object]
) -> None:
    client = with_key(methods=["tools/*"])
    wanted = {"notifications": {"toolsListChanged": True}}
    assert is_method_denied(error_of(client.modern("subscriptions/listen", wanted)), "subscriptions/listen")
    with socket(client) as channel:
        channel.negotiate(MODERN)
        assert is_method_denied(channel.response_to("subscriptions/listen", wanted)["error"], "subscriptions/listen")
    listened = Call.objects.filter(outcome="denied", method="subscriptions/listen")
    eventually(lambda: listened.count() == 2)


def test_subscriptions_are_limited_to_the_methods_of_the_key(with_key: MakeKey) -> None:
    client = with_key(methods=["subscriptions/*", "tools/*"])
    wanted = {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourceSubscriptions": ["docs://open/a"],
    }
    peer = client.peer(MODERN)
    with peer.stream("subscriptions/listen", {"notifications": wanted}, id="sub") as stream:
        assert stream.next()["params"]["notifications"] == {"toolsListChanged": True}


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
def test_a_stream_has_no_notifications_about_names_outside_the_patterns(
    with_key: MakeKey, tenant: Tenant, version: str
) -> None:
    uris = ("docs://own/a", "docs://open/a")
    with listening_stream(with_key(tool_patterns=NAMES), version, *uris) as stream:
        for uri in uris:
            resource_updated(tenant.pk, uri)
        assert stream.next()["params"]["uri"] == "docs://open/a"


def test_capabilities_are_those_that_the_key_may_use(with_key: MakeKey) -> None:
    client = with_key(methods=["tools/*"])
    modern = message_of(client.modern("server/discover"))["result"]["capabilities"]
    assert modern == {"tools": {}, "logging": {}}
    assert client.initialize().json()["result"]["capabilities"] == {"tools": {"listChanged": True}, "logging": {}}
    reader = with_key(methods=["resources/read", "subscriptions/listen"])
    assert message_of(reader.modern("server/discover"))["result"]["capabilities"] == {
        "resources": {"listChanged": True, "subscribe": True},
        "logging": {},
    }


@pytest.mark.usefixtures("task_tools")
def test_a_call_becomes_no_task_if_the_key_cannot_use_the_methods_of_tasks(with_key: MakeKey) -> None:
    client = with_key(methods=["tools/*"])
    peer = client.handshake("2025-11-25")
    response = message_of(peer.request("tools/call", {"name": "quick", "arguments": {"word": "x"}, "task": {}}))
    assert "content" in response["result"]
    modern = Peer(client, MODERN, None, EXTENSION)
    assert "content" in message_of(modern.call("quick", {"word": "x"}))["result"]


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
def test_other_scopes_hold_within_a_second_and_end_open_streams(
    with_key: MakeKey, eventually: Callable[..., object], version: str
) -> None:
    client = with_key()
    with listening_stream(client, version) as stream:
        change(client, methods=["prompts/*"])
        stream.read_to_end()
    assert refresh_ahead_cache.TOO_OLD_AFTER < 1  # what is older is read before it is used
    eventually(lambda: client.modern("tools/list").status_code == 403)


def test_other_scopes_end_a_websocket_with_notifications(with_key: MakeKey) -> None:
    client = with_key()
    with socket(client) as channel:
        channel.negotiate("2025-11-25")
        change(client, tool_patterns=["echo"])
        channel.read_to_end()


# --- Networks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("networks", "status"),
    [
        ([], 200),
        (["127.0.0.0/8"], 200),
        (["203.0.113.0/24", "127.0.0.1/32"], 200),
        (["203.0.113.0/24"], 403),
        (["::1/128"], 403),
    ],
)
def test_a_key_is_good_only_from_its_networks(
    with_key: MakeKey, denial: Denial, networks: list[str], status: int
) -> None:
    client = with_key(networks=networks)
    responses = [client.modern("tools/list"), client.initialize()]
    assert [response.status_code for response in responses] == [status, status]
    if status == 403:
        error = error_of(responses[0])
        assert (error["code"], error["data"]) == (-32003, {"scope": "networks"})
        row = denial("POST")
        assert (row.http_status, row.remote_address, row.cause) == (403, "127.0.0.1", error["message"])
        assert row.api_key.digest == keys.digest_of(client.key or "")


@pytest.mark.parametrize(
    ("claimed", "status"),
    [
        ("192.0.2.9", 200),
        ("::ffff:192.0.2.9", 200),
        ("2001:db8::7", 200),
        ("198.51.100.1", 403),
        ("192.0.2.9, 198.51.100.1", 403),
        ("nonsense", 403),
    ],
)
def test_the_address_is_the_one_that_the_proxies_vouch_for(
    with_key: MakeKey, settings: Any, claimed: str, status: int
) -> None:
    client = with_key(networks=["192.0.2.0/24", "2001:db8::/32"])
    header = {"X-Forwarded-For": claimed}
    assert client.modern("tools/list", headers=header).status_code == 403
    settings.MCPHUB_TRUSTED_PROXIES = 1
    assert client.modern("tools/list", headers=header).status_code == status


def is_closed(channel: Any) -> bool:
    try:
        channel.response_to("tools/list", id=2)
    except ConnectionClosed:
        return True
    return False


def test_narrower_networks_reach_whoever_is_connected(with_key: MakeKey, eventually: Callable[..., object]) -> None:
    client = with_key()
    with socket(client) as channel:
        channel.negotiate(MODERN)
        assert "result" in channel.response_to("tools/list", id=1)
        change(client, networks=["192.0.2.0/24"])
        eventually(lambda: is_closed(channel))
    with listening_stream(with_key(), MODERN) as stream:
        ApiKey.objects.update(networks=["192.0.2.0/24"])
        stream.read_to_end()


def test_a_session_is_not_carried_to_another_network(with_key: MakeKey, settings: Any) -> None:
    settings.MCPHUB_TRUSTED_PROXIES = 1
    client = with_key(networks=["192.0.2.0/24"])
    inside, outside = ({"X-Forwarded-For": address} for address in ("192.0.2.1", "192.0.3.1"))
    opened = client.http.post(
        "/mcp",
        json=rpc("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw"}}),
        headers=client.headers(inside),
    )
    peer = Peer(client, "2025-11-25", opened.headers[SESSION])
    assert peer.request("ping", headers=inside).status_code == 200
    assert peer.request("ping", headers=outside).status_code == 403


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_channels_are_not_opened_from_outside(with_key: MakeKey, denial: Denial, transport: str) -> None:
    refusal = pytest.raises((AssertionError, InvalidStatus), match=r"networks|403")
    with refusal, OPENERS[transport](with_key(networks=["203.0.113.0/24"])):
        """Nobody gets here."""
    method = "WebSocket" if transport == "ws" else "GET"
    assert denial(method).cause == "This API key may not be used from this address."


def test_an_invalid_network_admits_nobody_and_leaves_other_keys_alone(with_key: MakeKey) -> None:
    broken, other = with_key(), with_key()
    change(broken, networks=["nonsense"])
    assert broken.modern("tools/list").status_code == 403
    assert other.modern("tools/list").status_code == 200


# --- Rotation and expiry ----------------------------------------------------------------------------------------------


def test_both_keys_are_good_during_the_overlap_and_the_new_one_after_it(
    make_client: MakeClient, tenant: Tenant, eventually: Callable[..., object]
) -> None:
    old, key = keys.issue(tenant, "laptop", methods=["tools/*"])
    _, new_key = keys.rotate(old, timedelta(hours=1))
    before, after = make_client(key), make_client(new_key)
    assert [client.modern("tools/list").status_code for client in (before, after)] == [200, 200]
    assert is_method_denied(error_of(after.modern("prompts/list")), "prompts/list")
    with listening_stream(make_client(key), "2025-11-25") as stream:
        keys.set_overlap(old, timedelta())
        stream.read_to_end()
    eventually(lambda: before.modern("tools/list").status_code == 401)
    assert after.modern("tools/list").status_code == 200
    keys.set_overlap(old, timedelta(hours=1))
    eventually(lambda: before.modern("tools/list").status_code == 200)


def test_an_open_stream_ends_when_its_key_expires(make_client: MakeClient, tenant: Tenant) -> None:
    row, key = keys.issue(tenant, "short")
    with listening_stream(make_client(key), MODERN) as stream:
        ApiKey.objects.filter(pk=row.pk).update(expires_at=timezone.now())
        stream.read_to_end()
