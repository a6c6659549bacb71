"""What people do to calls that run, done and recorded in one transaction."""

from tools_app.audit import changes
from tools_app.execution import background
from tools_app.models import Action, RunningCall


def cancel(row: RunningCall) -> bool:
    """Ask whoever runs a call to stop, as its client would. False if it was asked before, or has ended."""
    with changes.in_turn():
        if not background.cancel_now([row.pk]):
            return False
        row.cancel_requested = True
        changes.record(
            Action.CHANGED,
            row,
            name=row.tool_name,
            before={"cancel_requested": False},
            after={"cancel_requested": True},
        )
        return True
