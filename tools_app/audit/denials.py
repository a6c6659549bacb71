"""Records of requests that were turned away, bounded so that a flood of bad keys cannot fill the disk.

Per process and minute, the first MOST_ROWS are rows of their own. Those that follow are counted by kind, and each
kind becomes one row that says how many it stands for.
"""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from threading import Lock
from time import monotonic
from uuid import UUID

from django.utils import timezone

from tools_app.audit import recorder
from tools_app.audit.entries import Ending
from tools_app.audit.identity import process_id
from tools_app.audit.rows import Ended, Facts, Payload
from tools_app.models import Outcome
from tools_app.models.ids import new_id
from tools_app.models.storable import sound, storable

MOST_ROWS = 60
WINDOW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Denial:
    """A request that was turned away: with which HTTP status, why, and what is known of its sender."""

    http_status: int
    cause: str
    remote_address: str
    tenant_id: UUID | None = None
    key_id: UUID | None = None
    rpc_error: int | None = None
    method: str = ""
    tool_name: str = ""


class _Window:
    def __init__(self) -> None:
        self.began = monotonic()
        self.rows = 0
        self.counted: Counter[Denial] = Counter()


_lock = Lock()
_window = _Window()


def note(denial: Denial) -> None:
    """Record a denial, or count it if there were many in this minute. Raises recorder.RecorderGone."""
    with _lock:
        if _window.rows >= MOST_ROWS:
            _window.counted[_kind_of(denial)] += 1
            return
        _window.rows += 1
    recorder.current().submit(_entry(denial, timezone.now(), 1))


def flush(*, at_once: bool = False) -> None:
    """Record what was only counted, once the minute is over or `at_once`, and begin a new one."""
    global _window
    with _lock:
        if not at_once and monotonic() - _window.began < WINDOW_SECONDS:
            return
        over, _window = _window, _Window()
    for denial, times in over.counted.items():
        recorder.current().submit(_entry(denial, timezone.now(), times))


def _kind_of(denial: Denial) -> Denial:
    """What repeated denials have in common: a flood from many addresses is still one kind."""
    return replace(denial, remote_address="", tool_name="", method="")


def _entry(denial: Denial, now: datetime, times: int) -> Ending:
    facts = Facts(
        id=new_id(),
        tenant_id=denial.tenant_id,
        api_key_id=denial.key_id,
        session_id=None,
        tool_id=None,
        tool_name=storable(denial.tool_name, 128),
        tool_revision=None,
        method=storable(denial.method, 100),
        request_id="",
        protocol_version="",
        client_name="",
        client_version="",
        remote_address=denial.remote_address,
        trace_id="",
        started_at=now,
    )
    ended = Ended(
        finished_at=now,
        duration_us=0,
        waited_us=None,
        outcome=Outcome.DENIED.value,
        http_status=denial.http_status,
        rpc_error=denial.rpc_error,
        is_error=None,
        cause=sound(denial.cause),
        background=False,
        arguments_size=0,
        result_size=0,
        event_count=0,
        repeated=times,
        writer=process_id(),
    )
    return Ending(facts, ended, Payload(facts.id, "", ""), settles=False)
