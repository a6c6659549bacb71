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

from tools_app.core.http.documents import DocumentError
from tools_app.identity.authorization import consent
from tools_app.identity.authorization.consent import TENANT_PARAMETER, AuthorizationRequest
from tools_app.identity.authorization.endpoints import is_rate_limited
from tools_app.identity.authorization.server import check_parameters, issuer_of, resource_of, server
from tools_app.identity.oauth import attempts, connections, redirects, tokens
from tools_app.models import Connection, Issuer, IssuerUse, SignInStep, Tenant
from tools_app.web.admin.site import site
from tools_app.web.middleware import ORIGIN_ONLY

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
    if is_rate_limited(request, "authorize", MAX_REQUESTS):
        response = consent.message_page(request, "Too many attempts", "Wait a minute, then try again.", status=429)
    else:
        response = _authorize(request)
    response.headers["Referrer-Policy"] = ORIGIN_ONLY
    return response


def _authorize(request: HttpRequest) -> HttpResponse:
    try:
        auth_request = _parse_request(request)
    except OAuth2Error as problem:
        return _error_response(request, problem)
    except DocumentError as problem:
        text = f"{problem} Connect it again later, or tell the people who make it."
        return consent.refusal_page(request, "This application cannot be identified", text)
    person = request.user
    if not isinstance(person, User) or not person.is_active:
        # To the company's sign-in where the tenant has one, else to the login page.
        slug = auth_request.resource.slug
        issuers = Issuer.objects.filter(tenant__slug=slug, use=IssuerUse.PEOPLE, is_active=True)
        login_url = reverse("sign-in-tenant", args=[slug]) if slug and issuers.exists() else settings.LOGIN_URL
        return redirect_to_login(request.get_full_path(), login_url)
    match consent.tenant_of(request, person, auth_request, request.GET.get(TENANT_PARAMETER, "")):
        case HttpResponse() as page:
            return page
        case Tenant() as tenant:
            return _consent(request, person, tenant, auth_request)
        case tenants:
            query = request.GET.urlencode()
            links = [(row.name, f"?{query}&{urlencode({TENANT_PARAMETER: row.slug})}") for row in tenants]
            title = f"Which tools should {auth_request.client.name} use?"
            context = {**site.each_context(request), "title": title, "links": links}
            return TemplateResponse(request, "identity/authorization/tenants.html", context)


def _parse_request(request: HttpRequest) -> AuthorizationRequest:
    """Return the checked request. Raises DocumentError, and OAuth2Error, with a redirect URI once that is checked."""
    check_parameters(request.GET)
    # Without the fields of its form, which are the person's and not the client's.
    query = HttpRequest()
    query.method, query.path, query.META, query.GET = "GET", request.path, request.META, request.GET
    grant = server.get_consent_grant(query)
    payload, state = grant.request.payload, request.GET.get("state", "")
    try:
        resource = resource_of(request, request.GET)
    except OAuth2Error as problem:
        problem.redirect_uri, problem.state = grant.redirect_uri, state
        raise
    return AuthorizationRequest(
        client=grant.request.client.row,
        redirect_uri=grant.redirect_uri,
        scope=payload.scope or "",
        state=state,
        challenge=payload.data["code_challenge"],
        resource=resource,
    )


# --- Consent -----------------------------------------------------------------------------------------------------


def _consent(request: HttpRequest, person: User, tenant: Tenant, auth_request: AuthorizationRequest) -> HttpResponse:
    auth_request = consent.with_granted_scope(tenant, auth_request)
    if page := consent.policy_refusal(request, tenant, auth_request):
        return page
    existing = connections.find(tenant, person, auth_request.client)
    if request.method == "POST" and request.POST.get("decision") != "allow":
        attempts.record(request, SignInStep.DENIED, client=auth_request.client, tenant=tenant)
        error = {"error": "access_denied", "error_description": "The person refused."}
        return _redirect_to_client(request, auth_request, error)
    if request.method == "POST":
        result = consent.allow(request, person, tenant, auth_request, existing)
        return result if isinstance(result, HttpResponse) else _redirect_with_code(request, result, auth_request)
    if existing is not None and connections.needs_no_consent(existing, auth_request.redirect_uri, auth_request.scope):
        return _redirect_with_code(request, existing, auth_request)
    consent.record_consent_request(request, tenant, auth_request)
    return consent.page(request, person, tenant, auth_request, existing)


def _redirect_with_code(
    request: HttpRequest, connection: Connection, auth_request: AuthorizationRequest
) -> HttpResponse:
    try:
        code = tokens.issue_code(
            connection,
            redirect_uri=auth_request.redirect_uri,
            challenge=auth_request.challenge,
            scope=auth_request.scope,
        )
    except tokens.TokenRevoked:
        error = {"error": "access_denied", "error_description": "The person has just allowed less. Ask again."}
        return _redirect_to_client(request, auth_request, error)
    return _redirect_to_client(request, auth_request, {"code": code})


def _redirect_to_client(
    request: HttpRequest, auth_request: AuthorizationRequest, parameters: dict[str, str]
) -> HttpResponse:
    """Send the person back, always with the issuer (RFC 9207)."""
    state = {"state": auth_request.state} if auth_request.state else {}
    parameters = {**parameters, **state, "iss": issuer_of(request)}
    return RedirectToClient(add_params_to_uri(auth_request.redirect_uri, parameters.items()))


# --- Refusals ----------------------------------------------------------------------------------------------------


def _error_response(request: HttpRequest, problem: OAuth2Error) -> HttpResponse:
    """Tell the client, at its redirect URI if the person has allowed it there before, else the person.

    Anybody can register a client, and would otherwise lead people to any site by a link to the hub (RFC 9700, section
    4.11.2).
    """
    title, text = _error_message(request, problem)
    reason = f"{problem.error}: {problem.description}" if problem.redirect_uri else text
    client_id = request.GET.get("client_id", "")
    attempts.record(request, SignInStep.REJECTED, reason, client_id=client_id)
    allowed = Connection.objects.filter(
        tokens.valid_connections(),
        client__client_id=client_id,
        redirect_uri=problem.redirect_uri,
        person=request.user.pk,
    )
    if problem.redirect_uri and request.user.is_authenticated and allowed.exists():
        parameters = [*problem.get_body(), ("iss", issuer_of(request))]
        return RedirectToClient(add_params_to_uri(problem.redirect_uri, parameters))
    return consent.message_page(request, title, text, status=400)


def _error_message(request: HttpRequest, problem: OAuth2Error) -> tuple[str, str]:
    uri = request.GET.get("redirect_uri", "")
    if problem.error == "invalid_client":
        return (
            "Unknown application",
            "This hub does not know the application, or an admin blocked it. Connect it again.",
        )
    if problem.error == "invalid_request" and uri and "edirect" in (problem.description or ""):
        where = redirects.destination_of(uri) or "an address"
        text = f"This application asks to return to {where}, which it did not register. Nothing was sent there. "
        return "Wrong return address", f"{text}If you trust it, remove it from its own settings and connect it again."
    text = problem.description or "The application sent an invalid request."
    if problem.redirect_uri:
        text += f" Nothing was sent to {redirects.destination_of(problem.redirect_uri)}."
    return "This request cannot be answered", text
