"""Actions on existing API keys by pages, the REST API and commands, each recorded in its transaction.

Signals record issued and edited keys; this module covers what `tenants.keys` writes in one statement.
"""

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User

from tools_app.audit.changes import changes
from tools_app.models import Action, ApiKey
from tools_app.tenants import keys


def revoke(row: ApiKey) -> bool:
    """Revoke a key immediately. Return False if it was already revoked."""
    with changes.change_log_transaction():
        if not keys.revoke(row):
            return False
        row.refresh_from_db(fields=["revoked_at"])
        changes.record(Action.REVOKED, row, after=_time_value(row, "revoked_at"))
        return True


def rotate(row: ApiKey, overlap: timedelta, by: User | None = None) -> tuple[ApiKey, str]:
    """Issue the key that replaces `row`; see `keys.rotate`. Raises keys.NotRotatable."""
    with changes.change_log_transaction():
        row.refresh_from_db()  # it may have been narrowed while this waited for the lock
        before = _time_value(row, "expires_at")
        new, key = keys.rotate(row, overlap, by)
        after = {**_time_value(row, "expires_at"), "replaced_by": str(new)}
        changes.record(Action.ROTATED, row, before=before, after=after)
    return new, key


def set_overlap(row: ApiKey, overlap: timedelta, by: User | None = None) -> bool:
    """Extend or shorten the validity of a replaced key; see `keys.set_overlap`. Raises ValidationError."""
    with changes.change_log_transaction():
        row.refresh_from_db()
        before = _time_value(row, "expires_at")
        if not keys.set_overlap(row, overlap, by):
            return False
        changes.record(Action.CHANGED, row, before=before, after=_time_value(row, "expires_at"))
        return True


def _time_value(row: ApiKey, field: str) -> dict[str, Any]:
    value = getattr(row, field)
    return {field: value.isoformat() if value else None}
