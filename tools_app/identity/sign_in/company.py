"""Sign-in with a company's account: the pages that lead to its issuer and back, by OpenID Connect or SAML 2.0.

The state of a sign-in is kept in the browser's session, so an answer counts only in the browser that asked for it. Each
issuer has a redirect URI of its own, so that one which sends people on to another gets nothing (RFC 9700, section 4.4).
"""

import time
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from csp.decorators import csp_update
from django.contrib.auth import login
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.encoding import iri_to_uri
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_GET, require_POST

from tools_app.audit.changes.changes import Actor, recording_as
from tools_app.core.sanitize import is_storable
from tools_app.identity.authorization.endpoints import is_rate_limited
from tools_app.identity.issuers import provider, saml
from tools_app.identity.oauth import redirects
from tools_app.identity.people import people, validity
from tools_app.identity.principal import client_ip_of
from tools_app.identity.sign_in import saml_requests
from tools_app.identity.sign_in.required_factor import ISSUER_TENANT_KEY
from tools_app.identity.sign_in.saml_requests import PendingRequest
from tools_app.models import Issuer, IssuerProtocol, IssuerUse, SignInEvent, SignInStep, Via
from tools_app.web.admin.site import site
from tools_app.web.middleware import ORIGIN_ONLY

BACKEND: Final = "django.contrib.auth.backends.ModelBackend"
PENDING_KEY: Final = "company_sign_ins"
MAX_PENDING: Final = 5
LIFETIME_SECONDS: Final = 600.0
# Of the page that a sign-in leads to, as it is sent: an authorization request has about 1000. Django checks no longer
# ones (MAX_URL_LENGTH), and one fits the cookie of SAML.
MAX_NEXT_BYTES: Final = 2048
MAX_SLUG: Final = 63
MAX_CODE: Final = 4000
MAX_REQUESTS: Final = 60
# Of issuers.
USABLE: Final[dict[str, Any]] = {"use": IssuerUse.PEOPLE, "is_active": True, "tenant__is_active": True}
View = Callable[..., HttpResponse]


@never_cache
@require_GET
def choose_company(request: HttpRequest) -> HttpResponse:
    """Ask for the company, then show its sign-in."""
    slug = request.GET.get("tenant", "").strip().lower()[:MAX_SLUG]
    slug = slug if is_storable(slug) else ""
    if slug and _issuers_of(slug):
        return HttpResponseRedirect(
            f"{reverse('sign-in-tenant', args=[slug])}?{urlencode({'next': _next_url(request)})}"
        )
    problem = "No company sign-in is set up under this name." if slug else ""
    return _page(request, "identity/sign_in/choose.html", title="Company sign-in", slug=slug, problem=problem)


@never_cache
@require_GET
def tenant_sign_in(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the issuers of a tenant."""
    issuers = _issuers_of(slug)
    if not issuers:
        return HttpResponseRedirect(f"{reverse('sign-in')}?{urlencode({'tenant': slug, 'next': _next_url(request)})}")
    page = _page(request, "identity/sign_in/offer.html", title=issuers[0].tenant.name, issuers=issuers, slug=slug)
    # Browsers apply the policy to the redirects that answer the form: to the provider, and from there on.
    urls = [issuer.metadata_url if issuer.protocol == IssuerProtocol.SAML else issuer.issuer for issuer in issuers]
    loopback_sources = [redirects.source_of(url) for url in urls if redirects.is_loopback(url)]
    csp_update({"form-action": ["https:", *loopback_sources]})(lambda _request: page)(request)
    return page


def limited(view: View) -> View:
    """Answer an address so many times a minute. The next page learns nothing of the address of this one."""

    @wraps(view)
    def wrapper(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        if is_rate_limited(request, "sign-ins", MAX_REQUESTS):
            response = _failure_page(request, "Too many attempts. Wait a minute, then try again.", status=429)
        else:
            response = view(request, **kwargs)
        response.headers["Referrer-Policy"] = ORIGIN_ONLY
        return response

    return wrapper


@never_cache
@require_POST
@limited
def begin(request: HttpRequest, slug: str, issuer: Any) -> HttpResponse:
    """Send the person to an issuer."""
    row = next((entry for entry in _issuers_of(slug) if entry.pk == issuer), None)
    if row is None:
        return _failure_page(request, "This sign-in no longer exists. Ask an admin of your company.", status=404)
    if row.protocol == IssuerProtocol.SAML:
        return _begin_saml(request, row)
    try:
        pending = provider.begin(row, _callback(request, row))
    except provider.SignInFailed as problem:
        return _failure_page(request, str(problem), issuer=row)
    pending_sign_ins = {
        state: entry for state, entry in request.session.get(PENDING_KEY, {}).items() if entry["until"] > time.time()
    }
    pending_sign_ins[pending.state] = {
        "issuer": str(row.pk),
        "nonce": pending.nonce,
        "verifier": pending.verifier,
        "next": _next_url(request),
        "until": time.time() + LIFETIME_SECONDS,
    }
    request.session[PENDING_KEY] = dict(list(pending_sign_ins.items())[-MAX_PENDING:])
    if not request.user.is_authenticated:
        # Anybody can begin any number of sign-ins: what is stored for them does not last.
        request.session.set_expiry(int(LIFETIME_SECONDS))
    return HttpResponseRedirect(pending.url)


@never_cache
@require_GET
@sensitive_variables()
@limited
def callback(request: HttpRequest, issuer: UUID) -> HttpResponse:
    """Log the person in whom the issuer sent back."""
    pending_sign_ins = request.session.get(PENDING_KEY, {})
    pending = pending_sign_ins.pop(request.GET.get("state", ""), None)
    if pending is not None:
        request.session[PENDING_KEY] = pending_sign_ins
    if pending is None or pending["until"] < time.time() or pending["issuer"] != str(issuer):
        return _failure_page(request, "This sign-in has expired, or began in another browser. Try again.", status=400)
    row = Issuer.objects.select_related("tenant").filter(pk=pending["issuer"], **USABLE).first()
    if row is None:
        return _failure_page(request, "This sign-in no longer exists. Ask an admin of your company.", status=404)
    try:
        if error := request.GET.get("error", ""):
            error_code = "".join(filter(str.isprintable, error[:100]))
            is_denied = error_code == "access_denied"
            raise provider.SignInFailed("You did not sign in." if is_denied else f"{row.name} refused: {error_code}.")
        # RFC 9207: the answer of another issuer that shares this callback.
        if request.GET.get("iss", row.issuer) != row.issuer:
            raise provider.SignInFailed("The answer is of another issuer. Try again.")
        code = request.GET.get("code", "")[:MAX_CODE]
        if not code:
            raise provider.SignInFailed(f"{row.name} sent no code. Try again.")
        result = provider.finish(row, code, pending["nonce"], pending["verifier"], _callback(request, row))
        with recording_as(Actor(None, Via.SIGN_IN, client_ip_of(request), row.name)):
            identity = people.sign_in(row, result.claims or {}, result.refresh_token)
    except (provider.SignInFailed, people.SignInRejected) as problem:
        return _failure_page(request, str(problem), issuer=row)
    rule = people.rule_used(identity, result.claims or {})
    return _log_in(request, row, identity.person, pending["next"], rule)


def _begin_saml(request: HttpRequest, issuer: Issuer) -> HttpResponse:
    """Send the person to a SAML identity provider. A cookie that comes back with its answer keeps the request."""
    try:
        authn_request = saml.begin(issuer, _service_provider(request, issuer))
    except provider.SignInFailed as problem:
        return _failure_page(request, str(problem), issuer=issuer)
    response = HttpResponseRedirect(authn_request.url)
    pending = saml_requests.with_new_request(request, authn_request.request_id, str(issuer.pk), _next_url(request))
    saml_requests.set_cookie(request, response, pending)
    return response


@never_cache
@require_GET
def saml_metadata(request: HttpRequest, issuer: UUID) -> HttpResponse:
    """Return the hub's own SAML metadata for an issuer."""
    row = Issuer.objects.filter(pk=issuer, protocol=IssuerProtocol.SAML).first()
    if row is None:
        return _failure_page(request, "This sign-in does not exist.", status=404)
    return HttpResponse(
        saml.service_provider_metadata(_service_provider(request, row)), content_type="application/samlmetadata+xml"
    )


# The signature of the answer, and the request that it names, take the place of a token against forged forms.
@csrf_exempt
@never_cache
@require_POST
@sensitive_variables()
@limited
def saml_acs(request: HttpRequest, issuer: UUID) -> HttpResponse:
    """Log the person in about whom a SAML identity provider sent an answer."""
    rows = Issuer.objects.select_related("tenant").filter(pk=issuer, protocol=IssuerProtocol.SAML, **USABLE)
    row = rows.first()
    if row is None:
        return _failure_page(request, "This sign-in no longer exists. Ask an admin of your company.", status=404)
    try:
        saml_response = saml.parse_response(request.POST.get("SAMLResponse", ""))
    except provider.SignInFailed as problem:
        return _failure_page(request, str(problem), issuer=row)
    pending = saml_requests.pending_of(request)
    pending_request = next(
        (entry for entry in pending if (entry.request_id, entry.issuer) == (saml_response.request_id, str(row.pk))),
        None,
    )
    response = _accept_response(request, row, saml_response, pending_request)
    if pending_request is not None:
        # Whether it was accepted or not: a request has one answer.
        saml_requests.set_cookie(request, response, [entry for entry in pending if entry is not pending_request])
    return response


def _accept_response(
    request: HttpRequest, row: Issuer, saml_response: saml.UnverifiedResponse, pending_request: PendingRequest | None
) -> HttpResponse:
    try:
        if saml_response.request_id and pending_request is None:
            raise provider.SignInFailed("This sign-in has expired, or began in another browser. Try again.")
        if not saml_response.request_id and not row.allows_unasked:
            raise provider.SignInFailed(
                f"Sign-in does not begin at {row.name}. Choose it on the sign-in page of {row.tenant.name} here."
            )
        assertion = saml.finish(row, saml_response, _service_provider(request, row))
        with recording_as(Actor(None, Via.SIGN_IN, client_ip_of(request), row.name)):
            identity = people.sign_in(row, assertion.claims, session_end=assertion.session_end)
    except (provider.SignInFailed, people.SignInRejected) as problem:
        return _failure_page(request, str(problem), issuer=row)
    # Where sign-in began at the provider, it may say where it leads.
    next_url = pending_request.next if pending_request is not None else request.POST.get("RelayState", "")
    rule = people.rule_used(identity, assertion.claims)
    return _log_in(
        request, row, identity.person, _local_url(request, next_url), rule, session_end=assertion.session_end
    )


def _service_provider(request: HttpRequest, issuer: Issuer) -> saml.ServiceProvider:
    names = ("sign-in-saml", "sign-in-saml-metadata")
    acs_url, entity_id = (request.build_absolute_uri(reverse(name, args=[issuer.pk])) for name in names)
    return saml.ServiceProvider(acs_url, entity_id)


def _log_in(
    request: HttpRequest, issuer: Issuer, person: User, next_url: str, rule: str, *, session_end: datetime | None = None
) -> HttpResponse:
    """Log a person in, for as long as they have access and their session at the issuer lasts."""
    login(request, person, BACKEND)
    request.session[ISSUER_TENANT_KEY] = str(issuer.tenant_id)
    end_times = [end for end in (validity.access_end(person.pk), session_end) if end is not None]
    request.session.set_expiry(min(end_times, default=None))
    _record_event(request, SignInStep.SIGNED_IN, issuer, reason=rule, person=person.get_username())
    return HttpResponseRedirect(next_url)


def _issuers_of(slug: str) -> list[Issuer]:
    return list(Issuer.objects.filter(tenant__slug=slug, **USABLE).select_related("tenant").order_by("name"))


def _callback(request: HttpRequest, issuer: Issuer) -> str:
    return request.build_absolute_uri(reverse("sign-in-callback", args=[issuer.pk]))


def _next_url(request: HttpRequest) -> str:
    """Return the page of this hub that the person wanted."""
    return _local_url(request, request.POST.get("next", "") or request.GET.get("next", ""))


def _local_url(request: HttpRequest, url: str) -> str:
    """Return the wanted page in ASCII, or the first page of the admin if it is not of this hub, or too long."""
    is_local = url_has_allowed_host_and_scheme(url, {request.get_host()}, require_https=request.is_secure())
    encoded = iri_to_uri(url[: MAX_NEXT_BYTES + 1]) if url and is_local and is_storable(url) else ""
    return encoded if 0 < len(encoded) <= MAX_NEXT_BYTES else reverse("admin:index")


def _failure_page(request: HttpRequest, text: str, *, issuer: Issuer | None = None, status: int = 403) -> HttpResponse:
    if issuer is not None:
        _record_event(request, SignInStep.REJECTED, issuer, reason=text)
    return _page(request, "identity/sign_in/failed.html", status=status, title="Not signed in", text=text)


def _record_event(
    request: HttpRequest, step: SignInStep, issuer: Issuer, *, reason: str = "", person: str = ""
) -> None:
    SignInEvent.objects.create(
        step=step,
        reason=reason[:500],
        tenant=issuer.tenant,
        client_name=issuer.name,
        person_name=person,
        remote_address=client_ip_of(request),
    )


def _page(request: HttpRequest, template: str, *, status: int = 200, **context: Any) -> HttpResponse:
    full_context = {**site.each_context(request), "next": _next_url(request), **context}
    return TemplateResponse(request, template, full_context, status=status)
