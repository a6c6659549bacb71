"""The consent page: whose tools a client asks for, what its person allows, and why it may be refused.

The authorization endpoint and the page for devices share it.
"""

from typing import Final, NamedTuple

from csp.decorators import csp_update
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from tools_app.access import permissions
from tools_app.access.oauth import clients, connections, policy, redirects, resources, tenant_scopes
from tools_app.admin.base.site import site
from tools_app.core.sanitize import is_storable
from tools_app.models import ClientDecision, Connection, Membership, OAuthClient, Role, SignInStep, Tenant
from tools_app.oauth import choices, events

MAX_ADMINS: Final = 3
TENANT: Final = "tenant"


class Asked(NamedTuple):
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


def asked_of(tenant: Tenant, asked: Asked) -> Asked:
    """Return what is asked for with the scopes that the tenant knows."""
    return asked._replace(scope=tenant_scopes.granted(tenant, asked.scope))


# --- Whose tools -------------------------------------------------------------------------------------------------


def tenant_of(request: HttpRequest, person: User, asked: Asked, chosen: str) -> Tenant | list[Tenant] | HttpResponse:
    """Return the tenant to connect to, those to choose from, or a page that says why there is none."""
    own = permissions.tenants_seen_by(person).filter(is_active=True).order_by("name")
    slug = asked.resource.slug or (chosen if is_storable(chosen) else "")
    if slug:
        return own.filter(slug=slug).first() or _no_member(request, person, slug, asked)
    several = list(own[: choices.MAX_TENANTS])
    if not several:
        return _no_member(request, person, "any tenant", asked)
    return several if len(several) > 1 else several[0]


def _no_member(request: HttpRequest, person: User, of: str, asked: Asked) -> HttpResponse:
    text = f"You are signed in as {person.get_username()}, who is no member of {of}. Ask an admin to invite you."
    return refused(request, "No access", text, asked=asked, log_out=True)


# --- Consent -----------------------------------------------------------------------------------------------------


def allowed(
    request: HttpRequest, person: User, tenant: Tenant, asked: Asked, known: Connection | None
) -> Connection | HttpResponse:
    """Return the connection that the person allows with the form, or the page again with what is wrong with it."""
    form = choices.ConsentForm(tenant, request.POST)
    if not form.is_valid():
        return page(request, person, tenant, asked, known, form=form)
    with transaction.atomic():
        connection = connections.allow(
            tenant,
            person,
            asked.client,
            patterns=form.patterns(),
            scope=asked.scope,
            redirect_uri=asked.redirect_uri,
            days=form.lifetime,
        )
        events.note(request, SignInStep.ALLOWED, connection=connection)
    return connection


def page(
    request: HttpRequest,
    person: User,
    tenant: Tenant,
    asked: Asked,
    known: Connection | None,
    *,
    form: choices.ConsentForm | None = None,
) -> HttpResponse:
    """Return the page on which the person allows or refuses what a client asks for."""
    form = form or choices.ConsentForm(tenant, initial=choices.initial_of(known))
    host = clients.host_of(asked.client)
    context = {
        "title": f"Connect {asked.client.name}",
        "client": asked.client,
        "host": host,
        "destination": redirects.destination_of(asked.redirect_uri),
        "is_here": redirects.is_loopback(asked.redirect_uri),
        "is_elsewhere": bool(host) and redirects.destination_of(asked.redirect_uri) != host,
        "user_code": asked.user_code,
        "tenant": tenant,
        "person": person,
        "scopes": tenant_scopes.meanings(tenant, asked.scope),
        "form": form,
        "known": known,
    }
    answer = TemplateResponse(request, "oauth/consent.html", {**site.each_context(request), **context})
    if not asked.user_code:
        # Browsers apply the policy to the redirect that answers the form, too.
        widened = csp_update({"form-action": [redirects.source_of(asked.redirect_uri)]})
        widened(lambda _request: answer)(request)
    return answer


def note_asked(request: HttpRequest, tenant: Tenant, asked: Asked) -> None:
    """Record that the person is asked."""
    host = policy.host_of(asked.client, asked.redirect_uri)
    events.note(request, SignInStep.ASKED, client=asked.client, tenant=tenant, host=host)


# --- Refusals ----------------------------------------------------------------------------------------------------


def not_allowed(request: HttpRequest, tenant: Tenant, asked: Asked) -> HttpResponse | None:
    """Return a page that says whom to ask if the tenant does not allow the client. An admin sees it in the sign-ins."""
    decision = policy.decision_on(tenant, asked.client, asked.redirect_uri)
    if decision is ClientDecision.ALLOW:
        return None
    yet = " yet" if decision is ClientDecision.ASK else ""
    admins = ", ".join(_admins_of(tenant)) or "none is known"
    text = f"{tenant.name} does not allow {asked.client.name}{yet}. Ask one of its admins: {admins}."
    host = policy.host_of(asked.client, asked.redirect_uri)
    reason = f"The policy for {host} says: {decision.label}."
    events.note(request, SignInStep.REJECTED, reason, client=asked.client, tenant=tenant, host=host)
    return said(request, "Not allowed", text, status=403)


def refused(
    request: HttpRequest, title: str, text: str, *, asked: Asked | None = None, log_out: bool = False
) -> HttpResponse:
    """Say on a page what the person can do, and record it."""
    client = asked.client if asked else None
    events.note(request, SignInStep.REJECTED, text, client=client, client_id=request.GET.get("client_id", ""))
    return said(request, title, text, status=403 if asked else 400, log_out=log_out)


def said(request: HttpRequest, title: str, text: str, *, status: int = 200, log_out: bool = False) -> HttpResponse:
    """Return a page with one message."""
    again = request.get_full_path() if log_out else ""
    context = {**site.each_context(request), "title": title, "text": text, "log_out": log_out, "again": again}
    return TemplateResponse(request, "oauth/said.html", context, status=status)


def _admins_of(tenant: Tenant) -> list[str]:
    """Return the usernames of some admins of a tenant, whom its members may ask."""
    rows = Membership.objects.filter(tenant=tenant, role=Role.ADMIN, user__is_active=True).order_by("created_at")
    return list(rows.values_list("user__username", flat=True)[:MAX_ADMINS])
