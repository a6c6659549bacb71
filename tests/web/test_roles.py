"""Every endpoint of the REST API with every role, by session and by token.

The endpoints are those of the URL patterns: a new one needs an entry with who may use it.
"""

import json
from itertools import product
from typing import Any, NamedTuple

import pytest
from django.contrib.auth.models import User
from django.urls import URLPattern
from rest_framework.viewsets import ViewSetMixin

from tests.rest import Api
from tests.worlds import LISTED, NOON, World
from tools_app.catalog.authoring import definition_of
from tools_app.catalog.kinds.openapi.sources import documents
from tools_app.catalog.kinds.upstream.runner import digest_of
from tools_app.identity import personal_tokens as tokens
from tools_app.models import (
    Action,
    ApiSource,
    Change,
    Export,
    Invitation,
    Membership,
    Role,
    ToolRevision,
    Upstream,
    UpstreamCredential,
)
from tools_app.upstreams.credentials import store
from tools_app.web.api_urls import urlpatterns

ROLES = ("superuser", "admin", "auditor", "operator", "stranger", "outsider", "anonymous")
METHODS = {"get", "post", "put", "patch", "delete"}
OK, MADE, TAKEN, GONE = 200, 201, 202, 204
NOBODY, FORBIDDEN, MISSING = 401, 403, 404
UPSTREAM = "01890000-0000-7000-8000-000000000001"


class Expected(NamedTuple):
    """The expected status for each role."""

    superuser: int
    admin: int
    auditor: int
    operator: int
    stranger: int
    outsider: int = FORBIDDEN
    anonymous: int = NOBODY


def reads() -> Expected:
    """Members may read; 404 for a stranger."""
    return Expected(OK, OK, OK, OK, MISSING)


def writes(done: int = OK) -> Expected:
    """Admins may write; 403 for members who only read, 404 for a stranger."""
    return Expected(done, done, FORBIDDEN, FORBIDDEN, MISSING)


def superusers(done: int) -> Expected:
    """Superusers only; 403 for everyone else who sees the row."""
    return Expected(done, *[FORBIDDEN] * 4)


def everybody(done: int = OK) -> Expected:
    """Everyone with a role in any tenant, for their own rows."""
    return Expected(*[done] * 5)


LIST = everybody()
CATALOG = {"get": LIST, "post": writes(MADE)}
ROW = {"get": reads(), "put": writes(), "patch": writes(), "delete": writes(GONE)}
# The expected statuses for each method, by URL name.
ENDPOINTS: dict[str, dict[str, Expected]] = {
    "api-me": {"get": everybody()},
    "api-figures": {"get": everybody()},
    "api-schema": {"get": everybody()},
    "api-docs": {"get": everybody()._replace(anonymous=302)},
    "api-tenants-list": {"get": LIST, "post": superusers(MADE)},
    "api-tenants-detail": ROW | {"delete": superusers(GONE)},
    **{
        f"api-{name}-list": CATALOG
        for name in ("tools", "resources", "prompts", "secrets", "keys", "api-sources", "upstreams")
    },
    "api-members-list": {"get": LIST, "post": superusers(MADE)},
    **{
        f"api-{name}-detail": ROW
        for name in ("tools", "resources", "prompts", "secrets", "members", "api-sources", "upstreams")
    },
    "api-api-sources-operations": {"get": reads()},
    "api-api-sources-refresh": {"post": writes()},
    "api-api-sources-apply": {"post": writes()},
    "api-upstreams-check": {"post": writes()},
    "api-upstream-items-list": {"get": LIST},
    "api-upstream-items-detail": {"get": reads()},
    "api-upstream-items-accept": {"post": writes()},
    "api-upstream-credentials-list": {"get": LIST, "post": everybody(MADE)._replace(stranger=400)},
    # Only admins of the tenant see rows of others.
    "api-upstream-credentials-detail": {
        "get": Expected(OK, OK, MISSING, MISSING, MISSING),
        "delete": Expected(GONE, GONE, MISSING, MISSING, MISSING),
    },
    "api-tools-revisions": {"get": reads()},
    "api-tools-restore": {"post": writes()},
    "api-keys-detail": {"get": reads(), "put": writes(), "patch": writes()},
    "api-keys-rotate": {"post": writes(MADE)},
    "api-keys-revoke": {"post": writes()},
    "api-invitations-list": CATALOG,
    "api-invitations-detail": {"get": reads()},
    "api-invitations-renew": {"post": writes()},
    "api-invitations-revoke": {"post": writes()},
    "api-sessions-list": {"get": LIST},
    "api-sessions-detail": {"get": reads()},
    "api-sessions-end": {"post": writes()},
    "api-connections-list": {"get": LIST},
    "api-connections-detail": {"get": reads(), "patch": writes()},
    "api-connections-end": {"post": writes()},
    "api-clients-list": {"get": LIST},
    "api-clients-detail": {"get": reads()},
    **{f"api-clients-{name}": {"post": superusers(OK)} for name in ("block", "unblock")},
    "api-service-clients-list": CATALOG,
    "api-service-clients-detail": {"get": reads(), "put": writes(), "patch": writes()},
    "api-service-clients-rotate": {"post": writes()},
    "api-service-clients-revoke": {"post": writes()},
    "api-scopes-list": CATALOG,
    "api-scopes-detail": ROW,
    "api-toolsets-list": CATALOG,
    "api-toolsets-detail": ROW,
    "api-client-policies-list": CATALOG,
    "api-client-policies-detail": ROW,
    "api-issuers-list": CATALOG,
    "api-issuers-detail": ROW,
    "api-issuers-try": {"post": writes()},
    "api-issuers-directory": {"post": writes(), "delete": writes(GONE)},
    "api-sign-ins-list": {"get": LIST},
    "api-sign-ins-detail": {"get": reads()},
    "api-calls-list": {"get": LIST},
    "api-calls-detail": {"get": reads()},
    "api-calls-events": {"get": reads()},
    "api-running-calls-list": {"get": LIST},
    "api-running-calls-detail": {"get": reads()},
    "api-running-calls-cancel": {"post": writes(TAKEN)},
    "api-changes-list": {"get": LIST},
    "api-changes-detail": {"get": reads()},
    **{f"api-{name}-list": CATALOG for name in ("alert-rules", "alert-destinations")},
    **{f"api-{name}-detail": ROW for name in ("alert-rules", "alert-destinations")},
    **{f"api-alert-destinations-{name}": {"post": writes()} for name in ("rotate", "test")},
    **{f"api-{name}-list": {"get": LIST} for name in ("alerts", "alert-deliveries")},
    **{f"api-{name}-detail": {"get": reads()} for name in ("alerts", "alert-deliveries")},
    # Rows of one user, here the admin, are hidden from everyone else, superusers included.
    **{f"api-{name}-list": {"get": LIST, "post": everybody(MADE)} for name in ("exports", "tokens")},
    **{
        f"api-{name}": {method: Expected(MISSING, OK, MISSING, MISSING, MISSING)}
        for name, method in (
            ("exports-detail", "get"),
            ("exports-download", "get"),
            ("tokens-detail", "get"),
            ("tokens-revoke", "post"),
        )
    },
    # Everything else.
    "api-nothing": {"get": Expected(*[MISSING] * 5), "post": Expected(*[MISSING] * 5)},
}


def methods_of(pattern: URLPattern) -> set[str]:
    view = pattern.callback
    if hasattr(view, "actions"):
        return METHODS & set(view.actions)
    handlers = view.view_class if hasattr(view, "view_class") else view.cls
    assert not issubclass(handlers, ViewSetMixin)
    return {name for name in METHODS if hasattr(handlers, name)}


def test_every_endpoint_says_here_who_may_use_it() -> None:
    found = {str(pattern.name): methods_of(pattern) for pattern in urlpatterns if pattern.name != "api-nothing"}
    assert {name: set(methods) for name, methods in ENDPOINTS.items() if name != "api-nothing"} == found


def source_of(world: World) -> ApiSource:
    """An API source whose document is parsed."""
    documents.read_revision(documents.add_revision(world.apisource, data=DOCUMENT.encode()).pk)
    return world.apisource


def credential_of(world: World) -> UpstreamCredential:
    """The tenant's credential for an upstream whose calls use the credentials of users."""
    upstream = Upstream.objects.create(
        pk=UPSTREAM,
        tenant=world.tenant,
        name="own",
        url="https://books.example.com/mcp",
        credential="header",
        credential_owner="person",
    )
    return store.save_value(upstream, store.TENANT, "hush")


@pytest.fixture
def rows(acme: World, people: dict[str, User]) -> dict[str, Any]:
    """A row of each model, in acme; it belongs to acme's admin where a row belongs to a user."""
    type(acme.tool).objects.filter(pk=acme.tool.pk).update(revision=1)
    ToolRevision.objects.create(
        tool=acme.tool,
        number=1,
        definition={**definition_of(acme.tool), "description": "Older"},
        digest="d",
    )
    return {
        "tenants": acme.tenant,
        "tools": acme.tool,
        "resources": acme.resource,
        "prompts": acme.prompt,
        "secrets": acme.secret,
        "api-sources": source_of(acme),
        "upstreams": acme.upstream,
        "upstream-items": acme.upstreamitem,
        "upstream-credentials": credential_of(acme),
        "keys": acme.apikey,
        "members": Membership.objects.get(user=people["auditor"]),
        "sessions": acme.session,
        "connections": acme.connection,
        "clients": acme.oauthclient,
        "service-clients": acme.serviceclient,
        "client-policies": acme.clientpolicy,
        "scopes": acme.tenantscope,
        "toolsets": acme.toolset,
        "sign-ins": acme.signinevent,
        "issuers": acme.issuer,
        "calls": acme.call,
        "running-calls": acme.runningcall,
        "invitations": Invitation.objects.create(
            tenant=acme.tenant, email="new@example.com", role=Role.AUDITOR, digest="d", invited_by=people["admin"]
        ),
        "changes": Change.objects.create(
            tenant=acme.tenant,
            via="admin",
            action=Action.CREATED,
            kind="tool",
            object_id="1",
            position=10**6,
            digest=b"d",
        ),
        "exports": Export.objects.create(person=people["admin"], format="jsonl"),
        "tokens": tokens.issue(people["admin"], "own")[0],
        "alert-rules": acme.alertrule,
        "alert-destinations": acme.alertdestination,
        "alerts": acme.alert,
        "alert-deliveries": acme.alertdelivery,
    }


# Request bodies by aggregate: valid to create a row, and to replace the existing one.
NEW: dict[str, dict[str, Any]] = {
    "issuers": {
        "tenant": "acme",
        "name": "new",
        "use": "workloads",
        "issuer": "https://issuer.example.com",
        "is_active": False,
    },
    "service-clients": {"tenant": "acme", "name": "new"},
    "connections": {"calls_per_minute": 5},
    "scopes": {"tenant": "acme", "name": "reports", "tool_patterns": ["report_*"]},
    "toolsets": {"tenant": "acme", "name": "new", "tools": ["report_*"]},
    "client-policies": {"tenant": "acme", "host": "*.new.example", "decision": "ask"},
    "tenants": {"slug": "umbrella", "name": "Umbrella"},
    "tools": {
        "tenant": "acme",
        "kind": "http",
        "name": "new",
        "input_schema": {"type": "object"},
        "config": {"base_url": "https://api.example.com"},
    },
    "resources": {"tenant": "acme", "kind": "text", "uri": "docs://new", "name": "New", "text": "New"},
    "prompts": {"tenant": "acme", "kind": "template", "name": "new", "messages": [{"role": "user", "text": "Hello"}]},
    "secrets": {"tenant": "acme", "name": "new", "value": "hush"},
    "api-sources": {"tenant": "acme", "name": "new", "url": "https://api.example.com/openapi.json"},
    "upstreams": {"tenant": "acme", "name": "new", "url": "https://books.example.com/mcp"},
    "upstream-credentials": {"upstream": UPSTREAM, "value": "hush"},
    "keys": {"tenant": "acme", "name": "new"},
    "members": {"tenant": "acme", "person": "outsider", "role": "auditor"},
    "invitations": {"tenant": "acme", "email": "other@example.com", "role": "operator"},
    "exports": {"format": "csv"},
    "tokens": {"name": "new"},
    "alert-rules": {"tenant": "acme", "name": "new", "kind": "denials", "threshold": 5},
    "alert-destinations": {"tenant": "acme", "name": "new", "kind": "webhook", "url": "https://example.com"},
}
FIXED = {
    "tenants": {"slug": "acme", "name": "Acme"},
    "secrets": {"name": "acme_token"},
    "members": {"person": "auditor"},
}
# An unsigned token without a subject.
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2ln"
DOCUMENT = '{"openapi": "3.1.0", "paths": {"/a": {"get": {}}}}'
POSTED = {
    "restore": {"revision": 1},
    "refresh": {"document": DOCUMENT},
    "try": {"token": TOKEN},
    "accept": {"digest": digest_of(LISTED)},
}


def address(name: str, rows: dict[str, Any]) -> str:
    aggregate, _, what = name.removeprefix("api-").rpartition("-")
    if not aggregate or name == "api-nothing":
        return "nowhere" if what == "nothing" else f"{what}/"
    if what == "list":
        return f"{aggregate}/"
    row = rows[aggregate]
    key = row.slug if aggregate == "tenants" else row.pk
    return f"{aggregate}/{key}/" if what == "detail" else f"{aggregate}/{key}/{what}/"


def body(name: str, method: str) -> Any:
    aggregate, _, what = name.removeprefix("api-").rpartition("-")
    if method in {"get", "delete"}:
        return None
    if what in {"list", "detail"}:
        return NEW[aggregate] | (FIXED.get(aggregate, {}) if method != "post" else {})
    return POSTED.get(what, {})


def cases() -> dict[str, list[tuple[str, str, Expected]]]:
    """Endpoint, method and expected statuses, by aggregate: creating the rows is slower than the requests."""
    found: dict[str, list[tuple[str, str, Expected]]] = {}
    for name, methods in ENDPOINTS.items():
        aggregate = name.removeprefix("api-").rpartition("-")[0] or "one of a kind"
        found.setdefault(aggregate, []).extend((name, method, expected) for method, expected in methods.items())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("aggregate", cases())
def test_each_role_is_answered_as_it_should_be(
    people: dict[str, User], rows: dict[str, Any], as_: Any, undone: Any, aggregate: str
) -> None:
    for role, login in product(ROLES, ("session", "token")):
        api = as_(role, login)
        for name, method, statuses in cases()[aggregate]:
            with undone():
                response = api.request(method.upper(), address(name, rows), body(name, method))
            expected = getattr(statuses, role)
            # Tokens cannot create tokens.
            if (name, method, login, expected) == ("api-tokens-list", "post", "token", 201):
                expected = 403
            assert (name, method, role, login, response.status_code) == (name, method, role, login, expected), (
                response.content
            )
            if response.status_code >= 400 and name != "api-docs":
                assert_is_problem(response)


# Requests of admins that change nothing that is in the change log, and so do not wait for its lock.
UNRECORDED = {
    ("api-alert-destinations-test", "post"),
    ("api-upstreams-check", "post"),
    ("api-issuers-try", "post"),
}


@pytest.mark.slow
@pytest.mark.parametrize("aggregate", cases())
def test_an_admin_who_is_demoted_while_a_change_waits_is_refused(
    people: dict[str, User], rows: dict[str, Any], as_: Any, undone: Any, while_waiting: Any, aggregate: str
) -> None:
    def demote() -> None:
        Membership.objects.filter(user=people["admin"]).update(role=Role.OPERATOR)

    api, answered = as_("admin"), {}
    for name, method, statuses in cases()[aggregate]:
        if method == "get" or statuses.admin >= 400:
            continue
        with undone():
            while_waiting(demote)
            answered[name, method] = api.request(method.upper(), address(name, rows), body(name, method)).status_code
            assert not Change.objects.filter(person_id=people["admin"].pk).exists(), name
    assert {case for case, status in answered.items() if status != FORBIDDEN} == UNRECORDED & set(answered)


@pytest.mark.parametrize("role", ["stranger", "auditor", "operator"])
def test_who_does_not_run_a_tenant_changes_nothing_of_it(as_: Any, rows: dict[str, Any], role: str) -> None:
    api: Api = as_(role, "token")
    for aggregate in ("tools", "resources", "prompts", "secrets", "keys", "members"):
        model = type(rows[aggregate])
        before = list(model.objects.order_by("pk").values())
        for method, path in (("POST", ""), ("PUT", f"{rows[aggregate].pk}/"), ("DELETE", f"{rows[aggregate].pk}/")):
            api.request(method, f"{aggregate}/{path}", NEW[aggregate] if method != "DELETE" else None)
        assert list(model.objects.order_by("pk").values()) == before, aggregate


@pytest.mark.parametrize("role", ["superuser", "admin", "auditor", "operator", "stranger"])
def test_lists_hold_the_rows_within_reach_only(as_: Any, rows: dict[str, Any], globex: World, role: str) -> None:
    api: Api = as_(role)
    for name in ("tenants", "tools", "resources", "prompts", "secrets", "keys", "sessions", "calls", "running-calls"):
        found = {row.get("tenant", row.get("slug")) for row in api.get(f"{name}/")["results"]}
        own = {"superuser": {"acme", "globex"}, "stranger": {"globex"}}.get(role, {"acme"})
        assert (name, found) == (name, own)


@pytest.mark.parametrize(
    ("role", "sees"), [("superuser", True), ("admin", True), ("auditor", True), ("operator", False)]
)
def test_an_operator_sees_nothing_of_what_was_said(as_: Any, acme: World, role: str, *, sees: bool) -> None:
    type(acme.call).objects.filter(pk=acme.call.pk).update(cause="because of acme words", started_at=NOON)
    Change.objects.create(
        tenant=acme.tenant,
        via="admin",
        action=Action.CHANGED,
        kind="tool",
        object_id="1",
        before='{"title": "acme words"}',
        position=10**6,
        digest=b"d",
    )
    type(acme.runningcall).objects.update(arguments='{"term": "acme words"}')
    api: Api = as_(role)
    for path in (f"calls/{acme.call.pk}/", "calls/", f"running-calls/{acme.runningcall.pk}/", "changes/"):
        assert (path, "acme words" in json.dumps(api.get(path))) == (path, sees)
    messages = [event["data"] for event in api.get(f"calls/{acme.call.pk}/events/")]
    assert messages == (['{"progress": 0.5}'] if sees else [None])


def assert_is_problem(response: Any) -> None:
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = json.loads(response.content)
    assert problem["status"] == response.status_code
    assert problem["type"].startswith("urn:mcphub:problem:")
    assert problem["detail"]
