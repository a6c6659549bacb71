"""Limits in the admin: who may set them, and on which pages."""

from typing import Any

import pytest

from tools_app.calls.sessions import DEFAULT_MAX_SESSIONS
from tools_app.models import ApiKey, Tenant
from tools_app.web.admin.fields import KEY_LIMITS, LIMITS_MEANING, TENANT_LIMITS, TOOL_LIMITS

NAMES = {"tenant": TENANT_LIMITS, "apikey": KEY_LIMITS, "tool": TOOL_LIMITS}
# The other required fields of each form.
REST: dict[str, dict[str, Any]] = {
    "tenant": {
        "slug": "acme",
        "name": "Acme",
        "is_active": "on",
        "allowed_networks": "[]",
        "redacted_keys": "[]",
        "public_tools": "[]",
        "public_calls_per_minute": "60",
        "presentation": "full",
        "search_above_tokens": "20000",
    },
    "apikey": {"name": "Renamed", "expires_at_0": "", "expires_at_1": ""},
    "tool": {
        "name": "acme_find",
        "description": "Finds things.",
        "method": "GET",
        "base_url": "https://api.example.com/",
        "path": "find",
        "query": "{}",
        "headers": "{}",
        "body_mode": "none",
        "body": "",
        "max_response_bytes": "1000",
        "input_schema": '{"type": "object", "properties": {"term": {"type": "string"}}}',
        "output_schema": "",
        "annotations": "{}",
        "icons": "[]",
        "task": "never",
        "timeout_seconds": "5",
        "revisions-TOTAL_FORMS": "0",
        "revisions-INITIAL_FORMS": "0",
    },
}


def numbered(names: tuple[str, ...]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names, 1)}


def values(row: Any, names: tuple[str, ...]) -> dict[str, int | None]:
    row.refresh_from_db()
    return {name: getattr(row, name) for name in names}


@pytest.mark.parametrize("model", NAMES)
@pytest.mark.parametrize("role", ["superuser", "admin"])
def test_who_runs_a_tenant_sets_its_limits(as_: Any, page: Any, acme: Any, model: str, role: str) -> None:
    row = acme.tenant if model == "tenant" else acme.row(model)
    limits = numbered(NAMES[model])
    response = as_(role).post(page(model, "change", row), {**REST[model], **limits})
    assert response.status_code == 302, response.context["errors"]
    assert values(row, NAMES[model]) == limits
    cleared = as_(role).post(page(model, "change", row), {**REST[model], **dict.fromkeys(limits, "")})
    assert cleared.status_code == 302
    assert values(row, NAMES[model]) == dict.fromkeys(limits)


@pytest.mark.parametrize("model", NAMES)
@pytest.mark.parametrize(("role", "status"), [("auditor", 403), ("stranger", 404), ("outsider", 302)])
def test_nobody_else_does(as_: Any, page: Any, acme: Any, model: str, role: str, status: int) -> None:
    row = acme.tenant if model == "tenant" else acme.row(model)
    response = as_(role).post(page(model, "change", row), {**REST[model], **numbered(NAMES[model])})
    assert response.status_code == status
    assert values(row, NAMES[model]) == dict.fromkeys(NAMES[model])


@pytest.mark.parametrize("model", NAMES)
@pytest.mark.parametrize("role", ["superuser", "admin", "auditor"])
def test_each_page_has_them_under_one_heading(as_: Any, page: Any, acme: Any, model: str, role: str) -> None:
    row = acme.tenant if model == "tenant" else acme.row(model)
    response = as_(role).get(page(model, "change", row))
    (fields,) = [part.fields for part in response.context["adminform"] if part.name == "Limits"]
    assert tuple(fields) == NAMES[model]
    assert LIMITS_MEANING in response.content.decode()


def test_a_new_key_has_its_limits_from_the_start(as_: Any, page: Any, acme: Any) -> None:
    limits = numbered(KEY_LIMITS)
    form = {"tenant": acme.tenant.pk, "name": "New", "expires_at_0": "", "expires_at_1": "", **limits}
    assert as_("admin").post(page("apikey", "add"), form).status_code == 302
    assert values(ApiKey.objects.get(name="New"), KEY_LIMITS) == limits


def test_a_limit_is_a_number_from_zero_on(as_: Any, page: Any, acme: Any) -> None:
    for wrong in ("-1", "many", "1.5"):
        form = {**REST["tenant"], "calls_per_second": wrong}
        assert as_("superuser").post(page("tenant", "change", acme.tenant), form).status_code == 200
    assert Tenant.objects.get(slug="acme").calls_per_second is None
    form = {**REST["tenant"], "calls_per_second": "0"}
    assert as_("superuser").post(page("tenant", "change", acme.tenant), form).status_code == 302
    assert Tenant.objects.get(slug="acme").calls_per_second == 0


def test_the_page_of_a_tenant_says_how_many_sessions_the_hub_allows(as_: Any, page: Any, acme: Any) -> None:
    text = as_("admin").get(page("tenant", "change", acme.tenant)).content.decode()
    assert f"Currently: {DEFAULT_MAX_SESSIONS:,}." in text


def test_what_only_a_superuser_sets_says_so_to_an_admin(as_: Any, page: Any, acme: Any) -> None:
    address = page("tenant", "change", acme.tenant)
    fixed = as_("admin").get(address).content.decode()
    assert "Only superusers change them." in fixed
    assert "Only superusers change it." in fixed
    assert "as a JSON list" not in fixed
