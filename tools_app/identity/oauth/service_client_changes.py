"""Actions on service clients, recorded in their transaction. Signals record what is created and edited."""

from collections.abc import Mapping
from typing import Any

from tools_app.audit.changes import changes
from tools_app.identity.oauth import service_clients
from tools_app.models import Action, ServiceClient


def rotate_secret(row: ServiceClient) -> str:
    """Return a new secret; see `service_clients.rotate_secret`."""
    with changes.change_log_transaction():
        secret = service_clients.rotate_secret(row.connection.client)
        changes.record(Action.ROTATED, row, after={"secret": "changed"})
    return secret


def replace_keys(row: ServiceClient, public_keys: Mapping[str, Any]) -> None:
    """Replace the public keys; see `service_clients.replace_keys`. Raises ValidationError."""
    with changes.change_log_transaction():
        service_clients.replace_keys(row.connection.client, public_keys)
        changes.record(Action.CHANGED, row, after={"public keys": "changed"})


def revoke(row: ServiceClient) -> bool:
    """End a service client. Return False if it had ended."""
    with changes.change_log_transaction():
        if not service_clients.revoke(row):
            return False
        row.refresh_from_db(fields=["revoked_at"])
        ended = row.revoked_at.isoformat() if row.revoked_at else None
        changes.record(Action.REVOKED, row, after={"revoked_at": ended})
        return True
