"""The internal key of a connection is not an API key: it cannot be shown, rotated or used elsewhere."""

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from tools_app.identity.oauth import clients, connections
from tools_app.models import ApiKey, Connection, Membership, OAuthClient, Role, Tenant
from tools_app.tenants import keys


@pytest.fixture
def ann(tenant: Tenant) -> User:
    person = User.objects.create_user("ann", password="correct horse battery")
    Membership.objects.create(user=person, tenant=tenant, role=Role.ADMIN)
    return person


@pytest.fixture
def application(db: None) -> OAuthClient:
    return clients.register({"redirect_uris": ["http://localhost/cb"], "client_name": "Robot"})[0]


@pytest.fixture
def connection(tenant: Tenant, ann: User, application: OAuthClient) -> Connection:
    return connections.allow(
        tenant, ann, application, names=["echo"], scope="mcp:call", redirect_uri="http://localhost/cb", days=7
    )


@pytest.fixture
def browser(ann: User) -> Client:
    client = Client()
    client.force_login(ann)
    return client


def test_no_list_of_keys_shows_it(browser: Client, connection: Connection) -> None:
    assert "Robot" not in browser.get(reverse("admin:tools_app_apikey_changelist")).content.decode()
    assert browser.get(reverse("admin:tools_app_apikey_change", args=[connection.key_id])).status_code == 404
    assert browser.get(reverse("admin:connect", args=[connection.key_id])).status_code == 404
    assert browser.get("/api/v1/keys/").json()["results"] == []
    assert browser.get(f"/api/v1/keys/{connection.key_id}/").status_code == 404
    assert str(connection.key_id) not in browser.get(reverse("admin:playground")).content.decode()


def test_nobody_acts_as_it(browser: Client, connection: Connection) -> None:
    response = browser.post(reverse("admin:playground_pass"), {"key": connection.key_id})
    assert response.status_code == 409


def test_it_is_not_rotated_and_its_end_is_no_alarm(tenant: Tenant, connection: Connection) -> None:
    with pytest.raises(CommandError, match="no such key"):
        call_command("rotate_key", key=str(connection.key_id), tenant=tenant.slug)
    assert not keys.expiring_soon().exists()


def test_an_admin_sees_and_keeps_what_was_ticked(browser: Client, connection: Connection) -> None:
    exact = ["prompt=wipe", "resource=hr://*?[a]"]
    ApiKey.objects.filter(pk=connection.key_id).update(tool_patterns=exact)
    page = browser.get(reverse("admin:tools_app_connection_change", args=[connection.pk])).content.decode()
    assert all(f"<code>{entry}</code>" in page for entry in exact)
    address = f"/api/v1/connections/{connection.pk}/"
    assert browser.get(address).json()["names"] == exact
    changed = browser.patch(address, {"tool_patterns": [*exact, "tool=echo"]}, content_type="application/json")
    assert changed.json()["names"] == [*exact, "tool=echo"]
