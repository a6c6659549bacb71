"""Sign-in events of refusals before a user is asked: contents, visibility, and hostile input."""

from urllib.parse import unquote

import httpx
import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.browsers import browser_of
from tests.identity.oauth.person import Application, Person
from tools_app.identity.oauth import service_clients
from tools_app.models import Membership, SignInEvent, Tenant


@pytest.fixture
def superuser(transactional_db: None) -> Client:
    return browser_of(User.objects.create_superuser("root"))


def reasons(user: Client) -> list[tuple[str, str]]:
    rows = user.get("/api/v1/sign-ins/?step=rejected").json()["results"]
    return [(row["client_name"], row["reason"]) for row in rows]


def test_an_admin_sees_why_a_client_came_to_nothing_before_its_person_was_asked(
    admin: Client, ann: Person, application: Application
) -> None:
    """Requests of anonymous browsers are recorded, too: they name the tenant's endpoint."""
    application.register(client_name="Robot")
    httpx.get(application.url(redirect_uri="https://evil.example/"), trust_env=False)
    ann.open(application.url(code_challenge_method="plain"))
    location = ann.connect(application.url(), ["echo"])
    application.exchange(location, code_verifier="x" * 43)
    application.token(grant_type="refresh_token", refresh_token="unknown", resource=application.resource)
    found = reasons(admin)
    assert {client for client, _ in found} == {"Robot"}
    for why in ("return to evil.example, which it did not register", "PKCE is required", "refresh token is unknown"):
        assert any(why in reason for _, reason in found), found


def test_an_admin_does_not_see_who_is_no_member(
    admin: Client, superuser: Client, ann: Person, application: Application, other_tenant: Tenant
) -> None:
    application.register()
    Membership.objects.filter(user__username="ann").update(tenant=other_tenant)
    assert ann.open(application.url()).status_code == 403
    ann.open(application.url(redirect_uri="https://evil.example/"))
    assert reasons(admin) == []
    assert len(reasons(superuser)) == 2


def test_an_admin_sees_that_a_service_client_sent_a_wrong_secret(
    admin: Client, superuser: Client, application: Application, tenant: Tenant, other_tenant: Tenant
) -> None:
    row, secret = service_clients.create(tenant, "Nightly")
    theirs, _ = service_clients.create(other_tenant, "Theirs")
    for client in (row, theirs):
        known = (client.connection.client.client_id, "wrong")
        response = application.http.post("/oauth/token", data={"grant_type": "client_credentials"}, auth=known)
        assert response.status_code == 401
    assert [client for client, _ in reasons(admin)] == ["Nightly"]
    assert secret not in str(list(SignInEvent.objects.values()))


@pytest.mark.parametrize("credentials", [b"//79", b"AA==", b"OjpX", b"%%%", b"JTAwOng="])
def test_what_is_no_name_and_secret_is_refused(application: Application, credentials: bytes) -> None:
    headers = {"Authorization": b"Basic " + credentials}
    response = application.http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=headers)
    assert (response.status_code, response.json()["error"]) == (401, "invalid_client")


@pytest.mark.parametrize("text", ["%00", "%ED%A0%80", "https://%00", "a%22b"])
def test_no_client_id_breaks_a_page_or_a_record(superuser: Client, application: Application, text: str) -> None:
    response = application.http.get(f"/oauth/authorize?client_id={text}&response_type=code")
    assert response.status_code == 400
    assert application.http.post("/oauth/token", data={"client_id": unquote(text)}).status_code in {400, 401}
    assert len(reasons(superuser)) >= 1
