"""What a tool may do while it runs: say how far it is, and learn whether anybody still wants the answer."""

from collections.abc import Callable
from threading import Event
from typing import Any
from uuid import UUID

import msgspec

from tools_app.execution.results import CallCancelled

Emit = Callable[[str, dict[str, Any]], None]


class Cancellation:
    """Whether a call was cancelled, to be asked and waited for from any thread. Cheap as long as nobody waits."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: Event | None = None

    def is_set(self) -> bool:
        """Whether the call was cancelled."""
        return self._is_set

    def set(self) -> None:
        """Cancel. Whoever waits wakes."""
        self._is_set = True
        if self._event is not None:
            self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait for the cancellation, at most `seconds`: whether it came."""
        self._event = self._event or Event()
        # Looked at after the event stands: a `set` that came before has not seen it.
        return self._is_set or self._event.wait(seconds)


class Caller(msgspec.Struct, frozen=True):
    """Who called, as far as a tool may know."""

    tenant_id: UUID
    tenant_slug: str
    remote_address: str
    client_name: str
    client_version: str


class ToolContext:
    """Handed to a tool that asks for it by annotating a parameter with `ToolContext`. Safe to use from any thread."""

    def __init__(self, call_id: UUID, caller: Caller, emit: Emit, cancelled: Cancellation) -> None:
        self.call_id = call_id
        self.caller = caller
        self._emit = emit
        self._cancelled = cancelled
        self._last_progress: float | None = None

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled: a tool that notices should stop."""
        return self._cancelled.is_set()

    def sleep(self, seconds: float) -> None:
        """Wait, but no longer than anybody wants the answer. Raises CallCancelled when the call is cancelled.

        It blocks the thread, so it is for synchronous tools; an `async` one awaits `asyncio.sleep`.
        """
        if self._cancelled.wait(seconds):
            raise CallCancelled

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the call is (progress, §Progress Flow); recorded before it is sent.

        A value that is not above the last one is left out, as the specification wants. Raises CallCancelled
        when the call was cancelled, so that a tool that reports progress stops by itself.
        """
        if self.cancelled:
            raise CallCancelled
        if self._last_progress is not None and done <= self._last_progress:
            return
        self._last_progress = done
        data: dict[str, Any] = {"progress": done}
        if total is not None:
            data["total"] = total
        if message is not None:
            data["message"] = message
        self._emit("progress", data)
