"""Resources in the admin: texts, files, HTTP requests, and functions from code."""

import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from tools_app.catalog import authoring
from tools_app.catalog import resource_functions as resources
from tools_app.catalog.validation import resources as resource_checks
from tools_app.models import Resource, ResourceKind

CONTENTS: dict[str, dict[str, Any]] = {
    "text": {"text": "# Guide\r\n"},
    "file": {"upload": b"%PDF-1.7"},
    "http": {"config": '{"base_url": "https://api.example.com", "path": "guide"}', "timeout_seconds": "10"},
}


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resources `docs://weather` and `docs://{page}`, and no others."""

    def weather() -> str:
        """Tell the weather."""
        return "sun"

    def page(page: str) -> str:
        """Show a page."""
        return page

    monkeypatch.setattr(resources, "_functions", {})
    resources.register(weather, "docs://weather")
    resources.register(page, "docs://{page}")


def form_of(kind: str, tenant: Any, **changes: Any) -> dict[str, Any]:
    form = {
        "tenant": tenant.pk,
        "uri": "docs://guide",
        "name": "guide",
        "title": "",
        "description": "How it works.",
        "enabled": "on",
        "mime_type": "",
        "annotations": "",
        **CONTENTS[kind],
        **changes,
    }
    if isinstance(form.get("upload"), bytes):
        form["upload"] = SimpleUploadedFile("guide.pdf", form["upload"])
    return form


def add(client: Any, page: Any, kind: str, tenant: Any, **changes: Any) -> Any:
    return client.post(f"{page('resource', 'add')}?kind={kind}", form_of(kind, tenant, **changes))


def errors(response: Any) -> dict[str, list[str]]:
    assert response.status_code == 200
    return dict(response.context["adminform"].form.errors)


def added() -> Resource:
    return Resource.objects.get(uri="docs://guide")


def test_a_text_is_kept_with_the_line_ends_that_were_typed(as_: Any, page: Any, acme: Any) -> None:
    annotations = '{"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-31T12:00:00Z"}'
    assert add(as_("admin"), page, "text", acme.tenant, annotations=annotations).status_code == 302
    assert (added().kind, added().text, added().tenant) == (ResourceKind.TEXT, "# Guide\n", acme.tenant)
    assert added().annotations == json.loads(annotations)


def test_the_manifest_of_a_skill_is_one_or_is_refused(as_: Any, page: Any, acme: Any) -> None:
    client, uri = as_("admin"), "skill://guide/SKILL.md"
    response = add(client, page, "text", acme.tenant, uri=uri, text="---\nname: other\ndescription: x\n---\n")
    assert "Its name is 'other', but its directory 'guide'" in errors(response)["text"][0]
    good = "---\nname: guide\ndescription: How to.\n---\n"
    assert add(client, page, "text", acme.tenant, uri=uri, text=good).status_code == 302


def test_icons_are_checked_and_kept(as_: Any, page: Any, acme: Any) -> None:
    client = as_("admin")
    refused = errors(add(client, page, "text", acme.tenant, icons='[{"src": "http://example.com/a.png"}]'))
    assert "https://" in refused["icons"][0]
    assert add(client, page, "text", acme.tenant, icons='[{"src": "https://example.com/a.png"}]').status_code == 302
    assert added().icons == [{"src": "https://example.com/a.png"}]


def test_a_changed_text_keeps_what_the_form_does_not_show(as_: Any, page: Any, acme: Any) -> None:
    client = as_("admin")
    address = page("resource", "change", acme.resource)
    assert "How acme works" in client.get(address).content.decode()
    form = form_of("text", acme.tenant, uri=acme.resource.uri, text="New words")
    assert client.post(address, form).status_code == 302
    acme.resource.refresh_from_db()
    assert (acme.resource.text, acme.resource.kind) == ("New words", ResourceKind.TEXT)


def test_a_file_is_kept_with_a_type_guessed_from_its_name(as_: Any, page: Any, acme: Any) -> None:
    assert add(as_("admin"), page, "file", acme.tenant).status_code == 302
    assert (bytes(added().blob), added().mime_type) == (b"%PDF-1.7", "application/pdf")


def test_a_file_is_replaced_only_by_another_file(as_: Any, page: Any, acme: Any) -> None:
    client = as_("admin")
    add(client, page, "file", acme.tenant)
    address = page("resource", "change", added())
    client.post(address, form_of("file", acme.tenant, upload="", name="renamed", mime_type="application/pdf"))
    assert (bytes(added().blob), added().name) == (b"%PDF-1.7", "renamed")
    client.post(address, form_of("file", acme.tenant, upload=b"%PDF-2.0"))
    assert bytes(added().blob) == b"%PDF-2.0"


@pytest.mark.parametrize(
    ("role", "status"),
    [("superuser", 200), ("admin", 200), ("auditor", 200), ("stranger", 404), ("outsider", 302), ("anonymous", 302)],
)
def test_readers_download_a_file_and_no_browser_runs_it(as_: Any, page: Any, acme: Any, role: str, status: int) -> None:
    evil = {"upload": b"<script>1</script>", "mime_type": "text/html"}
    add(as_("admin"), page, "file", acme.tenant, **evil)
    response = as_(role).get(page("resource", "download", added()))
    assert response.status_code == status
    if status == 200:
        assert response.content == b"<script>1</script>"
        assert response["Content-Type"] == "application/octet-stream"
        assert response["Content-Disposition"] == 'attachment; filename="guide.html"'
        assert response["X-Content-Type-Options"] == "nosniff"


def test_only_files_are_downloaded(as_: Any, page: Any, acme: Any) -> None:
    client = as_("admin")
    assert "/download" not in client.get(page("resource", "change", acme.resource)).content.decode()
    assert client.get(page("resource", "download", acme.resource)).status_code == 403
    add(client, page, "file", acme.tenant)
    assert "/download" in client.get(page("resource", "change", added())).content.decode()


@pytest.mark.parametrize("kind", ["text", "file", "http"])
def test_a_button_of_the_list_leads_to_the_form_of_each_kind(as_: Any, page: Any, acme: Any, kind: str) -> None:
    response = as_("admin").get(page("resource", f"add_{kind}_resource"), follow=True)
    assert response.redirect_chain == [(f"{page('resource', 'add')}?kind={kind}", 302)]
    assert response.context["adminform"].form.kind == kind


def test_a_form_of_no_known_kind_is_that_of_a_text(as_: Any, page: Any, acme: Any) -> None:
    response = as_("admin").get(page("resource", "add"), {"kind": "python"})
    assert response.context["adminform"].form.kind == "text"


def test_a_request_fills_the_variables_of_its_uri_in(as_: Any, page: Any, acme: Any) -> None:
    config = {"base_url": "https://api.example.com", "path": "{page}", "headers": {"X-Token": "{secret:TOKEN}"}}
    authoring.set_secret(acme.tenant, "TOKEN", "hush")
    response = add(as_("admin"), page, "http", acme.tenant, uri="docs://{page}", config=json.dumps(config))
    assert response.status_code == 302
    row = Resource.objects.get(uri="docs://{page}")
    assert (row.kind, row.config, row.timeout_seconds) == (ResourceKind.HTTP, config, 10.0)
    text = as_("admin").get(page("resource", "change", row)).content.decode()
    assert "{secret:TOKEN}" in text


def test_a_missing_secret_and_a_private_address_are_told_with_what_to_do(as_: Any, page: Any, acme: Any) -> None:
    config = {"base_url": "http://localhost", "path": "a", "query": {"key": "{secret:NOPE}"}}
    found = errors(add(as_("admin"), page, "http", acme.tenant, config=json.dumps(config)))
    address, secret = found["config"]
    assert address.startswith("base_url: localhost is a private or reserved address")
    assert "Ask a hub admin" in address
    assert secret.startswith("query: There is no secret NOPE.")
    assert f"secret/add/?tenant={acme.tenant.pk}&amp;name=NOPE" in secret
    assert not Resource.objects.filter(uri="docs://guide").exists()
    allowed = errors(add(as_("superuser"), page, "http", acme.tenant, config=json.dumps(config)))
    assert "#id_allowed_networks" in allowed["config"][0]


def test_the_api_refuses_a_missing_secret_and_lets_a_resource_that_lost_one_be_edited(as_: Any, acme: Any) -> None:
    config = {"base_url": "https://api.example.com", "headers": {"X-Token": "{secret:LATER}"}}
    new = {"tenant": "acme", "uri": "docs://later", "name": "later", "kind": "http", "config": config}
    admin = as_("admin")
    refused = admin.post("/api/v1/resources/", new, "application/json")
    assert (refused.status_code, refused.json()["errors"]) == (
        400,
        {"config.headers": ["There is no secret LATER."]},
    )
    secret = authoring.set_secret(acme.tenant, "LATER", "hush")
    created = admin.post("/api/v1/resources/", new, "application/json")
    assert created.status_code == 201
    authoring.delete_secret(secret)
    url = f"/api/v1/resources/{created.json()['id']}/"
    assert admin.patch(url, {"title": "Later"}, "application/json").status_code == 200
    more = {**config, "query": {"q": "{secret:OTHER}"}}
    assert admin.patch(url, {"config": more}, "application/json").status_code == 400


def test_the_form_of_a_new_request_shows_its_fields(as_: Any, page: Any, acme: Any) -> None:
    text = as_("admin").get(f"{page('resource', 'add')}?kind=http").content.decode()
    assert "Add HTTP resource" in text
    assert "&quot;base_url&quot;: &quot;&quot;" in text


@pytest.mark.parametrize(
    ("kind", "changes", "field", "message"),
    [
        ("text", {"uri": "guide"}, "uri", "Write a URI"),
        ("text", {"uri": "docs://{page}"}, "uri", "URI templates are only possible"),
        ("text", {"uri": "docs://{page"}, "uri", "A brace is not part of a {variable}"),
        ("text", {"uri": "docs://acme/guide"}, "__all__", "already exists"),
        ("text", {"text": ""}, "text", "required"),
        ("text", {"text": "a" * 200_001}, "text", "Upload it as a file"),
        ("text", {"name": ""}, "name", "required"),
        ("text", {"mime_type": "markdown"}, "mime_type", "such as text/markdown"),
        (
            "text",
            {"annotations": '{\n"priority": 2}'},
            "annotations",
            "Line 2: priority: must be a number from 0 to 1.",
        ),
        ("text", {"annotations": '{"audience": ["all"]}'}, "annotations", 'must be a list of "user" and "assistant"'),
        ("text", {"annotations": '{"lastModified": "today"}'}, "annotations", "must be a time with its offset"),
        (
            "text",
            {"annotations": '{"color": 1}'},
            "annotations",
            "unknown field. Known fields: audience, priority, lastModified.",
        ),
        ("file", {"upload": ""}, "upload", "required"),
        ("file", {"upload": b""}, "upload", "empty"),
        ("http", {"uri": "docs://{a}/{a}"}, "uri", "{a} is used twice."),
        ("http", {"config": "{"}, "config", "Line 1, column 2"),
        ("http", {"config": '{\n"base_url": "ftp://example.com"}'}, "config", "Line 2: base_url"),
        ("http", {"config": '{"base_url": "https://example.com",\n"paths": "a"}'}, "config", "paths"),
        (
            "http",
            {"config": '{"base_url": "https://example.com",\n"query": {\n"q": "{term}"}}'},
            "config",
            "Line 3: query.q: {term} is not a variable of the URI.",
        ),
        ("http", {"timeout_seconds": "0"}, "timeout_seconds", "greater than or equal to 0.1"),
    ],
)
def test_a_fault_is_told_at_its_field(
    as_: Any, page: Any, acme: Any, kind: str, changes: Any, field: str, message: str
) -> None:
    found = errors(add(as_("admin"), page, kind, acme.tenant, **changes))
    assert list(found) == [field]
    assert message in found[field][0]
    assert not Resource.objects.filter(name="guide").exists()


def test_a_file_that_is_too_large_is_refused(as_: Any, page: Any, acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_checks, "MAX_BYTES", 3)
    found = errors(add(as_("admin"), page, "file", acme.tenant))
    assert "larger than" in found["upload"][0]


def test_a_resource_cannot_take_the_uri_of_another(as_: Any, page: Any, acme: Any) -> None:
    client = as_("admin")
    add(client, page, "text", acme.tenant)
    form = form_of("text", acme.tenant, uri=acme.resource.uri)
    found = errors(client.post(page("resource", "change", added()), form))
    assert found == {"uri": ["This tenant already has a resource with this URI."]}


def test_a_resource_cannot_be_added_or_moved_to_a_foreign_tenant(as_: Any, page: Any, acme: Any, globex: Any) -> None:
    client = as_("admin")
    assert "Select a valid choice" in errors(add(client, page, "text", globex.tenant))["tenant"][0]
    client.post(page("resource", "change", acme.resource), form_of("text", globex.tenant))
    acme.resource.refresh_from_db()
    assert acme.resource.tenant == acme.tenant


@pytest.mark.parametrize("kind", ["text", "file", "http"])
def test_an_auditor_reads_a_resource_and_can_change_nothing(as_: Any, page: Any, acme: Any, kind: str) -> None:
    add(as_("admin"), page, kind, acme.tenant)
    shown = {"text": "# Guide", "file": "8\N{NO-BREAK SPACE}bytes", "http": "https://api.example.com"}
    text = as_("auditor").get(page("resource", "change", added())).content.decode()
    assert shown[kind] in text
    assert "_save" not in text
    assert as_("auditor").post(page("resource", "change", added()), form_of(kind, acme.tenant)).status_code == 403


def test_what_an_admin_wrote_is_escaped_for_its_readers(as_: Any, page: Any, acme: Any) -> None:
    Resource.objects.filter(pk=acme.resource.pk).update(text="</pre><script>alert(1)</script>")
    text = as_("auditor").get(page("resource", "change", acme.resource)).content.decode()
    assert "&lt;script&gt;alert(1)" in text
    assert "<script>alert" not in text


def test_an_admin_chooses_python_resources_from_those_that_apps_register(
    as_: Any, page: Any, acme: Any, functions: None
) -> None:
    client, address = as_("admin"), page("resource", "add_python_resources")
    assert "Tell the weather." in client.get(address).content.decode()
    response = client.post(address, {"tenant": acme.tenant.pk, "functions": ["docs://{page}"]})
    assert response.status_code == 302
    row = Resource.objects.get(uri="docs://{page}")
    assert (row.kind, row.name, row.description) == (ResourceKind.PYTHON, "page", "Show a page.")
    assert 'value="docs://{page}" class="mt-1" checked disabled' in client.get(address).content.decode()


def test_python_resources_are_not_added_to_a_foreign_tenant(as_: Any, page: Any, globex: Any, functions: None) -> None:
    form = {"tenant": globex.tenant.pk, "functions": ["docs://weather"]}
    assert as_("admin").post(page("resource", "add_python_resources"), form).status_code == 200
    assert not Resource.objects.filter(uri="docs://weather").exists()


def test_what_code_declares_is_not_changed_in_the_admin(as_: Any, page: Any, acme: Any, functions: None) -> None:
    (row,) = authoring.add_code_resources(acme.tenant, ["docs://weather"])
    form = form_of("text", acme.tenant, uri="docs://stolen", description="Mine", enabled="")
    assert as_("admin").post(page("resource", "change", row), form).status_code == 302
    row.refresh_from_db()
    assert (row.uri, row.kind, row.description) == ("docs://weather", ResourceKind.PYTHON, "Tell the weather.")
    assert not row.enabled


def test_a_resource_whose_function_is_gone_is_explained(
    as_: Any, page: Any, acme: Any, functions: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = authoring.add_code_resources(acme.tenant, ["docs://weather"])
    monkeypatch.setattr(resources, "_functions", {})
    client = as_("admin")
    found = errors(client.post(page("resource", "change", row), {"enabled": "on"}))
    assert "No installed app registers 'docs://weather'." in found["__all__"][0]
    client.post(page("resource", "changelist"), {"action": "disable_selected", "_selected_action": str(row.pk)})
    row.refresh_from_db()
    assert not row.enabled


@pytest.mark.parametrize(("role", "enabled"), [("admin", False), ("auditor", True), ("stranger", True)])
def test_resources_are_switched_off_in_bulk_by_those_who_run_them(
    as_: Any, page: Any, acme: Any, role: str, enabled: bool
) -> None:
    form = {"action": "disable_selected", "_selected_action": str(acme.resource.pk)}
    as_(role).post(page("resource", "changelist"), form)
    acme.resource.refresh_from_db()
    assert acme.resource.enabled == enabled


@pytest.mark.parametrize("bulk", [False, True])
def test_deleting_a_resource_tells_the_catalogs_readers(as_: Any, page: Any, acme: Any, bulk: bool) -> None:
    acme.tenant.refresh_from_db()
    before = acme.tenant.catalog_version
    form = {"action": "delete_selected", "_selected_action": str(acme.resource.pk), "post": "yes"}
    as_("admin").post(page("resource", "changelist") if bulk else page("resource", "delete", acme.resource), form)
    acme.tenant.refresh_from_db()
    assert not Resource.objects.filter(pk=acme.resource.pk).exists()
    assert acme.tenant.catalog_version > before
