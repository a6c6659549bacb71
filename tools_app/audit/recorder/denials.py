"""Records of denied requests, bounded so that a flood of invalid keys cannot fill the disk.

Per process and minute, the first MAX_ROWS denials have a row each, at most MAX_OF_ONE per address. Later ones are
counted by kind and address, and each count becomes one row. Requests do not wait for these rows: no call ran that they
could be missing for, and a process that dies loses at most a minute's counts.
"""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from threading import Lock
from time import monotonic
from uuid import UUID

from django.utils import timezone

from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.entries import CallFinished, Facts, FinishedRow, Payload, process_id
from tools_app.core.ids import new_id
from tools_app.core.process.runtime import Service
from tools_app.core.sanitize import for_column, sanitized
from tools_app.models import Outcome

MAX_ROWS = 60
# Keeps a flood from one address from hiding requests from others.
MAX_OF_ONE = 10
# Kinds that are counted by address; beyond, addresses are omitted.
MAX_KINDS = 200
WINDOW_SECONDS = 60.0
MANY_CAUSES = "Refused for one of many causes."


@dataclass(frozen=True, slots=True)
class Denial:
    """A denied request: its HTTP status, the cause, and what is known of its sender."""

    http_status: int
    cause: str
    remote_address: str
    tenant_id: UUID | None = None
    key_id: UUID | None = None
    rpc_error: int | None = None
    method: str = ""
    tool_name: str = ""


class _Window:
    """The denials of one minute."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.counted: Counter[Denial] = Counter()
        self.restart()

    def restart(self) -> "Counter[Denial]":
        """Start the next minute. Return the denials that were only counted."""
        over = self.counted
        self.began = monotonic()
        self.rows = 0
        self.of_address: Counter[str] = Counter()
        self.counted = Counter()
        return over

    def takes(self, address: str) -> bool:
        """Return whether the next denial of this address has a row."""
        if self.rows >= MAX_ROWS or self.of_address[address] >= MAX_OF_ONE:
            return False
        self.rows += 1
        self.of_address[address] += 1
        return True

    def count(self, denial: Denial) -> None:
        """Count a denial that has no row."""
        kind = replace(denial, tool_name="", method="")
        if kind not in self.counted and len(self.counted) >= MAX_KINDS:
            kind = replace(kind, remote_address="")
            if kind not in self.counted and len(self.counted) >= 2 * MAX_KINDS:
                kind = replace(kind, cause=MANY_CAUSES)
        self.counted[kind] += 1


_window = Service(_Window)


def note(denial: Denial) -> None:
    """Record a denial, or count it if there were many in this minute. Raises recorder.RecorderUnavailable."""
    window = _window()
    with window.lock:
        if not window.takes(denial.remote_address):
            window.count(denial)
            return
    recorder.current().submit(_entry(denial, timezone.now(), 1))


def flush(*, at_once: bool = False) -> None:
    """Record the counted denials, once the minute is over or `at_once`, and start a new window."""
    window = _window()
    with window.lock:
        if not at_once and monotonic() - window.began < WINDOW_SECONDS:
            return
        counted = window.restart()
    for denial, times in counted.items():
        recorder.current().submit(_entry(denial, timezone.now(), times))


def _entry(denial: Denial, now: datetime, times: int) -> CallFinished:
    facts = Facts(
        id=new_id(),
        tenant_id=denial.tenant_id,
        api_key_id=denial.key_id,
        session_id=None,
        tool_id=None,
        tool_name=for_column(denial.tool_name, 128),
        tool_revision=None,
        method=for_column(denial.method, 100),
        request_id="",
        protocol_version="",
        client_name="",
        client_version="",
        remote_address=denial.remote_address,
        trace_id="",
        started_at=now,
    )
    ended = FinishedRow(
        finished_at=now,
        duration_us=0,
        waited_us=None,
        outcome=Outcome.DENIED.value,
        http_status=denial.http_status,
        rpc_error=denial.rpc_error,
        is_error=None,
        cause=sanitized(denial.cause),
        background=False,
        arguments_size=0,
        result_size=0,
        event_count=0,
        repeated=times,
        writer=process_id(),
    )
    return CallFinished(facts, ended, Payload(facts.id, "", ""), settles=False)
