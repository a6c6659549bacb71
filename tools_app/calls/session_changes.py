"""Actions on sessions, each recorded in its transaction."""

from tools_app.audit.changes import changes
from tools_app.calls import sessions
from tools_app.models import Action, Session


def end(row: Session) -> bool:
    """End a session on behalf of a tenant admin. Return False if it had already ended."""
    with changes.change_log_transaction():
        if not sessions.end_by_person(row):
            return False
        row.refresh_from_db(fields=["ended_at", "end_reason"])
        before = row.ended_at.isoformat() if row.ended_at else None
        changes.record(Action.CHANGED, row, before={"ended_at": None}, after={"ended_at": before})
        return True
