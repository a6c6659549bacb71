"""Tools of Django apps: views and models, run as the person of a key or a connection."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.cache import cache

from tests.conftest import reset_process_state
from tests.wire import django_views
from tests.wire.client import MODERN, Peer, RawClient, error_of, message_of
from tests.wire.django_views import GroupViewSet, colleagues
from tools_app.catalog.kinds.python import runner as python
from tools_app.models import ApiKey, Call, CallPayload, Membership, Role, Tenant
from tools_app.tenants import impersonation, keys
from tools_app.toolkit import model_tools, viewset_tools

ACTIONS = ["list", "retrieve", "create", "partial_update", "destroy", "order", "rare", "answer", "upload"]
MakeClient = Callable[..., RawClient]


@pytest.fixture(scope="module", autouse=True)
def app() -> Any:
    """Register the tools as the `mcp_tools.py` of an app does, once for all tests."""
    before = dict(python._functions)
    viewset_tools(GroupViewSet, actions=ACTIONS)
    model_tools(
        User, fields=["id", "username", "is_active", "date_joined", "last_login"], queryset=colleagues, name="person"
    )
    yield
    python._functions.clear()
    python._functions.update(before)


@pytest.fixture(autouse=True)
def groups_and_tools(tenant: Tenant, ann: User, offer: Callable[..., object]) -> None:
    """Two groups of ann and another one, and the tools of the app."""
    cache.clear()
    django_views.received_requests.clear()
    offer("echo", *(name for name, one in python.all_registered().items() if one.needs_person))
    for name in ("readers", "writers", "others"):
        group = Group.objects.create(name=name)
        if name != "others":
            ann.groups.add(group)


@pytest.fixture
def ann(tenant: Tenant) -> User:
    person = User.objects.create_user("ann", is_staff=True)
    Membership.objects.create(user=person, tenant=tenant, role=Role.ADMIN)
    return person


@pytest.fixture
def row(tenant: Tenant, ann: User) -> tuple[ApiKey, str]:
    return keys.issue(tenant, "laptop", created_by=ann, acts_for_creator=True)


@pytest.fixture
def ann_peer(make_client: MakeClient, row: tuple[ApiKey, str]) -> Peer:
    """A client with a key that acts for ann."""
    return make_client(row[1]).peer(MODERN)


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def rows(result: dict[str, Any]) -> Any:
    assert not result["isError"], result
    return json.loads(text(result))


def failure(result: dict[str, Any]) -> str:
    assert result["isError"], result
    return text(result)


def tools_of(peer: Peer) -> dict[str, Any]:
    return {tool["name"]: tool for tool in message_of(peer.request("tools/list"))["result"]["tools"]}


def test_the_record_of_a_call_names_the_person(
    make_client: MakeClient, ann_peer: Peer, row: tuple[ApiKey, str], tenant: Tenant, ann: User
) -> None:
    ben = User.objects.create_user("ben")
    Membership.objects.create(user=ben, tenant=tenant, role=Role.ADMIN)
    nobody = make_client(keys.issue(tenant, "service", created_by=ann)[1]).peer(MODERN)
    for peer in (ann_peer, make_client(impersonation.issue(row[0], ben)).peer(MODERN), nobody):
        peer.result("echo", {"message": "x"})
    calls = Call.objects.select_related("person").order_by("started_at")
    assert [call.person_name for call in calls] == ["ann", "ben", None]


# --- Callers ----------------------------------------------------------------------------------------------------------


def test_a_key_that_acts_for_nobody_is_offered_none_of_them_and_cannot_call_them(
    make_client: MakeClient, ann_peer: Peer, tenant: Tenant, ann: User
) -> None:
    lost, key = keys.issue(tenant, "lost", created_by=ann, acts_for_creator=True)
    ApiKey.objects.filter(pk=lost.pk).update(created_by=None)
    for nobody in (
        make_client(keys.issue(tenant, "service", created_by=ann)[1]).peer(MODERN),
        make_client(key).peer("2025-11-25"),
    ):
        assert list(tools_of(nobody)) == ["echo"]
        assert error_of(nobody.request("tools/call", {"name": "group_list", "arguments": {}}))["code"] == -32602
    assert {"echo", "group_list", "list_person"} < tools_of(ann_peer).keys()
    assert not django_views.received_requests


def test_an_anonymous_caller_of_a_public_tenant_gets_none(make_client: MakeClient, tenant: Tenant) -> None:
    Tenant.objects.update(is_public=True, public_tools=["*"])
    reset_process_state()
    assert list(tools_of(make_client(None, f"/t/{tenant.slug}/mcp").peer(MODERN))) == ["echo"]


def test_an_impersonation_token_acts_for_its_person_and_not_for_the_creator_of_the_key(
    make_client: MakeClient, tenant: Tenant, row: tuple[ApiKey, str]
) -> None:
    ben = User.objects.create_user("ben")
    Membership.objects.create(user=ben, tenant=tenant, role=Role.ADMIN)
    impersonating = make_client(impersonation.issue(row[0], ben)).peer(MODERN)
    assert rows(impersonating.result("group_list"))["results"] == []
    assert [one["username"] for one in rows(impersonating.result("list_person"))["rows"]] == ["ben"]


def test_a_key_that_somebody_else_rotates_acts_for_nobody(
    make_client: MakeClient, tenant: Tenant, row: tuple[ApiKey, str], ann: User
) -> None:
    ben = User.objects.create_user("ben")
    rotated_by_other, _ = keys.rotate(row[0], keys.MAX_OVERLAP, ben)
    assert not rotated_by_other.acts_for_creator
    rotated_by_creator, _ = keys.rotate(
        keys.issue(tenant, "own", created_by=ann, acts_for_creator=True)[0], keys.MAX_OVERLAP, ann
    )
    assert rotated_by_creator.acts_for_creator


@pytest.mark.parametrize("end", ["inactive", "left"])
def test_an_account_that_was_closed_or_has_left_the_tenant_runs_nothing(ann_peer: Peer, ann: User, end: str) -> None:
    assert rows(ann_peer.result("group_list"))["count"] == 2
    if end == "inactive":
        User.objects.update(is_active=False)
    else:
        Membership.objects.all().delete()
    for tool, arguments in (("group_list", {}), ("list_person", {}), ("get_person", {"id": ann.pk})):
        assert "no active account" in failure(ann_peer.result(tool, arguments))


def test_a_key_whose_person_was_deleted_acts_for_nobody(
    ann_peer: Peer, ann: User, eventually: Callable[..., object]
) -> None:
    assert "group_list" in tools_of(ann_peer)
    ann.delete()
    eventually(lambda: list(tools_of(ann_peer)) == ["echo"])


# --- Views ------------------------------------------------------------------------------------------------------------


def test_an_action_is_described_by_the_schema_of_its_view(ann_peer: Peer) -> None:
    tools = tools_of(ann_peer)
    listed, created, ordered = tools["group_list"], tools["group_create"], tools["group_order"]
    assert listed["inputSchema"]["properties"].keys() == {"page", "search", "ordering"}
    assert listed["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
    assert created["inputSchema"]["properties"]["name"] == {"type": "string", "minLength": 1, "maxLength": 150}
    assert created["inputSchema"]["required"] == ["name"]
    assert (listed["description"], ordered["description"]) == (GroupViewSet.__doc__, "Order something.")
    assert tools["group_destroy"]["annotations"]["destructiveHint"] is True
    assert "kind" in tools["group_answer"]["inputSchema"]["properties"]


def test_a_call_runs_the_view_with_its_rows_filters_order_and_pages(ann_peer: Peer, ann: User) -> None:
    def names(**arguments: Any) -> list[str]:
        return [one["name"] for one in rows(ann_peer.result("group_list", arguments))["results"]]

    assert names() == ["readers", "writers"]
    assert names(search="read") == ["readers"]
    assert names(ordering="-name") == ["writers", "readers"]
    ann.groups.add(Group.objects.get(name="others"))
    assert names(page=2) == ["writers"]
    assert failure(ann_peer.result("group_list", {"page": 9})) == "HTTP 404: Invalid page."


def test_one_row_is_found_made_changed_and_deleted(ann_peer: Peer, ann: User) -> None:
    created = rows(ann_peer.result("group_create", {"name": "new"}))
    group = Group.objects.get(pk=created["id"])
    assert "No Group matches" in failure(ann_peer.result("group_retrieve", {"id": group.pk}))
    ann.groups.add(group)
    assert rows(ann_peer.result("group_partial_update", {"id": group.pk, "name": "newer"}))["name"] == "newer"
    assert text(ann_peer.result("group_destroy", {"id": group.pk})) == "(empty response, HTTP 204)"
    assert not Group.objects.filter(pk=group.pk).exists()


def test_its_permissions_and_throttles_hold(ann_peer: Peer, ann: User) -> None:
    for _ in range(2):
        assert rows(ann_peer.result("group_rare")) == {"by": "ann"}
    error_text = failure(ann_peer.result("group_rare"))
    assert error_text.startswith("HTTP 429: Request was throttled.")
    assert "\nRetry after " in error_text
    User.objects.update(is_staff=False)
    assert failure(ann_peer.result("group_create", {"name": "x"})) == "HTTP 403: Only staff may change groups."


def test_errors_of_a_serializer_name_the_paths_of_their_fields(ann_peer: Peer) -> None:
    error_text = failure(ann_peer.result("group_create", {"name": "others"}))
    assert error_text == "HTTP 400: name: group with this name already exists."
    # The schema of the arguments cannot express these rules: the view checks them.
    places = [{"city": "Rome"}, {"city": " "}]
    error_text = failure(ann_peer.result("group_order", {"amount": 1, "places": places}))
    assert error_text == "HTTP 400: places.1.city: This field may not be blank."
    error_text = failure(ann_peer.result("group_order", {"amount": 101, "places": []}))
    assert error_text == "HTTP 400: The order is too large."
    assert rows(ann_peer.result("group_order", {"amount": 1, "places": []})) == {"amount": 1, "places": []}


def test_nothing_of_the_request_of_the_client_reaches_the_view_but_its_address(
    ann_peer: Peer, row: tuple[ApiKey, str]
) -> None:
    ann_peer.result("group_list")
    [request] = django_views.received_requests
    meta = {name: str(value) for name, value in request.META.items()}
    assert not any(row[1] in value for value in meta.values())
    assert not {"HTTP_AUTHORIZATION", "HTTP_COOKIE", "HTTP_MCP_METHOD"} & meta.keys()
    assert (meta["REMOTE_ADDR"], request.auth, request.mcp_caller.tenant_slug) == ("127.0.0.1", None, "acme")
    assert not hasattr(request, "session")


def test_files_and_streams_come_whole_or_not_at_all(ann_peer: Peer) -> None:
    def answer(kind: str) -> dict[str, Any]:
        return ann_peer.result("group_answer", {"kind": kind})

    [block] = answer("pdf")["content"]
    assert block["resource"]["mimeType"] == "application/pdf"
    assert base64.b64decode(block["resource"]["blob"]) == b"%PDF"
    assert text(answer("file")) == "ab"
    assert "larger than" in failure(answer("endless"))
    assert "asynchronous" in failure(answer("async"))
    assert "event stream" in failure(answer("events"))
    file = {"data": base64.b64encode(b"abc").decode(), "filename": "a.txt"}
    assert rows(ann_peer.result("group_upload", {"file": file})) == {"size": 3, "name": "a.txt"}


def test_other_failures_reveal_no_internals(ann_peer: Peer) -> None:
    def error_for(kind: str) -> str:
        return failure(ann_peer.result("group_answer", {"kind": kind}))

    assert error_for("redirect") == "HTTP 302: the view redirects, which a tool does not follow."
    assert error_for("html") == "HTTP 404: The view gives no reason."
    assert error_for("forbidden").startswith("HTTP 403: ")
    assert error_for("many").count("\n") == 100
    assert error_for("deep") == "HTTP 400: The view gives no reason."
    assert error_for("busy").endswith("\nRetry after: Mon, 23 Nov 2026 20:00:00 GMT")
    for kind in ("broken", "unwell"):
        assert error_for(kind) == "An error occurred invoking 'group_answer'."
        assert "for the log only" in Call.objects.order_by("started_at").last().cause  # type: ignore[union-attr]
    assert not CallPayload.objects.filter(result__contains="for the log only").exists()


def test_text_that_no_database_stores_is_rejected(ann_peer: Peer) -> None:
    assert "U+0000" in failure(ann_peer.result("group_create", {"name": "a\0b"}))
    assert "U+0000" in failure(ann_peer.result("group_order", {"amount": 1, "places": [{"city": "\0"}]}))
    assert "U+0000" in failure(ann_peer.result("list_person", {"username": "a\0b"}))


# --- Models -----------------------------------------------------------------------------------------------------------


def test_a_model_is_listed_with_filters_order_and_pages(ann_peer: Peer, ann: User, tenant: Tenant) -> None:
    for name in ("bea", "bob", "cid"):
        Membership.objects.create(user=User.objects.create_user(name), tenant=tenant, role=Role.OPERATOR)
    User.objects.create_user("stranger")

    def names(**arguments: Any) -> list[str]:
        return [one["username"] for one in rows(ann_peer.result("list_person", arguments))["rows"]]

    assert names(order="username") == ["ann", "bea", "bob", "cid"]
    assert names(order="-username", page=2, page_size=3) == ["ann"]
    assert names(username__contains="B") == ["bea", "bob"]
    assert names(username="bob", is_active=True) == ["bob"]
    assert names(date_joined__gte="2100-01-01T00:00:00Z") == []
    page = rows(ann_peer.result("list_person", {"page_size": 1}))
    assert (page["page"], page["page_size"], page["has_more"]) == (1, 1, True)
    assert page["rows"][0].keys() == {"id", "username", "is_active", "date_joined", "last_login"}
    assert names(date_joined__gte="2100-01-01T00:00:00") == []
    assert "invalid format" in failure(ann_peer.result("list_person", {"date_joined": "soon"}))
    assert ann_peer.result("list_person", {"page_size": 101})["isError"]


def test_one_row_is_read_if_the_person_may_see_it(ann_peer: Peer, ann: User) -> None:
    stranger = User.objects.create_user("stranger")
    assert rows(ann_peer.result("get_person", {"id": ann.pk}))["username"] == "ann"
    for key in (stranger.pk, 2**63 - 1):
        assert failure(ann_peer.result("get_person", {"id": key})) == "There is no user with this id."
