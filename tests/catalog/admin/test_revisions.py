"""Revisions of a tool: comparing, restoring, cloning; and bulk actions on tools."""

from typing import Any

import pytest
from django.urls import reverse

from tools_app.catalog import authoring, revisions
from tools_app.models import Change, Membership, Role, Tool

CONFIG = {"method": "GET", "base_url": "https://api.example.com", "headers": {"A": "{secret:acme_token}"}}


@pytest.fixture
def tool(acme: Any) -> Tool:
    """A tool with three revisions."""
    row = Tool(tenant=acme.tenant, name="look", kind="http", input_schema={"type": "object"}, config=CONFIG)
    for description in ("First words.", "Second words.", "Third words."):
        row.description = description
        authoring.save_tool(row)
    return row


@pytest.fixture
def code_tool(acme: Any, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """A Python tool whose declaration in code has changed."""
    (row,) = authoring.add_code_tools(acme.tenant, ["echo"])
    first = row.revisions.get()
    first.definition = {**first.definition, "description": "Once upon a time."}
    first.digest = "0" * 64
    first.save()
    return authoring.save_tool(row)


def address(tool: Tool, view: str) -> str:
    return reverse(f"admin:tools_app_tool_{view}", args=[tool.pk])


def revisions_of(tool: Tool) -> str:
    return address(tool, "show_revisions")


def shown(response: Any) -> list[tuple[str, str]]:
    assert response.status_code == 200
    return [(line.kind, line.text.strip()) for line in response.context["diff"] if line.kind in {"added", "removed"}]


def test_what_others_did_meanwhile_stays_done(tool: Tool) -> None:
    stale, first = Tool.objects.get(pk=tool.pk), tool.revisions.get(number=1)
    authoring.set_enabled(tool, enabled=False)
    tool.refresh_from_db()
    tool.title = "Another"
    newest = authoring.save_tool(tool).revision
    restored = revisions.restore(stale, first, None)
    assert (restored.revision, restored.enabled) == (newest + 1, False)
    stale.revision, stale.title = 1, "Written by one who read it long ago"
    assert authoring.save_tool(stale).revision == newest + 2


@pytest.mark.parametrize(
    ("role", "views", "restores", "clones"),
    [
        ("superuser", 200, 302, 200),
        ("admin", 200, 302, 200),
        ("auditor", 200, 403, 403),
        ("stranger", 404, 404, 404),
        ("anonymous", 302, 302, 302),
    ],
)
def test_who_sees_a_tool_sees_what_it_was_and_who_changes_it_brings_that_back(
    as_: Any, tool: Tool, role: str, views: int, restores: int, clones: int
) -> None:
    browser = as_(role)
    assert browser.get(revisions_of(tool)).status_code == views
    assert browser.get(address(tool, "clone_tool")).status_code == clones
    assert browser.post(revisions_of(tool), {"restore": "1"}).status_code == restores
    tool.refresh_from_db()
    assert (tool.description == "First words.") == (role in {"superuser", "admin"})


@pytest.mark.parametrize(
    ("query", "removed", "added"),
    [
        ("", "Second", "Third"),
        ("?from=1&to=2", "First", "Second"),
        ("?from=1", "First", "Third"),
        ("?from=3&to=1", "Third", "First"),
    ],
)
def test_any_two_definitions_are_compared(as_: Any, tool: Tool, query: str, removed: str, added: str) -> None:
    assert shown(as_("auditor").get(f"{revisions_of(tool)}{query}")) == [
        ("removed", f'"description": "{removed} words."'),
        ("added", f'"description": "{added} words."'),
    ]


@pytest.mark.parametrize("query", ["?from=9", "?from=1&to=9", "?from=x", "?from=1&to=%00", "?from=99999999999"])
def test_a_revision_that_there_is_not_is_missing(as_: Any, tool: Tool, query: str) -> None:
    assert as_("admin").get(f"{revisions_of(tool)}{query}").status_code == 404
    assert as_("admin").post(revisions_of(tool), {"restore": query[6:]}).status_code in {302, 404}


def test_restoring_makes_a_new_revision_and_is_recorded(as_: Any, tool: Tool, people: Any) -> None:
    Tool.objects.filter(pk=tool.pk).update(name="renamed", enabled=False, calls_per_day=5)
    as_("admin").post(revisions_of(tool), {"restore": "1"})
    tool.refresh_from_db()
    assert (tool.description, tool.revision, tool.name) == ("First words.", 4, "renamed")
    assert (tool.enabled, tool.calls_per_day) == (False, 5)
    newest = tool.revisions.get(number=4)
    assert (newest.definition["description"], newest.created_by) == ("First words.", people["admin"])
    last = Change.objects.order_by("-position")[0]
    assert (last.action, last.after) == ("restored", '{"restored_revision":1,"revision":4}')


def test_what_it_is_now_cannot_be_restored(as_: Any, tool: Tool) -> None:
    response = as_("admin").post(revisions_of(tool), {"restore": "3"}, follow=True)
    assert "This is the current definition." in response.content.decode()
    assert tool.revisions.count() == 3


def test_what_todays_rules_forbid_is_not_restored(as_: Any, tool: Tool) -> None:
    first = tool.revisions.get(number=1)
    first.definition = {**first.definition, "config": {**CONFIG, "base_url": "ftp://nowhere"}}
    first.save()
    response = as_("admin").post(revisions_of(tool), {"restore": "1"}, follow=True)
    assert "config.base_url: Invalid URL" in response.content.decode()
    tool.refresh_from_db()
    assert tool.revision == 3


def test_of_a_python_tool_it_is_said_why_nothing_is_restored(as_: Any, code_tool: Tool) -> None:
    browser = as_("admin")
    text = browser.get(revisions_of(code_tool)).content.decode()
    assert "Once upon a time." in text
    assert "manage.py sync_tools" in text
    assert 'name="restore"' not in text
    assert "The code declares" in browser.post(revisions_of(code_tool), {"restore": "1"}, follow=True).content.decode()


def test_a_clone_has_the_definition_and_the_limits_but_a_life_of_its_own(as_: Any, tool: Tool, acme: Any) -> None:
    Tool.objects.filter(pk=tool.pk).update(calls_per_day=7)
    response = as_("admin").post(address(tool, "clone_tool"), {"tenant": acme.tenant.pk, "name": "look_copy"})
    created = Tool.objects.get(name="look_copy")
    assert response["Location"] == address(created, "change")
    assert (created.description, created.config, created.calls_per_day) == ("Third words.", CONFIG, 7)
    assert (created.enabled, created.revision, created.tenant) == (False, 1, acme.tenant)


def test_a_clone_for_another_tenant_tells_which_secrets_are_missing_there(
    as_: Any, tool: Tool, people: Any, globex: Any
) -> None:
    Membership.objects.create(user=people["admin"], tenant=globex.tenant, role=Role.ADMIN)
    form = {"tenant": globex.tenant.pk, "name": "look", "enabled": "on"}
    response = as_("admin").post(address(tool, "clone_tool"), form, follow=True)
    assert "Globex has no secret named acme_token" in response.content.decode()
    assert Tool.objects.get(tenant=globex.tenant, name="look").enabled


@pytest.mark.parametrize(
    ("which", "name", "message"),
    [
        ("acme", "look", "already has a tool with this name"),
        ("acme", "no way", "Use letters"),
        ("globex", "a", "valid choice"),
    ],
)
def test_a_clone_that_cannot_be_is_told(
    as_: Any, tool: Tool, request: Any, which: str, name: str, message: str
) -> None:
    tenant = request.getfixturevalue(which).tenant
    response = as_("admin").post(address(tool, "clone_tool"), {"tenant": tenant.pk, "name": name})
    assert message in response.content.decode()
    assert Tool.objects.filter(revision__gt=0).count() == 1


def test_many_are_switched_off_in_one_go_and_each_is_recorded(as_: Any, tool: Tool, acme: Any) -> None:
    acme.tenant.refresh_from_db()
    chosen = {"action": "disable_selected", "_selected_action": [tool.pk, acme.tool.pk]}
    as_("admin").post("/admin/tools_app/tool/", chosen)
    version = acme.tenant.catalog_version
    acme.tenant.refresh_from_db()
    assert acme.tenant.catalog_version == version + 1
    assert not Tool.objects.filter(tenant=acme.tenant, enabled=True).exists()
    assert set(Change.objects.values_list("object_name", "before", "after")) == {
        ("look", '{"enabled":true}', '{"enabled":false}'),
        ("acme_find", '{"enabled":true}', '{"enabled":false}'),
    }


def test_whoever_deletes_a_tool_is_told_what_stays(as_: Any, tool: Tool, acme: Any) -> None:
    browser = as_("admin")
    assert "recorded changes are kept" in browser.get(address(tool, "delete")).content.decode()
    chosen = {"action": "delete_selected", "_selected_action": [tool.pk, acme.tool.pk]}
    assert "recorded changes are kept" in browser.post("/admin/tools_app/tool/", chosen).content.decode()
    browser.post("/admin/tools_app/tool/", {**chosen, "post": "yes"})
    assert not Tool.objects.filter(tenant=acme.tenant).exists()
    assert Change.objects.filter(action="deleted", kind="tool").count() == 2


def test_the_shaping_of_a_tool_of_code_is_restored(as_: Any, acme: Any) -> None:
    (created,) = authoring.add_code_tools(acme.tenant, ["echo"])
    created.result_mask, created.result_items = "a", 5
    authoring.save_tool(created)
    for number, expected in (("1", ("", None)), ("2", ("a", 5))):
        as_("admin").post(revisions_of(created), {"restore": number})
        created.refresh_from_db()
        assert (created.result_mask, created.result_items) == expected
    assert created.revision == 4
