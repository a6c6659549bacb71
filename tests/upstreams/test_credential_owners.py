"""Credentials of persons for upstreams: who may enter, use and delete them."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from tests.upstreams import scripted
from tests.upstreams.test_credentials import CALL, PAGE, outcome, person, text
from tests.web_services import Received, Service
from tests.wire.client import RawClient, message_of
from tools_app.identity import personal_tokens
from tools_app.identity.models.oauth import Connection, OAuthClient
from tools_app.models import ApiKey, Change, CredentialKind, Membership, Role, Tenant, Upstream, UpstreamCredential
from tools_app.tenants import keys
from tools_app.upstreams.credentials import store
from tools_app.upstreams.credentials.store import Owner


@pytest.fixture
def tokens() -> list[str]:
    """The values of X-Token in the calls that the upstream received."""
    return []


@pytest.fixture
def upstream(serve: Any, add_upstream: Callable[..., Upstream], tokens: list[str]) -> Upstream:
    """An upstream whose calls need a header's value of each person."""

    def look(request: Received, _message: Any) -> str:
        tokens.append(request.headers.get("x-token", ""))
        return "looked"

    server: Service = serve(scripted.modern(look))
    row = add_upstream(f"{server.url}/mcp")
    row.credential, row.credential_owner, row.credential_header = "header", "person", "X-Token"
    row.save()
    return row


@pytest.fixture
def ben(loopback_tenant: Tenant) -> Client:
    return person("ben", loopback_tenant)


@pytest.fixture
def client_of_ben(loopback_tenant: Tenant, ben: Client, make_client: Any) -> RawClient:
    """A client with a key that acts for ben."""
    _, key = keys.issue(loopback_tenant, "of ben", created_by=User.objects.get(username="ben"), acts_for_creator=True)
    client: RawClient = make_client(key)
    return client


def test_a_key_that_acts_for_a_person_calls_with_what_they_entered_and_removed(
    upstream: Upstream,
    loopback_tenant: Tenant,
    ben: Client,
    client_of_ben: RawClient,
    client: RawClient,
    tokens: list[str],
) -> None:
    error_text = text(outcome(client_of_ben))
    assert error_text.endswith(f"needs a credential of yours. Enter it at {client_of_ben.url}{PAGE}/{upstream.pk}"), (
        error_text
    )
    page = f"{PAGE}/{upstream.pk}"
    entry = f"{upstream.pk}/person:{User.objects.get(username='ben').pk}"
    assert "was saved" in ben.post(page, {"entry": entry, "value": "of-ben"}, follow=True).content.decode()
    assert not outcome(client_of_ben).get("isError")
    assert "a credential of the person who calls it" in text(outcome(client)), "its key acts for nobody"
    assert "was removed" in ben.post(page, {"entry": entry, "remove": "1"}, follow=True).content.decode()
    assert outcome(client_of_ben)["isError"]
    assert tokens == ["of-ben"]
    row = store.save_value(upstream, Owner(person_id=User.objects.get(username="ben").pk), "again")
    review = f"/admin/tools_app/upstream/{upstream.pk}/review/"
    assert ben.post(review, {"remove_credential": str(row.pk)}).status_code == 403
    admin = person("ann", loopback_tenant, Role.ADMIN)
    page_text = admin.post(review, {"remove_credential": str(row.pk)}, follow=True).content.decode()
    assert "The credential of ben was removed." in page_text
    assert not UpstreamCredential.objects.exists()


@pytest.mark.parametrize("how", ["leaves", "is disabled"])
def test_who_leaves_loses_the_credential_and_no_key_uses_what_is_left(
    upstream: Upstream, loopback_tenant: Tenant, client_of_ben: RawClient, tokens: list[str], how: str
) -> None:
    user = User.objects.get(username="ben")
    owner = Owner(person_id=user.pk)
    store.save_value(upstream, owner, "of-ben")
    assert not outcome(client_of_ben).get("isError")
    if how == "leaves":
        Membership.objects.get(user=user).delete()
    else:
        user.is_active = False
        user.save()
    assert not UpstreamCredential.objects.exists()
    # One that is stored at the same moment is not used, and soon deleted.
    row = store.save_value(upstream, owner, "left-over")
    declared = {"elicitation": {"url": {}}}
    result = message_of(client_of_ben.modern("tools/call", CALL, capabilities=declared))["result"]
    assert "is no member of the tenant any more" in text(result)
    assert store.header_of(row, CredentialKind.HEADER, row.origin), "it could be opened"
    assert tokens == ["of-ben"]
    store.delete_unusable()
    assert not UpstreamCredential.objects.exists()


def test_a_revoked_key_keeps_no_credential(upstream: Upstream, loopback_tenant: Tenant) -> None:
    upstream.credential_owner = "key"
    upstream.save()
    row, _ = keys.issue(loopback_tenant, "second")
    store.save_value(upstream, Owner(key_id=row.pk), "of-a-key")
    store.save_value(upstream, store.TENANT, "of-the-tenant")
    keys.revoke(row)
    assert not store.of_owner(upstream.pk, Owner(key_id=row.pk)).exists()
    store.delete_unusable()
    assert UpstreamCredential.objects.get().owner_name == "the tenant"


@pytest.mark.parametrize("how", ["expires", "person leaves"])
def test_a_key_that_ends_keeps_no_credential(
    upstream: Upstream, loopback_tenant: Tenant, ben: Client, how: str
) -> None:
    row, _ = keys.issue(loopback_tenant, "second")
    connect(row)
    store.save_value(upstream, Owner(key_id=row.pk), "of-a-key")
    assert store.of_owner(upstream.pk, Owner(key_id=row.pk)).exists()
    if how == "expires":
        ApiKey.objects.filter(pk=row.pk).update(expires_at=timezone.now())
    else:
        Membership.objects.get(user__username="ben").delete()
    assert not store.of_owner(upstream.pk, Owner(key_id=row.pk)).exists()


def test_admins_enter_nothing_for_the_connection_of_somebody_else(
    upstream: Upstream, loopback_tenant: Tenant, ben: Client
) -> None:
    upstream.credential_owner = "key"
    upstream.save()
    row, _ = keys.issue(loopback_tenant, "second")
    address = f"/connections/upstreams/{upstream.pk}?key={row.pk}"
    admin = person("ann", loopback_tenant, Role.ADMIN)
    assert admin.get(address).status_code == 200
    connect(row)
    assert admin.get(address).status_code == 404
    assert ben.get(address).status_code == 200


def connect(key: ApiKey) -> None:
    """Make a key the key of ben's connection."""
    client = OAuthClient.objects.create(client_id="known", source="dynamic", name="App")
    ben = User.objects.get(username="ben")
    Connection.objects.create(tenant=key.tenant, person=ben, client=client, key=key)


def test_a_persons_value_is_entered_listed_and_deleted_over_the_rest_api(
    upstream: Upstream, loopback_tenant: Tenant, client_of_ben: RawClient, tokens: list[str]
) -> None:
    _, token = personal_tokens.issue(User.objects.get(username="ben"), "script")
    api = Client(headers={"authorization": f"Bearer {token}"})
    address = "/api/v1/upstream-credentials/"
    fields = {"upstream": str(upstream.pk), "value": "over-rest"}
    created = api.post(address, fields, content_type="application/json")
    assert created.status_code == 201, created.content
    assert b"over-rest" not in created.content + api.get(address).content
    assert not outcome(client_of_ben).get("isError")
    wrong = api.post(address, {**fields, "value": "two\nlines"}, content_type="application/json")
    assert (wrong.status_code, "value" in wrong.json()["errors"]) == (400, True), wrong.content
    assert api.delete(f"{address}{created.json()['id']}/").status_code == 204
    assert outcome(client_of_ben)["isError"]
    assert tokens == ["over-rest"]
    assert not any("over-rest" in change.after + change.before for change in Change.objects.all())
