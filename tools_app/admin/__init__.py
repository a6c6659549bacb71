"""The web admin: each module registers the pages of one aggregate on `site.site`."""

from tools_app.admin.audit import changes
from tools_app.admin.calls import calls, running, sessions
from tools_app.admin.catalog import api_sources, prompts, resources, secrets, tools, toolsets, upstreams
from tools_app.admin.connections import clients, connections, issuers, policies, scopes, service_clients, sign_ins
from tools_app.admin.keys import api_tokens, keys
from tools_app.admin.people import invitations, tenants, users
from tools_app.alerts.admin import destinations, log, rules

__all__ = [
    "api_sources",
    "api_tokens",
    "calls",
    "changes",
    "clients",
    "connections",
    "destinations",
    "invitations",
    "issuers",
    "keys",
    "log",
    "policies",
    "prompts",
    "resources",
    "rules",
    "running",
    "scopes",
    "secrets",
    "service_clients",
    "sessions",
    "sign_ins",
    "tenants",
    "tools",
    "toolsets",
    "upstreams",
    "users",
]
