"""The sidebar of the admin: groups of links."""

from typing import TypedDict

from django.http import HttpRequest
from django.urls import reverse

from tools_app.tenants.permissions import tenant_permissions_of


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
    audits = permitted.everything or bool(permitted.audited)
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
                *([link("Users", "admin:auth_user_changelist", "person")] if permitted.everything else []),
            ],
        },
        {
            "title": "Scripts",
            "items": [_list("My tokens", "personaltoken", "vpn_key"), link("REST API", "api-docs", "api")],
        },
        {"title": "Help", "items": [link("Documentation", "docs", "menu_book")]},
    ]
    _mark_open(groups, request.path)
    return groups


def link(title: str, view: str, icon: str = "", *args: str, active: bool = False) -> Link:
    """Return a link to a view, by its name and arguments."""
    return {"title": title, "link": reverse(view, args=args), "icon": icon, "active": active}


def _list(title: str, model: str, icon: str) -> Link:
    return link(title, f"admin:tools_app_{model}_changelist", icon)


def _mark_open(groups: list[Group], path: str) -> None:
    """Mark the link to the page at `path`: the overview is open only on its own, a list also on its rows' pages."""
    overview = groups[0]["items"][0]
    overview["active"] = path == overview["link"]
    for group in groups[1:]:
        for each in group["items"]:
            each["active"] = path.startswith(each["link"])
