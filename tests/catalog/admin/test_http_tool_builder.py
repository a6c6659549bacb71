"""The form of an HTTP tool: a draft from a pasted request, secrets, and a test call before saving."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.web_services import http, serve
from tools_app.catalog import authoring
from tools_app.catalog.kinds.http import trials
from tools_app.models import Change, Secret, Tool
from tools_app.tenants.limits import limits

__all__ = ["http", "serve"]

Serve = Callable[..., Any]
Http = Callable[..., bytes]

HIDDEN = "abc123-of-the-service"
PASTED = f"curl https://api.example.com/v1/users/:id -H 'Authorization: Bearer {HIDDEN}'"
SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}


@pytest.fixture
def open_tenant(acme: Any, settings: Any) -> Any:
    """The tenant acme, which may call this machine, and has used none of its limits."""
    settings.REDIS_URL = ""
    limits.forget_all()
    acme.tenant.allowed_networks = ["127.0.0.0/8"]
    acme.tenant.save()
    yield acme.tenant
    limits.forget_all()


def trial_of(tenant: Any, url: str, **changes: Any) -> dict[str, Any]:
    return {
        "tenant": tenant.pk,
        "name": "find_user",
        "method": "GET",
        "base_url": url,
        "path": "users/{id}",
        "query": "",
        "headers": '{"X-Token": "{secret:acme_token}"}',
        "body_mode": "none",
        "body": "",
        "max_response_bytes": "5000",
        "timeout_seconds": "10",
        "input_schema": json.dumps(SCHEMA),
        "arguments": '{"id": "7 a"}',
    } | changes


def tried(client: Any, form: dict[str, Any]) -> Any:
    response = client.post("/admin/tools_app/tool/trial/", form)
    assert response.status_code == 200, response.content
    return response.json()


def test_a_pasted_command_is_drafted_without_its_credential(as_: Any) -> None:
    response = as_("admin").post("/admin/tools_app/tool/draft/", {"text": PASTED})
    draft = response.json()
    assert draft["fields"]["path"] == "v1/users/{id}"
    assert draft["credentials"] == [{"place": "Authorization", "name": "EXAMPLE_TOKEN", "stored": False}]
    assert HIDDEN not in response.content.decode()
    assert "no-store" in response["Cache-Control"]


def test_what_is_no_command_is_refused_with_a_reason(as_: Any) -> None:
    response = as_("admin").post("/admin/tools_app/tool/draft/", {"text": "SELECT 1"})
    assert (response.status_code, response.json()["problem"][:30]) == (400, "Paste a command that starts wi")


def test_the_credential_of_a_pasted_command_is_stored_as_a_new_secret_only(as_: Any, acme: Any) -> None:
    client = as_("admin")
    form = {"tenant": acme.tenant.pk, "text": PASTED, "position": 0, "name": "SERVICE"}
    assert client.post("/admin/tools_app/tool/store-secret/", form).json() == {"name": "SERVICE"}
    secret = Secret.objects.get(tenant=acme.tenant, name="SERVICE")
    assert authoring.decrypt_secret(secret) == HIDDEN
    again = client.post("/admin/tools_app/tool/store-secret/", form | {"text": PASTED.replace(HIDDEN, "other")})
    assert (again.status_code, again.json()["problem"][:32]) == (409, "There is a secret SERVICE alread")
    secret.refresh_from_db()
    assert authoring.decrypt_secret(secret) == HIDDEN
    for wrong in ({"position": 5}, {"position": "x"}, {"name": "no spaces"}, {"text": "x"}):
        assert client.post("/admin/tools_app/tool/store-secret/", form | {"name": "B"} | wrong).status_code == 400
    names = client.get("/admin/tools_app/tool/secrets/", {"tenant": acme.tenant.pk}).json()["names"]
    assert names == ["SERVICE", "acme_token"]
    assert HIDDEN not in str(list(Change.objects.values_list("before", "after")))


def test_a_trial_shows_request_and_response_without_secrets_and_is_recorded_twice(
    as_: Any, open_tenant: Any, serve: Serve, http: Http
) -> None:
    service = serve(http(200, b'{"token": "acme-hush-hush", "id": 7}', "application/json", X_Echo="acme-hush-hush"))

    shown = tried(as_("admin"), trial_of(open_tenant, service.url))

    assert service.received[0].target == "/users/7%20a"
    assert service.received[0].headers["x-token"] == "acme-hush-hush"
    assert shown["request"]["url"] == f"{service.url}/users/7%20a"
    assert ["X-Token", trials.DOTS] in shown["request"]["headers"]
    assert (shown["reply"]["status"], shown["reply"]["success"]) == (200, True)
    assert json.loads(shown["reply"]["body"]) == {"token": "[redacted]", "id": 7}
    assert "acme-hush-hush" not in json.dumps(shown)
    ended, began = Change.objects.filter(kind="tool trial")
    assert (began.action, began.object_name, began.person_name) == ("created", "find_user", "admin")
    assert json.loads(began.after) == {
        "method": "GET",
        "base_url": service.url,
        "path": "users/{id}",
        "arguments": ["id"],
        "secrets": ["acme_token"],
    }
    assert (ended.object_id, json.loads(ended.after)["status"]) == (began.object_id, 200)
    assert "acme-hush-hush" not in began.after + ended.after
    assert not Tool.objects.filter(name="find_user").exists()


def test_a_trial_shows_what_a_client_would_receive_and_both_sizes(
    as_: Any, open_tenant: Any, serve: Serve, http: Http
) -> None:
    rows = [{"id": number, "note": "x" * 20} for number in range(9)]
    service = serve(http(200, json.dumps({"rows": rows}).encode(), "application/json"))
    form = trial_of(open_tenant, service.url, result_mask="rows[*].id", result_items="2")
    shaped = tried(as_("admin"), form)["shaped"]
    assert json.loads(json.loads(shaped["result"])["content"][0]["text"]) == [0, 1]
    assert 0 < 4 * shaped["bytes"] < shaped["whole_bytes"]
    assert 0 < 4 * shaped["tokens"] < shaped["whole_tokens"] + 4
    unfit = tried(as_("admin"), form | {"result_mask": "sort(rows)"})["shaped"]
    assert "does not fit" in unfit["problem"]
    assert "result_mask" in tried(as_("admin"), form | {"result_mask": "a["})["errors"]
    assert tried(as_("admin"), trial_of(open_tenant, service.url))["shaped"] is None


def test_the_trial_of_a_request_that_cannot_be_sent_says_why(as_: Any, acme: Any, open_tenant: Any) -> None:
    client = as_("admin")
    private = tried(client, trial_of(open_tenant, "http://10.0.0.1"))
    assert "A hub admin can allow it under Tenant > Allowed networks." in private["problem"]
    assert "problem" in json.loads(Change.objects.filter(kind="tool trial")[0].after)
    missing = tried(client, trial_of(open_tenant, "http://10.0.0.1", headers='{"A": "{secret:NOPE}"}'))
    assert missing["problem"] == "There is no secret NOPE. Add it first."
    assert list(tried(client, trial_of(open_tenant, "ftp://x"))["errors"]) == ["base_url"]
    assert tried(client, trial_of(open_tenant, "http://10.0.0.1", arguments="{}"))["faults"] == [
        {"field": "id", "message": "'id' is required"}
    ]
    outside = tried(client, trial_of(open_tenant, "http://10.0.0.1", arguments='{"id": "../x"}'))
    assert "'id' is a part of an address" in outside["problem"]
    assert Change.objects.filter(kind="tool trial").count() == 2


def test_a_trial_ends_after_its_time(
    as_: Any, open_tenant: Any, serve: Serve, http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "MAX_TRIAL_SECONDS", 0.2)

    def silent(_: object) -> Any:
        assert service.stopped.wait(10)
        yield b""

    service = serve(silent)
    problem = tried(as_("admin"), trial_of(open_tenant, service.url))["problem"]
    assert "0.2 s" in problem or "timed out" in problem


def test_trials_count_against_the_limits_of_the_tenant_and_are_limited_themselves(
    as_: Any, open_tenant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, form = as_("admin"), trial_of(open_tenant, "http://10.0.0.1")
    monkeypatch.setattr(trials, "MAX_TRIALS_PER_MINUTE", 1)
    assert "is private or reserved" in tried(client, form)["problem"]
    assert "1 trials per 60 s for this tenant" in tried(client, form)["problem"]
    monkeypatch.setattr(trials, "MAX_TRIALS_AT_ONCE", 0)
    assert "are running" in tried(client, form)["problem"]
    monkeypatch.undo()
    open_tenant.calls_per_minute = 0
    open_tenant.save()
    assert "0 calls per 60 s for this tenant" in tried(client, form)["problem"]
    open_tenant.is_active = False
    open_tenant.save()
    assert tried(client, form)["problem"] == "The tenant is disabled. Enable it first."


def tool_form(tenant: Any, **changes: Any) -> dict[str, Any]:
    form = trial_of(tenant, "https://api.example.com", task="never", annotations="", icons="", output_schema="")
    return form | changes


@pytest.mark.parametrize(("role", "link"), [("admin", ""), ("superuser", "#id_allowed_networks")])
def test_a_missing_secret_and_a_private_address_are_told_at_their_fields(
    as_: Any, page: Any, acme: Any, role: str, link: str
) -> None:
    client = as_(role)
    form = tool_form(acme.tenant, base_url="http://localhost:8000", headers='{"A": "{secret:NOPE}"}')
    response = client.post(page("tool", "add"), form)
    errors = response.context["adminform"].form.errors
    assert list(errors) == ["base_url", "headers"]
    assert "localhost is a private or reserved address" in errors["base_url"][0]
    assert link in errors["base_url"][0]
    assert ("Ask a hub admin" in errors["base_url"][0]) == (not link)
    assert f"secret/add/?tenant={acme.tenant.pk}&amp;name=NOPE" in errors["headers"][0]
    assert "{&quot;A&quot;: &quot;{secret:NOPE}&quot;}" in response.content.decode()
    added = client.get(page("secret", "add"), {"tenant": acme.tenant.pk, "name": "NOPE"}).content.decode()
    assert 'value="NOPE"' in added
    assert f'value="{acme.tenant.pk}" selected' in added


def test_a_tool_whose_secret_was_deleted_can_still_be_edited(as_: Any, page: Any, acme: Any) -> None:
    client = as_("admin")
    assert client.post(page("tool", "add"), tool_form(acme.tenant)).status_code == 302
    tool = Tool.objects.get(name="find_user")
    authoring.delete_secret(acme.secret)
    form = tool_form(acme.tenant, description="Finds a user.")
    assert client.post(page("tool", "change", tool), form).status_code == 302
    tool.refresh_from_db()
    assert tool.description == "Finds a user."


def test_the_other_settings_are_folded_unless_one_of_them_is_set(as_: Any, page: Any, acme: Any) -> None:
    client = as_("admin")
    assert advanced(client.get(page("tool", "add"))).is_collapsible
    client.post(page("tool", "add"), tool_form(acme.tenant, max_response_bytes=str(1024 * 1024), timeout_seconds="60"))
    tool = Tool.objects.get(name="find_user")
    assert not advanced(client.get(page("tool", "change", tool))).is_collapsible  # it is not enabled
    authoring.set_enabled(tool, True)
    assert advanced(client.get(page("tool", "change", tool))).is_collapsible
    wrong = client.post(page("tool", "add"), tool_form(acme.tenant, name="other", icons="{}"))
    assert not advanced(wrong).is_collapsible


def advanced(response: Any) -> Any:
    return next(fieldset for fieldset in response.context["adminform"] if fieldset.name == "Advanced")
