"""What strangers may store until a person signs in: it is counted by network, and nobody fills it for others."""

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from tools_app.identity import principal
from tools_app.identity.oauth import clients, devices, pruning
from tools_app.models import (
    ClientSource,
    Connection,
    DeviceCode,
    Membership,
    OAuthClient,
    Role,
    SignInEvent,
    SignInStep,
    Tenant,
)
from tools_app.tenants import keys

pytestmark = pytest.mark.usefixtures("db", "no_tries_yet")

REDIRECT = "http://localhost:33418/callback"
HOME, CROWD = "192.0.2.{}", "2001:db8:7:{}::1"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rooms that are full soon."""
    for module, most, of_network in ((clients, "MAX_UNUSED", 4), (devices, "MAX_OPEN", 4)):
        monkeypatch.setattr(module, most, 6)
        monkeypatch.setattr(module, f"{most}_OF_NETWORK", of_network)


def register(address: str, name: str = "Robot", **more: Any) -> int:
    metadata = {"client_name": name, "redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none", **more}
    request = {"data": metadata, "content_type": "application/json", "REMOTE_ADDR": address}
    return Client().post("/oauth/register", **request).status_code


def let_pass(time: timedelta) -> None:
    """Let time pass since the registrations."""
    for row in OAuthClient.objects.all():
        OAuthClient.objects.filter(pk=row.pk).update(created_at=row.created_at - time)


def names() -> list[str]:
    return sorted(OAuthClient.objects.values_list("name", flat=True))


def open_consent(name: str) -> None:
    """Open the page that asks a member of a tenant to allow a client."""
    person = User.objects.create_user("ann")
    tenant = Tenant.objects.create(slug="acme", name="Acme")
    Membership.objects.create(user=person, tenant=tenant, role=Role.OPERATOR)
    browser = Client()
    browser.force_login(person)
    query = {
        "client_id": OAuthClient.objects.get(name=name).client_id,
        "redirect_uri": REDIRECT,
        "response_type": "code",
        "code_challenge": "c" * 43,
        "code_challenge_method": "S256",
    }
    assert browser.get(f"/oauth/authorize?{urlencode(query)}").status_code == 200


def test_networks_are_those_that_a_site_usually_has() -> None:
    addresses = ["192.0.2.77", "::ffff:192.0.2.1", "2001:db8:7:1::1", "2001:db8:7:2::1", "2001:db8:8::1", "no address"]
    assert [principal.site_of(address) for address in addresses] == [
        *["192.0.2.0/24"] * 2,
        *["2001:db8:7::/48"] * 2,
        "2001:db8:8::/48",
        "no address",
    ]


def test_who_registers_many_clients_takes_room_from_nobody_else() -> None:
    assert register(HOME.format(1), "Connected") == 201
    connected = OAuthClient.objects.get()
    tenant = Tenant.objects.create(slug="home", name="Home")
    Connection.objects.create(client=connected, tenant=tenant, key=keys.issue(tenant, "key")[0], redirect_uri=REDIRECT)
    assert register(HOME.format(2), "Asked") == 201
    open_consent("Asked")
    assert register(HOME.format(3), "Blocked") == 201
    OAuthClient.objects.filter(name="Blocked").update(blocked_at=timezone.now())
    let_pass(clients.FRESH * 2)

    # All of them are new, so that a person may be signing in with any: further ones of their network have to wait.
    assert [register(CROWD.format(number), f"Crowd {number}") for number in range(5)] == [201] * 4 + [503]
    assert register(HOME.format(4), "New") == 201
    # The room of all is full: whoever has most in it makes room, once that disturbs nobody.
    assert register("198.51.100.1", "Late") == 503
    let_pass(clients.FRESH * 2)
    assert register("198.51.100.1", "Late") == 201
    assert names() == ["Asked", "Blocked", "Connected", "Crowd 1", "Crowd 2", "Crowd 3", "Late", "New"]
    assert [register(CROWD.format(9), f"Crowd {number}") for number in (4, 5)] == [201] * 2
    assert names() == ["Asked", "Blocked", "Connected", "Crowd 3", "Crowd 4", "Crowd 5", "Late", "New"]


def test_clients_that_nobody_connected_and_expired_logins_are_deleted() -> None:
    for name in ("Old", "Asked"):
        register(HOME.format(1), name)
    let_pass(clients.UNUSED * 2)
    OAuthClient.objects.filter(name="Asked").update(last_used_at=timezone.now())
    register(HOME.format(1), "New")
    for days in (-1, 1):
        Session.objects.create(session_key=f"{days}", expire_date=timezone.now() + timedelta(days=days))
    SignInEvent.objects.update(at=timezone.now() - timedelta(days=91))
    recent = SignInEvent.objects.create(step=SignInStep.ASKED)
    pruning.prune()
    assert names() == ["Asked", "New"]
    assert [session.session_key for session in Session.objects.all()] == ["1"]
    assert list(SignInEvent.objects.all()) == [recent]


def test_documents_of_clients_that_nobody_connected_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MAX_UNUSED_DOCUMENTS", 2)
    for number in range(4):
        client_id = f"https://{number}.example/client"
        clients.from_document(client_id, {"client_id": client_id, "redirect_uris": [f"https://{number}.example/"]})
        let_pass(clients.FRESH * 2)
    rows = OAuthClient.objects.filter(source=ClientSource.DOCUMENT)
    assert sorted(rows.values_list("name", flat=True)) == ["2.example", "3.example"]


def test_who_starts_many_devices_takes_room_from_nobody_else() -> None:
    register(HOME.format(1), redirect_uris=[], grant_types=[devices.GRANT])
    client_id = OAuthClient.objects.get().client_id

    def start(address: str) -> Any:
        return Client().post("/oauth/device_authorization", {"client_id": client_id}, REMOTE_ADDR=address)

    entered = start(CROWD.format(0)).json()["user_code"]
    assert devices.find_open(entered)
    assert [start(CROWD.format(number)).status_code for number in range(1, 5)] == [200] * 3 + [503]
    oldest = DeviceCode.objects.filter(entered_at=None).earliest("created_at")
    assert [start(HOME.format(number)).status_code for number in range(3)] == [200] * 3
    assert not DeviceCode.objects.filter(pk=oldest.pk).exists()
    assert devices.find_open(entered)
    assert DeviceCode.objects.filter(network="192.0.2.0/24").count() == 3
    # What was decided waits no more.
    DeviceCode.objects.filter(network="2001:db8:7::/48").update(refused_at=timezone.now())
    assert start(CROWD.format(5)).status_code == 200
