"""API keys: where a client may send one, and the responses without a valid one."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.wire.client import RawClient, error_of
from tools_app.core import refresh_ahead_cache
from tools_app.models import ApiKey, Call, Tenant
from tools_app.tenants import keys
from tools_app.transport import state

MakeClient = Callable[..., RawClient]
REFUSAL = {"jsonrpc": "2.0", "error": {"code": -32003, "message": "A valid API key is needed."}}


def status(client: RawClient, headers: dict[str, str | None] | None = None) -> int:
    return client.modern("server/discover", headers=headers).status_code


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_bearer_token_is_a_key(client: RawClient, scheme: str) -> None:
    assert status(client, {"Authorization": f"{scheme} {client.key}"}) == 200


def test_x_api_key_is_a_key(client: RawClient) -> None:
    assert status(client, {"Authorization": None, "X-API-Key": client.key}) == 200


@pytest.mark.shows("streamable-http.authentication")
@pytest.mark.parametrize("header", ["", "Bearer", "Basic {key}", "{key}"])
def test_without_a_key_the_client_is_challenged(client: RawClient, header: str) -> None:
    response = client.modern("server/discover", headers={"Authorization": header.format(key=client.key)})
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == challenge_of(client)
    assert response.json().items() >= REFUSAL.items()


def challenge_of(client: RawClient) -> str:
    """The challenge of a 401: the resource metadata and the scopes (RFC 9728, section 5.1)."""
    metadata = client.http.base_url.join("/.well-known/oauth-protected-resource/mcp")
    return f'Bearer realm="mcphub", scope="mcp:read mcp:call", resource_metadata="{metadata}"'


@pytest.mark.shows("streamable-http.authentication")
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
def test_a_wrong_key_is_rejected_with_every_http_method(client: RawClient, verb: str) -> None:
    headers = client.headers({"Authorization": f"Bearer {keys.new_key()}"})
    response = client.http.request(verb, "/mcp", headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == f'{challenge_of(client)}, error="invalid_token"'
    assert response.json() == REFUSAL


@pytest.mark.parametrize("allowed", [True, False])
def test_a_key_in_the_url_is_good_only_where_the_tenant_allows_it(
    make_client: MakeClient, tenant: Tenant, key: str, allowed: bool
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(allow_query_key=allowed)
    assert status(make_client(None, f"/mcp?api_key={key}")) == (200 if allowed else 401)


def test_an_expired_key_is_refused_and_its_tenant_learns_why(
    make_client: MakeClient, tenant: Tenant, eventually: Callable[..., Any]
) -> None:
    past, future = timezone.now() - timedelta(seconds=1), timezone.now() + timedelta(hours=1)
    row, key = keys.issue(tenant, "old", expires_at=past)
    assert status(make_client(key)) == 401
    call = eventually(lambda: Call.objects.filter(outcome="denied").first())
    assert (call.cause, call.tenant, call.api_key) == ("The API key has expired.", tenant, row)
    assert status(make_client(keys.issue(tenant, "new", expires_at=future)[1])) == 200


def test_a_revoked_key_is_refused_like_an_unknown_one_and_its_tenant_learns_why(
    make_client: MakeClient, tenant: Tenant, eventually: Callable[..., Any]
) -> None:
    row, key = keys.issue(tenant, "old")
    keys.revoke(row)
    revoked, unknown = (make_client(one).modern("server/discover") for one in (key, keys.new_key()))
    assert (revoked.status_code, revoked.content) == (unknown.status_code, unknown.content)
    assert revoked.headers["www-authenticate"] == unknown.headers["www-authenticate"]
    calls = eventually(lambda: len(found := Call.objects.filter(outcome="denied")) == 2 and found)
    assert {(call.cause, call.tenant, call.api_key) for call in calls} == {
        ("The API key was revoked.", tenant, row),
        ("A valid API key is needed.", None, None),
    }


def test_a_key_that_is_revoked_while_it_is_used_is_rejected_as_such(
    client: RawClient, eventually: Callable[..., Any]
) -> None:
    assert status(client) == 200
    revoke(client)
    eventually(lambda: status(client) == 401)
    call = eventually(lambda: Call.objects.filter(outcome="denied").first())
    assert (call.cause, call.api_key.digest) == ("The API key was revoked.", keys.digest_of(client.key))


def test_the_keys_of_an_inactive_tenant_are_unknown(client: RawClient, eventually: Callable[..., Any]) -> None:
    revoke(client)
    switch_tenant_off(client)
    assert status(client) == 401
    call = eventually(lambda: Call.objects.filter(outcome="denied").first())
    assert (call.cause, call.tenant) == ("A valid API key is needed.", None)


def revoke(client: RawClient) -> None:
    keys.revoke(ApiKey.objects.get(digest=keys.digest_of(client.key)))


def switch_tenant_off(client: RawClient) -> None:
    Tenant.objects.update(is_active=False)


@pytest.mark.parametrize("end", [revoke, switch_tenant_off])
def test_a_key_in_use_is_refused_within_a_second_of_its_end(
    client: RawClient, end: Callable[[RawClient], None], eventually: Callable[..., Any]
) -> None:
    assert status(client) == 200
    end(client)
    assert refresh_ahead_cache.TOO_OLD_AFTER < 1  # what is older is read before it is used
    eventually(lambda: status(client) == 401)


def test_the_slug_of_another_tenant_looks_like_an_unknown_one(
    make_client: MakeClient, key: str, other_tenant: Tenant
) -> None:
    foreign, unknown = (
        make_client(key, f"/t/{slug}/mcp").modern("server/discover") for slug in (other_tenant.slug, "nobody")
    )
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.json() == unknown.json()
    assert error_of(foreign)["message"] == "Not found."
    assert foreign.headers.keys() == unknown.headers.keys()


def test_without_a_valid_key_all_slugs_look_alike(make_client: MakeClient, tenant: Tenant) -> None:
    known, unknown = (
        make_client(keys.new_key(), f"/t/{slug}/mcp").modern("server/discover") for slug in (tenant.slug, "nobody")
    )
    assert known.status_code == unknown.status_code == 401
    assert known.content == unknown.content


def test_a_key_made_after_it_was_tried_is_good_within_a_second(
    make_client: MakeClient, tenant: Tenant, eventually: Callable[..., Any]
) -> None:
    chosen = keys.new_key()
    client = make_client(chosen)
    assert status(client) == 401
    keys.issue(tenant, "chosen", key=chosen)
    assert refresh_ahead_cache.TOO_OLD_AFTER < 1  # that there was no key is forgotten after that time
    eventually(lambda: status(client) == 200)


def test_a_key_is_good_after_everything_was_forgotten(client: RawClient) -> None:
    assert status(client) == 200
    state.forget_everything()
    assert status(client) == 200
