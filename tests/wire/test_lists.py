"""The four lists: pagination, order, scope, and notifications of their changes."""

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.wire.client import MODERN, Peer, RawClient, Stream, error_of, message_of
from tests.wire.valid import check_valid
from tools_app.catalog import authoring
from tools_app.methods import paging
from tools_app.models import Prompt, PromptKind, Resource, ResourceKind, Tenant, Tool
from tools_app.tenants import keys
from tools_app.toolkit import tool

FIELDS = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}
METHODS = list(FIELDS)
CHANGED = "notifications/{}/list_changed"
WISHES = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


@pytest.fixture
def full(registries: None, offer: Callable[..., object], tenant: Tenant) -> dict[str, list[str]]:
    """Five entries in each list, in the expected order."""
    names = [f"entry{number}" for number in range(5)]
    for name in reversed(names):
        add_tool(offer, name)
        add_prompt(tenant, name)
        add_resource(tenant, f"docs://{name}")
        add_resource(tenant, f"docs://{name}/{{page}}")
    plain, templates = [f"docs://{name}" for name in names], [f"docs://{name}/{{page}}" for name in names]
    return dict(zip(METHODS, (names, names, plain, templates), strict=True))


def add_tool(offer: Callable[..., object], name: str) -> None:
    @tool(name=name)
    def entry() -> str:
        return name

    entry.__qualname__ = name
    offer(name)


def add_prompt(tenant: Tenant, name: str) -> Prompt:
    return authoring.save_prompt(Prompt(tenant=tenant, name=name, kind=PromptKind.TEMPLATE, messages=[]))


def add_resource(tenant: Tenant, uri: str) -> Resource:
    config = {"base_url": "http://127.0.0.1:9"}
    kind = ResourceKind.HTTP if "{" in uri else ResourceKind.TEXT
    return authoring.save_resource(Resource(tenant=tenant, uri=uri, name="entry", kind=kind, config=config))


def page(peer: Peer, method: str, cursor: object = None) -> dict[str, Any]:
    response = peer.request(method, {"cursor": cursor} if cursor is not None else {})
    assert response.status_code == 200, response.text
    result = dict(message_of(response)["result"])
    check_valid(method, peer.version, result)
    return result


def pages(peer: Peer, method: str) -> Iterator[dict[str, Any]]:
    shown = page(peer, method)
    yield shown
    while "nextCursor" in shown:
        shown = page(peer, method, shown["nextCursor"])
        yield shown


def entries(method: str, shown: dict[str, Any]) -> list[str]:
    field, name = FIELDS[method]
    return [one[name] for one in shown[field]]


def is_refused(peer: Peer, method: str, cursor: object) -> bool:
    response = peer.request(method, {"cursor": cursor})
    return message_of(response).get("error") == {
        "code": -32602,
        "message": "params.cursor is not one that this hub gave.",
    }


@pytest.mark.shows("caching.pages")
@pytest.mark.parametrize("method", METHODS)
def test_the_pages_of_a_list_hold_each_entry_once(
    peer: Peer, full: dict[str, list[str]], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "PAGE_SIZE", 2)
    shown = list(pages(peer, method))
    assert [entries(method, one) for one in shown] == [full[method][:2], full[method][2:4], full[method][4:]]
    hints = {(one.get("cacheScope"), one.get("ttlMs")) for one in shown}
    assert hints == ({("private", 60_000)} if peer.is_modern else {(None, None)})


def test_a_list_of_one_page_has_no_cursor(
    peer: Peer, full: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "PAGE_SIZE", 5)
    for method in METHODS:
        assert "nextCursor" not in page(peer, method)


def test_a_cursor_is_of_one_list_only(peer: Peer, full: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE_SIZE", 1)
    cursors = {method: page(peer, method)["nextCursor"] for method in METHODS}
    for method, cursor in cursors.items():
        assert [other for other in METHODS if not is_refused(peer, other, cursor)] == [method]


@pytest.mark.parametrize("method", METHODS)
def test_a_cursor_that_was_changed_anywhere_is_refused(
    client: RawClient, full: dict[str, list[str]], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "PAGE_SIZE", 1)
    peer = client.handshake()
    cursor = page(peer, method)["nextCursor"]
    swapped = [cursor[:at] + ("A" if cursor[at] != "A" else "B") + cursor[at + 1 :] for at in range(0, len(cursor), 7)]
    forged = [base64.b64encode(b"entry3").decode(), cursor[:-1], cursor + "A", cursor.upper(), "", 5, [cursor], True]
    assert [one for one in (*swapped, *forged) if not is_refused(peer, method, one)] == []


@pytest.mark.parametrize("method", METHODS)
def test_a_page_goes_on_where_the_last_one_ended_whatever_changed_meanwhile(
    client: RawClient,
    full: dict[str, list[str]],
    eventually: Callable[..., object],
    method: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paging, "PAGE_SIZE", 2)
    peer = client.handshake()
    cursor = page(peer, method)["nextCursor"]
    authoring.delete(row_of(method, full[method][1]))
    eventually(lambda: full[method][1] not in entries(method, page(peer, method)))
    assert entries(method, page(peer, method, cursor)) == full[method][2:4]


def row_of(method: str, name: str) -> Tool | Prompt | Resource:
    if method == "tools/list":
        return Tool.objects.get(name=name)
    return Prompt.objects.get(name=name) if method == "prompts/list" else Resource.objects.get(uri=name)


def test_an_empty_list_is_a_list(peer: Peer, tenant: Tenant) -> None:
    for method, (field, _) in FIELDS.items():
        assert page(peer, method)[field] == []


@pytest.mark.shows("prompts.list-stable", "resources.list-stable", "tools.list-stable")
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
def test_a_list_does_not_depend_on_the_connection_nor_on_what_was_asked_there(
    make_client: Callable[..., RawClient], key: str, tenant: Tenant, full: dict[str, list[str]], version: str
) -> None:
    first, second = make_client(key), make_client(keys.issue(tenant, "second")[1])
    peer = first.peer(version, {"elicitation": {}, "sampling": {}})
    before = [page(peer, method) for method in METHODS]
    peer.call("entry1")
    peer.request("resources/read", {"uri": "docs://entry1"})
    peer.request("prompts/get", {"name": "entry1"})
    peer.request("tools/list", {"cursor": "bad"})
    for again in (peer, first.peer(version), second.peer(version)):
        assert [page(again, method) for method in METHODS] == before


@pytest.mark.shows("tools.names-case")
def test_upper_and_lower_case_make_different_names(
    peer: Peer, registries: None, offer: Callable[..., object], tenant: Tenant
) -> None:
    for name in ("shout", "Shout", "SHOUT"):
        add_tool(offer, name)
        add_prompt(tenant, name)
    for method in ("tools/list", "prompts/list"):
        assert entries(method, page(peer, method)) == ["SHOUT", "Shout", "shout"]
    assert [peer.result(name)["content"][0]["text"] for name in ("shout", "Shout", "SHOUT")] == [
        "shout",
        "Shout",
        "SHOUT",
    ]
    assert error_of(peer.call("sHOUT"))["code"] == -32602


# --- Capabilities -----------------------------------------------------------------------------------------------------


@pytest.mark.shows("completion.capability", "logging.capability", "prompts.capability", "resources.capability")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN])
def test_what_is_declared_is_answered(client: RawClient, full: dict[str, list[str]], version: str) -> None:
    opened = client.modern("server/discover") if version == MODERN else client.initialize(version)
    declared = opened.json()["result"]["capabilities"]
    assert declared["prompts"] == declared["tools"] == {"listChanged": True}
    assert declared["resources"] == {"listChanged": True, "subscribe": True}
    assert declared["logging"] == {}
    assert declared.get("completions") == (None if version == "2024-11-05" else {})
    peer = client.peer(version)
    assert all(entries(method, page(peer, method)) for method in METHODS)
    ref = {"type": "ref/prompt", "name": "never"}
    completion = peer.request("completion/complete", {"ref": ref, "argument": {"name": "a", "value": ""}})
    assert error_of(completion)["code"] == -32602


# --- Changes of one list ----------------------------------------------------------------------------------------------


@contextmanager
def listening_stream(peer: Peer, wishes: dict[str, bool] = WISHES) -> Iterator[Stream]:
    """A stream of changes of the lists, in the peer's era."""
    if not peer.is_modern:
        with peer.listening() as stream:
            yield stream
        return
    with peer.stream("subscriptions/listen", {"notifications": wishes}, id="sub-1") as stream:
        stream.next()
        yield stream


@pytest.mark.shows("prompts.list-changed", "resources.list-changed", "tools.list-changed")
def test_a_change_of_one_list_is_notified_for_that_list_only(
    peer: Peer, registries: None, offer: Callable[..., object], tenant: Tenant
) -> None:
    own = {"_meta": {"io.modelcontextprotocol/subscriptionId": "sub-1"}}
    more = {"params": own} if peer.is_modern else {}
    with listening_stream(peer) as stream:
        for listed, change in (
            ("resources", lambda: add_resource(tenant, "docs://a")),
            ("prompts", lambda: add_prompt(tenant, "a")),
            ("tools", lambda: add_tool(offer, "a")),
            ("resources", lambda: add_resource(tenant, "docs://{page}")),
            ("prompts", lambda: authoring.set_enabled(Prompt.objects.get(), enabled=False)),
            ("tools", lambda: authoring.set_enabled(Tool.objects.get(), enabled=False)),
            ("tools", lambda: authoring.set_enabled(Tool.objects.get(), enabled=True)),
            ("tools", lambda: authoring.delete(Tool.objects.get())),
            ("prompts", lambda: authoring.set_enabled(Prompt.objects.get(), enabled=True)),
            ("resources", lambda: authoring.delete(Resource.objects.get(uri="docs://a"))),
            ("prompts", lambda: rename(Prompt.objects.get())),
        ):
            change()
            assert stream.next() == {"jsonrpc": "2.0", "method": CHANGED.format(listed), **more}


def rename(prompt: Prompt) -> None:
    prompt.title = "Another"
    authoring.save_prompt(prompt)


def test_changes_that_no_list_shows_are_not_notified(
    peer: Peer, registries: None, offer: Callable[..., object], tenant: Tenant
) -> None:
    row, prompt = add_resource(tenant, "docs://a"), add_prompt(tenant, "a")
    with listening_stream(peer) as stream:
        row.text = "another"
        authoring.save_resource(row)
        prompt.messages = [{"role": "user", "text": "another"}]
        authoring.save_prompt(prompt)
        authoring.set_secret(tenant, "TOKEN", "hunter2")
        add_tool(offer, "a")
        assert stream.next()["method"] == CHANGED.format("tools")


def test_another_tenants_changes_are_not_notified(
    peer: Peer, registries: None, offer: Callable[..., object], other_tenant: Tenant
) -> None:
    with listening_stream(peer) as stream:
        add_resource(other_tenant, "docs://a")
        add_prompt(other_tenant, "a")
        add_tool(offer, "a")
        assert stream.next()["method"] == CHANGED.format("tools")


@pytest.mark.shows("subscriptions.requested")
@pytest.mark.parametrize(("one", "next_one"), [("tools", "prompts"), ("prompts", "resources"), ("resources", "tools")])
def test_a_subscription_notifies_only_about_its_lists(
    client: RawClient, registries: None, offer: Callable[..., object], tenant: Tenant, one: str, next_one: str
) -> None:
    changes = {
        "tools": lambda: add_tool(offer, "a"),
        "prompts": lambda: add_prompt(tenant, "a"),
        "resources": lambda: add_resource(tenant, "docs://a"),
    }
    with listening_stream(client.peer(MODERN), {f"{next_one}ListChanged": True}) as stream:
        changes[one]()
        changes[next_one]()
        assert stream.next()["method"] == CHANGED.format(next_one)
