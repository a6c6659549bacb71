"""Sign-in with a company's account: the pages that lead to its issuer and back, by OpenID Connect or SAML 2.0.

The state of a sign-in is kept in the browser's session, so an answer counts only in the browser that asked for it. Each
issuer has a redirect URI of its own, so that one which sends people on to another gets nothing (RFC 9700, section 4.4).
"""

import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from csp.decorators import csp_update
from django.contrib.auth import login
from django.contrib.auth.models import User
from django.core import signing
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_GET, require_POST

from tools_app.access.issuers import people, validity
from tools_app.access.limits import limits
from tools_app.access.limits.quotas import ConcurrencyLimit
from tools_app.access.oauth import redirects
from tools_app.access.principal import address_of, rate_limit_key
from tools_app.admin.base.response_headers import ORIGIN_ONLY
from tools_app.admin.base.site import site
from tools_app.audit.changes.changes import Actor, recording_as
from tools_app.core.sanitize import is_storable
from tools_app.issuers import provider, saml
from tools_app.models import Issuer, IssuerProtocol, IssuerUse, SignInEvent, SignInStep, Via
from tools_app.models.ids import new_id
from tools_app.sign_in.required_factor import VOUCHED_BY

BACKEND: Final = "django.contrib.auth.backends.ModelBackend"
PENDING: Final = "company_sign_ins"
MAX_PENDING: Final = 5
LIFETIME_SECONDS: Final = 600.0
SAML_COOKIE: Final = "mcphub_saml"
SAML_PATH: Final = "/sign-in/"
MAX_NEXT: Final = 400
MAX_SLUG: Final = 63
MAX_CODE: Final = 4000
MAX_REQUESTS: Final = 60
SECONDS: Final = 60.0


@never_cache
@require_GET
def choose(request: HttpRequest) -> HttpResponse:
    """Ask for the company, then show its sign-in."""
    slug = request.GET.get("tenant", "").strip().lower()[:MAX_SLUG]
    slug = slug if is_storable(slug) else ""
    if slug and _issuers(slug):
        return HttpResponseRedirect(f"{reverse('sign-in-tenant', args=[slug])}?{urlencode({'next': _next(request)})}")
    problem = "No company sign-in is set up under this name." if slug else ""
    return _page(request, "sign_in/choose.html", title="Company sign-in", slug=slug, problem=problem)


@never_cache
@require_GET
def offer(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the issuers of a tenant."""
    found = _issuers(slug)
    if not found:
        return HttpResponseRedirect(f"{reverse('sign-in')}?{urlencode({'tenant': slug, 'next': _next(request)})}")
    page = _page(request, "sign_in/offer.html", title=found[0].tenant.name, issuers=found, slug=slug)
    # Browsers apply the policy to the redirects that answer the form: to the provider, and from there on.
    urls = [one.metadata_url if one.protocol == IssuerProtocol.SAML else one.issuer for one in found]
    here = [redirects.source_of(url) for url in urls if redirects.is_loopback(url)]
    csp_update({"form-action": ["https:", *here]})(lambda _request: page)(request)
    return page


@never_cache
@require_POST
def begin(request: HttpRequest, slug: str, issuer: Any) -> HttpResponse:
    """Send the person to an issuer."""
    if _is_too_often(request):
        return _failed(request, "Too many attempts. Wait a minute, then try again.", status=429)
    row = next((one for one in _issuers(slug) if one.pk == issuer), None)
    if row is None:
        return _failed(request, "This sign-in no longer exists. Ask an admin of your company.", status=404)
    if row.protocol == IssuerProtocol.SAML:
        return _begin_saml(request, row)
    try:
        pending = provider.begin(row, _callback(request, row))
    except provider.SignInFailed as problem:
        return _failed(request, str(problem), issuer=row)
    kept = {state: one for state, one in request.session.get(PENDING, {}).items() if one["until"] > time.time()}
    kept[pending.state] = {
        "issuer": str(row.pk),
        "nonce": pending.nonce,
        "verifier": pending.verifier,
        "next": _next(request),
        "until": time.time() + LIFETIME_SECONDS,
    }
    request.session[PENDING] = dict(list(kept.items())[-MAX_PENDING:])
    answer = HttpResponseRedirect(pending.url)
    answer.headers["Referrer-Policy"] = ORIGIN_ONLY
    return answer


@never_cache
@require_GET
@sensitive_variables()
def callback(request: HttpRequest, issuer: UUID) -> HttpResponse:
    """Log the person in whom the issuer sent back."""
    answer = _come_back(request, issuer)
    answer.headers["Referrer-Policy"] = ORIGIN_ONLY
    return answer


def _come_back(request: HttpRequest, issuer: UUID) -> HttpResponse:
    if _is_too_often(request):
        return _failed(request, "Too many attempts. Wait a minute, then try again.", status=429)
    kept = request.session.get(PENDING, {})
    pending = kept.pop(request.GET.get("state", ""), None)
    request.session[PENDING] = kept
    if pending is None or pending["until"] < time.time() or pending["issuer"] != str(issuer):
        return _failed(request, "This sign-in has expired, or began in another browser. Try again.", status=400)
    row = Issuer.objects.select_related("tenant").filter(pk=pending["issuer"], **_usable()).first()
    if row is None:
        return _failed(request, "This sign-in no longer exists. Ask an admin of your company.", status=404)
    if problem := _problem_of_answer(request, row):
        return _failed(request, problem, issuer=row)
    try:
        code = request.GET.get("code", "")[:MAX_CODE]
        found = provider.finish(row, code, pending["nonce"], pending["verifier"], _callback(request, row))
        with recording_as(Actor(None, Via.SIGN_IN, address_of(request), row.name)):
            identity = people.signed_in(row, found.claims or {}, found.refresh_token)
    except (provider.SignInFailed, people.NotAccepted) as problem:
        return _failed(request, str(problem), issuer=row)
    return _enter(request, row, identity.person, pending["next"])


def _begin_saml(request: HttpRequest, issuer: Issuer) -> HttpResponse:
    """Send the person to a SAML identity provider. A cookie that comes back with its answer keeps the request."""
    try:
        asked = saml.begin(issuer, _saml_place(request, issuer))
    except provider.SignInFailed as problem:
        return _failed(request, str(problem), issuer=issuer)
    kept = [*_saml_requests(request), [asked.request_id, str(issuer.pk), _next(request)[:MAX_NEXT]]]
    answer = HttpResponseRedirect(asked.url)
    # The answer is a form of another site, with which browsers send no other cookies. Those need HTTPS.
    answer.set_cookie(
        SAML_COOKIE,
        signing.dumps(kept[-MAX_PENDING:], salt=SAML_COOKIE),
        max_age=int(LIFETIME_SECONDS),
        path=SAML_PATH,
        secure=request.is_secure(),
        httponly=True,
        samesite="None" if request.is_secure() else "Lax",
    )
    answer.headers["Referrer-Policy"] = ORIGIN_ONLY
    return answer


@never_cache
@require_GET
def saml_metadata(request: HttpRequest, issuer: UUID) -> HttpResponse:
    """Return the hub's own SAML metadata for an issuer."""
    row = Issuer.objects.filter(pk=issuer, protocol=IssuerProtocol.SAML).first()
    if row is None:
        return _failed(request, "This sign-in does not exist.", status=404)
    return HttpResponse(saml.our_metadata(_saml_place(request, row)), content_type="application/samlmetadata+xml")


# The signature of the answer, and the request that it names, take the place of a token against forged forms.
@csrf_exempt
@never_cache
@require_POST
@sensitive_variables()
def saml_answer(request: HttpRequest, issuer: UUID) -> HttpResponse:
    """Log the person in about whom a SAML identity provider sent an answer."""
    answer = _take_saml(request, issuer)
    answer.headers["Referrer-Policy"] = ORIGIN_ONLY
    return answer


def _take_saml(request: HttpRequest, issuer: UUID) -> HttpResponse:
    if _is_too_often(request):
        return _failed(request, "Too many attempts. Wait a minute, then try again.", status=429)
    rows = Issuer.objects.select_related("tenant").filter(pk=issuer, protocol=IssuerProtocol.SAML, **_usable())
    row = rows.first()
    if row is None:
        return _failed(request, "This sign-in no longer exists. Ask an admin of your company.", status=404)
    known = {id: to for id, where, to in _saml_requests(request) if where == str(row.pk)}
    try:
        sent = saml.parsed(request.POST.get("SAMLResponse", ""))
        _check_asked(row, sent.request_id, known)
        claims = saml.finish(row, sent, _saml_place(request, row))
        with recording_as(Actor(None, Via.SIGN_IN, address_of(request), row.name)):
            identity = people.signed_in(row, claims)
    except (provider.SignInFailed, people.NotAccepted) as problem:
        return _failed(request, str(problem), issuer=row)
    entered = _enter(request, row, identity.person, known.get(sent.request_id, reverse("admin:index")))
    if end := validity.access_end(identity.person_id):
        request.session.set_expiry(end)
    return entered


def _check_asked(issuer: Issuer, request_id: str, known: Mapping[str, str]) -> None:
    """Raise SignInFailed unless this browser made the request, or an answer without one is allowed."""
    if request_id and request_id not in known:
        raise provider.SignInFailed("This sign-in has expired, or began in another browser. Try again.")
    if not request_id and not issuer.allows_unasked:
        raise provider.SignInFailed(
            f"Sign-in does not begin at {issuer.name}. Choose it on the sign-in page of {issuer.tenant.name} here."
        )


def _saml_requests(request: HttpRequest) -> list[list[str]]:
    """Return the requests of this browser: the ID of each, its issuer and where it leads."""
    try:
        found: list[list[str]] = signing.loads(
            request.COOKIES.get(SAML_COOKIE, ""), salt=SAML_COOKIE, max_age=int(LIFETIME_SECONDS)
        )
    except signing.BadSignature:
        return []
    return found


def _saml_place(request: HttpRequest, issuer: Issuer) -> saml.Place:
    names = ("sign-in-saml", "sign-in-saml-metadata")
    answer, entity = (request.build_absolute_uri(reverse(name, args=[issuer.pk])) for name in names)
    return saml.Place(answer, entity)


def _enter(request: HttpRequest, issuer: Issuer, person: User, to: str) -> HttpResponse:
    login(request, person, BACKEND)
    request.session[VOUCHED_BY] = str(issuer.tenant_id)
    _note(request, SignInStep.SIGNED_IN, issuer, person=person.get_username())
    return HttpResponseRedirect(to)


def _problem_of_answer(request: HttpRequest, issuer: Issuer) -> str:
    """Return what is wrong with the parameters of the answer; "" if nothing is."""
    if error := request.GET.get("error", ""):
        said = "".join(filter(str.isprintable, error[:100]))
        return "You did not sign in." if said == "access_denied" else f"{issuer.name} refused: {said}."
    # RFC 9207: the answer of another issuer that shares this callback.
    if request.GET.get("iss", issuer.issuer) != issuer.issuer:
        return "The answer is of another issuer. Try again."
    return "" if request.GET.get("code") else f"{issuer.name} sent no code. Try again."


def _usable() -> dict[str, Any]:
    return {"use": IssuerUse.PEOPLE, "is_active": True, "tenant__is_active": True}


def _issuers(slug: str) -> list[Issuer]:
    return list(Issuer.objects.filter(tenant__slug=slug, **_usable()).select_related("tenant").order_by("name"))


def _callback(request: HttpRequest, issuer: Issuer) -> str:
    return request.build_absolute_uri(reverse("sign-in-callback", args=[issuer.pk]))


def _next(request: HttpRequest) -> str:
    """Return the page of this hub that the person wanted."""
    wanted = request.POST.get("next", "") or request.GET.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure())
    return wanted if wanted and is_ours else reverse("admin:index")


def _is_too_often(request: HttpRequest) -> bool:
    key = rate_limit_key(address_of(request))
    place = ConcurrencyLimit("address", "sign-ins", MAX_REQUESTS, f"sign-in:{key}")
    return limits.hold_here([place], str(new_id()), SECONDS) is not None


def _failed(request: HttpRequest, text: str, *, issuer: Issuer | None = None, status: int = 403) -> HttpResponse:
    if issuer is not None:
        _note(request, SignInStep.REJECTED, issuer, reason=text)
    return _page(request, "sign_in/failed.html", status=status, title="Not signed in", text=text)


def _note(request: HttpRequest, step: SignInStep, issuer: Issuer, *, reason: str = "", person: str = "") -> None:
    SignInEvent.objects.create(
        step=step,
        reason=reason[:500],
        tenant=issuer.tenant,
        client_name=issuer.name,
        person_name=person,
        remote_address=address_of(request),
    )


def _page(request: HttpRequest, template: str, *, status: int = 200, **context: Any) -> HttpResponse:
    whole = {**site.each_context(request), "next": _next(request), **context}
    return TemplateResponse(request, template, whole, status=status)
