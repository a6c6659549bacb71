"""The pages of errors: what happened, and whom to ask. The REST API answers with problem details instead.

A page that does not exist and one of another tenant are told with the same words.
"""

from typing import Any, Final, NamedTuple

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from tools_app.tenants import members
from tools_app.web.admin.site import colors, favicon, htmx_script, site, style, zone_script
from tools_app.web.documentation.links import link_to

TEMPLATE: Final = "web/error.html"
WITH_SIDEBAR: Final = "admin/base_site.html"
ALONE: Final = "unfold/layouts/unauthenticated.html"

ASK_OPERATOR: Final = "the person who operates this hub"


class ErrorText(NamedTuple):
    """The title and the text of a page, and the documentation about it, for those who may read that."""

    title: str
    text: str
    about: str = ""


BAD_REQUEST: Final = ErrorText(
    "The request is invalid",
    "Open the page again from its link. If that does not help, the hub may not accept the host name in the address: see"
    " MCPHUB_ALLOWED_HOSTS.",
)
FORBIDDEN: Final = ErrorText("Not permitted", "Your role does not include this page or this action.", "people#roles")
NOT_FOUND: Final = ErrorText(
    "Page not found",
    "It does not exist, it was deleted, or it belongs to a tenant of which you are not a member.",
    "people#roles",
)
BROKEN: Final = ErrorText(
    "Internal error",
    "The hub failed to answer. Try again in a moment. If it fails again, the log of the hub has the cause.",
)
NOT_CONFIRMED: Final = ErrorText(
    "The form expired",
    "Nothing was saved. You logged in or out in another window since you opened the form, or your browser blocks the"
    " cookies of the hub. Open the page again and send the form again.",
    "settings#http-and-proxies",
)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001
    """Answer 400, without looking at the request: its host or its user may be what is wrong."""
    return _alone(BAD_REQUEST, 400)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001
    """Answer 403."""
    return _page(request, FORBIDDEN, 403)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001
    """Answer 404."""
    return _page(request, NOT_FOUND, 404)


def server_error(_request: HttpRequest) -> HttpResponse:
    """Answer 500, without the database: it may be what failed."""
    return _alone(BROKEN, 500)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:  # noqa: ARG001
    """Answer 403 to a form whose token is missing or wrong."""
    return _page(request, NOT_CONFIRMED, 403, again=request.get_full_path())


def _page(request: HttpRequest, explained: ErrorText, status: int, **more: Any) -> HttpResponse:
    """Return a page with the sidebar for members, and one without for everybody else."""
    context = {"title": explained.title, "text": explained.text, "status": status, "layout": ALONE, **more}
    if hasattr(request, "user") and site.has_permission(request):
        context |= {**site.each_context(request), "layout": WITH_SIDEBAR, "about": link_to(explained.about)}
    else:
        context |= _assets()
    person = getattr(request, "user", None)
    asked = members.admins_to_ask(person) if isinstance(person, User) and not person.is_superuser else []
    contacts = [
        f"{', '.join(names)} ({'admin' if len(names) == 1 else 'admins'} of {tenant})" for tenant, names in asked
    ]
    context["contacts"] = contacts or [ASK_OPERATOR]
    return HttpResponse(render_to_string(TEMPLATE, context, request), status=status)


def _alone(explained: ErrorText, status: int) -> HttpResponse:
    context = {
        "title": explained.title,
        "text": explained.text,
        "status": status,
        "layout": ALONE,
        "contacts": [ASK_OPERATOR],
        **_assets(),
    }
    return HttpResponse(render_to_string(TEMPLATE, context), status=status)


def _assets() -> dict[str, Any]:
    """Return what the page of somebody unknown needs; unfold's context would read the user."""
    request = HttpRequest()
    return {
        "site_title": site.site_title,
        "styles": [colors(request), style(request)],
        "scripts": [zone_script(request), htmx_script(request)],
        "site_favicons": [{"rel": "icon", "type": "image/svg+xml", "href": favicon(request)}],
    }
