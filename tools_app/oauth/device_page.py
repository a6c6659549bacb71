"""The page on which a person connects a device: they type the code that it shows, then allow or refuse its request.

A link may fill in the code, and does nothing else: its sender could have started the request.
"""

from typing import Final

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from tools_app.access.limits import limits
from tools_app.access.limits.quotas import ConcurrencyLimit
from tools_app.access.oauth import connections, devices, resources
from tools_app.admin.base.response_headers import ORIGIN_ONLY
from tools_app.admin.base.site import site
from tools_app.models import DeviceCode, SignInStep, Tenant
from tools_app.models.ids import new_id
from tools_app.oauth import consent, events
from tools_app.oauth.consent import TENANT, Asked
from tools_app.oauth.devices import USER_CODE

# Of one person, with the steps of the form that carry the code along.
MAX_ATTEMPTS: Final = 20
MINUTE: Final = 60.0
WRONG: Final = "This code is unknown, was used, or has expired. Compare it with the device, or ask it for a new one."
EXPIRED: Final = "The code has expired meanwhile. Ask the device for a new one."


@never_cache
@login_required
@sensitive_post_parameters(USER_CODE)
@require_http_methods(["GET", "POST"])
def page(request: HttpRequest) -> HttpResponse:
    """Ask for the code, or answer what the person decides about the device that shows it."""
    assert isinstance(request.user, User)
    answer = _code_form(request) if request.method == "GET" else _answer(request, request.user)
    # The code is in the URL if a link filled it in.
    answer.headers["Referrer-Policy"] = ORIGIN_ONLY
    return answer


def _code_form(request: HttpRequest, code: str = "", problem: str = "") -> HttpResponse:
    code = code or request.GET.get(USER_CODE, "")
    filled = devices.spelt(code) if devices.normalized(code) else ""
    context = {"title": "Connect a device", "code": filled, "problem": problem, "person": request.user}
    status = 400 if problem else 200
    return TemplateResponse(request, "oauth/device.html", {**site.each_context(request), **context}, status=status)


def _answer(request: HttpRequest, person: User) -> HttpResponse:
    if _is_too_often(person):
        return consent.said(request, "Too many attempts", "Wait a minute, then try again.", status=429)
    code = request.POST.get(USER_CODE, "")
    row = devices.find_open(code)
    if row is None:
        events.note(request, SignInStep.REJECTED, "The code of a device is unknown or has expired.")
        return _code_form(request, code, WRONG)
    asked = Asked(
        client=row.client,
        redirect_uri=devices.REDIRECT,
        scope=row.scope,
        resource=resources.Resource(row.tenant_slug or None),
        user_code=devices.spelt(code),
    )
    match consent.tenant_of(request, person, asked, request.POST.get(TENANT, "")):
        case HttpResponse() as said:
            return said
        case Tenant() as tenant:
            return _consent(request, person, tenant, asked, row)
        case several:
            return _choice(request, several, asked)


def _choice(request: HttpRequest, several: list[Tenant], asked: Asked) -> HttpResponse:
    title = f"Which tools should {asked.client.name} use?"
    context = {"title": title, "several": several, "user_code": asked.user_code}
    return TemplateResponse(request, "oauth/device_tenants.html", {**site.each_context(request), **context})


def _consent(request: HttpRequest, person: User, tenant: Tenant, asked: Asked, row: DeviceCode) -> HttpResponse:
    asked = consent.asked_of(tenant, asked)
    if page := consent.not_allowed(request, tenant, asked):
        return page
    known = connections.find(tenant, person, asked.client)
    match request.POST.get("decision"):
        case "allow":
            return _allowed(request, person, tenant, asked, row)
        case "deny":
            return _refused(request, tenant, asked, row)
    consent.note_asked(request, tenant, asked)
    return consent.page(request, person, tenant, asked, known)


def _allowed(request: HttpRequest, person: User, tenant: Tenant, asked: Asked, row: DeviceCode) -> HttpResponse:
    known = connections.find(tenant, person, asked.client)
    with transaction.atomic():
        connection = consent.allowed(request, person, tenant, asked, known)
        if isinstance(connection, HttpResponse):
            return connection
        if devices.allow(row, connection, asked.scope):
            return consent.said(request, "Connected", f"{asked.client.name} is connected. Go back to the device.")
        # Somebody else decided, or it expired meanwhile: nothing is allowed.
        transaction.set_rollback(True)
    return _code_form(request, problem=EXPIRED)


def _refused(request: HttpRequest, tenant: Tenant, asked: Asked, row: DeviceCode) -> HttpResponse:
    if devices.refuse(row):
        events.note(request, SignInStep.DENIED, client=asked.client, tenant=tenant)
    return consent.said(request, "Refused", f"{asked.client.name} was not connected.")


def _is_too_often(person: User) -> bool:
    place = ConcurrencyLimit("person", "codes", MAX_ATTEMPTS, f"oauth:codes:{person.pk}")
    return limits.hold_here([place], str(new_id()), MINUTE) is not None
