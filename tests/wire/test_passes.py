"""Impersonation tokens at the endpoint: a call belongs to the key, and its record names the person."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from tests.wire.client import RawClient
from tools_app.models import ApiKey, Call, Membership, Role, Session, Tenant
from tools_app.server.embedded import EmbeddedHub
from tools_app.tenants import impersonation, keys

MakeClient = Callable[..., RawClient]


@pytest.fixture
def row(tenant: Tenant) -> ApiKey:
    return keys.issue(tenant, "laptop")[0]


@pytest.fixture
def admin(tenant: Tenant) -> User:
    user = User.objects.create_user("ada")
    Membership.objects.create(user=user, tenant=tenant, role=Role.ADMIN)
    return user


@pytest.fixture
def client(hub: EmbeddedHub, make_client: MakeClient, row: ApiKey, admin: User) -> RawClient:
    """A client with an impersonation token."""
    return make_client(impersonation.issue(row, admin))


def revoke_key(row: ApiKey, person: User) -> None:
    keys.revoke(row)


def demote(row: ApiKey, person: User) -> None:
    Membership.objects.filter(user=person).update(role=Role.AUDITOR)


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_a_call_by_pass_is_recorded_under_the_key_and_names_the_person(
    client: RawClient, offer: Callable[..., Any], row: ApiKey, version: str
) -> None:
    offer("echo")
    answer = client.peer(version).request("tools/call", {"name": "echo", "arguments": {"message": "you"}})
    assert answer.json()["result"]["content"][0]["text"] == "hello you"
    call = Call.objects.get(tool_name="echo")
    assert (call.api_key_id, call.client_name, call.outcome) == (row.pk, "playground (ada)", "ok")
    assert {session.client_name for session in Session.objects.all()} <= {"playground (ada)"}
    row.refresh_from_db()
    assert row.last_used_at is None


@pytest.mark.parametrize("end", [revoke_key, demote])
def test_the_endpoint_refuses_a_pass_within_a_second_of_its_end(
    client: RawClient,
    row: ApiKey,
    admin: User,
    end: Callable[[ApiKey, User], None],
    eventually: Callable[..., object],
) -> None:
    assert client.modern("server/discover").status_code == 200
    end(row, admin)
    eventually(lambda: client.modern("server/discover").status_code == 401)


def test_a_pass_of_one_tenant_is_a_stranger_at_anothers_address(
    client: RawClient, make_client: MakeClient, other_tenant: Tenant
) -> None:
    stranger = make_client(client.key, f"/t/{other_tenant.slug}/mcp")
    assert stranger.modern("server/discover").status_code == 404


def test_a_page_of_the_hub_itself_may_call_with_a_pass(hub: EmbeddedHub, client: RawClient) -> None:
    assert client.modern("server/discover", headers={"Origin": hub.url}).status_code == 200
    assert client.modern("server/discover", headers={"Origin": "https://elsewhere.example"}).status_code == 403
