"""What people do to sessions, done and recorded in one transaction."""

from tools_app.audit import changes
from tools_app.auth import sessions
from tools_app.models import Action, Session


def end(row: Session) -> bool:
    """End a session because a tenant's admin wants it. False if it had ended before."""
    with changes.in_turn():
        if not sessions.end_by_person(row):
            return False
        row.refresh_from_db(fields=["ended_at", "end_reason"])
        told = row.ended_at.isoformat() if row.ended_at else None
        changes.record(Action.CHANGED, row, before={"ended_at": None}, after={"ended_at": told})
        return True
