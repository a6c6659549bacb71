"""The end of OAuth connections, recorded in its transaction. Signals record what a person allows."""

from tools_app.access.oauth import connections
from tools_app.audit.changes import changes
from tools_app.models import Action, Connection


def revoke(row: Connection) -> bool:
    """End a connection; see `connections.revoke`. Return False if it had ended."""
    with changes.change_log_transaction():
        if not connections.revoke(row):
            return False
        changes.record(Action.REVOKED, row)
        return True
