"""The second factor that tenants require: without one, a person can open nothing but the page that sets it up."""

from collections.abc import Callable
from typing import Any, Final

from allauth.mfa.utils import is_mfa_enabled
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from tools_app.access.permissions import MAX_NAMED
from tools_app.admin.base.permissions import tenant_permissions_of
from tools_app.admin.base.site import site

# What somebody needs to set a factor up or to leave, and what is no page of the hub.
ACCOUNT: Final = "/account/"
OPEN: Final = (ACCOUNT, "/admin/logout/", "/admin/login/", "/sign-in/", "/static/", "/docs/")
API: Final = "/api/"
# In the session of somebody whose company vouches for them: the ID of its tenant.
VOUCHED_BY: Final = "vouched_by"
Answer = Callable[[HttpRequest], HttpResponse]


class RequiredFactor:
    """Middleware that sends people without a required factor to where they set it up."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer a request, or say what its person needs first."""
        if request.path_info.startswith(OPEN):
            return self._answer(request)
        person: Any = request.user
        names = _required(request)
        if not names or is_mfa_enabled(person):
            return self._answer(request)
        return _refused(
            request, f"{' and '.join(names[:MAX_NAMED])} requires a second factor: an app or a security key."
        )

    def process_template_response(self, request: HttpRequest, response: TemplateResponse) -> TemplateResponse:
        """Give allauth's pages what the hub's layout needs."""
        if request.path_info.startswith(ACCOUNT):
            response.context_data = {**site.each_context(request), **(response.context_data or {})}
        return response


def _refused(request: HttpRequest, needs: str) -> HttpResponse:
    if not request.path_info.startswith(API):
        messages.warning(request, f"{needs} Set one up to go on.")
        return HttpResponseRedirect(reverse("mfa_index"))
    problem = {
        "type": "urn:mcphub:problem:forbidden",
        "title": "Second factor required",
        "status": 403,
        "detail": f"{needs} Set one up in the admin.",
    }
    return JsonResponse(problem, status=403, content_type="application/problem+json")


def _required(request: HttpRequest) -> list[str]:
    """Return the names of tenants that require a factor of this person: not the one whose issuer vouches for them."""
    if not (request.COOKIES and request.user.is_authenticated):
        return []
    permitted = tenant_permissions_of(request)
    vouching = request.session.get(VOUCHED_BY)
    if permitted.everything or not vouching:
        return permitted.requiring_second_factor
    return [role.name for role in permitted.roles if role.requires_second_factor and str(role.id) != vouching]
