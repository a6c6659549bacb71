"""Changes and the end of OAuth connections, and the blocking of clients, recorded in their transaction.

Signals record what a person allows.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils import timezone

from tools_app.audit.changes import changes
from tools_app.identity.oauth import connections
from tools_app.models import Action, ApiKey, Connection, OAuthClient, Toolset


def set_blocked(row: OAuthClient, *, blocked: bool) -> bool:
    """Block a client in the whole hub, or let it in again. Return False if nothing changed."""
    if (row.blocked_at is not None) == blocked:
        return False
    row.blocked_at = timezone.now() if blocked else None
    row.save(update_fields=["blocked_at"])
    return True


def change_access(row: Connection, fields: Mapping[str, Any]) -> bool:
    """Change names, methods, networks, limits or the expiry of a connection. Return False if nothing changed.

    All processes apply it within a second. Its person can choose other names when the client asks again.
    """
    with changes.change_log_transaction():
        key = row.key
        key.refresh_from_db()
        changed = {name: value for name, value in fields.items() if getattr(key, name) != value}
        if not changed:
            return False
        before = {name: _plain(getattr(key, name)) for name in changed}
        for name, value in changed.items():
            setattr(key, name, value)
        ApiKey.objects.filter(pk=key.pk).update(**changed)
        after = {name: _plain(value) for name, value in changed.items()}
        changes.record(Action.CHANGED, row, before=before, after=after)
        return True


def _plain(value: Any) -> Any:
    if isinstance(value, Toolset):
        return value.name
    return value.isoformat() if isinstance(value, datetime) else value


def revoke(row: Connection) -> bool:
    """End a connection; see `connections.revoke`. Return False if it had ended."""
    with changes.change_log_transaction():
        if not connections.revoke(row):
            return False
        changes.record(Action.REVOKED, row)
        return True
