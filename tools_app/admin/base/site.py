"""The admin site: its pages and permissions, the sidebar, and the assets of each page."""

from functools import partial
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.templatetags.static import static
from django.urls import reverse
from django.utils.functional import SimpleLazyObject
from unfold.sites import UnfoldAdminSite

from tools_app.admin.audit import retention, verification
from tools_app.admin.base import login, search
from tools_app.admin.base.permissions import tenant_permissions_of
from tools_app.admin.calls import failures, live_tail
from tools_app.admin.catalog import searches
from tools_app.admin.dashboard import dashboard, health
from tools_app.admin.documentation.pieces import piece_of
from tools_app.admin.keys import connect
from tools_app.admin.playground import playground


class HubAdminSite(UnfoldAdminSite):
    """The admin site of the hub."""

    site_title = site_header = "mcphub"
    index_title = "Overview"
    password_change_template = "admin/tools_app/password_change.html"  # noqa: S105

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        """Return the context of every page. Colours are emptied because they are loaded from a stylesheet."""
        return {**super().each_context(request), "colors": {}, "documentation": piece_of(request)}

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> Any:
        """Return the models by app, found only by a page that lists them: the sidebar has its own links."""
        return SimpleLazyObject(partial(super().get_app_list, request, app_label))

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


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the groups of links for the user of `request`, in unfold's format."""
    people = [
        _item("Members", "group", "tools_app_membership"),
        _item("Invitations", "mail", "tools_app_invitation"),
        _item("Tenants", "domain", "tools_app_tenant"),
    ]
    if tenant_permissions_of(request).everything:
        people.append(_item("Users", "person", "auth_user"))
    playground = [_link("Playground", "play_circle", reverse("admin:playground"))]
    retention = [_link("Retention", "auto_delete", reverse("admin:retention"))]
    if not tenant_permissions_of(request).is_admin_anywhere:
        playground, retention = [], []
    permitted = tenant_permissions_of(request)
    audits = permitted.everything or bool(permitted.audited)
    searched = [_link("Searches", "manage_search", reverse("admin:searches"))] if audits else []
    return [
        _group("", [_link("Overview", "dashboard", reverse("admin:index"))]),
        _group("Connect", [*_connecting(request), *playground]),
        _group(
            "Catalog",
            [
                _item("Tools", "build", "tools_app_tool"),
                _item("Toolsets", "checklist", "tools_app_toolset"),
                _item("API sources", "hub", "tools_app_apisource"),
                _item("Resources", "description", "tools_app_resource"),
                _item("Prompts", "chat", "tools_app_prompt"),
                _item("Upstreams", "hub", "tools_app_upstream"),
                _item("Secrets", "lock", "tools_app_secret"),
            ],
        ),
        _group(
            "Audit",
            [
                _item("Calls", "receipt_long", "tools_app_call"),
                _link("Failures", "error", reverse("admin:failures")),
                *searched,
                _link("Live", "stream", reverse("admin:live_tail")),
                _item("Running now", "pending", "tools_app_runningcall"),
                _item("Sessions", "link", "tools_app_session"),
                _item("Changes", "history", "tools_app_change"),
                _link("Evidence", "verified_user", reverse("admin:evidence")),
                *retention,
            ],
        ),
        _group(
            "Alerts",
            [
                _item("Rules", "notifications", "tools_app_alertrule"),
                _item("Destinations", "outgoing_mail", "tools_app_alertdestination"),
                _item("Fired", "notifications_active", "tools_app_alert"),
                _item("Deliveries", "send", "tools_app_alertdelivery"),
            ],
        ),
        _group("People", people),
        _group(
            "Scripts",
            [
                _item("My tokens", "vpn_key", "tools_app_personaltoken"),
                _link("REST API", "api", reverse("api-docs")),
            ],
        ),
        _group("Help", [_link("Documentation", "menu_book", reverse("docs"))]),
    ]


def _connecting(request: HttpRequest) -> list[dict[str, Any]]:
    items = [
        _item("Keys", "key", "tools_app_apikey"),
        _item("Connections", "cable", "tools_app_connection"),
        _item("Service clients", "smart_toy", "tools_app_serviceclient"),
        _item("Sign-ins", "login", "tools_app_signinevent"),
        _item("Client policies", "policy", "tools_app_clientpolicy"),
        _item("Issuers", "badge", "tools_app_issuer"),
        _item("Scopes", "key_vertical", "tools_app_tenantscope"),
    ]
    if tenant_permissions_of(request).is_admin_anywhere:
        items.append(_item("Clients", "apps", "tools_app_oauthclient"))
    return items


def _group(title: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"title": title, "separator": bool(title), "items": items}


def _item(title: str, icon: str, page: str) -> dict[str, Any]:
    return _link(title, icon, reverse(f"admin:{page}_changelist"))


def _link(title: str, icon: str, link: str) -> dict[str, Any]:
    return {"title": title, "icon": icon, "link": link}


def colors(_request: HttpRequest) -> str:
    """Return the stylesheet of unfold's colours. Unfold inlines them, which the Content-Security-Policy blocks."""
    return static("tools_app/colors.css")


def favicon(_request: HttpRequest) -> str:
    """Return the favicon."""
    return static("tools_app/favicon.svg")


def style(_request: HttpRequest) -> str:
    """Return the stylesheet that corrects unfold's styles."""
    return static("tools_app/admin.css")


def zone_script(_request: HttpRequest) -> str:
    """Return the script that sends the browser's time zone. Loaded on every page, including the login page."""
    return static("tools_app/zone.js")


def htmx_script(_request: HttpRequest) -> str:
    """Return the script that configures htmx for the Content-Security-Policy."""
    return static("tools_app/htmx_config.js")


def times_script(_request: HttpRequest) -> str:
    """Return the script that keeps relative times fresh."""
    return static("tools_app/times.js")


def drafts_script(_request: HttpRequest) -> str:
    """Return the script that keeps a form over a login that ran out. Loaded on the login page, too."""
    return static("tools_app/drafts.js")
