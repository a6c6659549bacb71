"""What a tool may do while it runs: say how far it is, and learn whether anybody still wants the answer."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import Any

from tools_app.execution.results import CallCancelled

Emit = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True)
class Caller:
    """Who called, as far as a tool may know."""

    tenant_id: str
    tenant_slug: str
    remote_address: str
    client_name: str
    client_version: str


class ToolContext:
    """Handed to a tool that asks for it by annotating a parameter with `ToolContext`. Safe to use from any thread."""

    def __init__(self, call_id: str, caller: Caller, emit: Emit, cancelled: Event) -> None:
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
