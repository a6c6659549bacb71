"""The web admin: one module per aggregate, each registering its pages on `site.site`."""

from tools_app.admin import (
    calls,
    catalog,
    changes,
    invitations,
    keys,
    people,
    prompts,
    resources,
    running_calls,
    secrets,
    sessions,
    tenants,
    tokens,
)

__all__ = [
    "calls",
    "catalog",
    "changes",
    "invitations",
    "keys",
    "people",
    "prompts",
    "resources",
    "running_calls",
    "secrets",
    "sessions",
    "tenants",
    "tokens",
]
