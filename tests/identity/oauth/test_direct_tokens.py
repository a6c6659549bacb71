"""Tokens of a tenant's issuer that clients use directly, without an exchange."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.identity.sign_in.provider import LOOPBACK, Provider, issuer_of, new_key, running_provider
from tests.wire.client import RawClient, message_of
from tools_app.core import refresh_ahead_cache
from tools_app.core.process.runtime import Service
from tools_app.identity.issuers import configuration, direct, setup
from tools_app.identity.issuers import tokens as issued
from tools_app.identity.oauth import connections, pruning, workloads
from tools_app.identity.oauth import tokens as oauth_tokens
from tools_app.identity.people.rules import Rule
from tools_app.models import (
    AccessToken,
    ApiKey,
    Call,
    Change,
    Connection,
    Issuer,
    IssuerUse,
    Membership,
    Role,
    SignInEvent,
    SignInStep,
    Tenant,
)
from tools_app.server.embedded import EmbeddedHub
from tools_app.tenants import keys
from tools_app.web.api.viewsets import etag_of

WAIT_SECONDS = 30.0
RULES = [
    {"claims": {"groups": ["sre"]}, "names": ["echo"], "methods": ["tools/*"]},
    {"claims": {"groups": ["staff-*"]}, "names": ["calculator"]},
]

UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"aud": "https://another.example/mcp"}, "The token is for another audience."),
    ({"aud": None}, "The token is for another audience."),
    ({"aud": [{}, 1, "http://[", *["x"] * 50]}, "The token is for another audience."),
    ({"exp": 1}, "The token has expired."),
    # Within the allowed clock skew, but expired, so not stored.
    ({"exp": int(time.time()) - 5}, "The token has expired."),
    ({"exp": 10**11}, "The token is valid for more than a day."),
    ({"nbf": 10**11}, "The token is not valid yet."),
    ({"sub": ""}, "The token has no subject (sub)."),
    ({"sub": "x" * 501}, "The token has no subject (sub)."),
    ({"groups": ["sales"]}, "No rule of Acme fits its groups (sales)."),
    ({"typ": "oauth-id-jag+jwt"}, "its type (typ) is another one"),
    ({"typ": "logout+jwt"}, "its type (typ) is another one"),
    ({"cnf": {"jkt": "x"}}, "bound to a key of its client"),
]


@pytest.fixture
def company() -> Iterator[Provider]:
    with running_provider() as found:
        yield found


@pytest.fixture
def issuer(tenant: Tenant, company: Provider, offer: Callable[..., object]) -> Issuer:
    """An issuer whose tokens the tenant accepts."""
    offer("echo", "calculator", "count")
    return issuer_of(tenant, company.url, name="Acme Tokens", use="direct", rules=RULES)


def token_of(hub: EmbeddedHub, company: Provider, **claims: Any) -> str:
    payload = {"aud": f"{hub.url}/t/acme/mcp", "groups": ["sre"], "typ": "at+jwt", **claims}
    return company.token(payload.pop("sub", "ann"), **payload)


def call_endpoint(hub: EmbeddedHub, token: str, path: str = "/t/acme/mcp", **request: Any) -> httpx.Response:
    client = RawClient(hub.url, token, path)
    with client.http:
        return client.modern(**({"method": "tools/list"} | request))


def tools_of(response: httpx.Response) -> list[str]:
    assert response.status_code == 200, response.text
    return [tool["name"] for tool in message_of(response)["result"]["tools"]]


def refusal_of(response: httpx.Response) -> str:
    assert response.status_code == 401, response.text
    assert 'error="invalid_token"' in response.headers["www-authenticate"]
    assert "/.well-known/oauth-protected-resource/t/acme/mcp" in response.headers["www-authenticate"]
    message: str = message_of(response)["error"]["message"]
    return message


def until(fetch: Callable[[], Any], expected: Any) -> None:
    """Fetch repeatedly until the value is as expected."""
    deadline = time.monotonic() + WAIT_SECONDS
    while (actual := fetch()) != expected:
        assert time.monotonic() < deadline, actual
        time.sleep(0.02)


def test_a_token_of_the_company_gives_what_the_first_rule_that_fits_says(
    hub: EmbeddedHub, company: Provider, issuer: Issuer
) -> None:
    for path in ("/t/acme/mcp", "/t/acme/mcp/", "/mcp"):
        assert tools_of(call_endpoint(hub, token_of(hub, company, jti=path), path)) == ["echo"]
    assert tools_of(call_endpoint(hub, token_of(hub, company, groups=["staff-it"], sub="bob"))) == ["calculator"]


def test_calls_and_records_name_the_issuer_and_the_subject(
    hub: EmbeddedHub, company: Provider, issuer: Issuer, eventually: Callable[..., Any]
) -> None:
    token = token_of(hub, company)
    params = {"name": "echo", "arguments": {"message": "world"}}
    response = call_endpoint(hub, token, method="tools/call", params=params)
    assert message_of(response)["result"]["content"][0]["text"] == "hello world"
    row = Connection.objects.select_related("key").get()
    assert (row.key.name, row.person, row.tenant.slug) == ("Acme Tokens: ann", None, "acme")
    assert eventually(lambda: Call.objects.filter(api_key_id=row.key_id, tool_name="echo").first())
    step = SignInEvent.objects.get(step=SignInStep.ISSUED)
    assert (step.client_name, step.connection_id, step.tenant) == ("Acme Tokens: ann", row.pk, issuer.tenant)
    assert step.reason == "By rule 1 of Acme Tokens."
    assert Change.objects.filter(kind="connection", person_name="Acme Tokens", via="sign_in").count() == 1
    stored = [str(vars(row)) for model in (SignInEvent, AccessToken, Change) for row in model.objects.all()]
    assert not [text for text in stored if token.rpartition(".")[2] in text]


def test_a_token_is_verified_once_and_no_query_belongs_to_its_calls(
    hub: EmbeddedHub, company: Provider, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified, checked = [], issued.verify

    def counted(*arguments: Any, **more: Any) -> Any:
        verified.append(arguments)
        return checked(*arguments, **more)

    monkeypatch.setattr(issued, "verify", counted)
    # The first token causes the keys to be fetched.
    assert tools_of(call_endpoint(hub, token_of(hub, company, jti="first"))) == ["echo"]
    verified.clear()
    AccessToken.objects.all().delete()
    token = token_of(hub, company)
    for _ in range(5):
        assert tools_of(call_endpoint(hub, token)) == ["echo"]
    assert len(verified) == 1
    assert AccessToken.objects.count() == 1
    # Another token of the same subject uses the same connection, and a deleted one is verified again.
    assert tools_of(call_endpoint(hub, token_of(hub, company, jti=uuid4().hex))) == ["echo"]
    assert Connection.objects.count() == 1


def test_what_does_not_fit_is_refused_with_the_reason(hub: EmbeddedHub, company: Provider, issuer: Issuer) -> None:
    for claims, reason in UNFIT:
        company.lies = claims
        assert reason in refusal_of(call_endpoint(hub, token_of(hub, company)))
        step = SignInEvent.objects.filter(step=SignInStep.REJECTED).latest("at")
        assert step.tenant == issuer.tenant
        assert reason in step.reason
        assert step.reason.startswith("Acme Tokens: ")
    assert SignInEvent.objects.count() == len(UNFIT)
    assert not Connection.objects.exists()


def test_another_key_or_issuer_or_place_or_algorithm_gets_nothing(
    hub: EmbeddedHub, company: Provider, issuer: Issuer, other_tenant: Tenant
) -> None:
    good = token_of(hub, company)
    assert call_endpoint(hub, "", f"/t/acme/mcp?api_key={good}").status_code == 401
    assert call_endpoint(hub, good, "/t/rival/mcp").status_code == 401
    assert not Connection.objects.exists()
    head, body, signature = good.split(".")
    for forged in (f"{head}.{body}.{signature[:-4]}AAAA", f"eyJhbGciOiJub25lIn0.{body}.", f"{head}.{body}."):
        assert refusal_of(call_endpoint(hub, forged))
    company.published, company.key = [company.key], new_key()
    # Before the signature is verified, responses reveal nothing, not even that the tenant has such an issuer.
    assert refusal_of(call_endpoint(hub, token_of(hub, company))) == "A valid API key is needed."
    assert "signature" in SignInEvent.objects.filter(step=SignInStep.REJECTED).latest("at").reason
    company.key, company.lies = company.published[0], {"iss": "https://evil.example"}
    assert refusal_of(call_endpoint(hub, token_of(hub, company))) == "A valid API key is needed."
    assert refusal_of(call_endpoint(hub, "eyJ" + "x" * 100)) == "A valid API key is needed."
    company.lies = {"aud": [f"{hub.url}/t/acme/mcp", f"{hub.url}/t/rival/mcp"]}
    assert call_endpoint(hub, token_of(hub, company), "/mcp").status_code == 401
    assert not Connection.objects.exists()
    assert tools_of(call_endpoint(hub, good)) == ["echo"]
    # It is a token of this tenant, whichever URL it is sent to.
    assert call_endpoint(hub, good, "/t/rival/mcp").status_code == 401


def test_an_issuer_for_something_else_accepts_no_tokens(hub: EmbeddedHub, company: Provider, issuer: Issuer) -> None:
    for use in (IssuerUse.WORKLOADS, IssuerUse.PEOPLE):
        Issuer.objects.update(use=use)
        assert refusal_of(call_endpoint(hub, token_of(hub, company, jti=use))) == "A valid API key is needed."


def test_an_audience_that_the_admin_set_replaces_the_endpoint(
    hub: EmbeddedHub, company: Provider, issuer: Issuer
) -> None:
    Issuer.objects.update(audience="api://hub")
    assert "another audience" in refusal_of(call_endpoint(hub, token_of(hub, company)))
    assert tools_of(call_endpoint(hub, token_of(hub, company, aud="api://hub"))) == ["echo"]
    assert call_endpoint(hub, token_of(hub, company, aud="api://hub", jti="x"), "/mcp").status_code == 401


@pytest.mark.parametrize("how", ["off", "connection"])
def test_it_ends_within_a_second_when_what_gave_it_access_ends(
    hub: EmbeddedHub, company: Provider, issuer: Issuer, how: str
) -> None:
    token = token_of(hub, company)
    assert tools_of(call_endpoint(hub, token)) == ["echo"]
    if how == "off":
        issuer.is_active = False
        issuer.save()
        setup.apply_changes(issuer)
    else:
        connections.revoke(Connection.objects.get())
    assert refresh_ahead_cache.TOO_OLD_AFTER < 1  # what is older is read before it is used
    until(lambda: call_endpoint(hub, token).status_code, 401)


@pytest.mark.parametrize("how", ["rules", "use", "deleted", "tenant"])
def test_nothing_is_left_of_it_when_its_rules_or_use_change(company: Provider, issuer: Issuer, how: str) -> None:
    direct._store(issuer, "eyJx", {"sub": "ann", "exp": time.time() + 60, "groups": ["sre"]}, "127.0.0.1")
    assert oauth_tokens.valid_access_tokens().count() == 1
    match how:
        case "rules":
            issuer.rules = [{"claims": {"groups": ["none"]}}]
        case "use":
            issuer.use = IssuerUse.WORKLOADS
        case "deleted":
            setup.delete(issuer)
        case "tenant":
            Tenant.objects.update(is_active=False)
    if how in {"rules", "use"}:
        issuer.save()
        setup.apply_changes(issuer)
    assert not oauth_tokens.valid_access_tokens().exists()


def test_changed_rules_count_for_a_token_that_is_in_use(hub: EmbeddedHub, company: Provider, issuer: Issuer) -> None:
    token = token_of(hub, company)
    assert tools_of(call_endpoint(hub, token)) == ["echo"]
    issuer.rules = [{"claims": {"groups": ["sre"]}, "names": ["count"]}]
    issuer.save()
    setup.apply_changes(issuer)

    def listed() -> list[str]:
        response = call_endpoint(hub, token)
        return tools_of(response) if response.status_code == 200 else []

    until(listed, ["count"])


CLAIMED: dict[str, Any] = {"sub": "ann", "exp": time.time() + 3600, "groups": ["sre"]}


def stored(issuer: Issuer, token: str = "eyJx.e30.s", place: str = "acme", **claims: Any) -> None:
    direct._store(issuer, token, CLAIMED | claims, "127.0.0.1", place)


@pytest.mark.parametrize(
    ("claims", "scope"),
    [
        ({}, "mcp:read mcp:call"),
        ({"scope": "openid mcp:read"}, "mcp:read"),
        ({"scp": ["mcp:read", 1, None]}, "mcp:read"),
        ({"scope": "openid", "scp": "mcp:call"}, "mcp:call"),
    ],
)
def test_a_token_permits_the_scopes_that_it_states(issuer: Issuer, claims: dict[str, Any], scope: str) -> None:
    stored(issuer, **claims)
    assert AccessToken.objects.get().scope == scope


@pytest.mark.parametrize("claims", [{"scope": "openid"}, {"scope": ""}, {"scp": []}, {"scp": None}, {"scp": ["x"]}])
def test_a_token_whose_scopes_nobody_knows_permits_nothing(issuer: Issuer, claims: dict[str, Any]) -> None:
    with pytest.raises(direct.TokenRejected, match="none of its scopes"):
        stored(issuer, **claims)


def test_a_token_does_not_move_the_end_that_an_admin_set(issuer: Issuer) -> None:
    stored(issuer)
    row = Connection.objects.get()
    tag = etag_of(row)
    stored(issuer, "eyJx.e31.s")
    assert etag_of(Connection.objects.get()) == tag
    ends = timezone.now() + timedelta(hours=1)
    connections.change_access(row, {"expires_at": ends})
    stored(issuer, "eyJx.e32.s")
    assert Connection.objects.get().key.expires_at == ends
    ApiKey.objects.update(expires_at=timezone.now())
    with pytest.raises(direct.TokenRejected, match="An admin ended"):
        stored(issuer, "eyJx.e33.s")
    assert not oauth_tokens.valid_access_tokens().exists()


def test_two_tenants_accept_a_token_for_the_same_audience(
    hub: EmbeddedHub, company: Provider, issuer: Issuer, other_tenant: Tenant
) -> None:
    Issuer.objects.update(audience="api://hub")
    issuer_of(other_tenant, company.url, name="Theirs", use="direct", rules=RULES, audience="api://hub")
    token = token_of(hub, company, aud="api://hub")
    for _ in range(2):
        assert tools_of(call_endpoint(hub, token)) == ["echo"]
        assert tools_of(call_endpoint(hub, token, "/t/rival/mcp")) == []
    assert {row.tenant.slug for row in Connection.objects.all()} == {"acme", "rival"}


def test_the_valid_tokens_of_a_subject_are_bounded_and_none_of_them_ends_for_another(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oauth_tokens, "MAX_SIGNED", 2)
    stored(issuer, "eyJx.e30.s", sub="ben")
    stored(issuer, "eyJx.e30.t")
    AccessToken.objects.update(expires_at=timezone.now())
    for token in ("eyJx.e31.s", "eyJx.e32.s"):
        stored(issuer, token)
    with pytest.raises(direct.TokenRejected, match="Its subject has 2 valid tokens"):
        stored(issuer, "eyJx.e33.s")
    # Another encoding of the same signature is the same token.
    stored(issuer, "eyJx.e32.t")
    assert oauth_tokens.valid_access_tokens().count() == 2


def test_steps_of_a_connection_are_recorded_in_a_bounded_number(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct.attempts, "MAX_OF_CONNECTION", 1)
    for number in range(3):
        stored(issuer, f"eyJx.e{number}.s")
    assert SignInEvent.objects.filter(step=SignInStep.ISSUED).count() == 1


def test_refusals_of_strangers_are_recorded_in_a_bounded_number(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct.attempts, "MAX_OF_ADDRESS", 2)
    for _ in range(3):
        direct._record_rejection(issuer, "why", "192.0.2.1")
    assert SignInEvent.objects.count() == 2


def test_strangers_at_one_tenant_leave_the_others_their_record(
    issuer: Issuer, other_tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    are_too_many = direct.attempts.are_too_many_of_strangers
    monkeypatch.setattr(direct.attempts, "MAX_OF_STRANGERS", 2)
    monkeypatch.setattr(direct.attempts, "MAX_OF_ADDRESS", 1)
    limited = [are_too_many(issuer.tenant_id, f"192.0.2.{number}") for number in (1, 1, 2, 3)]
    assert limited == [False, True, False, True]
    assert not are_too_many(other_tenant.pk, "192.0.2.1")


def test_connections_without_tokens_are_deleted_unless_an_admin_ended_or_changed_them(issuer: Issuer) -> None:
    for subject in ("unused", "used", "ended", "changed"):
        stored(issuer, f"eyJx.{subject}.s", sub=subject)
    of = {row.client.name.rpartition(" ")[2]: row for row in Connection.objects.select_related("client", "key")}
    connections.revoke(of["ended"])
    connections.change_access(of["changed"], {"methods": ["tools/list"]})
    Connection.objects.exclude(pk=of["used"].pk).update(consented_at=timezone.now() - timedelta(days=8))
    pruning.prune()
    left = {row.client.name.rpartition(" ")[2] for row in Connection.objects.select_related("client")}
    assert left == {"used", "ended", "changed"}
    assert not ApiKey.objects.filter(pk=of["unused"].key_id).exists()


@pytest.mark.django_db(transaction=True)
def test_some_of_many_connections_are_deleted_while_others_write(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read stays open no longer than it is read: SQLite lets nobody write who reads an earlier state."""
    for subject in ("one", "two", "three"):
        stored(issuer, f"eyJx.{subject}.s", sub=subject)
    Connection.objects.update(consented_at=timezone.now() - timedelta(days=8))
    monkeypatch.setattr(workloads, "MAX_PRUNED", 1)
    terms_of = workloads._terms

    def write() -> None:
        Tenant.objects.update(name="renamed")
        connection.close()

    def while_others_write(*terms: list[str]) -> str:
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
        return terms_of(*terms)

    monkeypatch.setattr(workloads, "_terms", while_others_write)
    workloads.prune(timezone.now())
    assert Tenant.objects.filter(name="renamed").exists()
    assert Connection.objects.count() == 2


def test_keys_that_cannot_be_read_are_not_asked_for_again_at_once(
    hub: EmbeddedHub, company: Provider, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for: list[str] = []
    fetch = configuration.documents.fetch

    def counted(url: str, *arguments: Any, **more: Any) -> Any:
        asked_for.append(url)
        return fetch(url, *arguments, **more)

    monkeypatch.setattr(configuration.documents, "fetch", counted)
    company.fails = 500
    first = call_endpoint(hub, token_of(hub, company))
    assert refusal_of(first) == "A valid API key is needed."
    assert call_endpoint(hub, token_of(hub, company, jti="2")).status_code == 503
    assert len(asked_for) == 1
    company.fails = 0
    monkeypatch.setattr(configuration, "FAILURE_MAX_AGE_SECONDS", 0.0)
    configuration.cache()._failures.clear()
    good = token_of(hub, company, jti="3")
    assert tools_of(call_endpoint(hub, good)) == ["echo"]
    # Keys are fetched for an unknown key ID once a minute at most, and no other request waits.
    asked_for.clear()
    company.published, company.key = [company.key], new_key()
    for number in range(3):
        assert refusal_of(call_endpoint(hub, token_of(hub, company, jti=f"junk-{number}")))
    assert not asked_for


def test_what_was_decided_by_rules_that_changed_meanwhile_is_not_stored(
    tenant: Tenant, company: Provider, issuer: Issuer
) -> None:
    claims = {"sub": "ann", "exp": time.time() + 60, "groups": ["sre"]}
    Issuer.objects.update(rules=[])
    with pytest.raises(direct.TokenRejected, match="has just been changed"):
        direct._store(issuer, "eyJx", claims, "127.0.0.1")
    assert not Connection.objects.exists()
    Issuer.objects.update(rules=RULES)
    for _ in range(2):  # the second one stands for another process
        direct._store(issuer, "eyJx", claims, "127.0.0.1")
    assert AccessToken.objects.count() == 1


def test_an_issuer_that_does_not_answer_holds_up_nobody_else(
    tenant: Tenant, other_tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(direct, "MAX_WAITING_OF_TENANT", 2)

    async def all_at_once() -> list[Any]:
        gate, checks = threading.Event(), direct.TenantQueue()
        slow = [asyncio.create_task(checks.run(tenant.pk, gate.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        third = await asyncio.gather(checks.run(tenant.pk, gate.wait), return_exceptions=True)
        quick = await checks.run(other_tenant.pk, lambda: "quick")
        late = await asyncio.gather(*slow, return_exceptions=True)
        gate.set()
        return [*third, quick, *late]

    third, quick, *late = asyncio.run(all_at_once())
    assert isinstance(third, direct.TooManyTokens)
    assert quick == "quick"
    assert [type(one) for one in late] == [direct.TooManyTokens] * 2


def test_too_many_at_once_are_told_to_come_again(
    hub: EmbeddedHub, company: Provider, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "MAX_WAITING", 0)
    monkeypatch.setattr(direct, "verifications", Service(direct.TenantQueue))
    response = call_endpoint(hub, token_of(hub, company))
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")


def test_the_subjects_of_an_issuer_are_bounded(
    hub: EmbeddedHub, company: Provider, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workloads, "MAX_WORKLOADS", 1)
    assert tools_of(call_endpoint(hub, token_of(hub, company))) == ["echo"]
    assert "has stated 1 subjects" in refusal_of(call_endpoint(hub, token_of(hub, company, sub="bob")))


@pytest.mark.parametrize("rule", [{"names": ["x"]}, {"claims": {"sub": ["*"]}, "role": "admin"}])
def test_rules_for_everybody_and_roles_are_refused_when_they_are_saved(issuer: Issuer, rule: dict[str, Any]) -> None:
    issuer.rules = [rule]
    with pytest.raises(Exception, match="Each rule for tokens needs claims, and names or methods in place of a role"):
        setup.check(issuer)


def test_a_token_can_be_tried_out_without_being_accepted(company: Provider, issuer: Issuer) -> None:
    ours = "https://hub.example"
    claims = {"aud": f"{ours}/t/acme/mcp/", "groups": ["sre"]}
    trial = setup.try_rules(issuer, company.token("ann", **claims), ours)
    assert (trial.rule, trial.problem) == (Rule(1, "", ["echo"], ["tools/*"]), "")
    assert "its type" in setup.try_rules(issuer, company.token("ann", typ="logout+jwt", **claims), ours).problem
    assert "audience" in setup.try_rules(issuer, company.token("ann", **claims | {"aud": ours}), ours).problem
    assert not AccessToken.objects.exists()


def test_no_api_key_can_be_taken_for_a_token(tenant: Tenant) -> None:
    with pytest.raises(keys.WeakKey, match="eyJ is the prefix of signed tokens"):
        keys.issue(tenant, "own", key="eyJ" + "x" * 40)


def test_an_admin_sets_one_up_in_the_admin_and_by_the_api(client: Client, tenant: Tenant, company: Provider) -> None:
    boss = User.objects.create_user("boss")
    Membership.objects.create(user=boss, tenant=tenant, role=Role.ADMIN)
    client.force_login(boss)
    Tenant.objects.update(allowed_networks=LOOPBACK)
    body = {"tenant": "acme", "name": "Tokens", "use": "direct", "issuer": company.url, "rules": RULES}
    created = client.post("/api/v1/issuers/", body, content_type="application/json")
    assert created.status_code == 201, created.content
    assert "Direct tokens" in client.get(reverse("admin:tools_app_issuer_changelist")).content.decode()
    page = reverse("admin:tools_app_issuer_change", args=[created.json()["id"]])
    form = client.get(page).context["adminform"].form
    data = {bound.html_name: bound.value() for bound in form if bound.value() not in (None, False)}
    response = client.post(page, data | {"rules": '[{"claims": {"sub": ["*"]}, "role": "admin"}]'})
    assert "in place of a role" in response.content.decode()
    assert client.post(page, data | {"audience": "api://hub"}).status_code == 302
    assert Issuer.objects.get().audience == "api://hub"
