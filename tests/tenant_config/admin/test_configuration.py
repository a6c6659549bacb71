"""A tenant's configuration in the admin: downloaded, previewed, applied."""

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from tools_app.catalog import authoring
from tools_app.models import AlertDestination, Change, Tool
from tools_app.tenant_config.export import export
from tools_app.tenants.admin import tenant_config

TEXT = """
mcphub: 1
tenant: {name: Filed}
tools:
  look:
    description: <b>Looks</b>
    input_schema: {type: object}
    request: {method: GET, base_url: "https://a.example", headers: {Authorization: "{secret:NEW}"}}
"""


def address(view: str, world: Any) -> str:
    return reverse(f"admin:tools_app_tenant_{view}_configuration", args=[world.tenant.pk])


def post(browser: Any, world: Any, text: str = TEXT, **more: Any) -> Any:
    return browser.post(address("import", world), {"text": text, **more})


def fingerprint(response: Any) -> str:
    assert response.status_code == 200
    return str(response.context["plan"].fingerprint)


@pytest.mark.parametrize(
    ("role", "exports", "imports"),
    [
        ("superuser", 200, 200),
        ("admin", 200, 200),
        ("auditor", 200, 403),
        ("operator", 403, 403),
        ("stranger", 404, 404),
        ("anonymous", 302, 302),
    ],
)
def test_who_may_read_a_tenant_exports_it_and_who_may_change_it_imports(
    as_: Any, acme: Any, role: str, exports: int, imports: int
) -> None:
    assert as_(role).get(address("export", acme)).status_code == exports
    assert as_(role).get(address("import", acme)).status_code == imports
    assert post(as_(role), acme).status_code == imports
    assert not Tool.objects.filter(name="look").exists()


def test_the_download_is_a_file_that_says_no_secret(as_: Any, acme: Any) -> None:
    response = as_("auditor").get(address("export", acme))
    assert response["Content-Disposition"] == 'attachment; filename="acme.yaml"'
    assert response.content.decode() == export(acme.tenant)
    assert "acme_token" in response.content.decode()
    assert "hush" not in response.content.decode()


def test_a_preview_shows_what_would_change_and_changes_nothing(as_: Any, acme: Any) -> None:
    response = post(as_("admin"), acme)
    text = response.content.decode()
    for expected in ("Filed", "look", "Missing secrets", "NEW", "tool acme_find", "&lt;b&gt;Looks"):
        assert expected in text
    assert "<b>Looks" not in text
    assert not Tool.objects.filter(name="look").exists()
    assert not Change.objects.exists()


def test_a_preview_tells_what_a_file_does_not_contain_of_a_webhook(as_: Any, acme: Any) -> None:
    text = """
    mcphub: 1
    alert_destinations:
      chat: {kind: webhook, url: "https://chat.example.com/hidden-path"}
      pager: {kind: webhook}
    alert_rules:
      errors: {kind: error_rate, destinations: [chat]}
    """
    shown = post(as_("admin"), acme, text).content.decode()
    page, _, form = shown.partition('<textarea name="text"')
    assert "New webhooks: <strong>chat, pager</strong>" in page
    assert "Webhooks without a URL: <strong>pager</strong>" in page
    assert "chat.example.com" in page
    assert "hidden-path" not in page
    assert "hidden-path" in form, "what is applied is what was previewed"
    assert not AlertDestination.objects.filter(name="chat").exists()


def test_what_was_previewed_is_applied_and_recorded_as_that_persons(as_: Any, acme: Any) -> None:
    browser = as_("admin")
    seen = fingerprint(post(browser, acme))
    response = post(browser, acme, fingerprint=seen)
    assert response.status_code == 302
    acme.tenant.refresh_from_db()
    assert acme.tenant.name == "Filed"
    revision = Tool.objects.get(name="look").revisions.get()
    assert revision.created_by is not None
    assert revision.created_by.username == "admin"
    assert set(Change.objects.values_list("person_name", "kind")) == {("admin", "tool"), ("admin", "tenant")}
    assert post(browser, acme).context["plan"].is_empty


def test_an_uploaded_file_is_taken_and_what_it_does_not_name_pruned(as_: Any, acme: Any) -> None:
    browser = as_("admin")
    upload = SimpleUploadedFile("a.yaml", TEXT.encode())
    seen = browser.post(address("import", acme), {"file": upload, "text": "", "prune": "on"})
    assert "Deleted" in seen.content.decode()
    post(browser, acme, fingerprint=fingerprint(seen), prune="on")
    assert list(Tool.objects.filter(tenant=acme.tenant).values_list("name", flat=True)) == ["look"]


def test_a_tenant_that_was_changed_meanwhile_is_shown_again_before_anything_is_done(as_: Any, acme: Any) -> None:
    browser = as_("admin")
    seen = fingerprint(post(browser, acme))
    authoring.set_secret(acme.tenant, "MEANWHILE", "value")
    response = post(browser, acme, fingerprint=seen)
    assert "has changed since the preview" in response.content.decode()
    assert not Tool.objects.filter(name="look").exists()
    assert post(browser, acme, fingerprint=fingerprint(response)).status_code == 302


def test_what_only_superusers_decide_is_not_applied_for_an_admin(as_: Any, acme: Any) -> None:
    text = "mcphub: 1\ntenant: {is_public: true}"
    response = post(as_("admin"), acme, text)
    assert "only superusers can change this" in response.content.decode()
    assert post(as_("admin"), acme, text, fingerprint=fingerprint(response)).status_code == 200
    acme.tenant.refresh_from_db()
    assert not acme.tenant.is_public


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({}, "Choose a file or paste its text."),
        ({"text": "mcphub: 3"}, "It must start with"),
        ({"text": "mcphub: 1\ntols: {}"}, "tols: unknown field"),
        ({"file": SimpleUploadedFile("a.yaml", b"\xff\xfe")}, "not UTF-8"),
    ],
)
def test_a_file_that_is_wrong_is_told(as_: Any, acme: Any, form: Any, message: str) -> None:
    assert message in as_("admin").post(address("import", acme), form).content.decode()


def test_a_file_that_is_too_large_for_a_page_goes_to_the_command_line(
    as_: Any, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenant_config, "MAX_BYTES", 10)
    assert "Use manage.py import_tenant" in post(as_("admin"), acme).content.decode()
    upload = {"file": SimpleUploadedFile("a.yaml", TEXT.encode())}
    assert "Use manage.py import_tenant" in as_("admin").post(address("import", acme), upload).content.decode()
