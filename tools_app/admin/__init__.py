"""The web admin: each module registers the pages of one aggregate on `site.site`."""

from tools_app.admin.alerts import destinations, log, rules
from tools_app.admin.audit import changes
from tools_app.admin.calls import calls, running, sessions
from tools_app.admin.catalog import prompts, resources, secrets, tools
from tools_app.admin.connections import clients, connections, policies, sign_ins
from tools_app.admin.keys import api_tokens, keys
from tools_app.admin.people import invitations, tenants, users

__all__ = [
    "api_tokens",
    "calls",
    "changes",
    "clients",
    "connections",
    "destinations",
    "invitations",
    "keys",
    "log",
    "policies",
    "prompts",
    "resources",
    "rules",
    "running",
    "secrets",
    "sessions",
    "sign_ins",
    "tenants",
    "tools",
    "users",
]
