"""The web admin: each module registers the pages of one aggregate on `site.site`."""

from tools_app.alerts.admin import destinations, log, rules
from tools_app.audit.admin import changes
from tools_app.calls.admin import calls, running, sessions
from tools_app.catalog.admin import prompts, resources, secrets, tools, toolsets
from tools_app.catalog.kinds.openapi.admin import api_sources
from tools_app.identity.admin import clients, connections, issuers, policies, service_clients, sign_ins
from tools_app.identity.admin import personal_tokens as api_tokens
from tools_app.tenants.admin import invitations, keys, tenants, users
from tools_app.upstreams.admin import upstreams

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
