"""Credentials of upstreams: which one a call uses, where it is entered, and sign-in with OAuth."""

import asyncio
import base64
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from tests.upstreams import scripted
from tests.upstreams.authority import AuthorizationServer
from tests.web_services import WAIT_SECONDS, Received, Service, http_response
from tests.wire.client import RawClient, message_of
from tools_app.catalog import authoring
from tools_app.core.http import documents
from tools_app.models import (
    ApiKey,
    Change,
    ItemState,
    Membership,
    Role,
    Tenant,
    Tool,
    Upstream,
    UpstreamCredential,
    UpstreamItem,
)
from tools_app.tenants import keys
from tools_app.upstreams import service
from tools_app.upstreams.credentials import refresh, store
from tools_app.upstreams.credentials.store import TENANT, Grant, Owner, Tokens

HUB = "https://hub.example"
PAGE = "/connections/upstreams"
RESOURCE = "/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"
CALL = {"name": "books_look", "arguments": {}}


def person(name: str, tenant: Tenant, role: Role = Role.OPERATOR) -> Client:
    user = User.objects.create_user(name)
    Membership.objects.create(user=user, tenant=tenant, role=role)
    browser = Client()
    browser.force_login(user)
    return browser


def outcome(client: RawClient, **more: Any) -> dict[str, Any]:
    result: dict[str, Any] = message_of(client.modern("tools/call", CALL, **more))["result"]
    return result


def text(result: dict[str, Any]) -> str:
    text_of_result: str = result["content"][0]["text"]
    return text_of_result


@pytest.fixture
def tokens() -> list[str]:
    """The values of X-Token in the calls that the upstream received."""
    return []


@pytest.fixture
def upstream(serve: Any, add_upstream: Callable[..., Upstream], tokens: list[str]) -> Upstream:
    """An upstream whose calls send a header with the value of each key."""

    def look(request: Received, _message: Any) -> str:
        tokens.append(request.headers.get("x-token", ""))
        return f"looked with {tokens[-1]}"

    server: Service = serve(scripted.modern(look))
    row = add_upstream(f"{server.url}/mcp")
    row.credential, row.credential_owner, row.credential_header = "header", "key", "X-Token"
    row.save()
    return row


def test_each_key_calls_with_its_own_value_which_no_result_repeats(
    upstream: Upstream, loopback_tenant: Tenant, make_client: Any, key: str, tokens: list[str], settings: Any
) -> None:
    settings.MCPHUB_PUBLIC_URL = HUB
    other, second = keys.issue(loopback_tenant, "second")
    first = ApiKey.objects.exclude(pk=other.pk).get(tenant=loopback_tenant)
    result = outcome(make_client(key))
    assert result["isError"]
    assert text(result).endswith(f"Enter it at {HUB}{PAGE}/{upstream.pk}?key={first.pk}")
    admin = person("ann", loopback_tenant, Role.ADMIN)
    for row, value in ((first, "one-of-them"), (other, "the-other-one")):
        address = f"{PAGE}/{upstream.pk}?key={row.pk}"
        fields = {"entry": f"{upstream.pk}/key:{row.pk}", "value": value}
        page = admin.post(address, fields, follow=True).content.decode()
        assert "was saved" in page
        assert value not in page
    assert "one-of-them" not in text(outcome(make_client(key)))
    assert not outcome(make_client(second)).get("isError")
    assert tokens == ["one-of-them", "the-other-one"]
    changes = Change.objects.filter(kind="upstreamcredential")
    assert changes.count() == 2
    assert not any("one-of-them" in change.after for change in changes)
    upstream.url = upstream.url.replace("127.0.0.1", "localhost")
    upstream.save()
    assert outcome(make_client(key))["isError"], "it is not sent to another origin"
    assert len(tokens) == 2


def test_nobody_enters_a_credential_for_the_key_of_somebody_else(
    upstream: Upstream, loopback_tenant: Tenant, key: str
) -> None:
    operator = person("ben", loopback_tenant)
    row = ApiKey.objects.get(tenant=loopback_tenant)
    assert operator.get(f"{PAGE}/{upstream.pk}?key={row.pk}").status_code == 404
    fields = {"entry": f"{upstream.pk}/key:{row.pk}", "value": "mine"}
    assert operator.post(f"{PAGE}/{upstream.pk}?key={row.pk}", fields).status_code == 404
    assert operator.post(PAGE, {"entry": f"{upstream.pk}/", "value": "mine"}).status_code == 404
    stranger = person("eve", Tenant.objects.create(slug="globex", name="Globex"), Role.ADMIN)
    assert stranger.get(f"{PAGE}/{upstream.pk}").status_code == 404
    assert Client().get(PAGE).status_code == 302
    assert not UpstreamCredential.objects.exists()


def test_a_client_with_url_elicitation_is_led_to_the_page_and_goes_on(
    upstream: Upstream, loopback_tenant: Tenant, client: RawClient, settings: Any
) -> None:
    settings.MCPHUB_PUBLIC_URL = HUB
    capabilities = {"elicitation": {"form": {}, "url": {}}}
    input_required = outcome(client, capabilities=capabilities)
    assert input_required["resultType"] == "input_required"
    ((name, request),) = input_required["inputRequests"].items()
    row = ApiKey.objects.get(tenant=loopback_tenant)
    assert request["params"]["url"] == f"{HUB}{PAGE}/{upstream.pk}?key={row.pk}"
    assert request["params"]["mode"] == "url"
    store.save_value(upstream, Owner(key_id=row.pk), "entered")
    params = {"inputResponses": {name: {"action": "accept"}}, "requestState": input_required["requestState"]}
    result = message_of(client.modern("tools/call", {**CALL, **params}, capabilities=capabilities))["result"]
    assert not result.get("isError"), result
    assert message_of(client.modern("tools/list"))["result"]["tools"]


def test_a_client_of_a_handshake_is_asked_on_its_stream_with_the_address_that_it_used(
    upstream: Upstream, client: RawClient
) -> None:
    peer = client.peer("2025-11-25", {"elicitation": {"url": {}}})
    with peer.stream("tools/call", CALL) as stream:
        question = stream.next()
        assert (question["method"], question["params"]["mode"]) == ("elicitation/create", "url")
        assert question["params"]["url"].startswith(f"{client.url}{PAGE}/{upstream.pk}?key=")
        peer.respond(question["id"], {"action": "decline"})
        assert stream.read_to_end()[-1]["result"]["isError"]


# --- OAuth -------------------------------------------------------------------------------------------------------


@pytest.fixture
def authorization_server(serve: Any) -> AuthorizationServer:
    server = AuthorizationServer()
    return server.started(serve(server.answer))


@pytest.fixture
def oauth_upstream(loopback_tenant: Tenant, authorization_server: AuthorizationServer) -> Upstream:
    """An upstream that needs a sign-in of an admin, with a tool that was accepted."""
    row = Upstream.objects.create(
        tenant=loopback_tenant, name="books", prefix="books", url=f"{authorization_server.url}/mcp", credential="oauth"
    )
    item = UpstreamItem.objects.create(
        tenant=loopback_tenant, upstream=row, kind="tool", name="look", state=ItemState.NEW, proposed=scripted.LOOK
    )
    service.accept([item])
    return row


@pytest.fixture
def admin(loopback_tenant: Tenant) -> Client:
    return person("ann", loopback_tenant, Role.ADMIN)


def start_sign_in(browser: Client, upstream: Upstream) -> str:
    """Press *Sign in*, and return the URL of the authorization request, or the text of the page."""
    page = browser.post(f"{PAGE}/{upstream.pk}", {"entry": f"{upstream.pk}/", "save": "1"}, follow=True)
    link = re.search(r'href="([^"]*code_challenge[^"]*)"', page.content.decode())
    return unescape(link[1]) if link else page.content.decode()


def finish_sign_in(browser: Client, params: dict[str, str]) -> str:
    page: str = browser.get(f"{PAGE}/callback", params, follow=True).content.decode()
    return unescape(page)


def sign_in(browser: Client, upstream: Upstream, authorization_server: AuthorizationServer) -> UpstreamCredential:
    assert "Signed in" in finish_sign_in(browser, authorization_server.allow(start_sign_in(browser, upstream)))
    return UpstreamCredential.objects.get(upstream=upstream)


def test_an_admin_signs_in_once_for_all_calls(
    loopback_tenant: Tenant,
    admin: Client,
    authorization_server: AuthorizationServer,
    client: RawClient,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("--tenant", loopback_tenant.slug, "--name", "books", "--prefix", "books")
    call_command("add_upstream", *words, "--url", f"{authorization_server.url}/mcp")
    row = Upstream.objects.get(name="books")
    assert f"{PAGE}/{row.pk}" in capsys.readouterr().out
    assert row.credential == "oauth"
    sign_in(admin, row, authorization_server)
    call_command("add_upstream", *words, "--accept")
    assert Tool.objects.get(tenant=loopback_tenant).name == "books_look"
    assert text(outcome(client)) == "looked with 7"
    sign_in(admin, row, authorization_server)
    assert authorization_server.registered == 1, "the registration is used again"
    assert authorization_server.forms[0]["resource"] == f"{authorization_server.url}/mcp"


@pytest.mark.parametrize("method", ["client_secret_post", "client_secret_basic"])
def test_a_static_client_is_used_with_its_secret(
    admin: Client, oauth_upstream: Upstream, authorization_server: AuthorizationServer, method: str
) -> None:
    authoring.set_secret(oauth_upstream.tenant, "CLIENT", "hush:hush")
    oauth_upstream.oauth_client_id, oauth_upstream.oauth_client_secret = "known", "CLIENT"
    oauth_upstream.oauth_issuer = authorization_server.url
    oauth_upstream.save()
    authorization_server.server["token_endpoint_auth_methods_supported"] = [method]
    sign_in(admin, oauth_upstream, authorization_server)
    assert authorization_server.service
    authorization = [
        request.headers.get("authorization")
        for request in authorization_server.service.received
        if request.target == "/token"
    ]
    if method == "client_secret_post":
        assert authorization == [None]
        assert (authorization_server.forms[0]["client_id"], authorization_server.forms[0]["client_secret"]) == (
            "known",
            "hush:hush",
        )
    else:
        # RFC 6749, section 2.3.1: both are encoded like a form.
        assert authorization == [f"Basic {base64.b64encode(b'known:hush%3Ahush').decode()}"]
        assert not {"client_id", "client_secret"} & set(authorization_server.forms[0])
    assert not authorization_server.registered


@pytest.mark.parametrize(
    ("issuer", "message"),
    [("https://login.example", "is one of https://login.example."), ("", "Enter it as the OAuth issuer")],
)
def test_an_upstream_that_names_another_server_gets_no_secret(
    admin: Client, oauth_upstream: Upstream, authorization_server: AuthorizationServer, issuer: str, message: str
) -> None:
    authoring.set_secret(oauth_upstream.tenant, "CLIENT", "hush:hush")
    oauth_upstream.oauth_client_id, oauth_upstream.oauth_client_secret, oauth_upstream.oauth_issuer = (
        "known",
        "CLIENT",
        issuer,
    )
    oauth_upstream.save()
    assert message in unescape(start_sign_in(admin, oauth_upstream))
    assert not authorization_server.forms


def test_the_page_says_which_server_the_person_is_sent_to(
    admin: Client, oauth_upstream: Upstream, authorization_server: AuthorizationServer
) -> None:
    fields = {"entry": f"{oauth_upstream.pk}/", "save": "1"}
    assert (
        f"<strong>{urlsplit(authorization_server.url).netloc}</strong>"
        in admin.post(f"{PAGE}/{oauth_upstream.pk}", fields).content.decode()
    )


def test_a_hub_at_a_public_address_signs_in_with_its_own_document(
    admin: Client, oauth_upstream: Upstream, authorization_server: AuthorizationServer, settings: Any
) -> None:
    settings.ALLOWED_HOSTS = ["hub.example"]
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    admin.defaults |= {"HTTP_X_FORWARDED_PROTO": "https", "HTTP_HOST": "hub.example"}
    authorization_server.server["client_id_metadata_document_supported"] = True
    address = start_sign_in(admin, oauth_upstream)
    params = parse_qs(urlsplit(address).query)
    document = admin.get("/oauth/upstream-client").json()
    assert params["client_id"] == [document["client_id"]] == [f"{HUB}/oauth/upstream-client"]
    assert params["redirect_uri"] == document["redirect_uris"]
    assert "Signed in" in finish_sign_in(admin, authorization_server.allow(address))
    assert authorization_server.forms[0]["client_id"] == document["client_id"]
    assert not authorization_server.registered


@pytest.mark.parametrize(
    ("path", "metadata_path"),
    [
        ("", "/.well-known/openid-configuration"),
        ("/realm", "/.well-known/oauth-authorization-server/realm"),
        ("/realm", "/.well-known/openid-configuration/realm"),
        ("/realm", "/realm/.well-known/openid-configuration"),
    ],
)
def test_metadata_is_found_at_each_well_known_address(
    admin: Client, oauth_upstream: Upstream, authorization_server: AuthorizationServer, path: str, metadata_path: str
) -> None:
    authorization_server.metadata_path = metadata_path
    authorization_server.server["issuer"] = f"{authorization_server.url}{path}"
    authorization_server.resource["authorization_servers"] = [f"{authorization_server.url}{path}"]
    # Without a pointer in the challenge, too.
    authorization_server.challenge = "Bearer"
    sign_in(admin, oauth_upstream, authorization_server)


@pytest.mark.parametrize("path", ["", "/realm"])
@pytest.mark.parametrize(("listed", "own", "configured"), [("/", "", ""), ("", "/", ""), ("", "", "/"), ("//", "", "")])
def test_one_slash_at_the_end_of_an_issuer_makes_no_difference(
    admin: Client,
    oauth_upstream: Upstream,
    authorization_server: AuthorizationServer,
    path: str,
    listed: str,
    own: str,
    configured: str,
) -> None:
    """Of the list in the resource's metadata, the server's metadata, and the settings of the upstream."""
    issuer = f"{authorization_server.url}{path}"
    authoring.set_secret(oauth_upstream.tenant, "CLIENT", "hush:hush")
    oauth_upstream.oauth_client_id, oauth_upstream.oauth_client_secret = "known", "CLIENT"
    oauth_upstream.oauth_issuer = issuer + configured
    oauth_upstream.save()
    if path:
        authorization_server.metadata_path = f"/.well-known/oauth-authorization-server{path}"
    authorization_server.server["issuer"] = issuer + own
    authorization_server.resource["authorization_servers"] = [issuer + listed]
    if listed == "//":
        assert "of another issuer" in start_sign_in(admin, oauth_upstream)
        return
    answer = authorization_server.allow(start_sign_in(admin, oauth_upstream))
    # Its answer may name it in the other spelling, too.
    answer["iss"] = issuer if own else f"{issuer}/"
    assert "Signed in" in finish_sign_in(admin, answer)


OLD_SERVER = frozenset({RESOURCE, f"{RESOURCE}/mcp"})


@pytest.mark.parametrize("missing", [OLD_SERVER, OLD_SERVER | {SERVER}])
def test_a_server_of_2025_03_26_is_its_own_authorization_server(
    loopback_tenant: Tenant,
    admin: Client,
    authorization_server: AuthorizationServer,
    client: RawClient,
    missing: frozenset[str],
) -> None:
    """With metadata of that, or with the default endpoints."""
    authorization_server.missing_paths, authorization_server.challenge = missing, "Bearer"
    authorization_server.server["authorization_response_iss_parameter_supported"] = False
    words = ("--tenant", loopback_tenant.slug, "--name", "books", "--prefix", "books")
    call_command("add_upstream", *words, "--url", f"{authorization_server.url}/mcp")
    row = Upstream.objects.get(name="books")
    assert row.credential == "oauth"
    address = start_sign_in(admin, row)
    assert address.startswith(f"{authorization_server.url}/authorize?")
    assert "Signed in" in finish_sign_in(admin, authorization_server.allow(address))
    call_command("add_upstream", *words, "--accept")
    assert text(outcome(client)) == "looked with 7"
    assert authorization_server.registered == 1


@pytest.mark.parametrize(
    ("missing", "changes", "message"),
    [
        (OLD_SERVER | {SERVER, "/authorize"}, {}, "no /authorize"),
        (OLD_SERVER, {"issuer": "https://evil.example"}, "of another issuer"),
        (OLD_SERVER, {"code_challenge_methods_supported": []}, "PKCE with S256"),
        (OLD_SERVER - {RESOURCE}, {}, "of another resource"),
    ],
)
def test_an_old_server_is_its_own_authorization_server_only_if_nothing_contradicts(
    admin: Client,
    oauth_upstream: Upstream,
    authorization_server: AuthorizationServer,
    missing: frozenset[str],
    changes: dict[str, Any],
    message: str,
) -> None:
    authorization_server.missing_paths, authorization_server.challenge = missing, "Bearer"
    authorization_server.resource["resource"] = "https://evil.example/mcp"
    authorization_server.metadata_path = authorization_server.metadata_path if RESOURCE in missing else RESOURCE
    authorization_server.server.update(changes)
    authorization_server.server["resource"] = "https://evil.example/mcp"
    assert message in unescape(start_sign_in(admin, oauth_upstream))
    assert not authorization_server.forms


def test_metadata_that_the_challenge_names_and_is_missing_is_not_made_up(
    admin: Client, oauth_upstream: Upstream, authorization_server: AuthorizationServer
) -> None:
    authorization_server.missing_paths = OLD_SERVER | {SERVER}
    assert "does not say where to sign in" in start_sign_in(admin, oauth_upstream)


def test_a_token_endpoint_that_is_away_costs_nothing(
    admin: Client, oauth_upstream: Upstream, authorization_server: AuthorizationServer, client: RawClient
) -> None:
    token_endpoint = authorization_server.server["token_endpoint"]
    authorization_server.server["token_endpoint"] = "http://127.0.0.1:9/token"
    assert "The token endpoint gave no usable answer" in finish_sign_in(
        admin, authorization_server.allow(start_sign_in(admin, oauth_upstream))
    )
    assert not UpstreamCredential.objects.exists()
    authorization_server.server["token_endpoint"] = token_endpoint
    row = sign_in(admin, oauth_upstream, authorization_server)
    tokens = replace(Tokens.read(store.unseal(row)), token_endpoint="http://127.0.0.1:9/token")
    store.save_tokens(oauth_upstream, TENANT, tokens, Grant(seconds=3600))
    UpstreamCredential.objects.update(refresh_at=timezone.now())
    asyncio.run(refresh.refresh_due())
    row.refresh_from_db()
    assert "The token endpoint gave no usable answer" in row.problem
    assert row.refresh_at, "it is tried again"
    assert row.refresh_at > timezone.now()
    assert not outcome(client).get("isError"), "the old token is used"


def test_tokens_are_refreshed_once_before_they_expire(
    admin: Client, oauth_upstream: Upstream, authorization_server: AuthorizationServer, client: RawClient
) -> None:
    row = sign_in(admin, oauth_upstream, authorization_server)
    UpstreamCredential.objects.update(refresh_at=timezone.now())

    async def twice() -> None:
        await asyncio.gather(refresh.refresh(row.pk), refresh.refresh(row.pk), refresh.refresh_due())

    asyncio.run(twice())
    assert [form["grant_type"] for form in authorization_server.forms] == ["authorization_code", "refresh_token"]
    assert authorization_server.forms[1]["refresh_token"] == "refresh-1"
    assert not outcome(client).get("isError")
    # The server rejects the token: it is refreshed, and the call, which did not run, is sent again.
    authorization_server.valid_tokens.clear()
    assert not outcome(client).get("isError")
    # An expired one is refreshed before the call.
    UpstreamCredential.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert not outcome(client).get("isError")
    assert len(authorization_server.forms) == 4


def test_calls_whose_token_was_refused_share_one_refresh(
    admin: Client,
    oauth_upstream: Upstream,
    authorization_server: AuthorizationServer,
    client: RawClient,
    eventually: Callable[..., object],
) -> None:
    sign_in(admin, oauth_upstream, authorization_server)
    authorization_server.valid_tokens.clear()
    authorization_server.may_refresh.clear()
    assert authorization_server.service
    calls_before = sum(one.target == "/mcp" for one in authorization_server.service.received)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(outcome, client)
        assert authorization_server.refresh_began.wait(WAIT_SECONDS)
        second = threads.submit(outcome, client)
        received = authorization_server.service.received
        eventually(lambda: sum(one.target == "/mcp" for one in received) == calls_before + 2)
        authorization_server.may_refresh.set()
        for one in (first, second):
            assert not one.result().get("isError"), one.result()
    assert [form.get("refresh_token") for form in authorization_server.forms] == [None, "refresh-1"]


def test_a_refused_token_that_was_replaced_meanwhile_is_not_refreshed_again(
    admin: Client, oauth_upstream: Upstream, authorization_server: AuthorizationServer
) -> None:
    row = sign_in(admin, oauth_upstream, authorization_server)

    assert asyncio.run(refresh.refresh(row.pk, rejected=row))
    assert not asyncio.run(refresh.refresh(row.pk, rejected=row))

    assert [form.get("refresh_token") for form in authorization_server.forms] == [None, "refresh-1"]


def test_a_call_that_is_cancelled_loses_no_new_token(
    admin: Client, oauth_upstream: Upstream, authorization_server: AuthorizationServer
) -> None:
    row = sign_in(admin, oauth_upstream, authorization_server)
    authorization_server.may_refresh.clear()

    async def cancelled() -> None:
        call = asyncio.create_task(refresh.refresh(row.pk, rejected=row))
        assert await asyncio.to_thread(authorization_server.refresh_began.wait, WAIT_SECONDS)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancelled())
    authorization_server.may_refresh.set()
    # The process waits for it when it stops.
    refresh.refresher.stop()
    row.refresh_from_db()
    assert Tokens.read(store.unseal(row)).refresh_token == "refresh-2"
    assert not row.is_claimed


@pytest.mark.parametrize(("lifetime", "expires"), [(None, None), ("60", 60), ("soon", None), (10**12, None)])
def test_tokens_are_refreshed_also_without_a_usable_lifetime(
    admin: Client,
    oauth_upstream: Upstream,
    authorization_server: AuthorizationServer,
    lifetime: int | str | None,
    expires: int | None,
) -> None:
    authorization_server.expires_in = lifetime
    row = sign_in(admin, oauth_upstream, authorization_server)
    assert row.refresh_at
    left = row.refresh_at - timezone.now()
    assert (row.expires_at is None) == (expires is None)
    assert timedelta(seconds=40) < left < timedelta(hours=1)


@pytest.mark.parametrize("what", ["upstream", "tenant"])
def test_nothing_is_refreshed_for_what_is_disabled(
    admin: Client, oauth_upstream: Upstream, authorization_server: AuthorizationServer, what: str
) -> None:
    sign_in(admin, oauth_upstream, authorization_server)
    UpstreamCredential.objects.update(refresh_at=timezone.now())
    if what == "upstream":
        Upstream.objects.update(enabled=False)
    else:
        Tenant.objects.update(is_active=False)
    asyncio.run(refresh.refresh_due())
    assert len(authorization_server.forms) == 1


def test_one_tenant_with_many_tokens_leaves_room_for_others(
    oauth_upstream: Upstream, authorization_server: AuthorizationServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Tenant.objects.create(slug="globex", name="Globex")
    of_other = Upstream.objects.create(tenant=other, name="books", url=oauth_upstream.url, credential="oauth")
    issued = Tokens(
        "token",
        "refresh",
        f"{authorization_server.url}/token",
        "known",
        "",
        "none",
        authorization_server.url,
        oauth_upstream.url,
    )
    rows = [keys.issue(oauth_upstream.tenant, f"key {number}")[0] for number in range(3)]
    for row in rows:
        store.save_tokens(oauth_upstream, Owner(key_id=row.pk), issued, Grant(3600))
    store.save_tokens(of_other, TENANT, issued, Grant(3600))
    now = timezone.now()
    UpstreamCredential.objects.filter(tenant=oauth_upstream.tenant).update(refresh_at=now - timedelta(seconds=9))
    UpstreamCredential.objects.filter(tenant=other).update(refresh_at=now)
    monkeypatch.setattr(refresh, "TENANT_BATCH", 2)
    asyncio.run(refresh.refresh_due())
    refreshed = UpstreamCredential.objects.filter(refresh_at__gt=now)
    assert sorted(refreshed.values_list("tenant__slug", flat=True)) == sorted(
        ["globex", *[oauth_upstream.tenant.slug] * 2]
    )


def test_a_token_is_not_sent_to_another_path(
    admin: Client, oauth_upstream: Upstream, authorization_server: AuthorizationServer, client: RawClient
) -> None:
    sign_in(admin, oauth_upstream, authorization_server)
    oauth_upstream.url = f"{authorization_server.url}/somebody-else"
    oauth_upstream.save()
    assert "needs a sign-in" in text(outcome(client))
    assert authorization_server.service
    assert not [one for one in authorization_server.service.received if one.target == "/somebody-else"]


def test_an_upstream_that_answers_without_end_is_not_waited_for(
    admin: Client, oauth_upstream: Upstream, authorization_server: AuthorizationServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "TIMEOUT_SECONDS", 0.2)
    hung_up = threading.Event()
    respond = authorization_server.answer

    def drip(request: Received) -> Any:
        if request.target != "/mcp":
            yield respond(request)
            return
        yield b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n"
        for _ in range(500):
            yield b" "
            if hung_up.wait(0.02):
                return

    assert authorization_server.service
    authorization_server.service.answer = drip
    address = start_sign_in(admin, oauth_upstream)
    hung_up.set()
    assert "code_challenge" in address, "the well-known addresses remain"


def test_a_failed_refresh_keeps_the_token_until_it_expires_and_then_names_the_link(
    admin: Client, oauth_upstream: Upstream, authorization_server: AuthorizationServer, client: RawClient
) -> None:
    row = sign_in(admin, oauth_upstream, authorization_server)
    for problem, is_retried in (("temporarily_unavailable", True), ("invalid_grant", False)):
        authorization_server.token_error = problem
        UpstreamCredential.objects.update(refresh_at=timezone.now())
        asyncio.run(refresh.refresh_due())
        row.refresh_from_db()
        assert problem in row.problem
        assert (row.refresh_at is not None) == is_retried
        assert not outcome(client).get("isError")
    assert "Sign in again." in admin.get(PAGE).content.decode()
    UpstreamCredential.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert f"Sign in at {client.url}{PAGE}/{oauth_upstream.pk}" in text(outcome(client)), (
        "where the client reached the hub"
    )


def test_a_call_that_needs_more_permissions_says_where_to_allow_them(
    admin: Client, oauth_upstream: Upstream, authorization_server: AuthorizationServer, client: RawClient
) -> None:
    sign_in(admin, oauth_upstream, authorization_server)
    challenge = 'Bearer error="insufficient_scope", scope="write"'
    authorization_server.call_response = http_response(
        403, b"{}", "application/json", WWW_Authenticate=challenge, Connection="close"
    )
    error_text = text(outcome(client))
    assert "asks for more permissions for this: write." in error_text
    assert f"{PAGE}/{oauth_upstream.pk}" in error_text
    assert "scope=read+write" in start_sign_in(admin, oauth_upstream)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"server.issuer": "https://evil.example"}, "of another issuer"),
        ({"server.code_challenge_methods_supported": ["plain"]}, "PKCE with S256"),
        ({"resource.resource": "https://evil.example/mcp"}, "of another resource"),
        ({"resource.authorization_servers": ["http://10.0.0.1"]}, "does not start with https://"),
        ({"resource.authorization_servers": ["https://10.0.0.1"]}, "can allow it under Tenant > Allowed networks"),
        ({"server.token_endpoint": "http://10.0.0.1/token"}, "does not start with https://"),
        ({"server.authorization_endpoint": "https://login.example/authorize"}, "of another server than the issuer"),
        ({"server.authorization_endpoint": "javascript:alert(1)"}, "authorization endpoint is invalid"),
        ({"padding": "x" * 70_000}, "larger than"),
        ({"challenge": 'Bearer resource_metadata="http://169.254.169.254/latest"'}, "does not start with https://"),
    ],
)
def test_metadata_that_is_wrong_leads_nowhere(
    admin: Client,
    oauth_upstream: Upstream,
    authorization_server: AuthorizationServer,
    changes: dict[str, Any],
    message: str,
) -> None:
    for name, value in changes.items():
        part, _, field = name.partition(".")
        if field:
            getattr(authorization_server, part)[field] = value
        else:
            setattr(authorization_server, part, value)
    assert message in unescape(start_sign_in(admin, oauth_upstream))
    assert not authorization_server.forms


@pytest.mark.parametrize(
    ("changes", "problem", "message"),
    [
        ({"iss": "https://evil.example"}, "", "of another authorization server"),
        ({"iss": None}, "", "of another authorization server"),
        ({"state": "guessed"}, "", "not started in this browser"),
        ({"error": "access_denied", "code": None}, "", "access_denied"),
        ({"code": None}, "", "no usable code"),
        ({}, "invalid_grant", "invalid_grant"),
    ],
)
def test_an_answer_that_is_wrong_stores_nothing(
    admin: Client,
    oauth_upstream: Upstream,
    authorization_server: AuthorizationServer,
    changes: dict[str, Any],
    problem: str,
    message: str,
) -> None:
    params = {**authorization_server.allow(start_sign_in(admin, oauth_upstream)), **changes}
    authorization_server.token_error = problem
    assert message in finish_sign_in(admin, {name: value for name, value in params.items() if value is not None})
    assert not UpstreamCredential.objects.exists()


def test_an_answer_counts_once_and_in_the_browser_that_began(
    admin: Client, loopback_tenant: Tenant, oauth_upstream: Upstream, authorization_server: AuthorizationServer
) -> None:
    params = authorization_server.allow(start_sign_in(admin, oauth_upstream))
    other = person("cat", loopback_tenant, Role.ADMIN)
    assert "not started in this browser" in finish_sign_in(other, params)
    assert "Signed in" in finish_sign_in(admin, params)
    assert "was completed before" in finish_sign_in(admin, params)
    assert len(authorization_server.forms) == 1
    row = store.of_owner(oauth_upstream.pk, TENANT).get()
    assert b"token-1" not in bytes(row.ciphertext)


def test_the_hubs_own_document_names_its_way_back() -> None:
    document = Client().get("/oauth/upstream-client", headers={"host": "localhost"}).json()
    assert document["client_id"] == "http://localhost/oauth/upstream-client"
    assert document["redirect_uris"] == ["http://localhost/connections/upstreams/callback"]
