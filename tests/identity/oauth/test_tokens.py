"""Tokens: exchange, rotation of refresh tokens, audience and lifetime."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection as database
from django.utils import timezone

from tests.identity.oauth.person import Application, Person, parse_form, redirect_parameters
from tests.wire.client import ALL_VERSIONS, HANDSHAKES, MODERN, RawClient
from tools_app.core.refresh_ahead_cache import RENEW_AFTER, TOO_OLD_AFTER
from tools_app.core.validators import ITEM_KINDS
from tools_app.identity.oauth import connections, tokens
from tools_app.identity.oauth.tokens import Pair
from tools_app.models import (
    AccessToken,
    ApiKey,
    AuthorizationCode,
    ClientDecision,
    ClientPolicy,
    Connection,
    Membership,
    OAuthClient,
    Prompt,
    PromptKind,
    RefreshToken,
    Resource,
    ResourceKind,
    Tenant,
)
from tools_app.server.embedded import EmbeddedHub


@contextmanager
def client_of(hub: EmbeddedHub, token: str | None, path: str = "/t/acme/mcp") -> Iterator[RawClient]:
    """An MCP client that sends a token."""
    client = RawClient(hub.url, token, path)
    with client.http:
        yield client


def status(hub: EmbeddedHub, token: str) -> int:
    """The status of a request with a token."""
    with client_of(hub, token) as client:
        return client.modern("tools/list").status_code


def error_of(response) -> str:  # type: ignore[no-untyped-def]
    assert response.status_code in (400, 401), response.text
    assert response.headers["cache-control"] == "no-store"
    error = response.json()
    assert error["error_description"]
    return str(error["error"])


# --- The code -------------------------------------------------------------------------------------------------------


def test_a_code_that_is_used_twice_ends_everything_that_came_of_it(
    hub: EmbeddedHub, ann: Person, application: Application, eventually
) -> None:
    application.register()
    location = ann.connect(application.url(), ["echo"])
    first = application.exchange(location).json()
    assert status(hub, first["access_token"]) == 200
    assert error_of(application.exchange(location)) == "invalid_grant"
    eventually(lambda: status(hub, first["access_token"]) == 401)
    assert error_of(application.refresh(first["refresh_token"])) == "invalid_grant"


def test_of_two_exchanges_at_once_one_wins(ann: Person, application: Application) -> None:
    application.register()
    location = ann.connect(application.url(), ["echo"])
    with ThreadPoolExecutor(4) as pool:
        responses = [future.result() for future in [pool.submit(application.exchange, location) for _ in range(4)]]
    assert sum(response.status_code == 200 for response in responses) == 1
    # The second use may be an attacker's.
    assert not AccessToken.objects.exists()


@pytest.mark.parametrize("ending", ["second exchange", "late renewal", "revocation", "end of the connection"])
def test_what_ends_tokens_while_they_are_issued_ends_these_too(
    ann: Person, application: Application, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    application.register()
    location = ann.connect(application.url(), ["echo"])
    refresh_token = ""
    if ending in ("late renewal", "revocation"):
        old = application.exchange(location).json()["refresh_token"]
        refresh_token = application.refresh(old).json()["refresh_token"]
        RefreshToken.objects.exclude(rotated_at=None).update(rotated_at=timezone.now() - tokens.GRACE * 2)

    def end() -> None:
        if ending == "second exchange":
            assert error_of(application.exchange(location)) == "invalid_grant"
        elif ending == "late renewal":
            assert error_of(application.refresh(old)) == "invalid_grant"
        elif ending == "revocation":
            data = {"client_id": application.client_id, "token": refresh_token}
            assert application.http.post("/oauth/revoke", data=data).status_code == 200
        else:
            tokens.end_all(Connection.objects.get())
            database.close()

    with ThreadPoolExecutor(2) as pool:
        endings: list[Future[None]] = []
        issue = tokens._issue

        def issue_late(*args: Any, **options: Any) -> Pair:
            """Issue the tokens once the other request has ended, or waits for this one."""
            endings.append(pool.submit(end))
            wait(endings, timeout=0.3)
            return issue(*args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(tokens, "_issue", issue_late)
            response = application.refresh(refresh_token) if refresh_token else application.exchange(location)
        assert response.status_code == 200, response.text
        endings.pop().result()
    assert not endings
    assert not AccessToken.objects.exists()
    assert not RefreshToken.objects.exists()


def test_a_refresh_token_that_is_used_while_it_ends_is_refused(
    ann: Person, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = application.get_tokens(ann, ["echo"])["refresh_token"]
    rotate = tokens.rotate

    def end_and_rotate(row: RefreshToken, *args: Any, **options: Any) -> Pair:
        tokens.end_family(row.family, row.connection)
        return rotate(row, *args, **options)

    monkeypatch.setattr(tokens, "rotate", end_and_rotate)
    assert error_of(application.refresh(token)) == "invalid_grant"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_verifier": "x" * 43}, "invalid_grant"),
        ({"code_verifier": ""}, "invalid_request"),
        ({"redirect_uri": "http://localhost:33419/callback"}, "invalid_grant"),
        ({"resource": "http://127.0.0.1:1/mcp"}, "invalid_target"),
        ({"code": "mcphub_ac_unknown"}, "invalid_grant"),
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"client_id": "nobody"}, "invalid_client"),
        ({"code": "x" * 3000}, "invalid_request"),
    ],
)
def test_a_code_is_good_only_for_what_it_was_made_for(
    ann: Person, application: Application, changes: dict[str, str], error: str
) -> None:
    application.register()
    location = ann.connect(application.url(), ["echo"])
    assert error_of(application.exchange(location, **changes)) == error
    assert not AccessToken.objects.exists()


def test_a_token_request_of_oauth_2_1_names_no_redirect_uri(ann: Person, application: Application) -> None:
    """One that is sent counts, also if it is empty."""
    application.register()
    location = ann.connect(application.url(), ["echo"])
    code = redirect_parameters(location)["code"]
    fields = {"grant_type": "authorization_code", "code": code, "code_verifier": application.verifier}
    assert error_of(application.token(**fields, redirect_uri="")) == "invalid_grant"
    assert application.token(**fields).status_code == 200


def test_a_code_is_of_one_client(hub: EmbeddedHub, ann: Person, application: Application) -> None:
    application.register()
    location = ann.connect(application.url(), ["echo"])
    other = Application(hub.url, application.resource)
    other.register()
    other.verifier = application.verifier
    assert error_of(other.exchange(location)) == "invalid_grant"
    other.close()


def test_a_code_is_good_for_a_minute(ann: Person, application: Application) -> None:
    application.register()
    location = ann.connect(application.url(), ["echo"])
    row = AuthorizationCode.objects.get()
    assert row.expires_at - row.created_at < timedelta(seconds=61)
    AuthorizationCode.objects.update(expires_at=timezone.now())
    assert error_of(application.exchange(location)) == "invalid_grant"


def test_a_client_with_a_secret_has_to_know_it(ann: Person, application: Application) -> None:
    application.register(token_endpoint_auth_method="client_secret_post")
    location = ann.connect(application.url(), ["echo"])
    assert error_of(application.exchange(location)) == "invalid_client"
    assert error_of(application.exchange(location, client_secret="wrong")) == "invalid_client"
    assert application.exchange(location, client_secret=application.secret).status_code == 200


# --- Renewal --------------------------------------------------------------------------------------------------------


def test_each_renewal_replaces_the_refresh_token(hub: EmbeddedHub, ann: Person, application: Application) -> None:
    first = application.get_tokens(ann, ["echo"])
    second = application.refresh(first["refresh_token"]).json()
    assert second["refresh_token"] != first["refresh_token"]
    assert (second["token_type"], second["expires_in"], second["scope"]) == ("Bearer", 3600, "mcp:read mcp:call")
    assert status(hub, second["access_token"]) == 200


def test_parallel_sessions_may_renew_with_the_same_token_for_five_minutes(
    hub: EmbeddedHub, ann: Person, application: Application, eventually
) -> None:
    first = application.get_tokens(ann, ["echo"])
    with ThreadPoolExecutor(3) as pool:
        responses = [pool.submit(application.refresh, first["refresh_token"]) for _ in range(3)]
    pairs = [response.result().json() for response in responses]
    assert len({pair["refresh_token"] for pair in pairs}) == 3
    assert all(status(hub, pair["access_token"]) == 200 for pair in pairs)
    late = timezone.now() - tokens.GRACE - timedelta(seconds=1)
    RefreshToken.objects.filter(rotated_at__isnull=False).update(rotated_at=late)
    assert error_of(application.refresh(first["refresh_token"])) == "invalid_grant"
    eventually(lambda: all(status(hub, pair["access_token"]) == 401 for pair in pairs))
    assert error_of(application.refresh(pairs[0]["refresh_token"])) == "invalid_grant"


def test_a_renewal_may_ask_for_less_and_never_for_more(ann: Person, application: Application) -> None:
    first = application.get_tokens(ann, ["echo"], scope="mcp:read")
    assert first["scope"] == "mcp:read"
    assert error_of(application.refresh(first["refresh_token"], scope="mcp:call")) == "invalid_scope"
    wide = application.get_tokens(ann, ["echo"])
    assert application.refresh(wide["refresh_token"], scope="mcp:read offline_access").json()["scope"] == "mcp:read"


@pytest.mark.parametrize("end", ["leaves", "deactivated", "revoked", "blocked", "disabled", "expired"])
def test_what_ends_the_access_of_a_person_ends_it_within_a_second(
    hub: EmbeddedHub, ann: Person, application: Application, tenant: Tenant, eventually, end: str
) -> None:
    issued = application.get_tokens(ann, ["echo"])
    with client_of(hub, issued["access_token"]) as client:
        peer = client.handshake()
        assert peer.request("tools/list").status_code == 200
        end_by(end)
        assert TOO_OLD_AFTER < 1  # what is older is read before it is used
        eventually(lambda: peer.request("tools/list").status_code == 401)
    assert error_of(application.refresh(issued["refresh_token"])) in ("invalid_grant", "invalid_client")


def end_by(end: str) -> None:
    match end:
        case "leaves":
            Membership.objects.all().delete()
        case "deactivated":
            User.objects.update(is_active=False)
        case "revoked":
            connections.revoke(Connection.objects.get())
        case "blocked":
            OAuthClient.objects.update(blocked_at=timezone.now())
        case "disabled":
            Tenant.objects.update(is_active=False)
        case "expired":
            ApiKey.objects.update(expires_at=timezone.now())


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        (ClientDecision.DENY, "does not allow this client any more"),
        (ClientDecision.ASK, "an admin has to allow it first"),
    ],
)
def test_a_client_that_a_tenant_does_not_allow_gets_no_new_tokens(
    ann: Person, application: Application, tenant: Tenant, decision: ClientDecision, message: str
) -> None:
    issued = application.get_tokens(ann, ["echo"])
    application.register()
    location = ann.connect(application.url(), ["echo"])
    ClientPolicy.objects.create(tenant=tenant, host="*", decision=decision)
    assert message in application.exchange(location).json()["error_description"]
    first = Application(application.base, application.resource)
    first.client_id = Connection.objects.exclude(client__client_id=application.client_id).get().client.client_id
    refused = first.refresh(issued["refresh_token"])
    assert error_of(refused) == "invalid_grant"
    assert message in refused.json()["error_description"]
    # Once an admin allows it, the client can refresh again.
    ClientPolicy.objects.create(tenant=tenant, host="localhost", decision=ClientDecision.ALLOW)
    assert first.refresh(issued["refresh_token"]).status_code == 200
    first.close()


def test_a_client_can_end_its_own_tokens_and_no_others(
    hub: EmbeddedHub, ann: Person, application: Application, eventually
) -> None:
    issued = application.get_tokens(ann, ["echo"])
    other = Application(hub.url, application.resource)
    other.register()
    for client, is_ended in ((other, False), (application, True)):
        fields = {"client_id": client.client_id, "token": issued["refresh_token"]}
        assert client.http.post("/oauth/revoke", data=fields).status_code == 200
        assert AccessToken.objects.exists() is not is_ended
    eventually(lambda: status(hub, issued["access_token"]) == 401)
    other.close()


# --- What a token opens ---------------------------------------------------------------------------------------------


def test_a_token_is_of_one_tenant(
    hub: EmbeddedHub, ann: Person, application: Application, other_tenant: Tenant
) -> None:
    """CVE-2025-69196: the `resource` parameter is enforced."""
    issued = application.get_tokens(ann, ["echo"])
    with client_of(hub, issued["access_token"], "/t/rival/mcp") as client:
        response = client.modern("tools/list")
    assert response.status_code == 401
    assert "/.well-known/oauth-protected-resource/t/rival/mcp" in response.headers["www-authenticate"]


def test_calls_with_a_token_share_its_lookup_as_those_with_a_key_do(
    hub: EmbeddedHub, ann: Person, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = application.get_tokens(ann, ["echo"])["access_token"]
    looked_up, find = [], tokens.valid_access_tokens

    def counted() -> Any:
        looked_up.append(time.monotonic())
        return find()

    monkeypatch.setattr(tokens, "valid_access_tokens", counted)
    with client_of(hub, token) as client:
        began = time.monotonic()
        assert {client.modern("tools/list").status_code for _ in range(60)} == {200}
        seconds = time.monotonic() - began
    # Read again within a second, so that revocation takes effect, and when a change of the connection is announced.
    assert 0 < len(looked_up) <= min(59, 3 + seconds / RENEW_AFTER)


def test_a_token_is_accepted_in_the_header_only(
    hub: EmbeddedHub, ann: Person, application: Application, tenant: Tenant
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(allow_query_key=True)
    issued = application.get_tokens(ann, ["echo"])
    with client_of(hub, None, f"/mcp?api_key={issued['access_token']}") as client:
        assert client.modern("tools/list").status_code == 401
    # Nor is it valid for the REST API, which has its own tokens.
    headers = {"Authorization": f"Bearer {issued['access_token']}"}
    assert application.http.get("/api/v1/me/", headers=headers).status_code == 401


def test_a_refresh_token_or_a_code_opens_nothing(hub: EmbeddedHub, ann: Person, application: Application) -> None:
    application.register()
    location = ann.connect(application.url(), ["echo"])
    assert status(hub, redirect_parameters(location)["code"]) == 401
    assert status(hub, application.exchange(location).json()["refresh_token"]) == 401


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_a_token_to_read_is_told_what_it_lacks_to_call(
    hub: EmbeddedHub, ann: Person, application: Application, version: str
) -> None:
    issued = application.get_tokens(ann, ["echo"], scope="mcp:read")
    with client_of(hub, issued["access_token"]) as client:
        peer = client.peer(version)
        listed = peer.request("tools/list")
        called = peer.request("tools/call", {"name": "echo", "arguments": {"message": "x"}})
    assert listed.status_code == 200
    assert called.status_code == 403
    challenge = called.headers["www-authenticate"]
    for part in ('error="insufficient_scope"', 'scope="mcp:read mcp:call"', "resource_metadata="):
        assert part in challenge
    assert called.json()["error"]["data"] == {"scope": "mcp:call", "method": "tools/call"}


@pytest.mark.parametrize("version", [MODERN, HANDSHAKES[-1]])
def test_only_what_was_ticked_exists(
    hub: EmbeddedHub, ann: Person, application: Application, tenant: Tenant, version: str
) -> None:
    """A prompt that is named like a tool, and a URI that looks like a pattern, are themselves alone."""
    for name in ("count", "leave"):
        text = [{"role": "user", "text": name}]
        Prompt.objects.create(tenant=tenant, name=name, kind=PromptKind.TEMPLATE, messages=text)
    for uri in ("docs://*?[a]", "docs://leave?[a]"):
        Resource.objects.create(tenant=tenant, uri=uri, name="a", kind=ResourceKind.TEXT, text="a")
    application.register()
    page = ann.decide(ann.open(application.url()), tools=["echo"], prompt="count", resource="docs://*?[a]")
    again = parse_form(ann.open(application.url()).text)
    assert [again.checked_values(kind) for kind in ITEM_KINDS] == [["echo"], ["count"], ["docs://*?[a]"]]
    issued = application.exchange(page.headers["location"]).json()
    with client_of(hub, issued["access_token"]) as client:
        peer = client.peer(version)

        def result(method: str, **params: object) -> dict[str, Any]:
            found: dict[str, Any] = peer.request(method, params).json()
            return found

        assert [tool["name"] for tool in result("tools/list")["result"]["tools"]] == ["echo"]
        assert [prompt["name"] for prompt in result("prompts/list")["result"]["prompts"]] == ["count"]
        assert [one["uri"] for one in result("resources/list")["result"]["resources"]] == ["docs://*?[a]"]
        assert "result" in result("tools/call", name="echo", arguments={"message": "x"})
        assert "result" in result("prompts/get", name="count")
        assert "result" in result("resources/read", uri="docs://*?[a]")
        assert "Unknown tool" in result("tools/call", name="count", arguments={"n": 1})["error"]["message"]
        assert "error" in result("prompts/get", name="leave")
        assert "error" in result("resources/read", uri="docs://leave?[a]")


def test_a_new_consent_with_less_counts_at_once(
    hub: EmbeddedHub, ann: Person, application: Application, eventually
) -> None:
    issued = application.get_tokens(ann, ["echo", "count"])
    ann.connect(application.url(), ["count"])
    with client_of(hub, issued["access_token"]) as client:

        def tools() -> list[str]:
            return [tool["name"] for tool in client.modern("tools/list").json()["result"]["tools"]]

        eventually(lambda: tools() == ["count"])


def test_the_limits_of_a_connection_are_those_of_its_key(
    hub: EmbeddedHub, ann: Person, application: Application
) -> None:
    issued = application.get_tokens(ann, ["echo"])
    key = Connection.objects.get().key
    key.requests_per_day = 0
    key.save()
    assert Connection.objects.get(person__username="ann").key.requests_per_day == 0
    assert status(hub, issued["access_token"]) == 429
