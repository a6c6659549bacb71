"""API keys in the admin: a key is shown once, then only its prefix."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tools_app.models import ApiKey
from tools_app.tenants import keys


def issue(client: Any, page: Any, tenant: Any, **values: Any) -> Any:
    form = {"tenant": tenant.pk, "name": "CI robot", "expires_at_0": "", "expires_at_1": "", "calls_per_minute": ""}
    return client.post(page("apikey", "add"), form | values, follow=True)


def shown_key(response: Any) -> str:
    found = re.search(r"mcphub_[\w-]{43}", response.content.decode())
    assert found
    return found.group()


def test_a_new_key_is_shown_once_with_what_a_client_needs(as_: Any, page: Any, acme: Any) -> None:
    client = as_("admin")
    response = issue(client, page, acme.tenant, calls_per_minute="60")
    key, text = shown_key(response), response.content.decode()
    row = ApiKey.objects.get(name="CI robot")
    assert response.status_code == 200
    assert (row.digest, row.calls_per_minute, row.created_by.username) == (keys.digest_of(key), 60, "admin")
    assert "http://testserver/t/acme/mcp" in text
    assert "claude mcp add --transport http acme" in text
    assert "mcpServers" in text
    for view in ("change", "history"):
        assert key not in client.get(page("apikey", view, row)).content.decode()
    assert key not in client.get(page("apikey", "changelist")).content.decode()


def test_the_answer_that_shows_a_key_is_kept_nowhere(as_: Any, page: Any, acme: Any) -> None:
    client = as_("admin")
    response = issue(client, page, acme.tenant)
    key = shown_key(response)
    assert "no-store" in response["Cache-Control"]
    assert key not in response.cookies.output()
    assert key not in str(dict(client.session))


@pytest.mark.parametrize("role", ["superuser", "admin", "auditor"])
def test_no_page_shows_a_keys_digest(as_: Any, page: Any, acme: Any, role: str) -> None:
    client = as_(role)
    for address in (page("apikey", "changelist"), page("apikey", "change", acme.apikey)):
        assert acme.apikey.digest not in client.get(address).content.decode()


def test_a_key_of_a_foreign_tenant_cannot_be_issued(as_: Any, page: Any, globex: Any) -> None:
    response = issue(as_("admin"), page, globex.tenant)
    assert "Select a valid choice" in response.content.decode()
    assert not ApiKey.objects.filter(name="CI robot").exists()


def test_an_admin_changes_name_expiry_and_limit_of_a_key_and_nothing_else(as_: Any, page: Any, acme: Any) -> None:
    form = {"name": "Renamed", "expires_at_0": "2030-01-01", "expires_at_1": "10:00", "calls_per_minute": "5"}
    smuggled = {"digest": "0" * 64, "prefix": "mine", "tenant": "", "revoked_at_0": "2020-01-01"}
    before = acme.apikey.digest
    response = as_("admin").post(page("apikey", "change", acme.apikey), form | smuggled)
    acme.apikey.refresh_from_db()
    assert response.status_code == 302
    assert (acme.apikey.name, acme.apikey.calls_per_minute, acme.apikey.expires_at.year) == ("Renamed", 5, 2030)
    assert (acme.apikey.digest, acme.apikey.revoked_at) == (before, None)


def test_a_key_acts_for_who_issues_it_if_they_say_so_and_nobody_changes_that_later(
    as_: Any, page: Any, acme: Any
) -> None:
    issue(as_("admin"), page, acme.tenant, acts_for_creator="on")
    row = ApiKey.objects.get(name="CI robot")
    assert (row.acts_for_creator, row.created_by.username) == (True, "admin")
    for key in (row, acme.apikey):
        before = key.acts_for_creator
        form = {"name": "Renamed", "acts_for_creator": "" if before else "on"}
        as_("superuser").post(page("apikey", "change", key), form)
        key.refresh_from_db()
        assert (key.name, key.acts_for_creator) == ("Renamed", before)


def test_a_key_that_acts_for_somebody_else_can_only_be_renamed_and_revoked(as_: Any, page: Any, acme: Any) -> None:
    issue(as_("admin"), page, acme.tenant, acts_for_creator="on", networks="::1/128")
    row = ApiKey.objects.get(name="CI robot")
    address, other = page("apikey", "change", row), as_("superuser")
    assert "This key acts for admin." in other.get(address).content.decode()
    assert "This key acts for" not in as_("admin").get(address).content.decode()
    same = {"name": "Renamed", "networks": "::1/128"}
    for changes in ({"networks": ""}, {"expires_at_0": "2100-01-01", "expires_at_1": "00:00"}, {"calls_per_day": "5"}):
        html = other.post(address, same | changes).content.decode()
        assert "Only admin can change a key that acts for them. Revoke it instead." in html
        row.refresh_from_db()
        assert (row.name, row.networks, row.expires_at, row.calls_per_day) == ("CI robot", ["::1/128"], None, None)
    other.post(address, same)
    row.refresh_from_db()
    assert row.name == "Renamed"
    as_("admin").post(address, same | {"networks": ""})
    row.refresh_from_db()
    assert row.networks == []
    other.post(page("apikey", "rotate_key", row), {"overlap": "day"})
    html = other.post(page("apikey", "overlap_key", row), {"overlap": "month"}, follow=True).content.decode()
    assert "Only admin can change" in html
    other.post(page("apikey", "revoke_key", row))
    row.refresh_from_db()
    assert row.revoked_at


def test_saving_a_key_does_not_undo_a_revocation_that_came_between(as_: Any, page: Any, acme: Any) -> None:
    client, address = as_("admin"), page("apikey", "change", acme.apikey)
    client.get(address)
    keys.revoke(acme.apikey)
    client.post(address, {"name": "Renamed", "expires_at_0": "", "expires_at_1": "", "calls_per_minute": ""})
    acme.apikey.refresh_from_db()
    assert acme.apikey.revoked_at


def test_revoking_asks_first(as_: Any, page: Any, acme: Any) -> None:
    client, address = as_("admin"), page("apikey", "revoke_key", acme.apikey)
    assert "Revoke API key?" in client.get(address).content.decode()
    acme.apikey.refresh_from_db()
    assert acme.apikey.revoked_at is None
    assert client.post(address).status_code == 302
    acme.apikey.refresh_from_db()
    assert acme.apikey.revoked_at
    assert "Revoked" in client.get(page("apikey", "changelist")).content.decode()


def test_selected_keys_are_revoked_once_that_is_confirmed(as_: Any, page: Any, acme: Any) -> None:
    client, address = as_("admin"), page("apikey", "changelist")
    form = {"action": "revoke_selected", "_selected_action": str(acme.apikey.pk)}
    assert "Revoke API key?" in client.post(address, form).content.decode()
    acme.apikey.refresh_from_db()
    assert acme.apikey.revoked_at is None
    client.post(address, form | {"confirmed": "1"})
    acme.apikey.refresh_from_db()
    assert acme.apikey.revoked_at


@pytest.mark.parametrize("role", ["auditor", "stranger"])
def test_keys_that_somebody_only_reads_or_does_not_see_are_not_revoked_in_bulk(
    as_: Any, page: Any, acme: Any, role: str
) -> None:
    form = {"action": "revoke_selected", "_selected_action": str(acme.apikey.pk), "confirmed": "1"}
    as_(role).post(page("apikey", "changelist"), form)
    acme.apikey.refresh_from_db()
    assert acme.apikey.revoked_at is None


def test_keys_are_listed_by_whether_they_open_the_door(as_: Any, page: Any, acme: Any) -> None:
    yesterday = timezone.now() - timedelta(days=1)
    keys.issue(acme.tenant, "old", expires_at=yesterday)
    keys.revoke(keys.issue(acme.tenant, "lost")[0])
    client = as_("admin")
    for status, name in (("active", "acme laptop"), ("expired", "old"), ("revoked", "lost")):
        listed = client.get(page("apikey", "changelist"), {"status": status}).context["cl"].queryset
        assert [key.name for key in listed] == [name]


@pytest.mark.parametrize(
    ("model", "field", "label"),
    [
        ("apikey", "toolset", "None"),
        ("apikey", "presentation", "As the tenant"),
        ("upstream", "credential", "None"),
        ("alertrule", "tenant", "The whole hub"),
        ("tool", "tenant", "Select value"),
    ],
)
def test_an_empty_choice_says_what_it_means(as_: Any, page: Any, model: str, field: str, label: str) -> None:
    html = as_("superuser").get(page(model, "add")).content.decode()
    assert re.search(rf'<select name="{field}".*?<option value=""[^>]*>([^<]*)<', html, re.DOTALL)[1] == label  # type: ignore[index]
