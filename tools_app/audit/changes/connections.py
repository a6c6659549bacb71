"""The end of OAuth connections and the blocking of clients, recorded in their transaction.

Signals record what a person allows.
"""

from django.utils import timezone

from tools_app.access.oauth import connections
from tools_app.audit.changes import changes
from tools_app.models import Action, Connection, OAuthClient


def set_blocked(row: OAuthClient, *, blocked: bool) -> bool:
    """Block a client in the whole hub, or let it in again. Return False if nothing changed."""
    if (row.blocked_at is not None) == blocked:
        return False
    row.blocked_at = timezone.now() if blocked else None
    row.save(update_fields=["blocked_at"])
    return True


def revoke(row: Connection) -> bool:
    """End a connection; see `connections.revoke`. Return False if it had ended."""
    with changes.change_log_transaction():
        if not connections.revoke(row):
            return False
        changes.record(Action.REVOKED, row)
        return True
