"""The authorization endpoint: validation of requests, consent, and redirects."""

import re
from collections.abc import Callable
from html import unescape

import pytest
from django.contrib.auth.models import User

from tests.identity.oauth.conftest import PASSWORD
from tests.identity.oauth.person import Application, Person, parse_form, redirect_parameters
from tools_app.audit.changes import changes
from tools_app.identity.oauth import clients, connections, policies, tokens
from tools_app.models import (
    ClientDecision,
    ClientPolicy,
    ClientSource,
    Connection,
    Membership,
    OAuthClient,
    Role,
    SignInEvent,
    SignInStep,
    Tenant,
    Toolset,
)
from tools_app.server.embedded import EmbeddedHub


def website(name: str = "Website") -> OAuthClient:
    """A client with a metadata document that was fetched just now."""
    client_id = "https://claude.example/oauth/metadata"
    document = {"client_id": client_id, "client_name": name, "redirect_uris": ["https://claude.example/callback"]}
    return clients.from_document(client_id, document)


@pytest.fixture
def site(application: Application) -> Application:
    application.client_id, application.redirect_uri = website().client_id, "https://claude.example/callback"
    return application


# --- What a client may ask for --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"resource": "https://elsewhere.example/t/acme/mcp"}, "invalid_target"),
        ({"resource": "http://127.0.0.1:1/t/acme/mcp"}, "invalid_target"),
    ],
)
def test_a_faulty_request_returns_to_the_client_that_its_person_allowed_with_its_state_and_the_issuer(
    hub: EmbeddedHub, ann: Person, application: Application, changes: dict[str, str | None], error: str
) -> None:
    """Others get a page: the hub is no link to whatever site somebody registered."""
    application.redirect_uri = "https://evil.example/landing"
    application.register()

    def nothing_was_sent() -> bool:
        response = ann.browser.get(application.url(**changes))
        return response.status_code == 400 and "Nothing was sent to evil.example." in response.text

    assert nothing_was_sent()
    page = ann.open(application.url())
    assert nothing_was_sent()
    ann.decide(page)
    response = ann.browser.get(application.url(**changes))
    assert response.status_code == 302
    assert response.headers["location"].startswith(f"{application.redirect_uri}?")
    parameters = redirect_parameters(response.headers["location"])
    assert (parameters["error"], parameters["state"], parameters["iss"]) == (error, application.state, hub.url)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"client_id": "nobody"}, "does not know the application"),
        ({"client_id": None}, "does not know the application"),
        (
            {"redirect_uri": "http://localhost:33418/evil"},
            "to localhost:33418, which it did not register. Nothing was sent there.",
        ),
        ({"redirect_uri": "https://evil.example/callback"}, "asks to return to evil.example"),
        ({"redirect_uri": "javascript:alert(1)"}, "which it did not register"),
        ({"redirect_uri": 'http://localhost/"><script>'}, "unusual characters"),
        ({"client_id": "x" * 3000}, "too long"),
        ({"client_id": "https://claude.example"}, "could not be read"),
        ({"client_id": "https://[::1"}, "could not be read"),
        ({"client_id": "https://[::1]:x/metadata"}, "could not be read"),
        # Allowed networks of tenants do not apply to it.
        (
            {"client_id": "https://127.0.0.1/metadata"},
            "its address is private or reserved. The hub sends this request to public addresses only, and no setting",
        ),
    ],
)
def test_a_client_that_is_not_sure_gets_no_redirect_but_the_person_a_page(
    ann: Person, application: Application, changes: dict[str, str | None], message: str
) -> None:
    """CVE-2025-4143: the redirect URI is checked before any other parameter."""
    application.register()
    response = ann.open(application.url(**changes))
    assert response.status_code == 400
    assert message in unescape(response.text)
    assert "<script>'" not in response.text


def test_a_repeated_parameter_is_refused(ann: Person, application: Application) -> None:
    application.register()
    assert ann.open(f"{application.url()}&state=other").status_code == 400


@pytest.mark.parametrize("port", ["", ":1", ":65535"])
def test_a_program_on_the_same_computer_may_listen_on_any_port(
    ann: Person, application: Application, port: str
) -> None:
    application.register(redirect_uris=["http://localhost/callback"])
    location = ann.connect(application.url(redirect_uri=f"http://localhost{port}/callback"), ["echo"])
    assert location.startswith(f"http://localhost{port}/callback?")


def test_an_application_with_its_own_scheme_gets_its_answer_there(ann: Person, application: Application) -> None:
    application.redirect_uri = "cursor://anysphere.cursor-mcp/oauth/callback"
    application.register()
    location = ann.connect(application.url(), ["echo"])
    assert location.startswith(f"{application.redirect_uri}?")
    assert application.exchange(location).status_code == 200


# --- Who signs in, and where ----------------------------------------------------------------------------------------


def test_who_is_no_member_learns_whom_to_ask(hub: EmbeddedHub, ann: Person, application: Application) -> None:
    Tenant.objects.create(slug="rival", name="Rival")
    application.register()
    for slug in ("rival", "nothing"):
        response = ann.open(application.url(resource=f"{hub.url}/t/{slug}/mcp"))
        assert response.status_code == 403
        assert f"You are signed in as ann, who is no member of {slug}." in response.text


def test_somebody_of_several_tenants_chooses_one(hub: EmbeddedHub, ann: Person, application: Application) -> None:
    second = Tenant.objects.create(slug="second", name="Second")
    Membership.objects.create(user=User.objects.get(username="ann"), tenant=second, role=Role.AUDITOR)
    application.register()
    application.resource = ""
    page = ann.open(application.url())
    assert "Acme" in page.text
    assert "Second" in page.text
    assert application.get_tokens(ann, ["echo"], tenant="acme")
    assert Connection.objects.get().tenant.slug == "acme"


def test_a_person_who_is_deactivated_or_a_tenant_that_is_disabled_connects_nothing(
    ann: Person, application: Application, tenant: Tenant
) -> None:
    application.register()
    page = ann.open(application.url())
    Tenant.objects.filter(pk=tenant.pk).update(is_active=False)
    assert ann.decide(page).status_code == 403
    Tenant.objects.filter(pk=tenant.pk).update(is_active=True)
    User.objects.filter(username="ann").update(is_active=False)
    assert "/admin/login/" in ann.decide(page).headers["location"]
    assert not Connection.objects.exists()


# --- Consent --------------------------------------------------------------------------------------------------------


def test_the_page_says_who_asks_for_what_and_where_it_leads(
    ann: Person, application: Application, tenant: Tenant
) -> None:
    application.register(client_name="<b>Robot</b>\n\u202e")
    page = ann.open(application.url())
    assert page.status_code == 200
    for expected in ("&lt;b&gt;Robot&lt;/b&gt;", "unverified", "Acme", "ann", "localhost:33418", "Call tools"):
        assert expected in page.text
    assert "<b>Robot" not in page.text
    assert parse_form(page.text).checked_values("tool") == ["calculator", "count", "echo"]
    policy = page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    (actions,) = [part for part in policy.split("; ") if part.startswith("form-action")]
    assert set(actions.split()[1:]) == {"'self'", "http://localhost:33418"}
    assert page.headers["referrer-policy"] == "strict-origin"
    assert page.headers["cache-control"].startswith("max-age=0, no-cache, no-store")


def test_toolsets_with_tools_are_presets_of_the_page(ann: Person, application: Application, tenant: Tenant) -> None:
    Toolset.objects.create(tenant=tenant, name="Sums <i>", tools=["calc*", "count", "gone"])
    Toolset.objects.create(tenant=tenant, name="Words", tools=["echo", "c*"])
    Toolset.objects.create(tenant=tenant, name="Empty", tools=["gone"])
    Toolset.objects.create(tenant=Tenant.objects.create(name="Other", slug="other"), name="Foreign", tools=["*"])
    application.register()
    page = ann.open(application.url()).text
    presets = re.findall(r'data-toolset="(\d+)" title="[^"]*: (\d+)">([^<]+)<', page)
    assert presets == [("0", "2", "Sums &lt;i&gt;"), ("1", "3", "Words")]
    marked = re.findall(r'name="tool" value="(\w+)" data-toolsets="([\d ]+)"', page)
    assert dict(marked) == {"calculator": "0 1", "count": "0 1", "echo": "1"}


def test_a_refusal_returns_to_the_client(ann: Person, application: Application) -> None:
    application.register()
    parameters = redirect_parameters(ann.decide(ann.open(application.url()), "deny").headers["location"])
    assert parameters["error"] == "access_denied"
    assert parameters["iss"]
    assert not Connection.objects.exists()


@pytest.mark.parametrize("tools", [[], ["unknown"]])
def test_nothing_ticked_asks_again(ann: Person, application: Application, tools: list[str]) -> None:
    application.register()
    response = ann.decide(ann.open(application.url()), tools=tools)
    assert response.status_code == 200
    assert "Choose at least one" in response.text
    assert not Connection.objects.exists()


def test_so_much_can_be_ticked_as_can_be_stored(
    ann: Person, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools_app.identity.authorization.consent.MAX_EXACT", 2)
    application.register()
    page = ann.open(application.url())
    assert "Choose at most 2, or everything" in ann.decide(page, tools=["calculator", "count", "echo"]).text
    assert ann.decide(page, tools=["count", "echo"]).status_code == 302


def test_what_the_tenant_does_not_offer_cannot_be_allowed(ann: Person, application: Application) -> None:
    application.register()
    ann.decide(ann.open(application.url()), tools=["echo", "*", "unknown"])
    assert Connection.objects.get().key.tool_patterns == ["tool=echo"]


@pytest.mark.parametrize(("days", "lifetime"), [({}, 90), ({"days": ""}, 90), ({"days": "7"}, 7)])
def test_a_connection_ends_when_the_person_said(
    ann: Person, application: Application, days: dict[str, str], lifetime: int
) -> None:
    application.register()
    ann.decide(ann.open(application.url()), tools=["echo"], **days)
    key = Connection.objects.get().key
    assert (key.expires_at - key.created_at).days in (lifetime - 1, lifetime)


@pytest.mark.parametrize("days", ["8", "-1", "x", "9999999999"])
def test_no_other_lifetime_can_be_chosen(ann: Person, application: Application, days: str) -> None:
    application.register()
    assert ann.decide(ann.open(application.url()), tools=["echo"], days=days).status_code == 200
    assert not Connection.objects.exists()


def test_everything_stays_everything(ann: Person, application: Application) -> None:
    application.register()
    ann.decide(ann.open(application.url()), tools=[], later="on")
    assert Connection.objects.get().key.tool_patterns == []


def test_the_form_of_one_browser_is_good_in_no_other(hub: EmbeddedHub, ann: Person, application: Application) -> None:
    """CVE-2026-27124: consent is bound to the browser that began it."""
    application.register()
    page = ann.open(application.url())
    User.objects.create_superuser("eve", password=PASSWORD)
    eve = Person(hub.url, "eve", PASSWORD)
    eve.open(application.url())
    assert eve.decide(page).status_code == 403
    nobody = Person(hub.url, "", "")
    assert nobody.decide(page).status_code == 403
    eve.close()
    nobody.close()
    assert not Connection.objects.exists()


def test_each_client_needs_its_own_consent(ann: Person, site: Application, hub: EmbeddedHub) -> None:
    """GHSA-c2jp-c369-7pvx: consent for one client does not extend to another."""
    site.get_tokens(ann, ["echo"])
    other = Application(hub.url, site.resource)
    other.register()
    assert ann.open(other.url()).status_code == 200
    other.close()


def test_a_website_that_asks_for_the_same_again_gets_it_without_a_question(ann: Person, site: Application) -> None:
    site.get_tokens(ann, ["echo"], scope="mcp:read")
    assert ann.open(site.url(scope="mcp:read")).status_code == 302
    assert ann.open(site.url(scope="mcp:call")).status_code == 200
    assert Connection.objects.get().key.tool_patterns == ["tool=echo"]


def test_a_person_who_allows_less_meanwhile_gives_no_code_for_more(
    ann: Person, site: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.get_tokens(ann, ["echo"])
    needs_no_consent = connections.needs_no_consent

    def allow_less(connection: Connection, *args: str) -> bool:
        found = needs_no_consent(connection, *args)
        Connection.objects.update(scope="mcp:read")
        return found

    monkeypatch.setattr(connections, "needs_no_consent", allow_less)
    parameters = redirect_parameters(ann.open(site.url()).headers["location"])
    assert parameters["error"] == "access_denied"
    assert "code" not in parameters


def test_what_a_person_allows_again_locks_the_change_log_first(
    ann: Person, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An admin who ends the connection at this moment locks both, too: in another order, each waits for the other."""
    application.get_tokens(ann, ["echo"])
    order: list[str] = []
    lock_log, lock = changes.lock_change_log, tokens.lock
    monkeypatch.setattr(changes, "lock_change_log", lambda: (order.append("change log"), lock_log()))
    monkeypatch.setattr(tokens, "lock", lambda row: (order.append("connection"), lock(row)))
    ann.connect(application.url(), ["calculator"])
    assert order[:2] == ["change log", "connection"]


def test_a_program_on_a_computer_is_asked_for_each_time(ann: Person, application: Application) -> None:
    application.get_tokens(ann, ["echo"])
    page = ann.open(application.url())
    assert page.status_code == 200
    assert parse_form(page.text).checked_values("tool") == ["echo"]


def test_an_ended_connection_needs_a_new_consent(ann: Person, site: Application) -> None:
    site.get_tokens(ann, ["echo"])
    connections.revoke(Connection.objects.get())
    assert ann.open(site.url()).status_code == 200


# --- Policies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policies", "allowed"),
    [
        ({}, True),
        ({"*": "deny"}, False),
        ({"*": "deny", "claude.example": "allow"}, True),
        ({"*": "allow", "*.example": "ask"}, False),
        ({"claude.example": "deny", "*.example": "allow"}, False),
        ({"localhost": "deny"}, True),
        ({"127.0.0.1": "deny"}, True),
    ],
)
def test_the_most_specific_policy_of_a_tenant_counts(
    ann: Person, site: Application, tenant: Tenant, policies: dict[str, str], allowed: bool
) -> None:
    boss = User.objects.create_user("boss")
    Membership.objects.create(user=boss, tenant=tenant, role=Role.ADMIN)
    for host, decision in policies.items():
        ClientPolicy.objects.create(tenant=tenant, host=host, decision=ClientDecision(decision))
    page = ann.open(site.url())
    assert page.status_code == (200 if allowed else 403)
    if not allowed:
        assert "Acme does not allow Website" in page.text
        assert "Ask one of its admins: boss." in page.text


@pytest.mark.parametrize(
    ("redirect", "host"),
    [
        ("https://evil.example/cb", "evil.example"),
        ("https://EVIL.example/cb", "evil.example"),
        ("https://evil.example./cb", "evil.example"),
        ("https://evil.example:8443/cb", "evil.example"),
        ("http://LOCALHOST/cb", "localhost"),
        ("http://127.0.0.1:99/cb", "127.0.0.1"),
        ("http://127.0.0.1:99/cb", "127.0.*"),
        ("http://[::1]/cb", "[::1]"),
        ("http://[::1]:99/cb", "localhost"),
        ("http://127.0.0.1/cb", "localhost"),
        ("http://localhost/cb", "127.0.0.1"),
        ("https://127.1/cb", "localhost"),
        ("https://127.8.8.8/cb", "localhost"),
        ("https://0x7f.1/cb", "localhost"),
        ("https://2130706433/cb", "localhost"),
        ("https://017700000001/cb", "localhost"),
        ("https://0/cb", "localhost"),
        ("https://localhost./cb", "localhost"),
        ("https://app.localhost/cb", "localhost"),
        ("https://[::ffff:127.0.0.1]/cb", "localhost"),
        ("https://[::ffff:7f00:1]/cb", "[::1]"),
        ("https://[0:0:0:0:0:0:0:1]/cb", "[::1]"),
        ("Cursor://app/cb", "cursor:"),
    ],
)
def test_no_spelling_of_a_host_gets_around_a_policy(tenant: Tenant, redirect: str, host: str) -> None:
    client, _ = clients.register({"redirect_uris": ["http://localhost/"]})
    row = ClientPolicy(tenant=tenant, host=f" {host.upper()} ", decision=ClientDecision.DENY)
    row.clean()
    row.save()
    assert policies.decision_on(tenant, client, redirect) is ClientDecision.DENY
    client.source, client.client_id = ClientSource.DOCUMENT, redirect
    if redirect.startswith("https"):
        assert policies.decision_on(tenant, client, "https://other.example/") is ClientDecision.DENY


def test_of_two_policies_for_this_computer_the_stricter_counts(tenant: Tenant) -> None:
    client, _ = clients.register({"redirect_uris": ["http://localhost/"]})
    for host, decision in (("127.0.0.1", "allow"), ("[::1]", "deny"), ("localhost", "ask"), ("128.0.0.1", "deny")):
        ClientPolicy.objects.create(tenant=tenant, host=host, decision=decision)
    assert policies.decision_on(tenant, client, "http://127.0.0.1:99/cb") is ClientDecision.DENY
    ClientPolicy.objects.filter(host="[::1]").delete()
    assert policies.decision_on(tenant, client, "http://[::1]/cb") is ClientDecision.ASK


def test_a_policy_counts_for_what_was_allowed_before(ann: Person, site: Application, tenant: Tenant) -> None:
    site.get_tokens(ann, ["echo"])
    ClientPolicy.objects.create(tenant=tenant, host="*", decision=ClientDecision.DENY)
    assert ann.open(site.url()).status_code == 403


# --- Records --------------------------------------------------------------------------------------------------------


def test_each_step_is_recorded_with_its_reason_and_without_a_secret(ann: Person, application: Application) -> None:
    application.register()
    ann.open(application.url(redirect_uri="http://localhost/evil"))
    location = ann.connect(application.url(), ["echo"])
    tokens = application.exchange(location).json()
    application.exchange(location)
    steps = list(SignInEvent.objects.order_by("at", "id").values_list("step", flat=True))
    assert steps == [
        SignInStep.CLIENT_SEEN,
        SignInStep.REJECTED,
        SignInStep.ASKED,
        SignInStep.ALLOWED,
        SignInStep.ISSUED,
        SignInStep.REPLAYED,
        SignInStep.REJECTED,
    ]
    stored = str(list(SignInEvent.objects.values()))
    for secret in (redirect_parameters(location)["code"], tokens["access_token"], tokens["refresh_token"], PASSWORD):
        assert secret not in stored


def test_too_many_requests_of_one_address_wait(
    ann: Person, application: Application, monkeypatch: pytest.MonkeyPatch, offer: Callable[..., object]
) -> None:
    application.register()
    monkeypatch.setattr("tools_app.identity.authorization.authorize.MAX_REQUESTS", 1)
    assert ann.browser.get(application.url()).status_code == 302
    assert ann.browser.get(application.url()).status_code == 429
