"""The admin site: its pages, sidebar and permissions, and the assets of each page."""

from functools import partial
from typing import Any, TypedDict

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
from tools_app.web.dashboard import dashboard, health
from tools_app.web.documentation.links import link_for
from tools_app.web.playground import playground


class Link(TypedDict):
    """A link; `icon` is the name of a Material symbol, or empty. `active`: it leads to the page that is open."""

    title: str
    link: str
    icon: str
    active: bool


class Group(TypedDict):
    """Links under a title, which may be empty."""

    title: str
    items: list[Link]


def sidebar(request: HttpRequest) -> list[Group]:
    """Return the groups of links for the user of `request`."""
    permitted = tenant_permissions_of(request)
    audits = permitted.is_superuser or bool(permitted.audited)
    groups: list[Group] = [
        {"title": "", "items": [link("Overview", "admin:index", "dashboard")]},
        {
            "title": "Connect",
            "items": [
                _list("Keys", "apikey", "key"),
                _list("Connections", "connection", "cable"),
                _list("Service clients", "serviceclient", "smart_toy"),
                _list("Sign-ins", "signinevent", "login"),
                _list("Client policies", "clientpolicy", "policy"),
                _list("Issuers", "issuer", "badge"),
                _list("Scopes", "tenantscope", "key_vertical"),
                *([_list("Clients", "oauthclient", "apps")] if permitted.is_admin_anywhere else []),
                *([link("Playground", "admin:playground", "play_circle")] if permitted.is_admin_anywhere else []),
            ],
        },
        {
            "title": "Catalog",
            "items": [
                _list("Tools", "tool", "build"),
                _list("Toolsets", "toolset", "checklist"),
                _list("API sources", "apisource", "hub"),
                _list("Resources", "resource", "description"),
                _list("Prompts", "prompt", "chat"),
                _list("Upstreams", "upstream", "dns"),
                _list("Secrets", "secret", "lock"),
            ],
        },
        {
            "title": "Audit",
            "items": [
                _list("Calls", "call", "receipt_long"),
                link("Failures", "admin:failures", "error"),
                *([link("Searches", "admin:searches", "manage_search")] if audits else []),
                link("Live", "admin:live_tail", "stream"),
                _list("Running now", "runningcall", "pending"),
                _list("Sessions", "session", "link"),
                _list("Changes", "change", "history"),
                link("Evidence", "admin:evidence", "verified_user"),
                *([link("Retention", "admin:retention", "auto_delete")] if permitted.is_admin_anywhere else []),
            ],
        },
        {
            "title": "Alerts",
            "items": [
                _list("Rules", "alertrule", "notifications"),
                _list("Destinations", "alertdestination", "outgoing_mail"),
                _list("Fired", "alert", "notifications_active"),
                _list("Deliveries", "alertdelivery", "send"),
            ],
        },
        {
            "title": "People",
            "items": [
                _list("Members", "membership", "group"),
                _list("Invitations", "invitation", "mail"),
                _list("Tenants", "tenant", "domain"),
                *([link("Users", "admin:auth_user_changelist", "person")] if permitted.is_superuser else []),
            ],
        },
        {
            "title": "Scripts",
            "items": [_list("My tokens", "personaltoken", "vpn_key"), link("REST API", "api-docs", "api")],
        },
        {"title": "Help", "items": [link("Documentation", "docs", "menu_book")]},
    ]
    overview = groups[0]["items"][0]
    overview["active"] = request.path == overview["link"]
    # A list is open on its rows' pages, too.
    for group in groups[1:]:
        for each in group["items"]:
            each["active"] = request.path.startswith(each["link"])
    return groups


def link(title: str, view: str, icon: str = "", *args: str, active: bool = False) -> Link:
    """Return a link to a view, by its name and arguments."""
    return {"title": title, "link": reverse(view, args=args), "icon": icon, "active": active}


def _list(title: str, model: str, icon: str) -> Link:
    return link(title, f"admin:tools_app_{model}_changelist", icon)


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
            "documentation": link_for(request),
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
        return tenant_permissions_of(request).has_access

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
