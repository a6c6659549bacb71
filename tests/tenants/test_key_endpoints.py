"""API keys, personal tokens and the settings of a tenant in the REST API: what is kept, and what is refused."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from tests.rest import Api
from tests.worlds import World
from tools_app.models import ApiKey, Membership, Tenant
from tools_app.tenants import keys

DAY = 24 * 3600


@pytest.fixture
def admin(as_: Any) -> Api:
    return as_("admin")


def test_a_key_has_all_that_was_asked_for_and_passes_it_on(admin: Api, acme: World) -> None:
    wanted = {
        "tool_patterns": ["search_*"],
        "methods": ["tools/*"],
        "networks": ["10.0.0.0/8"],
        "toolset": "acme reading",
        "presentation": "auto",
        **{name: 10 + number for number, name in enumerate(keys.LIMITS)},
    }
    created = admin.post("keys/", {"tenant": "acme", "name": "laptop", "expires_at": "2100-01-01T00:00:00Z", **wanted})
    assert {name: created[name] for name in wanted} == wanted
    assert created["expires_at"] == "2100-01-01T00:00:00Z"
    new = admin.post(f"keys/{created['id']}/rotate/")
    assert {name: new[name] for name in wanted} == wanted


@pytest.mark.parametrize(("field", "value"), [("tool_patterns", "a b"), ("methods", "a b"), ("networks", "nowhere")])
def test_a_key_is_neither_made_nor_changed_with_what_restricts_nothing(
    admin: Api, acme: World, field: str, value: str
) -> None:
    made = admin.post("keys/", {"tenant": "acme", "name": "new", field: [value]}, status=400)
    changed = admin.patch(f"keys/{acme.apikey.pk}/", {field: [value]}, status=400)
    assert list(made["errors"]) == list(changed["errors"]) == [field]
    acme.apikey.refresh_from_db()
    assert getattr(acme.apikey, field) == []


def test_a_key_whose_toolset_is_unknown_is_not_made_without_one(admin: Api, globex: World) -> None:
    before = ApiKey.objects.count()
    for name in ("none", globex.toolset.name):
        problem = admin.post("keys/", {"tenant": "acme", "name": "new", "toolset": name}, status=400)
        assert list(problem["errors"]) == ["toolset"]
    assert ApiKey.objects.count() == before


@pytest.mark.parametrize(
    ("body", "seconds"), [({}, DAY), ({"overlap_seconds": 60}, 60), ({"overlap_seconds": 90 * DAY}, 90 * DAY)]
)
def test_a_rotated_key_stays_valid_for_a_day_or_for_as_long_as_was_asked_for(
    admin: Api, acme: World, body: dict[str, int], seconds: int
) -> None:
    before = timezone.now()
    admin.post(f"keys/{acme.apikey.pk}/rotate/", body)
    acme.apikey.refresh_from_db()
    assert acme.apikey.expires_at
    assert timedelta(0) <= acme.apikey.expires_at - before - timedelta(seconds=seconds) < timedelta(hours=1)


def test_a_key_is_found_by_its_first_characters(admin: Api, acme: World) -> None:
    keys.issue(acme.tenant, "other")
    found = admin.get(f"keys/?search={acme.apikey.prefix}")["results"]
    assert [row["id"] for row in found] == [str(acme.apikey.pk)]


def test_a_person_reads_their_own_roles_and_how_they_logged_in(
    as_: Any, people: dict[str, User], globex: World
) -> None:
    Membership.objects.create(user=people["auditor"], tenant=globex.tenant, role="operator")
    roles = [{"tenant": "acme", "role": "auditor"}, {"tenant": "globex", "role": "operator"}]
    for login in ("session", "token"):
        me = as_("auditor", login).get("me/")
        assert me == {
            "username": "auditor",
            "email": "auditor@example.com",
            "is_superuser": False,
            "login": login,
            "roles": roles,
        }
    assert [as_(role).get("me/")["is_superuser"] for role in ("superuser", "admin")] == [True, False]


@pytest.mark.parametrize(
    ("field", "value"), [("allowed_networks", "nowhere"), ("redacted_keys", " "), ("public_tools", "a b")]
)
def test_a_tenant_refuses_networks_names_and_patterns_that_are_none(
    as_: Any, acme: World, field: str, value: str
) -> None:
    problem = as_("superuser").patch("tenants/acme/", {field: [value]}, status=400)
    assert list(problem["errors"]) == [field]
    assert getattr(Tenant.objects.get(slug="acme"), field) == []


def test_a_slug_is_one_label_of_a_url_and_taken_once(as_: Any, acme: World) -> None:
    api: Api = as_("superuser")
    for slug, status in {"Not So": 400, "a/b": 400, "": 400, "a" * 64: 400, "acme": 409}.items():
        problem = api.post("tenants/", {"slug": slug, "name": "New"}, status=status)
        assert list(problem["errors"]) == ["slug"], slug
    created = api.post("tenants/", {"slug": "a" * 63, "name": "New"})
    assert created["endpoint"] == f"http://testserver/t/{'a' * 63}/mcp"
    assert api.get(f"tenants/{'a' * 63}/")["name"] == "New"


def test_a_tenant_is_found_by_its_slug_as_by_its_name(as_: Any, acme: World) -> None:
    Tenant.objects.create(slug="umbrella", name="Corporation")
    for text in ("UMBR", "CORP"):
        assert [row["slug"] for row in as_("superuser").get(f"tenants/?search={text}")["results"]] == ["umbrella"]
