"""Token introspection (RFC 7662): of a client's own tokens only."""

from typing import Any

import httpx
import pytest

from tests.identity.oauth.person import Application, Person
from tests.identity.oauth.test_tokens import end_by
from tools_app.identity.oauth import service_clients
from tools_app.models import Tenant
from tools_app.server.embedded import EmbeddedHub


def post_introspection(application: Application, token: str, **fields: str) -> httpx.Response:
    data = {"client_id": application.client_id, "token": token, **fields}
    return application.http.post("/oauth/introspect", data=data)


def introspect(application: Application, token: str, **fields: str) -> dict[str, Any]:
    response = post_introspection(application, token, **fields)
    assert response.status_code == 200, response.text
    assert response.headers["cache-control"] == "no-store"
    found: dict[str, Any] = response.json()
    return found


def test_a_client_learns_what_its_tokens_are_good_for(hub: EmbeddedHub, ann: Person, application: Application) -> None:
    issued = application.get_tokens(ann, ["echo"], scope="mcp:read")
    found = introspect(application, issued["access_token"])
    assert found["exp"] - found["iat"] == 3600
    assert {name: found[name] for name in ("active", "scope", "client_id", "username", "token_type", "aud", "iss")} == {
        "active": True,
        "scope": "mcp:read",
        "client_id": application.client_id,
        "username": "ann",
        "token_type": "Bearer",
        "aud": f"{hub.url}/t/acme/mcp",
        "iss": hub.url,
    }
    renewing = introspect(application, issued["refresh_token"], token_type_hint="refresh_token")
    assert renewing["active"] is True
    assert "token_type" not in renewing


def test_another_client_learns_nothing(hub: EmbeddedHub, ann: Person, application: Application) -> None:
    issued = application.get_tokens(ann, ["echo"])
    other = Application(hub.url, application.resource)
    other.register()
    for name in ("access_token", "refresh_token"):
        assert introspect(other, issued[name]) == {"active": False}
    assert introspect(application, "mcphub_at_unknown") == {"active": False}
    other.close()


@pytest.mark.parametrize("end", ["leaves", "deactivated", "revoked", "disabled", "expired"])
def test_what_has_ended_is_not_active(ann: Person, application: Application, end: str) -> None:
    issued = application.get_tokens(ann, ["echo"])
    end_by(end)
    for name in ("access_token", "refresh_token"):
        assert introspect(application, issued[name]) == {"active": False}


def test_a_refresh_token_that_was_replaced_is_not_active(ann: Person, application: Application) -> None:
    issued = application.get_tokens(ann, ["echo"])
    renewed = application.refresh(issued["refresh_token"]).json()
    assert introspect(application, issued["refresh_token"]) == {"active": False}
    assert introspect(application, renewed["refresh_token"])["active"] is True


def test_a_client_with_a_secret_has_to_know_it(application: Application, tenant: Tenant) -> None:
    row, secret = service_clients.create(tenant, "Job")
    application.client_id = row.connection.client.client_id
    fields = {"client_id": application.client_id, "client_secret": secret}
    token = application.token(grant_type="client_credentials", **fields).json()["access_token"]
    assert post_introspection(application, token).json()["error"] == "invalid_client"
    found = introspect(application, token, **fields)
    assert (found["active"], found["sub"]) == (True, application.client_id)
    assert "username" not in found


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"client_id": "nobody"}, "invalid_client"),
        ({"token": "x" * 3000}, "invalid_request"),
        ({"token_type_hint": "password"}, "unsupported_token_type"),
    ],
)
def test_a_faulty_question_is_refused(application: Application, fields: dict[str, str], error: str) -> None:
    application.register()
    assert post_introspection(application, **{"token": "x", **fields}).json()["error"] == error


def test_without_a_token_there_is_nothing_to_tell(application: Application) -> None:
    application.register()
    response = application.http.post("/oauth/introspect", data={"client_id": application.client_id})
    assert response.json()["error"] == "invalid_request"
