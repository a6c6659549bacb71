"""OAuth clients in the REST API: readable by admins of their tenants, blocked by superusers."""

from typing import Any

from django.test import Client

from tests.identity.oauth.person import Application, Person
from tests.identity.oauth.test_tokens import status
from tools_app.identity.oauth import clients
from tools_app.models import Change, ClientSource, OAuthClient
from tools_app.server.embedded import EmbeddedHub

ADDRESS = "/api/v1/clients/"


def names(client: Client, query: str = "") -> list[str]:
    return sorted(row["name"] for row in client.get(f"{ADDRESS}{query}").json()["results"])


def test_an_admin_sees_the_clients_of_own_connections_and_a_superuser_all(
    admin: Client, superuser: Client, ann: Person, application: Application
) -> None:
    application.get_tokens(ann, ["echo"])
    other, _ = clients.register({"client_name": "Unconnected", "redirect_uris": ["http://localhost/"]})
    assert names(admin) == ["Test application"]
    assert names(superuser) == ["Test application", "Unconnected"]
    assert admin.get(f"{ADDRESS}{other.pk}/").status_code == 404
    row = admin.get(f"{ADDRESS}{OAuthClient.objects.get(name='Test application').pk}/").json()
    assert row["redirect_uris"] == [application.redirect_uri]
    assert row["grant_types"] == ["authorization_code", "refresh_token"]
    assert (row["source"], row["verified_host"], row["auth_method"], row["blocked_at"]) == ("dynamic", "", "none", None)
    assert not {"secret_digest", "jwks"} & set(row)


def test_a_superuser_blocks_a_client_in_all_processes_and_lets_it_in_again(
    hub: EmbeddedHub, superuser: Client, ann: Person, application: Application, eventually: Any
) -> None:
    token = application.get_tokens(ann, ["echo"])["access_token"]
    path = f"{ADDRESS}{OAuthClient.objects.get().pk}/"
    assert status(hub, token) == 200
    assert superuser.post(f"{path}block/").json()["blocked_at"]
    eventually(lambda: status(hub, token) == 401)
    assert superuser.post(f"{path}block/").status_code == 200
    assert names(superuser, "?state=blocked") == ["Test application"]
    assert superuser.post(f"{path}unblock/").json()["blocked_at"] is None
    assert names(superuser, "?state=blocked") == []
    eventually(lambda: status(hub, token) == 200)
    changes = Change.objects.filter(kind="oauthclient", action="changed")
    assert set(changes.values_list("person_name", "via")) == {("root", "api")}
    assert changes.count() == 2


def test_an_admin_of_a_tenant_blocks_none(admin: Client, ann: Person, application: Application) -> None:
    application.get_tokens(ann, ["echo"])
    path = f"{ADDRESS}{OAuthClient.objects.get().pk}/"
    assert admin.post(f"{path}block/").status_code == 403
    assert OAuthClient.objects.get().blocked_at is None


def test_clients_are_found_by_name_and_by_how_they_are_known(superuser: Client) -> None:
    for name, source in (("Robot one", ClientSource.DYNAMIC), ("Website", ClientSource.DOCUMENT)):
        OAuthClient.objects.create(client_id=f"id-of-{name}", name=name, source=source)
    assert names(superuser, "?search=robot") == ["Robot one"]
    assert names(superuser, "?source=document") == ["Website"]
    assert superuser.get(f"{ADDRESS}?source=nonsense").status_code == 400
