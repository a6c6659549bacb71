"""The second factor that tenants require: without one, a person can open nothing but the page that sets it up."""

from collections.abc import Callable
from typing import Any, Final

from allauth.mfa.utils import is_mfa_enabled
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from tools_app.tenants.permissions import MAX_NAMED, tenant_permissions_of
from tools_app.web.admin.site import site

# What somebody needs to set a factor up or to leave, and what is no page of the hub.
ACCOUNT_PATH: Final = "/account/"
EXEMPT_PATHS: Final = (ACCOUNT_PATH, "/admin/logout/", "/admin/login/", "/sign-in/", "/static/", "/docs/")
API_PATH: Final = "/api/"
# In the session of a person who signed in with a company: the ID of its tenant.
# Sessions of landed versions have it under this name.
ISSUER_TENANT_KEY: Final = "vouched_by"
# Also there: the page on which somebody was asked for a factor, such as that of an application that waits for consent.
NEXT_PAGE_KEY: Final = "next_page"
MAX_NEXT_PAGE: Final = 8000
GetResponse = Callable[[HttpRequest], HttpResponse]


class RequiredFactor:
    """Middleware that sends people without a required factor to where they set it up."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer a request, or say what its person needs first."""
        if request.path_info.startswith(EXEMPT_PATHS):
            return self._get_response(request)
        person: Any = request.user
        tenants = _tenants_requiring_factor(request)
        if not tenants:
            return self._get_response(request)
        if is_mfa_enabled(person):
            if NEXT_PAGE_KEY in request.session:
                del request.session[NEXT_PAGE_KEY]
            return self._get_response(request)
        return _refusal(
            request, f"{' and '.join(tenants[:MAX_NAMED])} requires a second factor: an app or a security key."
        )

    def process_template_response(self, request: HttpRequest, response: TemplateResponse) -> TemplateResponse:
        """Give allauth's pages what the hub's layout needs."""
        if request.path_info.startswith(ACCOUNT_PATH):
            next_page = request.session.get(NEXT_PAGE_KEY, "") if is_mfa_enabled(request.user) else ""
            response.context_data = {
                **site.each_context(request),
                "next_page": next_page,
                **(response.context_data or {}),
            }
        return response


def _refusal(request: HttpRequest, requirement: str) -> HttpResponse:
    if not request.path_info.startswith(API_PATH):
        next_page = request.get_full_path()
        if request.method == "GET" and len(next_page) <= MAX_NEXT_PAGE:
            request.session[NEXT_PAGE_KEY] = next_page
        messages.warning(request, f"{requirement} Set one up to go on.")
        return HttpResponseRedirect(reverse("mfa_index"))
    problem = {
        "type": "urn:mcphub:problem:forbidden",
        "title": "Second factor required",
        "status": 403,
        "detail": f"{requirement} Set one up in the admin.",
    }
    return JsonResponse(problem, status=403, content_type="application/problem+json")


def _tenants_requiring_factor(request: HttpRequest) -> list[str]:
    """Return the names of tenants that require a factor of this person, but for that of the issuer of the login."""
    if not (request.COOKIES and request.user.is_authenticated):
        return []
    permitted = tenant_permissions_of(request)
    issuer_tenant = request.session.get(ISSUER_TENANT_KEY)
    if permitted.is_superuser or not issuer_tenant:
        return permitted.requiring_second_factor
    return [role.name for role in permitted.roles if role.requires_second_factor and str(role.id) != issuer_tenant]
