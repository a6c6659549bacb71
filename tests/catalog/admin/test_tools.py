"""Tools in the admin: functions from code, and HTTP tools."""

import json
from typing import Any

import pytest

from tools_app.catalog import authoring
from tools_app.catalog.kinds.python import runner as python
from tools_app.models import Tool

SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}}


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions `greet` and `wave`, and no others."""

    def greet(name: str) -> str:
        """Say hello."""
        return f"hello {name}"

    def wave() -> str:
        """Wave a hand."""
        return "o/"

    monkeypatch.setattr(python, "_functions", {})
    python.register(greet)
    python.register(wave)


def http_form(tenant: Any, **changes: Any) -> dict[str, Any]:
    form = {
        "tenant": tenant.pk,
        "name": "find_user",
        "enabled": "on",
        "method": "GET",
        "base_url": "https://api.example.com/v1",
        "path": "users/{id}",
        "query": '{"fields": "name"}',
        "headers": '{"Authorization": "Bearer {secret:acme_token}"}',
        "body_mode": "none",
        "body": "",
        "max_response_bytes": "5000",
        "input_schema": json.dumps(SCHEMA),
        "output_schema": "",
        "annotations": '{"readOnlyHint": true}',
        "icons": '[{"src": "https://example.com/a.png", "sizes": ["48x48"]}]',
        "task": "never",
        "timeout_seconds": "10",
        "calls_per_minute": "",
    }
    return form | changes


def errors(response: Any) -> dict[str, list[str]]:
    assert response.status_code == 200
    return dict(response.context["adminform"].form.errors)


def test_an_http_tool_is_packed_checked_and_given_its_first_revision(as_: Any, page: Any, acme: Any) -> None:
    assert as_("admin").post(page("tool", "add"), http_form(acme.tenant)).status_code == 302
    tool = Tool.objects.get(name="find_user")
    assert tool.kind == "http"
    assert tool.config["query"] == {"fields": "name"}
    assert (tool.task, tool.icons) == ("never", [{"src": "https://example.com/a.png", "sizes": ["48x48"]}])
    assert (tool.config["max_response_bytes"], tool.config["body"], tool.input_schema) == (5000, None, SCHEMA)
    assert (tool.revision, tool.revisions.get().created_by.username) == (1, "admin")


def test_a_changed_definition_is_a_new_revision_and_shows_in_the_form(as_: Any, page: Any, acme: Any) -> None:
    client = as_("admin")
    client.post(page("tool", "add"), http_form(acme.tenant))
    tool = Tool.objects.get(name="find_user")
    address = page("tool", "change", tool)
    assert "users/{id}" in client.get(address).content.decode()
    assert client.post(address, http_form(acme.tenant, path="people/{id}")).status_code == 302
    tool.refresh_from_db()
    assert (tool.config["path"], tool.revision) == ("people/{id}", 2)
    assert client.post(address, http_form(acme.tenant, path="people/{id}")).status_code == 302
    tool.refresh_from_db()
    assert tool.revision == 2


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"headers": '{\n  "a": 1\n'}, "headers", "Line 3, column 1: "),
        ({"headers": '{"a": 1}'}, "headers", "Expected `str`, got `int`"),
        ({"query": "[]"}, "query", "Line 1: enter a JSON object"),
        ({"base_url": "ftp://example.com"}, "base_url", ""),
        ({"body_mode": "arguments"}, "body_mode", "requests have no body"),
        ({"input_schema": '{"type": "array"}'}, "input_schema", 'write "type": "object"'),
        ({"input_schema": '{\n"type": "object",\n"required": "id"}'}, "input_schema", "Line 3: required: 'id' is not"),
        ({"input_schema": '{"type": "object"}'}, "input_schema", "uses arguments that are not in the schema: id."),
        ({"output_schema": '{"$ref": "https://example.com/x"}'}, "output_schema", "Line 1: $ref: "),
        ({"annotations": '{\n"readOnlyHint": "yes"}'}, "annotations", "Line 2: readOnlyHint: must be true or false."),
        ({"annotations": '{"color": "red"}'}, "annotations", "Line 1: color: is not an annotation."),
        ({"icons": '[{\n"src": "http://example.com/a.png"}]'}, "icons", "Line 2: 0.src: must be a URL that starts"),
        ({"icons": '[{"mimeType": "image/png"}]'}, "icons", "0: src is required."),
        (
            {"icons": '[{"src": "data:image/png;base64,AA", "sizes": "48x48"}]'},
            "icons",
            "0.sizes: must be a list of strings",
        ),
        ({"task": "sometimes"}, "task", "Select a valid choice"),
        (
            {
                "input_schema": '{"type": "object", "properties": {"id": {"type": "string"}},\n"anyOf": [true,\n'
                '{"properties": {\n"a": {"type": "string", "x-mcp-header": "A"}}}]}'
            },
            "input_schema",
            "Line 4: anyOf.1.properties.a: x-mcp-header belongs to properties",
        ),
        ({"name": "no spaces"}, "name", "Use letters"),
        ({"name": "acme_find"}, "__all__", "already exists"),
    ],
)
def test_a_fault_is_told_at_its_field(as_: Any, page: Any, acme: Any, changes: Any, field: str, message: str) -> None:
    found = errors(as_("admin").post(page("tool", "add"), http_form(acme.tenant, **changes)))
    assert list(found) == [field]
    assert message in found[field][0]
    assert not Tool.objects.filter(name="find_user").exists()


def test_what_was_typed_stays_in_the_form_when_something_is_wrong(as_: Any, page: Any, acme: Any) -> None:
    response = as_("admin").post(
        page("tool", "add"), http_form(acme.tenant, headers='{ "odd":  1,}', query='{"a":"1"}')
    )
    text = response.content.decode()
    assert "{ &quot;odd&quot;:  1,}" in text
    assert "{&quot;a&quot;:&quot;1&quot;}" in text


def test_a_tool_cannot_take_the_name_of_another(as_: Any, page: Any, acme: Any) -> None:
    client = as_("admin")
    client.post(page("tool", "add"), http_form(acme.tenant))
    tool = Tool.objects.get(name="find_user")
    found = errors(client.post(page("tool", "change", tool), http_form(acme.tenant, name="acme_find")))
    assert found == {"name": ["This tenant already has a tool with this name."]}


def test_a_tool_cannot_be_added_or_moved_to_a_foreign_tenant(as_: Any, page: Any, acme: Any, globex: Any) -> None:
    client = as_("admin")
    assert "Select a valid choice" in errors(client.post(page("tool", "add"), http_form(globex.tenant)))["tenant"][0]
    client.post(page("tool", "change", acme.tool), http_form(globex.tenant))
    acme.tool.refresh_from_db()
    assert acme.tool.tenant == acme.tenant


def test_an_admin_chooses_python_tools_from_those_that_apps_register(
    as_: Any, page: Any, acme: Any, functions: None
) -> None:
    client, address = as_("admin"), page("tool", "add_python_tools")
    assert "Say hello." in client.get(address).content.decode()
    response = client.post(address, {"tenant": acme.tenant.pk, "functions": ["greet"]})
    assert response.status_code == 302
    tool = Tool.objects.get(name="greet")
    assert (tool.tenant, tool.kind, tool.description) == (acme.tenant, "python", "Say hello.")
    assert 'value="greet" class="mt-1" checked disabled' in client.get(address).content.decode()


def test_python_tools_are_not_added_to_a_foreign_tenant(as_: Any, page: Any, globex: Any, functions: None) -> None:
    client, address = as_("admin"), page("tool", "add_python_tools")
    assert client.post(address, {"tenant": globex.tenant.pk, "functions": ["greet"]}).status_code == 200
    assert client.post(address, {"tenant": "nonsense", "functions": ["none"]}).status_code == 200
    assert "Globex" not in client.get(address, {"tenant": "globex"}).content.decode()
    assert not Tool.objects.filter(name="greet").exists()


def test_a_person_of_several_tenants_is_asked_which_one(as_: Any, page: Any, functions: None) -> None:
    client, address = as_("superuser"), page("tool", "add_python_tools")
    assert "Select the tenant" in client.get(address).content.decode()
    assert "Say hello." in client.get(address, {"tenant": "globex"}).content.decode()


def test_what_code_declares_is_not_changed_in_the_admin(as_: Any, page: Any, acme: Any, functions: None) -> None:
    (tool,) = authoring.add_code_tools(acme.tenant, ["greet"])
    form = http_form(acme.tenant, name="stolen", description="Mine", enabled="", calls_per_minute="7")
    assert as_("admin").post(page("tool", "change", tool), form).status_code == 302
    tool.refresh_from_db()
    assert (tool.name, tool.kind, tool.description) == ("greet", "python", "Say hello.")
    assert (tool.enabled, tool.calls_per_minute) == (False, 7)


def test_a_tool_whose_function_is_gone_is_explained_and_can_be_switched_off(
    as_: Any, page: Any, acme: Any, functions: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tool,) = authoring.add_code_tools(acme.tenant, ["greet"])
    monkeypatch.setattr(python, "_functions", {})
    client = as_("admin")
    response = client.post(page("tool", "change", tool), http_form(acme.tenant))
    assert "No installed app registers the function" in errors(response)["__all__"][0]
    client.post(page("tool", "changelist"), {"action": "disable_selected", "_selected_action": str(tool.pk)})
    tool.refresh_from_db()
    assert not tool.enabled


@pytest.mark.parametrize(("role", "enabled"), [("admin", False), ("auditor", True), ("stranger", True)])
def test_tools_are_switched_off_in_bulk_by_those_who_run_them(
    as_: Any, page: Any, acme: Any, role: str, enabled: bool
) -> None:
    acme.tenant.refresh_from_db()
    before = acme.tenant.catalog_version
    form = {"action": "disable_selected", "_selected_action": str(acme.tool.pk)}
    as_(role).post(page("tool", "changelist"), form)
    acme.tool.refresh_from_db()
    acme.tenant.refresh_from_db()
    assert acme.tool.enabled == enabled
    assert (acme.tenant.catalog_version > before) == (role == "admin")


@pytest.mark.parametrize("bulk", [False, True])
def test_deleting_a_tool_tells_the_catalogs_readers(as_: Any, page: Any, acme: Any, bulk: bool) -> None:
    acme.tenant.refresh_from_db()
    before = acme.tenant.catalog_version
    form = {"action": "delete_selected", "_selected_action": str(acme.tool.pk), "post": "yes"}
    as_("admin").post(page("tool", "changelist") if bulk else page("tool", "delete", acme.tool), form)
    acme.tenant.refresh_from_db()
    assert not Tool.objects.filter(pk=acme.tool.pk).exists()
    assert acme.tenant.catalog_version > before


def test_an_auditor_reads_the_whole_definition_and_is_led_to_its_revisions(as_: Any, page: Any, acme: Any) -> None:
    authoring.save_tool(acme.tool)
    text = as_("auditor").get(page("tool", "change", acme.tool)).content.decode()
    assert "https://api.example.com/" in text
    assert f"/tool/{acme.tool.pk}/revisions" in text
    assert "_save" not in text


def test_before_several_are_deleted_the_page_names_them_and_says_what_happens(as_: Any, page: Any, acme: Any) -> None:
    form = {"action": "delete_selected", "_selected_action": str(acme.tool.pk)}
    text = as_("admin").post(page("tool", "changelist"), form).content.decode()
    assert "This deletes the selected tool, and all that belongs to them:" in text
    assert str(acme.tool) in text
    assert "Delete what is selected" in text
