"""The authorization endpoint: checks what a client asks for, lets its person sign in, and asks for consent.

A request stays in the URL of the page, and is checked again when the form is sent. The form works for the browser that
opened the page only, by its session and CSRF token.
"""

from typing import Final
from urllib.parse import urlencode

from authlib.common.urls import add_params_to_uri
from authlib.oauth2 import OAuth2Error
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseRedirectBase
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from tools_app.access.oauth import connections, redirects, tokens
from tools_app.admin.base.response_headers import ORIGIN_ONLY
from tools_app.admin.base.site import site
from tools_app.catalog.http.documents import Unreadable
from tools_app.models import Connection, Issuer, IssuerUse, SignInStep, Tenant
from tools_app.oauth import consent, events
from tools_app.oauth.consent import TENANT, Asked
from tools_app.oauth.endpoints import is_too_often
from tools_app.oauth.server import check_parameters, issuer_of, resource_of, server

MAX_REQUESTS: Final = 60


class RedirectToClient(HttpResponseRedirectBase):
    """A redirect to a client's registered URI, of any scheme."""

    status_code = 302

    def __init__(self, uri: str) -> None:
        self.allowed_schemes = [uri.partition(":")[0]]
        super().__init__(uri)


@never_cache
@require_http_methods(["GET", "POST"])
def authorize(request: HttpRequest) -> HttpResponse:
    """Answer an authorization request (RFC 6749, section 4.1.1)."""
    answer = _answer(request)
    answer.headers["Referrer-Policy"] = ORIGIN_ONLY
    return answer


def _answer(request: HttpRequest) -> HttpResponse:
    if is_too_often(request, "authorize", MAX_REQUESTS):
        return consent.said(request, "Too many attempts", "Wait a minute, then try again.", status=429)
    try:
        asked = _asked(request)
    except OAuth2Error as problem:
        return _rejected(request, problem)
    except Unreadable as problem:
        return consent.refused(request, "This application cannot be identified", str(problem))
    if not isinstance(request.user, User) or not request.user.is_active:
        return _sign_in_first(request, asked.resource.slug)
    return _for_tenant(request, request.user, asked)


def _for_tenant(request: HttpRequest, person: User, asked: Asked) -> HttpResponse:
    match consent.tenant_of(request, person, asked, request.GET.get(TENANT, "")):
        case HttpResponse() as page:
            return page
        case Tenant() as tenant:
            return _consent(request, person, tenant, asked)
        case several:
            return _choice(request, several, asked)


def _choice(request: HttpRequest, several: list[Tenant], asked: Asked) -> HttpResponse:
    links = [(row.name, f"?{request.GET.urlencode()}&{urlencode({TENANT: row.slug})}") for row in several]
    context = {"title": f"Which tools should {asked.client.name} use?", "links": links}
    return TemplateResponse(request, "oauth/tenants.html", {**site.each_context(request), **context})


def _sign_in_first(request: HttpRequest, slug: str | None) -> HttpResponse:
    """Lead to the company's sign-in where the tenant has one, else to the login page."""
    issuers = Issuer.objects.filter(tenant__slug=slug, use=IssuerUse.PEOPLE, is_active=True)
    login_url = reverse("sign-in-tenant", args=[slug]) if slug and issuers.exists() else settings.LOGIN_URL
    return redirect_to_login(request.get_full_path(), login_url)


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
        scope=payload.scope or "",
        state=state,
        challenge=payload.data["code_challenge"],
        resource=resource,
    )


def _query_only(request: HttpRequest) -> HttpRequest:
    """Return the request without the fields of its form, which are the person's and not the client's."""
    asking = HttpRequest()
    asking.method, asking.path, asking.META, asking.GET = "GET", request.path, request.META, request.GET
    return asking


# --- Consent -----------------------------------------------------------------------------------------------------


def _consent(request: HttpRequest, person: User, tenant: Tenant, asked: Asked) -> HttpResponse:
    asked = consent.asked_of(tenant, asked)
    if page := consent.not_allowed(request, tenant, asked):
        return page
    known = connections.find(tenant, person, asked.client)
    if request.method == "POST":
        return _decided(request, person, tenant, asked, known)
    if known is not None and connections.needs_no_consent(known, asked.redirect_uri, asked.scope):
        return _connected(request, known, asked)
    consent.note_asked(request, tenant, asked)
    return consent.page(request, person, tenant, asked, known)


def _decided(
    request: HttpRequest, person: User, tenant: Tenant, asked: Asked, known: Connection | None
) -> HttpResponse:
    if request.POST.get("decision") != "allow":
        events.note(request, SignInStep.DENIED, client=asked.client, tenant=tenant)
        return _to_client(request, asked, {"error": "access_denied", "error_description": "The person refused."})
    connection = consent.allowed(request, person, tenant, asked, known)
    return connection if isinstance(connection, HttpResponse) else _connected(request, connection, asked)


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
    return consent.said(request, title, text, status=400)


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
