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

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.core.ids import new_id
from tools_app.identity.authorization import consent
from tools_app.identity.authorization.consent import TENANT_PARAMETER, AuthorizationRequest
from tools_app.identity.authorization.endpoints import USER_CODE
from tools_app.identity.oauth import attempts, connections, devices, resources
from tools_app.models import DeviceCode, SignInStep, Tenant
from tools_app.tenants.limits import limits
from tools_app.tenants.limits.quotas import ConcurrencyLimit
from tools_app.web.admin.site import site
from tools_app.web.middleware import ORIGIN_ONLY

# Of one person, with the steps of the form that carry the code along.
MAX_ATTEMPTS: Final = 20
WINDOW_SECONDS: Final = 60.0
UNKNOWN_CODE: Final = (
    "This code is unknown, was used, or has expired. Compare it with the device, or ask it for a new one."
)
EXPIRED_CODE: Final = "The code has expired meanwhile. Ask the device for a new one."


@never_cache
@login_required
@sensitive_post_parameters(USER_CODE)
@require_http_methods(["GET", "POST"])
def page(request: HttpRequest) -> HttpResponse:
    """Ask for the code, or answer what the person decides about the device that shows it."""
    assert isinstance(request.user, User)
    response = _code_form(request) if request.method == "GET" else _submit_code(request, request.user)
    # The code is in the URL if a link filled it in.
    response.headers["Referrer-Policy"] = ORIGIN_ONLY
    return response


def _code_form(request: HttpRequest, code: str = "", problem: str = "") -> HttpResponse:
    code = code or request.GET.get(USER_CODE, "")
    prefilled = devices.spelt(code) if devices.normalized(code) else ""
    context = {"title": "Connect a device", "code": prefilled, "problem": problem, "person": request.user}
    status = 400 if problem else 200
    return TemplateResponse(
        request, "identity/authorization/device.html", {**site.each_context(request), **context}, status=status
    )


def _submit_code(request: HttpRequest, person: User) -> HttpResponse:
    limit = ConcurrencyLimit("person", "codes", MAX_ATTEMPTS, f"oauth:codes:{person.pk}")
    if limits.acquire_blocking([limit], str(new_id()), WINDOW_SECONDS) is not None:
        return consent.message_page(request, "Too many attempts", "Wait a minute, then try again.", status=429)
    code = request.POST.get(USER_CODE, "")
    row = devices.find_open(code)
    if row is None:
        attempts.record(request, SignInStep.REJECTED, "The code of a device is unknown or has expired.")
        return _code_form(request, code, UNKNOWN_CODE)
    auth_request = AuthorizationRequest(
        client=row.client,
        redirect_uri=devices.REDIRECT,
        scope=row.scope,
        resource=resources.Resource(row.tenant_slug or None),
        user_code=devices.spelt(code),
    )
    match consent.tenant_of(request, person, auth_request, request.POST.get(TENANT_PARAMETER, "")):
        case HttpResponse() as page:
            return page
        case Tenant() as tenant:
            return _consent(request, person, tenant, auth_request, row)
        case tenants:
            title = f"Which tools should {auth_request.client.name} use?"
            context = {"title": title, "tenants": tenants, "user_code": auth_request.user_code}
            context = {**site.each_context(request), **context}
            return TemplateResponse(request, "identity/authorization/device_tenants.html", context)


def _consent(
    request: HttpRequest, person: User, tenant: Tenant, auth_request: AuthorizationRequest, row: DeviceCode
) -> HttpResponse:
    auth_request = consent.with_granted_scope(tenant, auth_request)
    if page := consent.policy_refusal(request, tenant, auth_request):
        return page
    existing = connections.find(tenant, person, auth_request.client)
    match request.POST.get("decision"):
        case "allow":
            return _allow(request, person, tenant, auth_request, row)
        case "deny":
            if devices.refuse(row):
                attempts.record(request, SignInStep.DENIED, client=auth_request.client, tenant=tenant)
            return consent.message_page(request, "Refused", f"{auth_request.client.name} was not connected.")
    consent.record_consent_request(request, tenant, auth_request)
    return consent.page(request, person, tenant, auth_request, existing)


def _allow(
    request: HttpRequest, person: User, tenant: Tenant, auth_request: AuthorizationRequest, row: DeviceCode
) -> HttpResponse:
    existing = connections.find(tenant, person, auth_request.client)
    with change_log_transaction():
        connection = consent.allow(request, person, tenant, auth_request, existing)
        if isinstance(connection, HttpResponse):
            return connection
        if devices.allow(row, connection, auth_request.scope):
            return consent.message_page(
                request, "Connected", f"{auth_request.client.name} is connected. Go back to the device."
            )
        # Somebody else decided, or it expired meanwhile: nothing is allowed.
        transaction.set_rollback(True)
    return _code_form(request, problem=EXPIRED_CODE)
