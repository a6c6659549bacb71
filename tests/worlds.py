"""Two tenants, acme and globex, with a row of each kind, for the tests of the admin and of the REST API."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from pytest_django import DjangoDbBlocker

from tools_app.alerts import destinations
from tools_app.catalog import authoring
from tools_app.identity.oauth import clients, connections, service_clients
from tools_app.identity.people import directory
from tools_app.models import (
    Alert,
    AlertDelivery,
    AlertDestination,
    AlertRule,
    ApiKey,
    ApiSource,
    Call,
    CallEvent,
    CallPayload,
    ClientDecision,
    ClientPolicy,
    Connection,
    Issuer,
    Membership,
    OAuthClient,
    Prompt,
    PromptKind,
    Resource,
    ResourceKind,
    Role,
    RunningCall,
    Secret,
    ServiceClient,
    Session,
    SignInEvent,
    SignInStep,
    Tenant,
    TenantScope,
    Tool,
    Toolset,
    Upstream,
    UpstreamItem,
)
from tools_app.tenants import keys

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)

HTTP_TOOL: dict[str, Any] = {
    "kind": "http",
    "description": "Finds things.",
    "input_schema": {"type": "object", "properties": {"term": {"type": "string"}}},
    "config": {"method": "GET", "base_url": "https://api.example.com/", "path": "find"},
}


# A tool as an upstream lists it.
LISTED: dict[str, Any] = {"name": "lend", "description": "Lends a book.", "inputSchema": {"type": "object"}}


@dataclass(frozen=True)
class World:
    """One tenant and a row of each kind that it owns."""

    tenant: Tenant
    apikey: ApiKey
    connection: Connection
    serviceclient: ServiceClient
    clientpolicy: ClientPolicy
    issuer: Issuer
    tenantscope: TenantScope
    toolset: Toolset
    oauthclient: OAuthClient
    signinevent: SignInEvent
    key: str
    tool: Tool
    resource: Resource
    prompt: Prompt
    secret: Secret
    apisource: ApiSource
    upstream: Upstream
    upstreamitem: UpstreamItem
    session: Session
    call: Call
    runningcall: RunningCall
    alertdestination: AlertDestination
    alertrule: AlertRule
    alert: Alert
    alertdelivery: AlertDelivery

    @property
    def membership(self) -> Membership:
        return self.tenant.memberships.get(role=Role.AUDITOR)

    def row(self, model: str) -> Any:
        return getattr(self, model)


def person(name: str, tenant: Tenant | None = None, role: Role = Role.ADMIN) -> User:
    user = User.objects.create_user(name, f"{name}@example.com")
    if tenant:
        Membership.objects.create(user=user, tenant=tenant, role=role)
    return user


def build_world(slug: str) -> World:
    tenant = Tenant.objects.create(slug=slug, name=slug.capitalize())
    apikey, key = keys.issue(tenant, f"{slug} laptop")
    tool = Tool.objects.create(tenant=tenant, name=f"{slug}_find", **HTTP_TOOL)
    session = Session.objects.create(
        tenant=tenant, api_key=apikey, digest=uuid4().hex, protocol_version="2025-11-25", client_name=f"{slug}-client"
    )
    facts = {"tenant": tenant, "api_key": apikey, "session": session, "tool": tool, "tool_name": tool.name}
    call = Call.objects.create(
        **facts, started_at=NOON, finished_at=NOON, duration_us=1500, outcome="ok", writer=uuid4(), result_size=9
    )
    CallPayload.objects.create(call=call, arguments=f'{{"term": "{slug} words"}}', result='{"a": 1}')
    CallEvent.objects.create(call=call, sequence=1, kind="progress", data='{"progress": 0.5}')
    client, _ = clients.register({"client_name": f"{slug} robot", "redirect_uris": ["http://localhost/callback"]})
    user = person(f"{slug}-visitor", tenant, Role.OPERATOR)
    options = {"names": [f"{slug}_find"], "scope": "mcp:call", "redirect_uri": "http://localhost/callback", "days": 7}
    connection = connections.allow(tenant, user, client, **options)
    # The hub blocks this address, so nothing is sent.
    webhook = AlertDestination(tenant=tenant, name=f"{slug} hook", kind="webhook", url="http://127.0.0.1:9/hook")
    destinations.add_secret(webhook)
    webhook.save()
    rule = AlertRule.objects.create(tenant=tenant, name=f"{slug} denials", kind="denials", threshold=5)
    rule.destinations.set([webhook])
    alert = Alert.objects.create(
        rule=rule, tenant=tenant, summary=f"{slug} was denied", value=6, threshold=5, fired_at=NOON, resolved_at=NOON
    )
    # The hub blocks this address, too.
    upstream = Upstream.objects.create(tenant=tenant, name=f"{slug}_books", url="http://127.0.0.1:9/mcp")
    issuer = Issuer.objects.create(
        tenant=tenant, name=f"{slug} staff", issuer=f"https://{slug}.example", client_id="hub", is_active=False
    )
    directory.issue(issuer)
    return World(
        tenant=tenant,
        apikey=apikey,
        connection=connection,
        serviceclient=service_clients.create(tenant, f"{slug} job")[0],
        clientpolicy=ClientPolicy.objects.create(tenant=tenant, host=f"{slug}.example", decision=ClientDecision.DENY),
        issuer=issuer,
        tenantscope=TenantScope.objects.create(tenant=tenant, name=f"{slug}.reports", tool_patterns=["report_*"]),
        toolset=Toolset.objects.create(tenant=tenant, name=f"{slug} reading", tools=["*"]),
        oauthclient=connection.client,
        signinevent=SignInEvent.objects.create(step=SignInStep.ALLOWED, tenant=tenant, client_name=f"{slug} robot"),
        key=key,
        tool=tool,
        resource=Resource.objects.create(
            tenant=tenant,
            uri=f"docs://{slug}/guide",
            name=f"{slug} guide",
            kind=ResourceKind.TEXT,
            text=f"How {slug} works",
        ),
        prompt=Prompt.objects.create(
            tenant=tenant,
            name=f"{slug}_greet",
            kind=PromptKind.TEMPLATE,
            arguments=[{"name": "who", "required": True, "values": ["Ann", "Ben"]}],
            messages=[{"role": "user", "text": f"Greet {{who}} of {slug}"}, {"role": "assistant", "text": "Good day!"}],
        ),
        secret=authoring.set_secret(tenant, f"{slug}_token", f"{slug}-hush-hush"),
        apisource=ApiSource.objects.create(tenant=tenant, name=f"{slug}-api", base_url="https://api.example.com"),
        upstream=upstream,
        upstreamitem=UpstreamItem.objects.create(
            tenant=tenant, upstream=upstream, kind="tool", name=f"{slug}_lend", proposed=LISTED
        ),
        session=session,
        call=call,
        alertdestination=webhook,
        alertrule=rule,
        alert=alert,
        alertdelivery=AlertDelivery.objects.create(
            alert=alert, destination=webhook, tenant=tenant, event="alert.fired", body="{}"
        ),
        runningcall=RunningCall.objects.create(
            **facts, status="running", background=True, owner=uuid4(), timeout_seconds=60, arguments="{}"
        ),
    )


@pytest.fixture(scope="module")
def worlds(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[dict[str, World] | None]:
    """Both tenants, for all tests of a module, each of which runs in a savepoint of the transaction that made them.

    None in a module with tests outside of transactions: they need tenants of their own.
    """
    if any(is_outside_transactions(item) for item in request.session.items if item.path == request.path):
        yield None
        return
    with django_db_blocker.unblock(), transaction.atomic():
        yield {slug: build_world(slug) for slug in ("acme", "globex")}
        transaction.set_rollback(True)


def is_outside_transactions(test: pytest.Item) -> bool:
    marker = test.get_closest_marker("django_db")
    return "transactional_db" in getattr(test, "fixturenames", ()) or bool(marker and marker.kwargs.get("transaction"))


@pytest.fixture
def acme(worlds: dict[str, World] | None, db: None) -> World:
    return deepcopy(worlds["acme"]) if worlds else build_world("acme")


@pytest.fixture
def globex(worlds: dict[str, World] | None, db: None) -> World:
    return deepcopy(worlds["globex"]) if worlds else build_world("globex")
