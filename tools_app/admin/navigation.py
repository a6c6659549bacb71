"""The sidebar: what a person finds in the admin, grouped by what it is for."""

from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from tools_app.admin.reach import reach_of


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    """The groups of links for the person behind `request`, in unfold's form."""
    people = [
        _item("Members", "group", "tools_app_membership"),
        _item("Invitations", "mail", "tools_app_invitation"),
        _item("Tenants", "domain", "tools_app_tenant"),
    ]
    if reach_of(request).everything:
        people.append(_item("Users", "person", "auth_user"))
    playground = [_link("Playground", "play_circle", reverse("admin:playground"))]
    retention = [_link("Retention", "auto_delete", reverse("admin:retention"))]
    if not reach_of(request).runs_any:
        playground, retention = [], []
    return [
        _group("", [_link("Overview", "dashboard", reverse("admin:index"))]),
        _group("Connect", [_item("Keys", "key", "tools_app_apikey"), *playground]),
        _group(
            "Catalog",
            [
                _item("Tools", "build", "tools_app_tool"),
                _item("Resources", "description", "tools_app_resource"),
                _item("Prompts", "chat", "tools_app_prompt"),
                _item("Secrets", "lock", "tools_app_secret"),
            ],
        ),
        _group(
            "Audit",
            [
                _item("Calls", "receipt_long", "tools_app_call"),
                _link("Live", "stream", reverse("admin:live_tail")),
                _item("Running now", "pending", "tools_app_runningcall"),
                _item("Sessions", "link", "tools_app_session"),
                _item("Changes", "history", "tools_app_change"),
                _link("Evidence", "verified_user", reverse("admin:evidence")),
                *retention,
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
    ]


def _group(title: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"title": title, "separator": bool(title), "items": items}


def _item(title: str, icon: str, page: str) -> dict[str, Any]:
    return _link(title, icon, reverse(f"admin:{page}_changelist"))


def _link(title: str, icon: str, link: str) -> dict[str, Any]:
    return {"title": title, "icon": icon, "link": link}
