"""The authorization endpoint: checks what a client asks for, lets its person sign in, and asks for consent.

A request stays in the URL of the page, and is checked again when the form is sent. The form works for the browser that
opened the page only, by its session and CSRF token.
"""

from typing import Final, NamedTuple
from urllib.parse import urlencode

from authlib.common.urls import add_params_to_uri
from authlib.oauth2 import OAuth2Error
from csp.decorators import csp_update
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseRedirectBase
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from tools_app.access import permissions
from tools_app.access.oauth import clients, connections, policy, redirects, resources, scopes, tokens
from tools_app.admin.base.response_headers import ORIGIN_ONLY
from tools_app.admin.base.site import site
from tools_app.models import ClientDecision, Connection, Membership, OAuthClient, Role, SignInStep, Tenant
from tools_app.oauth import choices, events
from tools_app.oauth.client_documents import Unreadable
from tools_app.oauth.endpoints import is_too_often
from tools_app.oauth.server import check_parameters, issuer_of, resource_of, server

MAX_REQUESTS: Final = 60
MAX_ADMINS: Final = 3
TENANT: Final = "tenant"


class RedirectToClient(HttpResponseRedirectBase):
    """A redirect to a client's registered URI, of any scheme."""

    status_code = 302

    def __init__(self, uri: str) -> None:
        self.allowed_schemes = [uri.partition(":")[0]]
        super().__init__(uri)


class Asked(NamedTuple):
    """What a client asks for, checked."""

    client: OAuthClient
    redirect_uri: str
    scope: str
    state: str
    challenge: str
    resource: resources.Resource


@never_cache
@require_http_methods(["GET", "POST"])
def authorize(request: HttpRequest) -> HttpResponse:
    """Answer an authorization request (RFC 6749, section 4.1.1)."""
    answer = _answer(request)
    answer.headers["Referrer-Policy"] = ORIGIN_ONLY
    return answer


def _answer(request: HttpRequest) -> HttpResponse:
    if is_too_often(request, "authorize", MAX_REQUESTS):
        return _said(request, "Too many attempts", "Wait a minute, then try again.", status=429)
    try:
        asked = _asked(request)
    except OAuth2Error as problem:
        return _rejected(request, problem)
    except Unreadable as problem:
        return _refused(request, "This application cannot be identified", str(problem))
    if not isinstance(request.user, User) or not request.user.is_active:
        return redirect_to_login(request.get_full_path(), settings.LOGIN_URL)
    tenant = _tenant(request, request.user, asked)
    if isinstance(tenant, HttpResponse):
        return tenant
    return _consent(request, request.user, tenant, asked)


def _asked(request: HttpRequest) -> Asked:
    """Return what the client asks for. Raises Unreadable, and OAuth2Error, with a redirect URI once that is checked."""
    check_parameters(request.GET)
    grant = server.get_consent_grant(_query_only(request))
    payload, state = grant.request.payload, request.GET.get("state", "")
    try:
        resource = resource_of(request, request.GET)
    except OAuth2Error as problem:
        problem.redirect_uri, problem.state = grant.redirect_uri, state
        raise
    return Asked(
        client=grant.request.client.row,
        redirect_uri=grant.redirect_uri,
        scope=scopes.granted(payload.scope),
        state=state,
        challenge=payload.data["code_challenge"],
        resource=resource,
    )


def _query_only(request: HttpRequest) -> HttpRequest:
    """Return the request without the fields of its form, which are the person's and not the client's."""
    asking = HttpRequest()
    asking.method, asking.path, asking.META, asking.GET = "GET", request.path, request.META, request.GET
    return asking


# --- Whose tools -------------------------------------------------------------------------------------------------


def _tenant(request: HttpRequest, person: User, asked: Asked) -> Tenant | HttpResponse:
    """Return the tenant to connect to, or a page that says why there is none, or asks which one."""
    own = permissions.tenants_seen_by(person).filter(is_active=True).order_by("name")
    slug = asked.resource.slug or request.GET.get(TENANT, "")
    if slug:
        tenant = own.filter(slug=slug).first()
        return tenant or _no_member(request, person, slug, asked)
    several = list(own[: choices.MAX_TENANTS + 1])
    if len(several) == 1:
        return several[0]
    if not several:
        return _no_member(request, person, "any tenant", asked)
    links = [(row.name, f"?{request.GET.urlencode()}&{urlencode({TENANT: row.slug})}") for row in several]
    context = {"title": f"Which tools should {asked.client.name} use?", "links": links[: choices.MAX_TENANTS]}
    return TemplateResponse(request, "oauth/tenants.html", {**site.each_context(request), **context})


def _no_member(request: HttpRequest, person: User, of: str, asked: Asked) -> HttpResponse:
    text = f"You are signed in as {person.get_username()}, who is no member of {of}. Ask an admin to invite you."
    return _refused(request, "No access", text, asked=asked, log_out=True)


# --- Consent -----------------------------------------------------------------------------------------------------


def _consent(request: HttpRequest, person: User, tenant: Tenant, asked: Asked) -> HttpResponse:
    decision = policy.decision_on(tenant, asked.client, asked.redirect_uri)
    if decision is not ClientDecision.ALLOW:
        return _not_allowed(request, tenant, asked, decision)
    known = connections.find(tenant, person, asked.client)
    if request.method == "POST":
        return _decided(request, person, tenant, asked, known)
    if known is not None and connections.needs_no_consent(known, asked.redirect_uri, asked.scope):
        return _connected(request, known, asked)
    events.note(request, SignInStep.ASKED, client=asked.client, tenant=tenant)
    return _page(request, person, tenant, asked, known)


def _decided(
    request: HttpRequest, person: User, tenant: Tenant, asked: Asked, known: Connection | None
) -> HttpResponse:
    if request.POST.get("decision") != "allow":
        events.note(request, SignInStep.DENIED, client=asked.client, tenant=tenant)
        return _to_client(request, asked, {"error": "access_denied", "error_description": "The person refused."})
    form = choices.ConsentForm(tenant, request.POST)
    if not form.is_valid():
        return _page(request, person, tenant, asked, known, form=form)
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
    return _connected(request, connection, asked)


def _page(
    request: HttpRequest,
    person: User,
    tenant: Tenant,
    asked: Asked,
    known: Connection | None,
    *,
    form: choices.ConsentForm | None = None,
) -> HttpResponse:
    form = form or choices.ConsentForm(tenant, initial=choices.initial_of(known))
    host = clients.host_of(asked.client)
    context = {
        "title": f"Connect {asked.client.name}",
        "client": asked.client,
        "host": host,
        "destination": redirects.destination_of(asked.redirect_uri),
        "is_here": redirects.is_loopback(asked.redirect_uri),
        "is_elsewhere": bool(host) and redirects.destination_of(asked.redirect_uri) != host,
        "tenant": tenant,
        "person": person,
        "scopes": [scopes.MEANING[scope] for scope in asked.scope.split()],
        "may_call": scopes.CALL in asked.scope.split(),
        "form": form,
        "known": known,
    }
    page = TemplateResponse(request, "oauth/consent.html", {**site.each_context(request), **context})
    # Browsers apply the policy to the redirect that answers the form, too.
    widened = csp_update({"form-action": [redirects.source_of(asked.redirect_uri)]})
    widened(lambda _request: page)(request)
    return page


def _connected(request: HttpRequest, connection: Connection, asked: Asked) -> HttpResponse:
    code = tokens.issue_code(connection, redirect_uri=asked.redirect_uri, challenge=asked.challenge, scope=asked.scope)
    return _to_client(request, asked, {"code": code})


def _to_client(request: HttpRequest, asked: Asked, parameters: dict[str, str]) -> HttpResponse:
    """Send the person back, always with the issuer (RFC 9207)."""
    state = {"state": asked.state} if asked.state else {}
    parameters = {**parameters, **state, "iss": issuer_of(request)}
    return RedirectToClient(add_params_to_uri(asked.redirect_uri, parameters.items()))


# --- Refusals ----------------------------------------------------------------------------------------------------


def _rejected(request: HttpRequest, problem: OAuth2Error) -> HttpResponse:
    """Tell the client, at its redirect URI if that was checked, else the person."""
    client_id = request.GET.get("client_id", "")
    events.note(request, SignInStep.REJECTED, f"{problem.error}: {problem.description}", client_id=client_id)
    if problem.redirect_uri:
        parameters = [*problem.get_body(), ("iss", issuer_of(request))]
        return RedirectToClient(add_params_to_uri(problem.redirect_uri, parameters))
    title, text = _explained(request, problem)
    return _said(request, title, text, status=400)


def _explained(request: HttpRequest, problem: OAuth2Error) -> tuple[str, str]:
    uri = request.GET.get("redirect_uri", "")
    if problem.error == "invalid_client":
        return (
            "Unknown application",
            "This hub does not know the application, or an admin blocked it. Connect it again.",
        )
    if problem.error == "invalid_request" and uri and "edirect" in (problem.description or ""):
        where = redirects.destination_of(uri) or "an address"
        return "Wrong return address", f"This application asks to return to {where}, which it did not register."
    return "This request cannot be answered", problem.description or "The application sent an invalid request."


def _refused(
    request: HttpRequest, title: str, text: str, *, asked: Asked | None = None, log_out: bool = False
) -> HttpResponse:
    """Say on a page what the person can do, and record it."""
    client = asked.client if asked else None
    events.note(request, SignInStep.REJECTED, text, client=client, client_id=request.GET.get("client_id", ""))
    return _said(request, title, text, status=403 if asked else 400, log_out=log_out)


def _not_allowed(request: HttpRequest, tenant: Tenant, asked: Asked, decision: ClientDecision) -> HttpResponse:
    """Say that the tenant does not allow the client, and whom to ask. An admin sees it among the sign-ins."""
    yet = " yet" if decision is ClientDecision.ASK else ""
    admins = ", ".join(_admins_of(tenant)) or "none is known"
    text = f"{tenant.name} does not allow {asked.client.name}{yet}. Ask one of its admins: {admins}."
    host = policy.host_of(asked.client, asked.redirect_uri)
    reason = f"The policy for {host} says: {decision.label}."
    events.note(request, SignInStep.REJECTED, reason, client=asked.client, tenant=tenant)
    return _said(request, "Not allowed", text, status=403)


def _said(request: HttpRequest, title: str, text: str, *, status: int, log_out: bool = False) -> HttpResponse:
    again = request.get_full_path() if log_out else ""
    context = {**site.each_context(request), "title": title, "text": text, "log_out": log_out, "again": again}
    return TemplateResponse(request, "oauth/said.html", context, status=status)


def _admins_of(tenant: Tenant) -> list[str]:
    """Return the usernames of some admins of a tenant, whom its members may ask."""
    rows = Membership.objects.filter(tenant=tenant, role=Role.ADMIN, user__is_active=True).order_by("created_at")
    return list(rows.values_list("user__username", flat=True)[:MAX_ADMINS])
