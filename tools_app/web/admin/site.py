"""The admin site: its pages and permissions, and the assets of each page."""

from functools import partial
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.templatetags.static import static
from django.urls import reverse
from django.utils.functional import SimpleLazyObject
from unfold.sites import UnfoldAdminSite

from tools_app.audit.admin import retention, verification
from tools_app.calls.admin import failures, live_tail
from tools_app.catalog.admin import searches
from tools_app.tenants.admin import connect
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin import login, search
from tools_app.web.admin.sidebar import Group, sidebar
from tools_app.web.dashboard import dashboard, health
from tools_app.web.documentation.admin.pieces import piece_of
from tools_app.web.playground import playground


class HubAdminSite(UnfoldAdminSite):
    """The admin site of the hub."""

    site_title = site_header = "mcphub"
    index_title = "Overview"
    password_change_template = "web/password_change.html"  # noqa: S105

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        """Return the context of every page. Colours are emptied because they are loaded from a stylesheet."""
        return {
            **super().each_context(request),
            "colors": {},
            "documentation": piece_of(request),
            "runs_any": tenant_permissions_of(request).is_admin_anywhere,
        }

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> Any:
        """Return the models by app, found only by a page that lists them: the sidebar has its own links."""
        return SimpleLazyObject(partial(super().get_app_list, request, app_label))

    def get_sidebar_list(self, request: HttpRequest) -> list[Group]:
        """Return the groups of links of the sidebar. Unfold would copy them, and look each link up in its settings."""
        return sidebar(request)

    def has_permission(self, request: HttpRequest) -> bool:
        """Return whether this user may open any page."""
        return tenant_permissions_of(request).enters

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        """Log in with a password, then with the second factor of the account if it has one."""
        if request.method == "GET" and self.has_permission(request):
            return HttpResponseRedirect(reverse("admin:index"))
        request.current_app = self.name
        return login.login_page(request, {**self.each_context(request), **(extra_context or {})})

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the overview: the state of the user's tenants and the next steps."""
        page: HttpResponse = super().index(request, {**dashboard.context_of(request), **(extra_context or {})})
        return page

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Change the user's own password and record the change, atomically."""
        with transaction.atomic():
            page: HttpResponse = super().password_change(request, extra_context)
            return page

    def search(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Return what the user may see of a name or id. Unfold's own search keeps results for minutes."""
        return search.answer(self, request, sidebar(request))

    def get_urls(self) -> list[Any]:
        """Return the pages of the models and those that belong to no model."""
        return [
            *verification.urls(self),
            *retention.urls(self),
            *health.urls(self),
            *connect.urls(self),
            *playground.urls(self),
            *live_tail.urls(self),
            *failures.urls(self),
            *searches.urls(self),
            *super().get_urls(),
        ]


site = HubAdminSite()


def colors(_request: HttpRequest) -> str:
    """Return the stylesheet of unfold's colours. Unfold inlines them, which the Content-Security-Policy blocks."""
    return static("tools_app/web/colors.css")


def favicon(_request: HttpRequest) -> str:
    """Return the favicon."""
    return static("tools_app/web/favicon.svg")


def style(_request: HttpRequest) -> str:
    """Return the stylesheet that corrects unfold's styles."""
    return static("tools_app/web/admin.css")


def zone_script(_request: HttpRequest) -> str:
    """Return the script that sends the browser's time zone. Loaded on every page, including the login page."""
    return static("tools_app/web/zone.js")


def htmx_script(_request: HttpRequest) -> str:
    """Return the script that configures htmx for the Content-Security-Policy."""
    return static("tools_app/web/htmx_config.js")


def times_script(_request: HttpRequest) -> str:
    """Return the script that keeps relative times fresh."""
    return static("tools_app/web/times.js")


def drafts_script(_request: HttpRequest) -> str:
    """Return the script that keeps a form over a login that ran out. Loaded on the login page, too."""
    return static("tools_app/web/drafts.js")
