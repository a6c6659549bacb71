"""The web admin: one module per aggregate, each registering its pages on `site.site`."""

from tools_app.admin import calls, keys, people, secrets, sessions, tenants

__all__ = ["calls", "keys", "people", "secrets", "sessions", "tenants"]
