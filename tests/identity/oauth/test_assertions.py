"""Assertions of trusted issuers: workload identities, and identity assertions of managed applications (ID-JAG)."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.db.models.signals import post_save
from django.utils import timezone

from tests.identity.oauth.known_clients import CLAUDE
from tests.identity.oauth.person import Application
from tests.identity.sign_in.provider import Provider, issuer_of, new_key, running_provider
from tests.wire.client import WAIT_SECONDS, RawClient, message_of
from tools_app.identity.issuers import setup
from tools_app.identity.oauth import clients, connections, scopes, workloads
from tools_app.identity.people.rules import Rule
from tools_app.models import (
    AccessToken,
    ApiKey,
    ClientDecision,
    ClientPolicy,
    Connection,
    Issuer,
    Membership,
    OAuthClient,
    SignInEvent,
    SignInStep,
    Tenant,
    Toolset,
)
from tools_app.server.embedded import EmbeddedHub

GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
JAG = "oauth-id-jag+jwt"
JOBS = [
    {"claims": {"repository": ["acme/api"], "ref": ["refs/heads/main"]}, "names": ["echo"], "methods": ["tools/*"]},
    {"claims": {"repository": ["acme/*"]}, "names": ["calculator"]},
]


@pytest.fixture
def company() -> Iterator[Provider]:
    with running_provider() as found:
        yield found


@contextmanager
def client_of(hub: EmbeddedHub, token: str) -> Iterator[RawClient]:
    client = RawClient(hub.url, token, "/t/acme/mcp")
    with client.http:
        yield client


def tools_of(hub: EmbeddedHub, token: str) -> list[str]:
    """The names of the tools that a token can list."""
    with client_of(hub, token) as client:
        response = client.modern("tools/list")
    return [tool["name"] for tool in message_of(response)["result"]["tools"]] if response.status_code == 200 else []


def post_assertion(hub: EmbeddedHub, assertion: str, **more: str) -> httpx.Response:
    data = {"grant_type": GRANT, "assertion": assertion, "resource": f"{hub.url}/t/acme/mcp", **more}
    return httpx.post(f"{hub.url}/oauth/token", data=data, trust_env=False)


def error_description(response: httpx.Response) -> str:
    assert response.status_code in {400, 401}, response.text
    return f"{response.json()['error']}: {response.json()['error_description']}"


# --- Workloads -----------------------------------------------------------------------------------------------------


@pytest.fixture
def jobs(tenant: Tenant, company: Provider, offer: Callable[..., object]) -> Issuer:
    """A tenant that accepts the workload tokens of its repositories' jobs."""
    offer("echo", "calculator", "count")
    return issuer_of(tenant, company.url, name="Jobs", use="workloads", rules=JOBS)


def job(hub: EmbeddedHub, company: Provider, **more: Any) -> str:
    claims = {"aud": hub.url, "repository": "acme/api", "ref": "refs/heads/main", **more}
    return company.token("repo:acme/api:ref:main", **claims)


def test_a_job_connects_without_a_secret_and_gets_what_the_first_rule_that_fits_says(
    hub: EmbeddedHub, company: Provider, jobs: Issuer
) -> None:
    response = post_assertion(hub, job(hub, company))
    assert response.status_code == 200, response.text
    assert set(response.json()) == {"access_token", "token_type", "expires_in", "scope"}
    assert tools_of(hub, response.json()["access_token"]) == ["echo"]
    other = post_assertion(hub, job(hub, company, repository="acme/web")).json()
    assert tools_of(hub, other["access_token"]) == ["calculator"]
    row = Connection.objects.get(key__tool_patterns=["echo"])
    assert (row.person, row.client.name) == (None, "Jobs: repo:acme/api:ref:main")
    steps = SignInEvent.objects.filter(step=SignInStep.ISSUED).order_by("at").values_list("reason", flat=True)
    assert list(steps) == ["By rule 1 of Jobs.", "By rule 2 of Jobs."]


def test_a_workload_of_spiffe_connects_with_the_identity_of_its_platform(
    hub: EmbeddedHub, company: Provider, jobs: Issuer
) -> None:
    """A JWT-SVID as SPIRE issues it: SPIRE's OIDC discovery provider is an ordinary issuer."""
    rules = [{"claims": {"sub": ["spiffe://acme.example/ns/prod/*"]}, "names": ["echo"]}]
    Issuer.objects.update(rules=rules)
    identity = "spiffe://acme.example/ns/prod/sa/reports"
    response = post_assertion(hub, company.token(identity, aud=[hub.url]))
    assert response.status_code == 200, response.text
    assert tools_of(hub, response.json()["access_token"]) == ["echo"]
    assert Connection.objects.get().client.name == f"Jobs: {identity}"
    other = post_assertion(hub, company.token("spiffe://acme.example/ns/test/sa/reports", aud=[hub.url]))
    assert error_description(other).startswith("invalid_grant: No rule of Acme fits its sub")


def test_the_same_job_is_the_same_connection(hub: EmbeddedHub, company: Provider, jobs: Issuer) -> None:
    for _ in range(2):
        assert post_assertion(hub, job(hub, company)).status_code == 200
    assert Connection.objects.count() == 1


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"repository": "globex/api"}, "No rule of Acme fits its repository (globex/api)"),
        ({"aud": "https://another.example"}, "The token is for another audience."),
        ({"exp": 1}, "The token has expired."),
        ({"sub": ""}, "The assertion has no subject (sub)."),
        ({"sub": "x" * 501}, "The assertion has no subject (sub)."),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(
    hub: EmbeddedHub, company: Provider, jobs: Issuer, claims: dict[str, Any], reason: str
) -> None:
    company.lies = claims
    assert error_description(post_assertion(hub, job(hub, company))).startswith(f"invalid_grant: {reason}")
    assert reason in SignInEvent.objects.get(step=SignInStep.REJECTED, tenant=jobs.tenant).reason
    assert not Connection.objects.exists()


def test_another_key_or_issuer_or_tenant_or_no_token_gets_nothing(
    hub: EmbeddedHub, company: Provider, jobs: Issuer, other_tenant: Tenant
) -> None:
    good = job(hub, company)
    company.published = [company.key]
    company.key = new_key()
    assert "signature" in error_description(post_assertion(hub, job(hub, company)))
    assert "accepts no assertions" in error_description(post_assertion(hub, good, resource=f"{hub.url}/t/rival/mcp"))
    company.key, company.lies = company.published[0], {"iss": "https://evil.example"}
    assert "accepts no assertions" in error_description(post_assertion(hub, job(hub, company)))
    assert "not a signed JWT" in error_description(post_assertion(hub, "nonsense"))
    assert "invalid_request" in error_description(post_assertion(hub, ""))


def test_a_job_names_its_tenant_whoever_else_has_its_issuer(
    hub: EmbeddedHub, company: Provider, jobs: Issuer, other_tenant: Tenant
) -> None:
    """Otherwise a tenant that sets up the same issuer would end what works for others."""
    token = job(hub, company)
    for resource in ("", f"{hub.url}/mcp", hub.url):
        assert error_description(post_assertion(hub, token, resource=resource)).startswith("invalid_target: Name the")
    issuer_of(other_tenant, company.url, name="Jobs", use="workloads", rules=JOBS)
    assert post_assertion(hub, token).status_code == 200
    assert post_assertion(hub, token).status_code == 200


def test_changed_rules_and_an_issuer_that_is_off_end_the_tokens_of_jobs(
    hub: EmbeddedHub, company: Provider, jobs: Issuer
) -> None:
    token = post_assertion(hub, job(hub, company)).json()["access_token"]
    jobs.rules = [{"claims": {"repository": ["acme/*"]}, "names": ["count"]}]
    jobs.save()
    setup.apply_changes(jobs)
    until_refused(hub, token)
    assert tools_of(hub, post_assertion(hub, job(hub, company)).json()["access_token"]) == ["count"]
    jobs.is_active = False
    jobs.save()
    assert "accepts no assertions" in error_description(post_assertion(hub, job(hub, company)))


def test_a_changed_rule_leaves_a_job_its_toolset(
    hub: EmbeddedHub, company: Provider, jobs: Issuer, tenant: Tenant
) -> None:
    post_assertion(hub, job(hub, company))
    few = Toolset.objects.create(tenant=tenant, name="Few", tools=["count"])
    ApiKey.objects.filter(pk=Connection.objects.get().key_id).update(toolset=few, presentation="search")
    jobs.rules = [{"claims": {"repository": ["acme/*"]}, "names": []}]
    jobs.save()
    setup.apply_changes(jobs)
    post_assertion(hub, job(hub, company))
    row = Connection.objects.latest("created_at")
    assert Connection.objects.count() == 2
    assert (row.key.toolset, row.key.presentation, row.key.tool_patterns) == (few, "search", [])


def test_a_token_that_was_decided_by_rules_that_changed_meanwhile_is_not_issued(
    hub: EmbeddedHub, company: Provider, jobs: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = workloads.connect

    def connected(issuer: Issuer, subject: str, rule: Rule) -> Connection:
        Issuer.objects.update(rules=[])
        return connect(issuer, subject, rule)

    monkeypatch.setattr(workloads, "connect", connected)
    assert "The issuer has just been changed." in error_description(post_assertion(hub, job(hub, company)))
    assert not AccessToken.objects.exists()


def test_an_issuer_with_another_url_gets_none_of_the_connections_of_the_former_one(
    hub: EmbeddedHub, company: Provider, jobs: Issuer
) -> None:
    token = post_assertion(hub, job(hub, company)).json()["access_token"]
    ended = Connection.objects.get()
    assert connections.revoke(ended)
    with running_provider() as other:
        jobs.issuer = other.url
        setup.save(jobs)
        until_refused(hub, token)
        assert "accepts no assertions" in error_description(post_assertion(hub, job(hub, company)))
        assert post_assertion(hub, job(hub, other)).status_code == 200
    assert Connection.objects.get().pk != ended.pk


def test_a_connection_that_an_admin_ended_stays_ended(hub: EmbeddedHub, company: Provider, jobs: Issuer) -> None:
    token = post_assertion(hub, job(hub, company)).json()["access_token"]
    assert connections.revoke(Connection.objects.get())
    until_refused(hub, token)
    assert "was revoked" in error_description(post_assertion(hub, job(hub, company)))


def until_refused(hub: EmbeddedHub, token: str) -> None:
    """Wait until a token is refused."""
    until = time.monotonic() + WAIT_SECONDS
    with client_of(hub, token) as client:
        while client.modern("tools/list").status_code != 401:
            assert time.monotonic() < until, "The token is still accepted."


# --- Applications that a company manages ---------------------------------------------------------------------------


@pytest.fixture
def staff(tenant: Tenant, company: Provider, offer: Callable[..., object]) -> Issuer:
    """A tenant whose company signs people into applications, too."""
    offer("echo", "calculator")
    company.set("u1", preferred_username="ann", groups=["staff-1"])
    return issuer_of(tenant, company.url, accepts_assertions=True)


@pytest.fixture
def assistant(application: Application) -> Application:
    application.register(token_endpoint_auth_method="client_secret_post")
    return application


def credentials(application: Application) -> dict[str, str]:
    return {"client_id": application.client_id, "client_secret": application.secret}


def identity(hub: EmbeddedHub, company: Provider, application: Application, **more: Any) -> str:
    claims = {"aud": hub.url, "client_id": application.client_id, "resource": f"{hub.url}/t/acme/mcp", "typ": JAG}
    return company.token("u1", **{**claims, "jti": uuid4().hex, **more})


def test_a_managed_application_connects_without_asking_its_person(
    hub: EmbeddedHub, company: Provider, staff: Issuer, assistant: Application
) -> None:
    response = post_assertion(hub, identity(hub, company, assistant), **credentials(assistant))
    assert response.status_code == 200, response.text
    assert "refresh_token" not in response.json()
    assert tools_of(hub, response.json()["access_token"]) == ["calculator", "echo"]
    row = Connection.objects.get()
    assert (row.person, row.client.client_id) == (User.objects.get(username="ann@acme"), assistant.client_id)
    step = SignInEvent.objects.get(step=SignInStep.ISSUED)
    assert step.reason.startswith("By rule ")
    assert step.reason.endswith(f" of {staff.name}: {Membership.objects.get(user=row.person).role}.")


def test_an_assertion_needs_the_client_that_it_names_and_its_proof(
    hub: EmbeddedHub, company: Provider, staff: Issuer, assistant: Application
) -> None:
    """Whoever finds an assertion of a public client, such as one that a metadata document names, could use it."""
    assertion = identity(hub, company, assistant)
    assert "invalid_client" in error_description(post_assertion(hub, assertion))
    assert "invalid_client" in error_description(post_assertion(hub, assertion, client_id=assistant.client_id))
    clients.from_document(CLAUDE.document, CLAUDE.metadata)
    public = identity(hub, company, assistant, client_id=CLAUDE.document)
    assert "invalid_client" in error_description(post_assertion(hub, public, client_id=CLAUDE.document))
    assert post_assertion(hub, assertion, **credentials(assistant)).status_code == 200


def test_an_assertion_counts_once(hub: EmbeddedHub, company: Provider, staff: Issuer, assistant: Application) -> None:
    """Those of workloads count for as long as they are valid: see above."""
    assertion = identity(hub, company, assistant)
    assert post_assertion(hub, assertion, **credentials(assistant)).status_code == 200
    again = post_assertion(hub, assertion, **credentials(assistant))
    assert error_description(again) == "invalid_grant: The assertion was used before."
    assert SignInEvent.objects.filter(step=SignInStep.REJECTED, reason__endswith="used before.").exists()


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"client_id": "another"}, "The assertion is for another client."),
        ({"aud": "https://another.example"}, "The token is for another audience."),
        ({"resource": "https://another.example/mcp"}, "invalid_target"),
        ({"groups": ["g1"]}, "No rule of Acme fits your groups (g1)."),
        ({"exp": 1}, "The token has expired."),
        ({"exp": int(time.time()) + 3600}, "The token is valid for more than 10 minutes."),
        ({"jti": ""}, "The assertion has no ID (jti)."),
        ({"jti": ["x"]}, "The assertion has no ID (jti)."),
    ],
)
def test_an_identity_that_is_not_for_this_is_refused(
    hub: EmbeddedHub, company: Provider, staff: Issuer, assistant: Application, claims: dict[str, Any], reason: str
) -> None:
    response = post_assertion(hub, identity(hub, company, assistant, **claims), **credentials(assistant))
    assert reason in error_description(response)
    assert not Connection.objects.exists()


def test_an_id_token_is_no_identity_assertion(
    hub: EmbeddedHub, company: Provider, staff: Issuer, assistant: Application
) -> None:
    token = company.token("u1", aud=hub.url, client_id=assistant.client_id)
    assert "accepts no assertions" in error_description(post_assertion(hub, token, **credentials(assistant)))


def test_the_issuer_must_be_allowed_to_sign_applications_in(
    hub: EmbeddedHub, company: Provider, staff: Issuer, assistant: Application
) -> None:
    Issuer.objects.update(accepts_assertions=False)
    assert "accepts no assertions" in error_description(
        post_assertion(hub, identity(hub, company, assistant), **credentials(assistant))
    )


@pytest.mark.parametrize("decision", [ClientDecision.DENY, ClientDecision.ASK])
def test_the_tenants_policy_counts_for_managed_applications(
    hub: EmbeddedHub, tenant: Tenant, company: Provider, staff: Issuer, assistant: Application, decision: str
) -> None:
    ClientPolicy.objects.create(tenant=tenant, host="*", decision=decision)
    response = post_assertion(hub, identity(hub, company, assistant), **credentials(assistant))
    assert "Acme does not allow this client." in error_description(response)


def test_assertions_extend_the_end_that_they_set_and_none_that_an_admin_set(
    hub: EmbeddedHub, company: Provider, staff: Issuer, assistant: Application
) -> None:
    def asserted() -> httpx.Response:
        return post_assertion(hub, identity(hub, company, assistant), **credentials(assistant))

    assert asserted().status_code == 200
    first = ApiKey.objects.get(connection__person__username="ann@acme").expires_at
    assert asserted().status_code == 200
    row = ApiKey.objects.get(connection__person__username="ann@acme")
    assert first is not None
    assert row.expires_at is not None
    assert row.expires_at > first
    row.expires_at = timezone.now() + timedelta(hours=1)
    row.save(update_fields=["expires_at"])
    assert asserted().status_code == 200
    assert ApiKey.objects.get(pk=row.pk).expires_at == row.expires_at
    ApiKey.objects.filter(pk=row.pk).update(expires_at=timezone.now() - timedelta(hours=1))
    assert "The connection has ended" in error_description(asserted())


def test_an_assertion_that_says_less_of_a_person_takes_nothing_away(
    hub: EmbeddedHub, company: Provider, staff: Issuer, assistant: Application
) -> None:
    token = post_assertion(hub, identity(hub, company, assistant), **credentials(assistant)).json()["access_token"]
    response = post_assertion(hub, identity(hub, company, assistant, groups=[]), **credentials(assistant))
    assert "No rule of Acme fits" in error_description(response)
    company.people["u1"].pop("groups")
    assert post_assertion(hub, identity(hub, company, assistant), **credentials(assistant)).status_code == 200
    assert tools_of(hub, token) == ["calculator", "echo"]


def test_an_assertion_gives_no_more_than_its_own_scope_and_what_the_person_allowed(
    hub: EmbeddedHub, company: Provider, staff: Issuer, assistant: Application
) -> None:
    narrow = identity(hub, company, assistant, scope="mcp:read")
    assert post_assertion(hub, narrow, **credentials(assistant)).json()["scope"] == "mcp:read"
    Connection.objects.update(redirect_uri="http://localhost/callback", scope="mcp:read")
    whole = post_assertion(hub, identity(hub, company, assistant), **credentials(assistant))
    assert whole.json()["scope"] == "mcp:read"
    other = post_assertion(hub, identity(hub, company, assistant, scope="mcp:call"), **credentials(assistant))
    assert error_description(other).startswith("invalid_scope")


def test_a_person_who_allows_less_meanwhile_gives_no_token_for_more(
    hub: EmbeddedHub, company: Provider, staff: Issuer, assistant: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert post_assertion(hub, identity(hub, company, assistant), **credentials(assistant)).status_code == 200
    Connection.objects.update(redirect_uri="http://localhost/callback")
    granted = scopes.granted

    def allow_less(*args: Any) -> str:
        Connection.objects.update(scope="mcp:read")
        return granted(*args)

    monkeypatch.setattr(scopes, "granted", allow_less)
    response = post_assertion(hub, identity(hub, company, assistant), **credentials(assistant))
    assert error_description(response).startswith("invalid_grant")


def test_an_assertion_beside_the_first_consent_of_its_person_gives_no_more_than_that(
    hub: EmbeddedHub,
    tenant: Tenant,
    company: Provider,
    staff: Issuer,
    assistant: Application,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, consents = QuerySet.first, []

    def find_then_consent(rows: QuerySet[Any]) -> Any:
        """Look for a connection, and let the person allow one just after."""
        found = first(rows)
        if rows.model is Connection and not consents:
            consents.append(found)
            person = User.objects.get(username="ann@acme")
            client = OAuthClient.objects.get(client_id=assistant.client_id)
            connections.allow(
                tenant, person, client, names=["echo"], scope="mcp:read", redirect_uri="http://localhost/", days=7
            )
        return found

    monkeypatch.setattr(QuerySet, "first", find_then_consent)
    response = post_assertion(hub, identity(hub, company, assistant), **credentials(assistant))
    assert consents == [None]
    assert response.json()["scope"] == "mcp:read"
    assert Connection.objects.get().key.tool_patterns == ["echo"]


def test_a_connection_of_an_assertion_is_stored_with_its_end(
    hub: EmbeddedHub, company: Provider, staff: Issuer, assistant: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it was stored without, no later assertion could renew it."""
    stored: list[Connection] = []

    def note(sender: type[Connection], instance: Connection, **_: object) -> None:
        stored.append(Connection.objects.get(pk=instance.pk))

    post_save.connect(note, sender=Connection)
    try:
        assert post_assertion(hub, identity(hub, company, assistant), **credentials(assistant)).status_code == 200
    finally:
        post_save.disconnect(note, sender=Connection)
    assert [row.asserted_until for row in stored] == [stored[0].key.expires_at]
