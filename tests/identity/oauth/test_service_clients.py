"""Service clients: programs with the client credentials grant, created by admins."""

import base64
import json
import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from joserfc import jwt
from joserfc.jwk import ECKey

from tests.identity.oauth.person import Application
from tests.wire.client import RawClient
from tools_app.identity.authorization.server import ASSERTION_TYPE
from tools_app.identity.oauth import service_clients, tokens
from tools_app.models import (
    AccessToken,
    Call,
    Change,
    ClientDecision,
    ClientPolicy,
    Connection,
    OAuthClient,
    ServiceClient,
    SignInEvent,
    Tenant,
)
from tools_app.server.embedded import EmbeddedHub

KEY = ECKey.generate_key("P-256", {"kid": "one"})


class Program:
    """A program with the credentials of a service client."""

    def __init__(self, application: Application, row: ServiceClient, secret: str = "") -> None:
        self.application, self.client_id, self.secret = application, row.connection.client.client_id, secret

    def token(self, *, basic: bool = False, **fields: str) -> httpx.Response:
        data = {"grant_type": "client_credentials"}
        headers = {}
        if basic:
            pair = base64.b64encode(f"{self.client_id}:{self.secret}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
        elif self.secret:
            data |= {"client_id": self.client_id, "client_secret": self.secret}
        return self.application.http.post("/oauth/token", data=data | fields, headers=headers)


def access(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    token: str = response.json()["access_token"]
    return token


def tools(hub: EmbeddedHub, token: str, path: str = "/t/acme/mcp") -> list[str] | int:
    """The names of the tools that a token can list, or the error status."""
    client = RawClient(hub.url, token, path)
    with client.http:
        response = client.modern("tools/list")
    if response.status_code != 200:
        return response.status_code
    return sorted(tool["name"] for tool in response.json()["result"]["tools"])


@pytest.fixture
def issued(hub: EmbeddedHub, tenant: Tenant, offer: Any) -> tuple[ServiceClient, str]:
    offer("calculator", "count", "echo")
    return service_clients.create(tenant, "Nightly report", tool_patterns=["echo", "count"])


@pytest.fixture
def program(application: Application, issued: tuple[ServiceClient, str]) -> Program:
    return Program(application, *issued)


@pytest.mark.parametrize("basic", [True, False])
def test_a_program_gets_a_token_for_an_hour_and_nothing_to_renew_it(
    hub: EmbeddedHub, program: Program, basic: bool
) -> None:
    response = program.token(basic=basic, resource=program.application.resource)
    token = response.json()
    assert (token["token_type"], token["expires_in"], token["scope"]) == ("Bearer", 3600, "mcp:read mcp:call")
    assert "refresh_token" not in token
    assert response.headers["cache-control"] == "no-store"
    assert tools(hub, access(response)) == ["count", "echo"]
    assert tools(hub, access(response), "/t/rival/mcp") == 401


def test_its_calls_are_recorded_under_its_name(hub: EmbeddedHub, program: Program, eventually: Any) -> None:
    client = RawClient(hub.url, access(program.token()), "/t/acme/mcp")
    with client.http:
        response = client.modern("tools/call", {"name": "echo", "arguments": {"message": "x"}})
    assert "result" in response.json()
    eventually(lambda: Call.objects.filter(api_key__name="Nightly report").exists())
    event = SignInEvent.objects.get()
    assert (event.step, event.person_name, event.client_name) == ("issued", "", "Nightly report")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"client_secret": "wrong"}, "invalid_client"),
        ({"client_secret": ""}, "invalid_client"),
        ({"client_id": "nobody"}, "invalid_client"),
        ({"resource": "https://elsewhere.example/mcp"}, "invalid_target"),
        ({"grant_type": "refresh_token", "refresh_token": "x"}, "unauthorized_client"),
    ],
)
def test_whoever_is_not_the_program_gets_nothing(program: Program, fields: dict[str, str], error: str) -> None:
    assert program.token(**fields).json()["error"] == error
    assert not AccessToken.objects.exists()


def test_a_token_is_of_the_tenant_that_made_the_client(
    hub: EmbeddedHub, program: Program, other_tenant: Tenant
) -> None:
    response = program.token(resource=f"{hub.url}/t/{other_tenant.slug}/mcp")
    assert response.json()["error"] == "invalid_target"


def test_another_client_does_not_use_this_grant(application: Application) -> None:
    application.register(token_endpoint_auth_method="client_secret_post")
    response = application.token(grant_type="client_credentials", client_secret=application.secret)
    assert response.json()["error"] == "unauthorized_client"


def test_no_person_is_ever_asked_for_a_service_client(ann: Any, program: Program) -> None:
    program.application.client_id = program.client_id
    assert "Wrong return address" in ann.open(program.application.url()).text


def test_a_token_may_be_asked_for_less(hub: EmbeddedHub, program: Program) -> None:
    response = program.token(scope="mcp:read")
    assert response.json()["scope"] == "mcp:read"
    client = RawClient(hub.url, access(response), "/t/acme/mcp")
    with client.http:
        assert client.modern("tools/call", {"name": "echo", "arguments": {"message": "x"}}).status_code == 403


def test_the_end_of_a_service_client_ends_its_tokens_within_a_second(
    hub: EmbeddedHub, program: Program, issued: tuple[ServiceClient, str], eventually: Any
) -> None:
    token = access(program.token())
    assert tools(hub, token) == ["count", "echo"]
    service_clients.revoke(issued[0])
    eventually(lambda: tools(hub, token) == 401)
    assert program.token().json()["error"] == "invalid_grant"


def test_narrower_names_and_limits_count_for_the_tokens_that_it_has(
    hub: EmbeddedHub, program: Program, eventually: Any
) -> None:
    token = access(program.token())
    assert tools(hub, token) == ["count", "echo"]
    ServiceClient.objects.update(tool_patterns=["echo"])
    eventually(lambda: tools(hub, token) == ["echo"])
    ServiceClient.objects.update(requests_per_day=0)
    eventually(lambda: tools(hub, token) == 429)


def test_the_policies_for_what_people_connect_do_not_concern_it(program: Program, tenant: Tenant) -> None:
    ClientPolicy.objects.create(tenant=tenant, host="*", decision=ClientDecision.DENY)
    assert program.token().status_code == 200


def test_a_new_secret_replaces_the_old_one_at_once(
    hub: EmbeddedHub, program: Program, issued: tuple[ServiceClient, str]
) -> None:
    token = access(program.token())
    secret = service_clients.rotate_secret(issued[0])
    assert program.token().json()["error"] == "invalid_client"
    program.secret = secret
    assert program.token().status_code == 200
    assert tools(hub, token) == ["count", "echo"]


def test_a_program_may_sign_in_place_of_a_secret(
    hub: EmbeddedHub, application: Application, tenant: Tenant, offer: Any
) -> None:
    offer("echo")
    row, secret = service_clients.create(tenant, "Signer", public_keys=KEY.as_dict(private=False))
    assert secret == ""
    program = Program(application, row)

    def signed(**changes: Any) -> dict[str, str]:
        claims = {
            "iss": program.client_id,
            "sub": program.client_id,
            "aud": hub.url,
            "exp": int(time.time()) + 60,
            "jti": str(uuid4()),
            **changes,
        }
        return {
            "client_assertion_type": ASSERTION_TYPE,
            "client_assertion": jwt.encode({"alg": "ES256", "kid": "one"}, claims, KEY, algorithms=["ES256"]),
        }

    assert tools(hub, access(program.token(**signed()))) == ["echo"]
    assert program.token(**signed(aud="https://elsewhere.example")).status_code == 401
    assert program.token(client_id=program.client_id, client_secret="x").json()["error"] == "invalid_client"


# --- In the admin and the REST API --------------------------------------------------------------------------------


def test_an_admin_creates_one_and_sees_its_secret_once(admin: Client, tenant: Tenant) -> None:
    data = {"tenant": str(tenant.pk), "name": "Job", "tool_patterns": "echo", "methods": "", "networks": ""}
    response = admin.post(reverse("admin:tools_app_serviceclient_add"), data)
    assert response.status_code == 302, response.content.decode()
    row = ServiceClient.objects.get()
    assert response["Location"] == reverse("admin:tools_app_serviceclient_issued", args=[row.pk])
    page = admin.get(response["Location"]).content.decode()
    assert "mcphub_cs_" in page
    assert row.connection.client.client_id in page
    gone = admin.get(response["Location"])
    assert gone.status_code == 410
    assert "mcphub_cs_" not in gone.content.decode()
    stored = str([list(model.objects.values()) for model in (Change, OAuthClient, ServiceClient)])
    secret = page.split("mcphub_cs_")[1][:43]
    assert secret not in stored
    assert row.connection.client.secret_digest not in str(list(Change.objects.values()))
    # It is not listed among the API keys, and has its name among the connections.
    assert "Job" not in admin.get(reverse("admin:tools_app_apikey_changelist")).content.decode()
    assert "Service client" in admin.get(reverse("admin:tools_app_connection_changelist")).content.decode()


def test_an_admin_changes_rotates_and_revokes_one(admin: Client, tenant: Tenant) -> None:
    row, _ = service_clients.create(tenant, "Job")
    url = reverse("admin:tools_app_serviceclient_change", args=[row.pk])
    page = admin.get(url)
    data = {"name": "Weekly", "tool_patterns": "echo", "methods": "tools/*", "networks": "", "calls_per_minute": "3"}
    hidden = {name: value for name, value in page.context["adminform"].form.initial.items() if name == "seen"}
    assert admin.post(url, {**data, **hidden}).status_code == 302
    row.refresh_from_db()
    assert (row.tool_patterns, row.methods, row.calls_per_minute) == (["echo"], ["tools/*"], 3)
    assert OAuthClient.objects.get().name == "Weekly"
    digest = row.connection.client.secret_digest
    rotate = reverse("admin:tools_app_serviceclient_rotate_secret", args=[row.pk])
    assert "rejected at once" in admin.get(rotate).content.decode()
    shown = admin.post(rotate, follow=True).content.decode()
    assert "mcphub_cs_" in shown
    assert OAuthClient.objects.get().secret_digest != digest
    admin.post(reverse("admin:tools_app_serviceclient_revoke_client", args=[row.pk]))
    assert not tokens.is_valid(Connection.objects.get())
    assert admin.post(rotate).status_code in (302, 403)
    actions = Change.objects.filter(kind="serviceclient").order_by("position").values_list("action", flat=True)
    assert list(actions) == ["changed", "rotated", "revoked"]


def test_an_admin_replaces_the_keys_of_a_client_that_signs(admin: Client, tenant: Tenant) -> None:
    row, _ = service_clients.create(tenant, "Signer", public_keys=KEY.as_dict(private=False))
    url = reverse("admin:tools_app_serviceclient_change", args=[row.pk])
    other = ECKey.generate_key("P-256", {"kid": "two"})
    data = {"name": "Signer", "tool_patterns": "", "methods": "", "networks": ""}
    assert admin.post(url, {**data, "public_keys": json.dumps(other.as_dict(private=True))}).status_code == 200
    assert admin.post(url, {**data, "public_keys": json.dumps(other.as_dict(private=False))}).status_code == 302
    stored: Any = OAuthClient.objects.get().jwks
    assert stored["keys"][0]["kid"] == "two"


def test_the_api_creates_changes_rotates_and_revokes_one(admin: Client, tenant: Tenant) -> None:
    def send(method: str, path: str = "", **body: Any) -> Any:
        address = f"/api/v1/service-clients/{path}"
        return getattr(admin, method)(address, body, content_type="application/json")

    ends = (timezone.now() + timedelta(days=9)).isoformat()
    response = send("post", tenant="acme", name="Job", tool_patterns=["echo"], expires_at=ends)
    assert response.status_code == 201, response.content
    created = response.json()
    assert created["secret"].startswith("mcphub_cs_")
    assert (created["auth_method"], created["status"]) == ("client_secret_basic", "active")
    assert created["public_keys"] is None
    path = f"{created['id']}/"
    assert "secret" not in admin.get(f"/api/v1/service-clients/{path}").json()
    assert send("patch", path, methods=["tools/*"], calls_per_day=5).json()["calls_per_day"] == 5
    assert send("patch", path, public_keys=KEY.as_dict(private=False)).status_code == 400
    assert send("patch", path, name="Weekly").json()["name"] == "Weekly"
    assert admin.get("/api/v1/connections/").json()["results"][0]["client"] == "Weekly"
    assert send("patch", path, client_id="other").json()["client_id"] == created["client_id"]
    rotated = send("post", f"{path}rotate/").json()
    assert rotated["secret"] != created["secret"]
    assert send("post", f"{path}revoke/").json()["status"] == "revoked"
    (row,) = admin.get("/api/v1/service-clients/?status=revoked").json()["results"]
    assert row["client_id"] == created["client_id"]
    assert admin.get("/api/v1/connections/").json()["results"][0]["person"] is None
    assert admin.get("/api/v1/keys/").json()["results"] == []


def test_the_api_takes_and_replaces_public_keys(admin: Client, tenant: Tenant) -> None:
    body = {"tenant": "acme", "name": "Signer", "public_keys": {"keys": [KEY.as_dict(private=False)]}}
    created = admin.post("/api/v1/service-clients/", body, content_type="application/json").json()
    assert (created["auth_method"], created["secret"]) == ("private_key_jwt", "")
    path = f"/api/v1/service-clients/{created['id']}/"
    other = {"keys": [ECKey.generate_key("P-256", {"kid": "two"}).as_dict(private=False)]}
    changed = admin.patch(path, {"public_keys": other}, content_type="application/json")
    assert changed.json()["public_keys"] == other
    private = {"public_keys": {"keys": [KEY.as_dict(private=True)]}}
    response = admin.patch(path, private, content_type="application/json")
    assert "private key" in str(response.json())
    assert KEY.as_dict(private=True)["d"] not in str(response.json())
    assert admin.post(f"{path}rotate/", content_type="application/json").status_code == 409
