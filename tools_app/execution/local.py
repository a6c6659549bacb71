"""The calls that this process is running, so that they can be stopped from anywhere in it."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.conf import settings

from tools_app.execution import inputs
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
        self.reason = ""
        self.asked = False

    def stop(self, outcome: Outcome, reason: str = "") -> None:
        """Stop the call; `outcome` is how it will have ended, `reason` why. Stopping twice changes nothing."""
        if self.stopped_as is None:
            self.stopped_as, self.reason = outcome, reason
            self.cancelled.set()
            self.interrupt()

    async def answer(self, name: str) -> Mapping[str, Any]:
        """The client's response to a question; the time it takes is not the function's. Raises `inputs.Silence`."""
        self.asked = True
        with self.deadline.paused():
            return await inputs.wait_for(self.id, name, settings.MCPHUB_ASK_SECONDS)

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


def stop_request(session_id: UUID, request_id: str, reason: str = "") -> bool:
    """Cancel the call of a session's request if it runs here."""
    for call in running():
        if call.session_id == session_id and call.request_id == request_id:
            call.stop(Outcome.CANCELLED, reason)
            return True
    return False
