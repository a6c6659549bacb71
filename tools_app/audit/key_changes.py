"""What people do to API keys that exist, done and recorded in one transaction: by pages, the REST API and commands.

A key that is issued or edited is recorded as every row is; this is for what `auth.keys` writes in one statement.
"""

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User

from tools_app.audit import changes
from tools_app.auth import keys
from tools_app.models import Action, ApiKey


def revoke(row: ApiKey) -> bool:
    """Revoke a key from now on. False if it was revoked before."""
    with changes.in_turn():
        if not keys.revoke(row):
            return False
        row.refresh_from_db(fields=["revoked_at"])
        changes.record(Action.REVOKED, row, after=_told(row, "revoked_at"))
        return True


def rotate(row: ApiKey, overlap: timedelta, by: User | None = None) -> tuple[ApiKey, str]:
    """Issue the key that takes the place of `row`, see `keys.rotate`. Raises keys.NotRotatable."""
    with changes.in_turn():
        row.refresh_from_db()  # it may have been narrowed while this waited for its turn
        before = _told(row, "expires_at")
        new, key = keys.rotate(row, overlap, by)
        after = {**_told(row, "expires_at"), "replaced_by": str(new)}
        changes.record(Action.ROTATED, row, before=before, after=after)
    return new, key


def set_overlap(row: ApiKey, overlap: timedelta) -> bool:
    """Let a key that was replaced be good for longer or shorter, see `keys.set_overlap`."""
    with changes.in_turn():
        row.refresh_from_db()
        before = _told(row, "expires_at")
        if not keys.set_overlap(row, overlap):
            return False
        changes.record(Action.CHANGED, row, before=before, after=_told(row, "expires_at"))
        return True


def _told(row: ApiKey, field: str) -> dict[str, Any]:
    value = getattr(row, field)
    return {field: value.isoformat() if value else None}
