"""Tenant scopes: advertised to clients, consented to by users, and enforced besides membership and consent."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.conftest import reset_process_state
from tests.identity.oauth.person import Application, Person, parse_form
from tests.wire.channels import OPENERS, TRANSPORTS
from tests.wire.client import ALL_VERSIONS, RawClient, error_of, message_of, rpc
from tests.wire.test_public_tenants import add_resource
from tools_app.identity.oauth import devices, service_clients
from tools_app.models import Change, Connection, Tenant, TenantScope, Tool
from tools_app.server.embedded import EmbeddedHub


@pytest.fixture
def reports(tenant: Tenant) -> TenantScope:
    return TenantScope.objects.create(
        tenant=tenant, name="reports", description="Echo only", tool_patterns=["ec*"], methods=["tools/call"]
    )


def client_of(hub: EmbeddedHub, token: str) -> RawClient:
    return RawClient(hub.url, token, "/t/acme/mcp")


def tool_names(client: RawClient) -> list[str]:
    return sorted(tool["name"] for tool in client.modern("tools/list").json()["result"]["tools"])


def call(client: Any, name: str) -> Any:
    arguments = {"message": "x"} if name == "echo" else {"n": 1}
    return client.request("tools/call", {"name": name, "arguments": arguments})


def test_clients_are_told_which_scopes_a_tenant_has(
    hub: EmbeddedHub, reports: TenantScope, other_tenant: Tenant
) -> None:
    client = RawClient(hub.url, None)
    with client.http as http:
        found = http.get("/.well-known/oauth-protected-resource/t/acme/mcp").json()
        assert found["scopes_supported"] == ["mcp:read", "mcp:call", "reports"]
        challenge = http.post("/t/acme/mcp", json={}).headers["www-authenticate"]
        assert 'scope="mcp:read mcp:call reports"' in challenge
        for path in ("/mcp", "/t/rival/mcp"):
            assert "reports" not in http.post(path, json={}).headers["www-authenticate"]
            assert "reports" not in http.get(f"/.well-known/oauth-protected-resource{path}").text


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_a_token_with_a_scope_lists_and_calls_what_it_names_and_no_more(
    hub: EmbeddedHub, ann: Person, application: Application, reports: TenantScope, version: str
) -> None:
    application.register()
    page = ann.open(application.url(scope="reports offline_access unknown"))
    assert "Echo only" in page.text
    issued = application.exchange(ann.decide(page).headers["location"]).json()
    assert issued["scope"] == "reports"
    client = client_of(hub, issued["access_token"])
    with client.http:
        peer = client.peer(version)
        found = peer.request("tools/list").json()["result"]["tools"]
        assert [tool["name"] for tool in found] == ["echo"]
        assert "result" in call(peer, "echo").json()
        refused = call(peer, "count")
        assert refused.status_code == 403
        assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]
        assert 'scope="mcp:read mcp:call reports"' in refused.headers["www-authenticate"]
        assert peer.request("prompts/list").status_code == 403


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_channels_keep_to_the_scopes_too(
    hub: EmbeddedHub, ann: Person, application: Application, reports: TenantScope, transport: str
) -> None:
    client = client_of(hub, application.get_tokens(ann, scope="reports")["access_token"])
    with client.http, OPENERS[transport](client) as channel:
        channel.negotiate("2024-11-05")
        assert [tool["name"] for tool in channel.response_to("tools/list")["result"]["tools"]] == ["echo"]
        call_count = {"name": "count", "arguments": {"n": 1}}
        assert channel.response_to("tools/call", call_count, id=2)["error"]["code"] == -32003
        assert channel.response_to("prompts/list", id=3)["error"]["code"] == -32003
        assert "result" in channel.response_to("tools/call", {"name": "echo", "arguments": {"message": "x"}}, id=4)


def test_each_request_of_a_batch_needs_the_scope(
    hub: EmbeddedHub, ann: Person, application: Application, reports: TenantScope
) -> None:
    client = client_of(hub, application.get_tokens(ann, scope="mcp:read")["access_token"])
    with client.http:
        peer = client.handshake("2025-03-26")
        call_echo = rpc("tools/call", {"name": "echo", "arguments": {"message": "x"}}, id=1)
        answers = client.post([call_echo, rpc("tools/list", {}, id=2)], peer.headers()).json()
    assert {one["id"]: "result" in one for one in answers} == {1: False, 2: True}


@pytest.mark.parametrize(
    "names", [["api://{page}"], ["resource=api://{page}"], ["api://*"], ["api://a"], ["tool=api://{page}"]]
)
def test_a_scope_that_lists_a_template_permits_reading_by_it(
    hub: EmbeddedHub, ann: Person, application: Application, tenant: Tenant, names: list[str]
) -> None:
    add_resource(tenant, "api://{page}")
    TenantScope.objects.create(tenant=tenant, name="pages", tool_patterns=names, methods=["resources/*"])
    client = client_of(hub, application.get_tokens(ann, scope="pages")["access_token"])
    with client.http:
        templates = message_of(client.modern("resources/templates/list"))["result"]["resourceTemplates"]
        refusals = [client.modern("resources/read", {"uri": uri}) for uri in ("api://a", "api://b")]
        # What is permitted is requested from a server that does not answer.
        is_read = [error_of(one)["code"] not in (-32602, -32002, -32003) for one in refusals]
    assert is_read == [bool(templates)] * 2
    assert bool(templates) is (names[0] not in ("api://a", "tool=api://{page}"))


def test_a_scope_permits_nothing_that_was_not_ticked(
    hub: EmbeddedHub, ann: Person, application: Application, reports: TenantScope
) -> None:
    """Membership, consent and scope are all required."""
    issued = application.get_tokens(ann, ["count"], scope="reports")
    client = client_of(hub, issued["access_token"])
    with client.http:
        assert tool_names(client) == []
        response = client.modern("tools/call", {"name": "echo", "arguments": {"message": "x"}})
        assert "Unknown tool" in response.json()["error"]["message"]


def test_a_client_steps_up_to_what_it_lacks(
    hub: EmbeddedHub, ann: Person, application: Application, reports: TenantScope
) -> None:
    first = application.get_tokens(ann, scope="reports")
    second = application.get_tokens(ann, scope="reports mcp:call")
    assert second["scope"] == "mcp:call reports"
    client = client_of(hub, second["access_token"])
    with client.http:
        assert {"count", "echo"} <= set(tool_names(client))
    narrow = application.refresh(second["refresh_token"], scope="reports").json()
    assert narrow["scope"] == "reports"
    assert application.refresh(first["refresh_token"], scope="mcp:call").json()["error"] == "invalid_scope"


def test_several_scopes_permit_each_its_own_and_not_their_mixture(
    hub: EmbeddedHub, ann: Person, application: Application, tenant: Tenant, reports: TenantScope
) -> None:
    TenantScope.objects.create(tenant=tenant, name="look", tool_patterns=["count"], methods=["tools/list"])
    issued = application.get_tokens(ann, scope="reports look")
    client = client_of(hub, issued["access_token"])
    with client.http:
        assert tool_names(client) == ["count", "echo"]
        peer = client.handshake()
        assert "result" in call(peer, "echo").json()
        assert call(peer, "count").status_code == 403


def test_a_search_and_a_tool_of_a_reserved_name_need_the_scope_that_permits_the_call(
    hub: EmbeddedHub, ann: Person, application: Application, tenant: Tenant, reports: TenantScope
) -> None:
    Tool.objects.filter(tenant=tenant, name="count").update(name="find_tools")
    TenantScope.objects.create(tenant=tenant, name="look", tool_patterns=["find_*"], methods=["tools/list"])
    issued = application.get_tokens(ann, scope="reports look")
    key = Connection.objects.get().key
    client = client_of(hub, issued["access_token"])
    with client.http:
        peer = client.handshake()
        assert tool_names(client) == ["echo", "find_tools"]
        assert error_of(call(peer, "find_tools"))["code"] == -32003
        key.presentation = "search"
        key.save()
        reset_process_state()
        search = {"name": "find_tools", "arguments": {"query": "echo numbers find"}}
        result = message_of(client.peer("2025-11-25").request("tools/call", search))["result"]
        assert [one["name"] for one in result["structuredContent"]["tools"]] == ["echo"]


@pytest.mark.parametrize("how", ["changed", "deleted"])
def test_a_change_of_a_scope_counts_within_a_second(
    hub: EmbeddedHub, ann: Person, application: Application, reports: TenantScope, eventually: Any, how: str
) -> None:
    issued = application.get_tokens(ann, scope="reports mcp:read")
    client = client_of(hub, issued["access_token"])
    with client.http:
        peer = client.handshake()
        assert "result" in call(peer, "echo").json()
        if how == "changed":
            TenantScope.objects.update(tool_patterns=["other"])
        else:
            TenantScope.objects.all().delete()
        eventually(lambda: call(peer, "echo").status_code == 403)
        assert {"count", "echo"} <= set(tool_names(client))


def test_a_device_and_a_service_client_ask_for_them_too(
    hub: EmbeddedHub, ann: Person, application: Application, tenant: Tenant, reports: TenantScope
) -> None:
    row, secret = service_clients.create(tenant, "Job")
    fields = {"client_id": row.connection.client.client_id, "client_secret": secret, "scope": "reports"}
    issued = application.token(grant_type="client_credentials", **fields).json()
    assert issued["scope"] == "reports"
    client = client_of(hub, issued["access_token"])
    with client.http:
        assert tool_names(client) == ["echo"]
    application.register(redirect_uris=[], grant_types=[devices.GRANT])
    parameters = {"client_id": application.client_id, "scope": "reports", "resource": application.resource}
    codes = application.http.post("/oauth/device_authorization", data=parameters).json()
    ann.open(f"{hub.url}/device")
    data = {**page_fields(ann, hub), "user_code": codes["user_code"]}
    page = ann.browser.post("/device", data=data, headers={"Origin": hub.url})
    assert "Echo only" in page.text
    ann.decide(page)
    token = application.token(grant_type=devices.GRANT, device_code=codes["device_code"]).json()
    assert token["scope"] == "reports"
    assert Connection.objects.get(person__isnull=False).scope == "reports"


def page_fields(person: Person, hub: EmbeddedHub) -> dict[str, str]:

    return parse_form(person.open(f"{hub.url}/device").text).fields


# --- In the admin and the REST API --------------------------------------------------------------------------------


BAD_NAMES = ["", "Reports", "two words", "mcp:write", "offline_access", "openid", "1st", "x" * 41, 'a"b', "\u00e4"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_no_client_could_ask_for_is_refused_everywhere(admin: Client, tenant: Tenant, name: str) -> None:
    data = {"tenant": str(tenant.pk), "name": name, "tool_patterns": "", "methods": ""}
    assert admin.post(reverse("admin:tools_app_tenantscope_add"), data).status_code == 200
    response = admin.post("/api/v1/scopes/", {"tenant": "acme", "name": name}, content_type="application/json")
    assert response.status_code == 400
    assert not TenantScope.objects.exists()


def test_an_admin_names_changes_and_deletes_one(admin: Client, tenant: Tenant) -> None:
    data = {"tenant": str(tenant.pk), "name": "reports", "tool_patterns": "report_*", "methods": "tools/call"}
    assert admin.post(reverse("admin:tools_app_tenantscope_add"), data).status_code == 302
    page = admin.post(reverse("admin:tools_app_tenantscope_add"), data).content.decode()
    assert "already has a scope" in page
    row = TenantScope.objects.get()
    assert (row.tool_patterns, row.methods) == (["report_*"], ["tools/call"])
    body = {"methods": ["tools/*"]}
    changed = admin.patch(f"/api/v1/scopes/{row.pk}/", body, content_type="application/json")
    assert changed.json()["methods"] == ["tools/*"]
    again = {"tenant": "acme", "name": "reports"}
    assert admin.post("/api/v1/scopes/", again, content_type="application/json").status_code == 409
    assert admin.delete(f"/api/v1/scopes/{row.pk}/").status_code == 204
    actions = Change.objects.filter(kind="tenantscope").order_by("position").values_list("action", flat=True)
    assert list(actions) == ["created", "changed", "deleted"]


def test_a_method_that_does_not_exist_is_refused(admin: Client, tenant: Tenant) -> None:
    data = {"tenant": str(tenant.pk), "name": "reports", "tool_patterns": "", "methods": "tool/call"}
    assert "Line 1" in admin.post(reverse("admin:tools_app_tenantscope_add"), data).content.decode()


def test_a_tenant_names_so_many(admin: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools_app.identity.oauth.scopes.MAX_SCOPES", 1)
    TenantScope.objects.create(tenant=tenant, name="one")
    data = {"tenant": str(tenant.pk), "name": "two", "tool_patterns": "", "methods": ""}
    assert "at most 1 scopes" in admin.post(reverse("admin:tools_app_tenantscope_add"), data).content.decode()
    response = admin.post("/api/v1/scopes/", {"tenant": "acme", "name": "two"}, content_type="application/json")
    assert response.status_code == 400
