"""Connections and client policies in the admin, and the reasons of failed sign-ins."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.browsers import browser_of
from tools_app.identity.oauth import clients, connections, tokens
from tools_app.models import (
    Change,
    ClientPolicy,
    Connection,
    Membership,
    OAuthClient,
    Role,
    SignInEvent,
    SignInStep,
    Tenant,
)


@pytest.fixture
def connect(tenant: Tenant) -> Any:
    """Connect a client for a user: `connect("ann")`."""

    def make(name: str, client: str = "Robot") -> Connection:
        person = User.objects.create_user(name)
        Membership.objects.create(user=person, tenant=tenant, role=Role.OPERATOR)
        row, _ = clients.register({"client_name": client, "redirect_uris": ["http://localhost/callback"]})
        allowed = {"names": ["echo"], "scope": "mcp:call", "redirect_uri": "http://localhost/callback", "days": 7}
        connection = connections.allow(tenant, person, row, **allowed)
        code = tokens.issue_code(connection, redirect_uri="http://localhost/callback", challenge="", scope="mcp:call")
        found = tokens.find_code(code, row.pk)
        assert found is not None
        tokens.exchange_code(found)
        return connection

    return make


def test_the_list_says_who_connected_what_and_how_it_stands(admin: Client, connect: Any) -> None:
    connect("ann")
    expired, gone = connect("ben"), connect("cleo")
    expired.key.expires_at = timezone.now()
    expired.key.save()
    Membership.objects.filter(user=gone.person).delete()
    page = admin.get(reverse("admin:tools_app_connection_changelist")).content.decode()
    for expected in ("Robot", "ann", "ben", "cleo", "Active", "Expired", "Person left", "1 name"):
        assert expected in page
    active = admin.get(reverse("admin:tools_app_connection_changelist") + "?status=active")
    assert [row.person.username for row in active.context["cl"].queryset] == ["ann"]
    ended = admin.get(reverse("admin:tools_app_connection_changelist") + "?status=ended")
    assert {row.person.username for row in ended.context["cl"].queryset} == {"ben", "cleo"}


def test_ending_one_asks_first_and_is_recorded(admin: Client, connect: Any) -> None:
    row = connect("ann")
    url = reverse("admin:tools_app_connection_end_connection", args=[row.pk])
    assert "Access ends within a second" in admin.get(url).content.decode()
    assert tokens.is_valid(row)
    admin.post(url)
    assert not tokens.is_valid(row)
    assert not tokens.valid_access_tokens().exists()
    change = Change.objects.get(kind="connection", action="revoked")
    assert (change.person_name, change.tenant_id) == ("boss", row.tenant_id)


def test_many_are_ended_at_once_and_none_of_another_tenant(admin: Client, connect: Any, other_tenant: Tenant) -> None:
    mine, foreign = connect("ann"), connect("ben")
    Connection.objects.filter(pk=foreign.pk).update(tenant=other_tenant)
    data = {"action": "end_selected", "confirmed": "1", "_selected_action": [mine.pk, foreign.pk]}
    admin.post(reverse("admin:tools_app_connection_changelist"), data)
    mine.key.refresh_from_db()
    foreign.key.refresh_from_db()
    assert mine.key.revoked_at
    assert foreign.key.revoked_at is None


def test_a_person_ends_their_own_and_nobody_elses(connect: Any) -> None:
    row, other = connect("ann"), connect("ben")
    client = browser_of(row.person)
    assert "Robot" in client.get("/connections").content.decode()
    assert client.post("/connections", {"connection": other.pk}).status_code == 404
    assert client.post("/connections", {"connection": "nonsense"}).status_code == 404
    assert client.post("/connections", {"connection": row.pk}).status_code == 302
    assert not tokens.is_valid(row)
    assert tokens.is_valid(other)
    assert "No application is connected" in client.get("/connections").content.decode()
    assert SignInEvent.objects.get(step=SignInStep.REVOKED).connection_id == row.pk
    assert Client().get("/connections").status_code == 302


def test_who_is_no_member_is_told_so_instead_of_a_login(connect: Any) -> None:
    client = browser_of(User.objects.create_user("outsider"))
    own = client.get("/connections").content.decode()
    assert "You are not a member of any tenant." in own
    assert "Go to mcphub" not in own
    assert 'action="/admin/logout/"' in own
    login = client.get("/admin/", follow=True).content.decode()
    assert "You are logged in as outsider, who is not a member of any tenant." in login
    assert 'href="/connections"' in login
    member = browser_of(connect("ann").person)
    assert "Go to mcphub" in member.get("/connections").content.decode()
    assert "not a member of any tenant" not in Client().get("/admin/", follow=True).content.decode()


def test_a_superuser_blocks_a_client_everywhere_and_lets_it_in_again(superuser: Client, connect: Any) -> None:
    row = connect("ann")
    url = reverse("admin:tools_app_oauthclient_block_client", args=[row.client_id])
    superuser.get(url)
    assert tokens.is_valid(row)
    superuser.post(url)
    assert not tokens.is_valid(row)
    assert Change.objects.get(kind="oauthclient", action="changed").person_name == "root"
    superuser.post(reverse("admin:tools_app_oauthclient_unblock_client", args=[row.client_id]))
    assert tokens.is_valid(row)
    assert OAuthClient.objects.get().blocked_at is None


@pytest.mark.parametrize("host", ["", "https://claude.ai", "claude.ai/path", "two words", "a" * 300, "\u00e4.example"])
def test_a_host_that_could_match_nothing_is_refused_everywhere(admin: Client, tenant: Tenant, host: str) -> None:
    data = {"tenant": str(tenant.pk), "host": host, "decision": "deny"}
    assert admin.post(reverse("admin:tools_app_clientpolicy_add"), data).status_code == 200
    body = {"tenant": tenant.slug, "host": host, "decision": "deny"}
    response = admin.post("/api/v1/client-policies/", body, content_type="application/json")
    assert response.status_code == 400
    assert not ClientPolicy.objects.exists()


@pytest.mark.parametrize(("model", "field", "most"), [("clientpolicy", "host", 255), ("tenantscope", "name", 40)])
def test_a_name_that_is_missing_or_too_long_has_one_message(
    admin: Client, tenant: Tenant, model: str, field: str, most: int
) -> None:
    for name, message in (("", "This field is required."), ("x" * (most + 1), f"has at most {most} characters")):
        response = admin.post(
            reverse(f"admin:tools_app_{model}_add"), {"tenant": str(tenant.pk), "decision": "allow", field: name}
        )
        (found,) = response.context["adminform"].form.errors[field]
        assert message in found


def test_a_tenant_has_so_many_policies_and_one_for_each_host(
    admin: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools_app.identity.oauth.policies.MAX_POLICIES", 1)
    data = {"tenant": str(tenant.pk), "host": "Claude.AI", "decision": "deny"}
    assert admin.post(reverse("admin:tools_app_clientpolicy_add"), data).status_code == 302
    assert ClientPolicy.objects.get().host == "claude.ai"
    page = admin.post(reverse("admin:tools_app_clientpolicy_add"), {**data, "host": "other.example"})
    assert "at most 1 client policies" in page.content.decode()
    monkeypatch.setattr("tools_app.identity.oauth.policies.MAX_POLICIES", 2)
    body = {"tenant": tenant.slug, "host": "claude.ai", "decision": "allow"}
    assert admin.post("/api/v1/client-policies/", body, content_type="application/json").status_code == 409


def test_the_api_shows_and_ends_connections(admin: Client, connect: Any) -> None:
    row = connect("ann")
    (found,) = admin.get("/api/v1/connections/?state=active").json()["results"]
    assert (found["client"], found["person"], found["names"]) == ("Robot", "ann", ["echo"])
    assert admin.post(f"/api/v1/connections/{row.pk}/end/").json()["revoked_at"]
    assert admin.get("/api/v1/connections/?state=active").json()["results"] == []
    assert len(admin.get("/api/v1/connections/?state=ended").json()["results"]) == 1


def test_sign_ins_are_seen_by_the_tenant_and_those_of_none_by_superusers(
    admin: Client, superuser: Client, tenant: Tenant, other_tenant: Tenant
) -> None:
    for name, owner in (("mine", tenant), ("theirs", other_tenant), ("nobodys", None)):
        SignInEvent.objects.create(step=SignInStep.REJECTED, reason=f"{name} failed", tenant=owner)
    url = reverse("admin:tools_app_signinevent_changelist")
    seen = admin.get(url).content.decode()
    assert "mine failed" in seen
    assert "theirs failed" not in seen
    assert "nobodys failed" not in seen
    assert "nobodys failed" in superuser.get(url).content.decode()
    assert [row["reason"] for row in admin.get("/api/v1/sign-ins/").json()["results"]] == ["mine failed"]
