"""The device authorization grant (RFC 8628): user codes, the page where they are entered, and polling."""

from datetime import timedelta
from html import unescape
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from tests.identity.oauth.person import Application, Person, parse_form
from tests.wire.client import RawClient
from tools_app.identity.authorization import device_page
from tools_app.identity.oauth import clients, devices
from tools_app.models import (
    AccessToken,
    ClientDecision,
    ClientPolicy,
    Connection,
    DeviceCode,
    Membership,
    OAuthClient,
    Role,
    SignInEvent,
    SignInStep,
    Tenant,
)
from tools_app.server.embedded import EmbeddedHub

Codes = dict[str, Any]


@pytest.fixture
def device(application: Application) -> Application:
    """A client without a browser."""
    response = application.register(redirect_uris=[], grant_types=[devices.GRANT, "refresh_token"])
    assert response.status_code == 201, response.text
    assert response.json()["grant_types"] == [devices.GRANT, "refresh_token"]
    return application


def request_codes(device: Application, **fields: str) -> httpx.Response:
    resource = {"resource": device.resource} if device.resource else {}
    data = {"client_id": device.client_id, **resource, **fields}
    return device.http.post("/oauth/device_authorization", data=data)


def poll(device: Application, codes: Codes) -> httpx.Response:
    return device.token(grant_type=devices.GRANT, device_code=codes["device_code"])


def enter(person: Person, code: str, **fields: str) -> httpx.Response:
    """Submit the code in the page's form."""
    page = person.open(f"{person.base}/device")
    data = {**parse_form(page.text).fields, "user_code": code, **fields}
    return person.browser.post("/device", data=data, headers={"Origin": person.base})


def errors(*responses: httpx.Response) -> list[str]:
    return [response.json()["error"] for response in responses]


def test_a_device_gets_tokens_after_its_person_allowed_it(hub: EmbeddedHub, ann: Person, device: Application) -> None:
    codes = request_codes(device).json()
    assert codes["verification_uri"] == f"{hub.url}/device"
    assert codes["verification_uri_complete"].startswith(f"{hub.url}/device?user_code=")
    assert (codes["expires_in"], codes["interval"]) == (600, 5)
    assert errors(poll(device, codes)) == ["authorization_pending"]
    page = enter(ann, codes["user_code"].lower().replace("-", " "))
    assert f"shows the code <strong>{codes['user_code']}</strong>" in page.text
    assert "Acme" in page.text
    result = ann.decide(page, tools=["echo"])
    assert "Go back to the device." in result.text
    issued = poll(device, codes)
    assert issued.status_code == 200, issued.text
    assert issued.headers["cache-control"] == "no-store"
    connection = Connection.objects.get()
    assert (connection.person.username, connection.key.tool_patterns) == ("ann", ["tool=echo"])
    client = RawClient(hub.url, issued.json()["access_token"], "/t/acme/mcp")
    with client.http:
        assert [tool["name"] for tool in client.modern("tools/list").json()["result"]["tools"]] == ["echo"]
    assert device.refresh(issued.json()["refresh_token"]).status_code == 200
    steps = list(SignInEvent.objects.order_by("at", "id").values_list("step", flat=True))
    assert steps == ["client_seen", "challenged", "asked", "allowed", "issued", "refreshed"]


def test_a_link_fills_in_the_code_and_decides_nothing(ann: Person, device: Application) -> None:
    codes = request_codes(device).json()
    page = ann.open(codes["verification_uri_complete"])
    assert parse_form(page.text).fields["user_code"] == codes["user_code"]
    assert device.client_id not in page.text
    ann.open(f"{codes['verification_uri_complete']}&decision=allow&tenant=acme")
    assert not Connection.objects.exists()
    assert errors(poll(device, codes)) == ["authorization_pending"]


def test_a_code_is_entered_by_a_page_of_the_hub_only(device: Application) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("root"))
    code = request_codes(device).json()["user_code"]
    assert client.post("/device", {"user_code": code, "decision": "allow"}).status_code == 403
    page = client.get("/device")
    assert "frame-ancestors 'none'" in page["Content-Security-Policy"]
    assert page["Cache-Control"].startswith("max-age=0")


def test_nobody_enters_a_code_without_logging_in(device: Application) -> None:
    code = request_codes(device).json()["user_code"]
    response = Client().get(f"/device?user_code={code}")
    assert response.status_code == 302
    assert response["Location"].startswith("/admin/login/?next=/device%3Fuser_code%3D")


def test_what_is_refused_stays_refused(ann: Person, device: Application) -> None:
    codes = request_codes(device).json()
    result = ann.decide(enter(ann, codes["user_code"]), "deny")
    assert "was not connected" in result.text
    assert errors(poll(device, codes), poll(device, codes)) == ["access_denied"] * 2
    assert "unknown, was used, or has expired" in enter(ann, codes["user_code"]).text
    assert SignInEvent.objects.filter(step=SignInStep.DENIED, tenant__slug="acme").count() == 1


def test_who_asks_too_often_is_slowed_down(ann: Person, device: Application) -> None:
    codes = request_codes(device).json()
    assert errors(*(poll(device, codes) for _ in range(3))) == ["authorization_pending", "slow_down", "slow_down"]
    assert DeviceCode.objects.get().interval == 15
    DeviceCode.objects.update(polled_at=timezone.now() - timedelta(seconds=15))
    assert errors(poll(device, codes)) == ["authorization_pending"]
    # Polling while waiting is not recorded as a failed sign-in.
    assert not SignInEvent.objects.filter(step=SignInStep.REJECTED).exists()


def test_a_code_is_good_for_ten_minutes(ann: Person, device: Application) -> None:
    codes = request_codes(device).json()
    page = enter(ann, codes["user_code"])
    DeviceCode.objects.update(expires_at=timezone.now())
    assert "unknown, was used, or has expired" in ann.decide(page, tools=["echo"]).text
    assert errors(poll(device, codes)) == ["expired_token"]


def test_a_code_that_expires_while_its_person_decides_allows_nothing(
    ann: Person, device: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = enter(ann, request_codes(device).json()["user_code"])
    monkeypatch.setattr(devices, "allow", lambda *_: False)
    assert "has expired meanwhile" in ann.decide(page, tools=["echo"]).text
    assert not Connection.objects.exists()
    assert not SignInEvent.objects.filter(step=SignInStep.ALLOWED).exists()


def test_a_device_code_is_good_once_and_its_replay_ends_the_tokens(ann: Person, device: Application) -> None:
    codes = request_codes(device).json()
    ann.decide(enter(ann, codes["user_code"]), tools=["echo"])
    assert poll(device, codes).status_code == 200
    assert errors(poll(device, codes)) == ["invalid_grant"]
    assert not AccessToken.objects.exists()


def test_a_device_code_is_of_one_client(hub: EmbeddedHub, ann: Person, device: Application) -> None:
    codes = request_codes(device).json()
    ann.decide(enter(ann, codes["user_code"]), tools=["echo"])
    other = Application(hub.url, device.resource)
    other.register(grant_types=[devices.GRANT], redirect_uris=[])
    assert errors(poll(other, codes)) == ["invalid_grant"]
    assert poll(device, codes).status_code == 200
    other.close()


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"client_id": "nobody"}, "invalid_client"),
        ({"resource": "https://elsewhere.example/mcp"}, "invalid_target"),
        ({"scope": "x" * 3000}, "invalid_request"),
    ],
)
def test_a_faulty_request_gets_no_code(device: Application, fields: dict[str, str], error: str) -> None:
    assert errors(request_codes(device, **fields)) == [error]
    assert not DeviceCode.objects.exists()


def test_a_client_that_does_not_name_the_grant_gets_no_code(application: Application) -> None:
    """Otherwise anyone could request codes in the name of a well-known public client."""
    application.register()
    assert errors(request_codes(application)) == ["unauthorized_client"]
    document = {"client_id": "https://a.example/x", "redirect_uris": ["https://a.example/"]}
    application.client_id = clients.from_document("https://a.example/x", document).client_id
    assert errors(request_codes(application)) == ["unauthorized_client"]
    OAuthClient.objects.filter(client_id=application.client_id).update(grant_types=[devices.GRANT])
    assert request_codes(application).status_code == 200


@pytest.mark.parametrize(
    ("host", "decision", "is_told"),
    [
        ("device:", ClientDecision.DENY, True),
        ("*", ClientDecision.ASK, True),
        ("localhost", ClientDecision.DENY, False),
    ],
)
def test_a_tenant_decides_about_devices(
    ann: Person, device: Application, tenant: Tenant, host: str, decision: ClientDecision, is_told: bool
) -> None:
    ClientPolicy.objects.create(tenant=tenant, host=host, decision=decision)
    page = enter(ann, request_codes(device).json()["user_code"])
    assert ("does not allow Test application" in page.text) is is_told


def test_a_policy_for_devices_counts_for_a_client_with_a_verified_host(
    ann: Person, application: Application, tenant: Tenant
) -> None:
    client_id = "https://code.example/client"
    uris = ["https://code.example/redirect"]
    grants = ["authorization_code", devices.GRANT]
    clients.from_document(client_id, {"client_id": client_id, "redirect_uris": uris, "grant_types": grants})
    application.client_id = client_id
    ClientPolicy.objects.create(tenant=tenant, host="code.example", decision=ClientDecision.ALLOW)
    code = request_codes(application).json()["user_code"]
    assert parse_form(enter(ann, code).text).fields["tenant"] == "acme"
    ClientPolicy.objects.create(tenant=tenant, host="device:", decision=ClientDecision.DENY)
    assert enter(ann, code).status_code == 403


def test_somebody_of_several_tenants_chooses_one(ann: Person, device: Application) -> None:
    second = Tenant.objects.create(slug="second", name="Second")
    Membership.objects.create(user=User.objects.get(username="ann"), tenant=second, role=Role.AUDITOR)
    device.resource = ""
    codes = request_codes(device).json()
    page = enter(ann, codes["user_code"])
    assert {"Acme", "Second"} <= set(unescape(page.text).split())
    ann.decide(enter(ann, codes["user_code"], tenant="acme"), tools=["echo"])
    assert poll(device, codes).status_code == 200
    assert Connection.objects.get().tenant.slug == "acme"


def test_who_is_no_member_connects_no_device(hub: EmbeddedHub, ann: Person, device: Application) -> None:
    Tenant.objects.create(slug="rival", name="Rival")
    device.resource = f"{hub.url}/t/rival/mcp"
    code = request_codes(device).json()["user_code"]
    assert "who is no member of rival" in enter(ann, code).text
    # Nor with another tenant than the device requested.
    assert enter(ann, code, tenant="acme", decision="allow").status_code == 403
    assert not Connection.objects.exists()


def test_guesses_of_one_person_are_bounded(ann: Person, device: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_page, "MAX_ATTEMPTS", 2)
    responses = [enter(ann, code).status_code for code in ("BBBB-BBBB", "nonsense", "BBBB-BBBB")]
    assert responses == [400, 400, 429]


def test_a_blocked_client_gets_neither_a_code_nor_tokens(ann: Person, device: Application) -> None:
    codes = request_codes(device).json()
    ann.decide(enter(ann, codes["user_code"]), tools=["echo"])
    OAuthClient.objects.update(blocked_at=timezone.now())
    assert errors(poll(device, codes), request_codes(device)) == ["invalid_client"] * 2


def test_no_code_of_a_device_is_kept(device: Application) -> None:
    codes = request_codes(device).json()
    stored = str([list(model.objects.values()) for model in (DeviceCode, SignInEvent)])
    for code in (codes["device_code"], codes["user_code"], codes["user_code"].replace("-", "")):
        assert code not in stored
