"""The calls that this process is running, so that they can be stopped from anywhere in it."""

from uuid import UUID

from tools_app.execution.context import Cancellation
from tools_app.execution.deadline import Deadline
from tools_app.models import Outcome


class LocalCall:
    """A call that runs here. Each way of running calls says in `interrupt` how to wake one from what it awaits."""

    def __init__(self, id: UUID, session_id: UUID | None, request_id: str, timeout_seconds: float) -> None:
        self.id = id
        self.session_id = session_id
        self.request_id = request_id
        self.cancelled = Cancellation()
        self.deadline = Deadline(timeout_seconds)
        self.stopped_as: Outcome | None = None

    def stop(self, outcome: Outcome) -> None:
        """Stop the call; `outcome` is how it will have ended. Stopping twice changes nothing."""
        if self.stopped_as is None:
            self.stopped_as = outcome
            self.cancelled.set()
            self.interrupt()

    def interrupt(self) -> None:
        """Wake the call from what it awaits; called from any thread."""
        raise NotImplementedError


_running: dict[UUID, LocalCall] = {}


def add(call: LocalCall) -> None:
    """Note a call that begins to run."""
    _running[call.id] = call


def remove(call: LocalCall) -> None:
    """Note that a call runs no more."""
    _running.pop(call.id, None)


def running() -> list[LocalCall]:
    """The calls that run here now."""
    return list(_running.values())


def stop(call_id: UUID) -> bool:
    """Cancel a call if it runs here."""
    call = _running.get(call_id)
    if call is not None:
        call.stop(Outcome.CANCELLED)
    return call is not None


def stop_request(session_id: UUID, request_id: str) -> bool:
    """Cancel the call of a session's request if it runs here."""
    for call in running():
        if call.session_id == session_id and call.request_id == request_id:
            call.stop(Outcome.CANCELLED)
            return True
    return False
