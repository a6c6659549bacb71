"""The consent page: whose tools a client asks for, what its person allows, and why it may be refused.

The authorization endpoint and the page for devices share it.
"""

from typing import Final, NamedTuple

from csp.decorators import csp_update
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.core.sanitize import is_storable
from tools_app.identity.authorization import choices, events
from tools_app.identity.oauth import clients, connections, policy, redirects, resources, tenant_scopes
from tools_app.models import ClientDecision, Connection, Membership, OAuthClient, Role, SignInStep, Tenant
from tools_app.tenants import permissions
from tools_app.web.admin.site import site

MAX_ADMINS: Final = 3
TENANT_PARAMETER: Final = "tenant"


class AuthorizationRequest(NamedTuple):
    """What a client asks for, checked. `scope` is as the client wrote it until the tenant is known.

    `state` and `challenge` are of a client in a browser, and `user_code` is of a device.
    """

    client: OAuthClient
    redirect_uri: str
    scope: str
    resource: resources.Resource
    state: str = ""
    challenge: str = ""
    user_code: str = ""


def with_granted_scope(tenant: Tenant, auth_request: AuthorizationRequest) -> AuthorizationRequest:
    """Return what is asked for with the scopes that the tenant knows."""
    return auth_request._replace(scope=tenant_scopes.granted(tenant, auth_request.scope))


# --- Whose tools -------------------------------------------------------------------------------------------------


def tenant_of(
    request: HttpRequest, person: User, auth_request: AuthorizationRequest, chosen: str
) -> Tenant | list[Tenant] | HttpResponse:
    """Return the tenant to connect to, those to choose from, or a page that says why there is none."""
    tenants = permissions.tenants_seen_by(person).filter(is_active=True).order_by("name")
    slug = auth_request.resource.slug or (chosen if is_storable(chosen) else "")
    if slug:
        return tenants.filter(slug=slug).first() or _no_membership_page(request, person, slug, auth_request)
    offered = list(tenants[: choices.MAX_TENANTS])
    if not offered:
        return _no_membership_page(request, person, "any tenant", auth_request)
    return offered if len(offered) > 1 else offered[0]


def _no_membership_page(
    request: HttpRequest, person: User, tenant_name: str, auth_request: AuthorizationRequest
) -> HttpResponse:
    text = (
        f"You are signed in as {person.get_username()}, who is no member of {tenant_name}. Ask an admin to invite you."
    )
    return refusal_page(request, "No access", text, auth_request=auth_request, log_out=True)


# --- Consent -----------------------------------------------------------------------------------------------------


def allow(
    request: HttpRequest, person: User, tenant: Tenant, auth_request: AuthorizationRequest, existing: Connection | None
) -> Connection | HttpResponse:
    """Return the connection that the person allows with the form, or the page again with what is wrong with it."""
    form = choices.ConsentForm(tenant, request.POST)
    if not form.is_valid():
        return page(request, person, tenant, auth_request, existing, form=form)
    with change_log_transaction():
        connection = connections.allow(
            tenant,
            person,
            auth_request.client,
            names=form.names(),
            scope=auth_request.scope,
            redirect_uri=auth_request.redirect_uri,
            days=form.lifetime,
        )
        events.record(request, SignInStep.ALLOWED, connection=connection)
    return connection


def page(
    request: HttpRequest,
    person: User,
    tenant: Tenant,
    auth_request: AuthorizationRequest,
    existing: Connection | None,
    *,
    form: choices.ConsentForm | None = None,
) -> HttpResponse:
    """Return the page on which the person allows or refuses what a client asks for."""
    form = form or choices.ConsentForm(tenant, initial=choices.initial_choices(existing))
    host = clients.host_of(auth_request.client)
    context = {
        "title": f"Connect {auth_request.client.name}",
        "client": auth_request.client,
        "host": host,
        "destination": redirects.destination_of(auth_request.redirect_uri),
        "is_loopback": redirects.is_loopback(auth_request.redirect_uri),
        "is_other_host": bool(host) and redirects.destination_of(auth_request.redirect_uri) != host,
        "user_code": auth_request.user_code,
        "tenant": tenant,
        "person": person,
        "scopes": tenant_scopes.meanings(tenant, auth_request.scope),
        "form": form,
    }
    response = TemplateResponse(
        request, "identity/authorization/consent.html", {**site.each_context(request), **context}
    )
    if not auth_request.user_code:
        # Browsers apply the policy to the redirect that answers the form, too.
        with_redirect_source = csp_update({"form-action": [redirects.source_of(auth_request.redirect_uri)]})
        with_redirect_source(lambda _request: response)(request)
    return response


def record_consent_request(request: HttpRequest, tenant: Tenant, auth_request: AuthorizationRequest) -> None:
    """Record that the person is asked, and note it for the client."""
    clients.note_asked(auth_request.client)
    host = policy.host_of(auth_request.client, auth_request.redirect_uri)
    events.record(request, SignInStep.ASKED, client=auth_request.client, tenant=tenant, host=host)


# --- Refusals ----------------------------------------------------------------------------------------------------


def policy_refusal(request: HttpRequest, tenant: Tenant, auth_request: AuthorizationRequest) -> HttpResponse | None:
    """Return a page that says whom to ask if the tenant does not allow the client. An admin sees it in the sign-ins."""
    decision = policy.decision_on(tenant, auth_request.client, auth_request.redirect_uri)
    if decision is ClientDecision.ALLOW:
        return None
    suffix = " yet" if decision is ClientDecision.ASK else ""
    admins = ", ".join(_admins_of(tenant)) or "none is known"
    text = f"{tenant.name} does not allow {auth_request.client.name}{suffix}. Ask one of its admins: {admins}."
    host = policy.host_of(auth_request.client, auth_request.redirect_uri)
    reason = f"The policy for {host} says: {decision.label}."
    events.record(request, SignInStep.REJECTED, reason, client=auth_request.client, tenant=tenant, host=host)
    return message_page(request, "Not allowed", text, status=403)


def refusal_page(
    request: HttpRequest,
    title: str,
    text: str,
    *,
    auth_request: AuthorizationRequest | None = None,
    log_out: bool = False,
) -> HttpResponse:
    """Say on a page what the person can do, and record it."""
    client = auth_request.client if auth_request else None
    events.record(request, SignInStep.REJECTED, text, client=client, client_id=request.GET.get("client_id", ""))
    return message_page(request, title, text, status=403 if auth_request else 400, log_out=log_out)


def message_page(
    request: HttpRequest, title: str, text: str, *, status: int = 200, log_out: bool = False
) -> HttpResponse:
    """Return a page with one message."""
    context = {**site.each_context(request), "title": title, "text": text, "log_out": log_out}
    return TemplateResponse(request, "identity/authorization/message.html", context, status=status)


def _admins_of(tenant: Tenant) -> list[str]:
    """Return the usernames of some admins of a tenant, whom its members may ask."""
    rows = Membership.objects.filter(tenant=tenant, role=Role.ADMIN, user__is_active=True).order_by("created_at")
    return list(rows.values_list("user__username", flat=True)[:MAX_ADMINS])
