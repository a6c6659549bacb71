"""Toolsets in the admin and the REST API, reserved names, and the report of searches without a call."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.worlds import World
from tools_app.audit.search import unanswered
from tools_app.catalog import toolsets
from tools_app.catalog.admin import toolsets as toolset_admin
from tools_app.catalog.validation.reserved import reserved_names
from tools_app.core import packing
from tools_app.models import ApiKey, Call, CallPayload, Change, Tool, Toolset
from tools_app.tenants import keys

JSON: Any = {"content_type": "application/json"}
API = "/api/v1/toolsets/"

Browser = Callable[[str], Client]


@pytest.fixture
def admin(as_: Browser) -> Client:
    return as_("admin")


@pytest.fixture
def toolset(acme: World) -> Toolset:
    return Toolset.objects.create(tenant=acme.tenant, name="Small", tools=[acme.tool.name])


def actions(kind: str) -> list[str]:
    return list(Change.objects.filter(kind=kind).order_by("position").values_list("action", flat=True))


# --- Toolsets ---------------------------------------------------------------------------------------------------------


def test_an_admin_names_a_toolset_and_sees_what_it_has_and_costs(admin: Client, acme: World) -> None:
    data = {"tenant": str(acme.tenant.pk), "name": "Mine", "description": "For ann", "tools": f"{acme.tool.name}\nx_*"}
    assert admin.post(reverse("admin:tools_app_toolset_add"), data).status_code == 302
    row = Toolset.objects.get(name="Mine")
    assert (row.tools, row.description) == ([acme.tool.name, "x_*"], "For ann")
    assert "already has a toolset" in admin.post(reverse("admin:tools_app_toolset_add"), data).content.decode()
    for bad in ("", "two words"):
        assert (
            admin.post(reverse("admin:tools_app_toolset_add"), {**data, "name": "B", "tools": bad}).status_code == 200
        )
    page = admin.get(reverse("admin:tools_app_toolset_change", args=[row.pk])).content.decode()
    assert f"1 tool ({acme.tool.name})" in page
    assert "tokens in a list" in page
    assert "Mine" in admin.get(reverse("admin:tools_app_toolset_changelist")).content.decode()
    assert actions("toolset") == ["created"]


def test_the_preview_tells_which_tools_belong_to_a_set(admin: Client, acme: World, globex: World) -> None:
    def preview(**fields: Any) -> Any:
        return admin.post(reverse("admin:tools_app_toolset_preview"), {"tenant": acme.tenant.pk, **fields})

    assert preview(patterns="*").json()["text"].startswith("1 tool")
    assert preview(patterns="nothing").json()["text"] == "No tool belongs to it now."
    assert "Line 1" in preview(patterns="two words").json()["text"]
    assert preview(tenant=globex.tenant.pk, patterns="*").status_code == 404
    assert preview(tenant=uuid4(), patterns="*").status_code == 404


def test_a_toolset_that_is_used_is_not_deleted_and_says_by_whom(admin: Client, acme: World, toolset: Toolset) -> None:
    for key in (acme.apikey, acme.connection.key, acme.serviceclient):
        ApiKey.objects.filter(pk=key.pk).update(toolset=toolset)
    page = admin.post(reverse("admin:tools_app_toolset_delete", args=[toolset.pk]), {"post": "yes"})
    assert acme.apikey.name in page.content.decode()
    response = admin.delete(f"{API}{toolset.pk}/")
    assert response.status_code == 409
    assert "API key" in response.content.decode()
    assert "service client" in response.content.decode()
    assert "connection of" in response.content.decode()
    shown = admin.get(reverse("admin:tools_app_toolset_change", args=[toolset.pk])).content.decode()
    assert f"API key {acme.apikey}" in shown
    assert Toolset.objects.filter(pk=toolset.pk).exists()
    ApiKey.objects.update(toolset=None)
    assert admin.delete(f"{API}{toolset.pk}/").status_code == 204


def test_a_toolset_that_a_key_gets_while_it_is_deleted_stays(
    admin: Client, acme: World, toolset: Toolset, monkeypatch: pytest.MonkeyPatch
) -> None:
    ApiKey.objects.filter(pk=acme.apikey.pk).update(toolset=toolset)
    monkeypatch.setattr("tools_app.catalog.toolsets.users_of", lambda _toolset: ([], 0))
    monkeypatch.setattr("tools_app.catalog.admin.toolsets.users_of", lambda _toolset: ([], 0))
    monkeypatch.setattr("django.contrib.admin.utils.NestedObjects.collect", lambda *_args, **_options: None)
    response = admin.delete(f"{API}{toolset.pk}/")
    assert (response.status_code, "meanwhile" in response.content.decode()) == (409, True)
    chosen = {"action": "delete_selected", "_selected_action": str(toolset.pk), "post": "yes"}
    for url, data in (
        (reverse("admin:tools_app_toolset_delete", args=[toolset.pk]), {"post": "yes"}),
        (reverse("admin:tools_app_toolset_changelist"), chosen),
    ):
        assert "meanwhile" in admin.post(url, data, follow=True).content.decode()
    assert Toolset.objects.filter(pk=toolset.pk).exists()


def test_the_list_finds_the_tools_of_a_set_once_and_names_few_of_its_users(
    admin: Client, acme: World, toolset: Toolset, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(toolsets.MAX_NAMED + 2):
        keys.issue(acme.tenant, f"k{number}", toolset=toolset)
    users, count = toolsets.users_of(toolset)
    assert (len(users), count) == (toolsets.MAX_NAMED, toolsets.MAX_NAMED + 2)
    assert toolsets.listed_users(toolset).endswith("and 2 more")
    calls: list[object] = []
    monkeypatch.setattr(toolset_admin, "contents", lambda *arguments: calls.append(arguments))
    admin.get(reverse("admin:tools_app_toolset_changelist"))
    assert len(calls) == Toolset.objects.filter(tenant=acme.tenant).count()
    assert admin.patch(f"{API}{toolset.pk}/", {"tools": ["a*b*c*d*e*"]}, **JSON).status_code == 400


def test_a_tenant_is_deleted_with_its_toolsets_and_the_keys_that_use_them(acme: World, toolset: Toolset) -> None:
    ApiKey.objects.filter(tenant=acme.tenant).update(toolset=toolset)
    acme.tenant.delete()
    assert not Toolset.objects.filter(pk=toolset.pk).exists()


def test_scripts_make_change_and_delete_toolsets(admin: Client, acme: World, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"tenant": "acme", "name": "Mine", "tools": ["a", "b_*"]}
    created = admin.post(API, body, **JSON)
    assert created.status_code == 201
    assert admin.post(API, body, **JSON).status_code == 409
    assert admin.post(API, {**body, "name": "B", "tools": []}, **JSON).status_code == 400
    assert admin.post(API, {**body, "name": "B\x00"}, **JSON).status_code == 400
    url = f"{API}{created.json()['id']}/"
    assert admin.patch(url, {"tools": ["c"]}, **JSON).json()["tools"] == ["c"]
    monkeypatch.setattr("tools_app.catalog.toolsets.MAX_TOOLSETS", 1)
    assert "at most 1 toolsets" in admin.post(API, {**body, "name": "B"}, **JSON).content.decode()
    assert admin.delete(url).status_code == 204
    assert actions("toolset") == ["created", "changed", "deleted"]


# --- Keys, connections and service clients ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["keys", "service-clients"])
def test_a_key_gets_a_toolset_of_its_tenant_by_name(
    admin: Client, acme: World, globex: World, toolset: Toolset, kind: str
) -> None:
    Toolset.objects.create(tenant=globex.tenant, name="Theirs", tools=["*"])
    body = {"tenant": "acme", "name": "small", "toolset": "Small", "presentation": "auto"}
    created = admin.post(f"/api/v1/{kind}/", body, **JSON).json()
    assert (created["toolset"], created["presentation"]) == ("Small", "auto")
    url = f"/api/v1/{kind}/{created['id']}/"
    for bad in ({"toolset": "Theirs"}, {"toolset": "none"}, {"presentation": "never"}):
        assert admin.patch(url, bad, **JSON).status_code == 400
    assert admin.patch(url, {"toolset": None, "presentation": ""}, **JSON).json()["toolset"] is None
    change = Change.objects.filter(action="changed").latest("position")
    assert '"toolset":"Small"' in change.before


def test_a_connection_gets_a_toolset_in_the_admin_and_by_scripts(
    admin: Client, acme: World, globex: World, toolset: Toolset
) -> None:
    url = f"/api/v1/connections/{acme.connection.pk}/"
    assert admin.patch(url, {"toolset": "Small", "presentation": "search"}, **JSON).json()["toolset"] == "Small"
    assert Change.objects.latest("position").after == '{"toolset":"Small","presentation":"search"}'
    page = reverse("admin:tools_app_connection_change_access", args=[acme.connection.pk])
    shown = admin.get(page).content.decode()
    assert "Small" in shown
    theirs = Toolset.objects.create(tenant=globex.tenant, name="Theirs", tools=["*"])
    data = {"tool_patterns": "", "methods": "", "networks": "", "presentation": "full"}
    assert admin.post(page, {**data, "toolset": str(theirs.pk)}).status_code == 200
    assert admin.post(page, {**data, "toolset": ""}).status_code == 302
    acme.connection.key.refresh_from_db()
    assert (acme.connection.key.toolset, acme.connection.key.presentation) == (None, "full")
    detail = admin.get(reverse("admin:tools_app_connection_change", args=[acme.connection.pk]))
    assert detail.status_code == 200


def test_a_key_and_its_successor_have_the_toolset_that_its_form_chose(
    admin: Client, acme: World, globex: World, toolset: Toolset
) -> None:
    data = {"tenant": str(acme.tenant.pk), "name": "small", "tool_patterns": "", "methods": "", "networks": ""}
    add = reverse("admin:tools_app_apikey_add")
    theirs = Toolset.objects.create(tenant=globex.tenant, name="Theirs", tools=["*"])
    assert admin.post(add, {**data, "toolset": str(theirs.pk)}).status_code == 200
    assert admin.post(add, {**data, "toolset": str(toolset.pk), "presentation": "auto"}).status_code == 302
    row = ApiKey.objects.get(name="small")
    new, _ = keys.rotate(row, timedelta())
    assert (new.toolset, new.presentation) == (toolset, "auto")
    preview = {"tenant": str(acme.tenant.pk), "patterns": "", "toolset": str(theirs.pk)}
    text = admin.post(reverse("admin:tools_app_apikey_preview"), preview).json()["text"]
    assert "none of 1 tool" in text
    with pytest.raises(keys.ValidationError):
        keys.issue(acme.tenant, "x", toolset=theirs)


def test_a_superuser_cannot_give_a_key_the_toolset_of_another_tenant(
    as_: Browser, acme: World, globex: World, toolset: Toolset
) -> None:
    data = {"tenant": str(globex.tenant.pk), "name": "x", "tool_patterns": "", "methods": "", "networks": ""}
    page = as_("superuser").post(reverse("admin:tools_app_apikey_add"), {**data, "toolset": str(toolset.pk)})
    assert "Choose a toolset of the key" in page.content.decode()


# --- Aliases and reserved names ---------------------------------------------------------------------------------------


def test_aliases_and_what_is_always_listed_are_set_in_the_form_and_by_scripts(admin: Client, acme: World) -> None:
    url = f"/api/v1/tools/{acme.tool.pk}/"
    admin.patch(url, {"pinned": False}, **JSON)
    revision = Tool.objects.get(pk=acme.tool.pk).revision
    updated = admin.patch(url, {"aliases": ["bug report"], "pinned": True}, **JSON).json()
    assert (updated["aliases"], updated["pinned"], updated["revision"]) == (["bug report"], True, revision)
    assert admin.patch(url, {"aliases": [" "]}, **JSON).status_code == 400
    page = admin.get(reverse("admin:tools_app_tool_change", args=[acme.tool.pk])).content.decode()
    assert "bug report" in page


@pytest.mark.parametrize("where", ["tenant", "key"])
def test_names_of_the_search_tools_are_refused_once_tools_are_searched(admin: Client, acme: World, where: str) -> None:
    body = {
        "tenant": "acme",
        "kind": "http",
        "name": "find_tools",
        "input_schema": {"type": "object"},
        "config": {"base_url": "https://api.example.com"},
    }
    assert reserved_names(acme.tenant) == frozenset()
    if where == "tenant":
        assert admin.patch("/api/v1/tenants/acme/", {"presentation": "auto"}, **JSON).status_code == 200
    else:
        ApiKey.objects.filter(pk=acme.apikey.pk).update(presentation="search")
    refused = admin.post("/api/v1/tools/", body, **JSON)
    assert refused.status_code == 400
    assert "a tool of the hub itself" in refused.content.decode()
    Tool.objects.filter(pk=acme.tool.pk).update(kind="http", config={"method": "GET"})
    form = {"tenant": str(acme.tenant.pk), "name": "call_tool"}
    assert "a tool of the hub itself" in admin.post(reverse("admin:tools_app_tool_add"), form).content.decode()
    ApiKey.objects.update(presentation="")
    admin.patch("/api/v1/tenants/acme/", {"presentation": "full"}, **JSON)
    assert admin.post("/api/v1/tools/", body, **JSON).status_code == 201


def test_a_tool_that_has_a_reserved_name_is_changed_and_turned_off_but_no_other_gets_it(
    admin: Client, acme: World
) -> None:
    Tool.objects.filter(pk=acme.tool.pk).update(name="find_tools")
    ApiKey.objects.filter(pk=acme.apikey.pk).update(presentation="search")
    url = f"/api/v1/tools/{acme.tool.pk}/"
    assert admin.patch(url, {"enabled": False}, **JSON).json()["enabled"] is False
    assert admin.patch(url, {"name": "call_tool"}, **JSON).status_code == 400


# --- Searches without a call ------------------------------------------------------------------------------------------


def searched(world: World, query: str, ago: timedelta = timedelta(hours=1), **more: Any) -> Call:
    row = call(world, ago, tool_name="find_tools", **more)
    CallPayload.objects.create(call=row, arguments=f'{{"query":"{query}"}}')
    return row


def call(world: World, ago: timedelta, **more: Any) -> Call:
    at = timezone.now() - ago
    facts = {"tenant": world.tenant, "api_key": world.apikey, "method": "tools/call", "outcome": "ok"}
    times = {"started_at": at, "finished_at": at, "duration_us": 1}
    return Call.objects.create(**facts | times | {"writer": uuid4()} | more)


def test_searches_that_led_to_no_call_are_reported_to_those_who_may_read_arguments(
    as_: Browser, acme: World, globex: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched(acme, "Lost thing")
    searched(acme, "lost thing", timedelta(hours=2))
    searched(acme, "found thing", timedelta(hours=3))
    call(acme, timedelta(hours=3) - timedelta(minutes=5), tool=acme.tool, tool_name=acme.tool.name)
    searched(acme, "long ago", timedelta(days=8))
    searched(globex, "their secret")
    anonymous = searched(acme, "nobody", timedelta(hours=5), api_key=None, remote_address="192.0.2.1")
    CallPayload.objects.filter(call=anonymous).update(arguments='{"query"')
    page = as_("admin").get(reverse("admin:searches")).content.decode()
    assert "Lost thing" in page
    assert "<strong>2</strong> searches" in page
    assert unanswered.HIDDEN in page
    for hidden in ("found thing", "long ago", "their secret"):
        assert hidden not in page
    assert as_("operator").get(reverse("admin:searches")).status_code == 403
    assert "their secret" in as_("superuser").get(reverse("admin:searches")).content.decode()
    report = unanswered.unanswered_searches([acme.tenant.pk, globex.tenant.pk])
    assert {one.query for one in report.searches} == {"Lost thing", unanswered.HIDDEN, "their secret"}
    monkeypatch.setattr(unanswered, "MAX_SEARCHES", 1)
    assert "only the newest 200 were examined" in as_("admin").get(reverse("admin:searches")).content.decode()


def test_the_report_says_so_if_the_database_takes_too_long(as_: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(_tenant_ids: object) -> None:
        raise OperationalError("canceling statement due to statement timeout")

    monkeypatch.setattr(unanswered, "_report", late)
    assert "took too long" in as_("admin").get(reverse("admin:searches")).content.decode()


def test_only_the_arguments_of_a_packed_record_are_read(acme: World) -> None:
    row = call(acme, timedelta(hours=1), tool_name="find_tools")
    packed = packing.pack('{"query":"packed words"}', "x" * 100_000)
    CallPayload.objects.create(call=row, packed=packed)
    assert [one.query for one in unanswered.unanswered_searches([acme.tenant.pk]).searches] == ["packed words"]
