"""What the recorder writes: rows of the audit tables, the entries of a call made of them, and the recording process.

Rows are tuples in column order, which the hot path builds without the ORM. A column of the audit log is declared here
once more, with its type: the statements of the writers, hashes, verification, exports and the REST API take the columns
from here, and `tests/audit` checks the names against the models. An entry is the start of a call, one of its events, or
its end.
"""

import os
import socket
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from tools_app.core.ids import new_id
from tools_app.core.process.runtime import Service
from tools_app.models import Process


class Facts(NamedTuple):
    """What is known of a call from its start: the columns of `CallFacts`."""

    id: UUID
    tenant_id: UUID | None
    api_key_id: UUID | None
    session_id: UUID | None
    tool_id: UUID | None
    tool_name: str
    tool_revision: int | None
    method: str
    request_id: str
    protocol_version: str
    client_name: str
    client_version: str
    remote_address: str
    trace_id: str
    started_at: datetime
    person_id: int | None = None


class RunningRow(NamedTuple):
    """The intent of a call: the columns of `RunningCall` after the facts."""

    status: str
    background: bool
    owner: UUID
    timeout_seconds: float
    cancel_requested: bool
    arguments: str
    sealed_arguments: bytes | None
    run_at: datetime | None
    task_seconds: float | None
    asked: str
    changed_at: datetime


class FinishedRow(NamedTuple):
    """The outcome of a call: the columns of `Call` after the facts."""

    finished_at: datetime
    duration_us: int
    waited_us: int | None
    outcome: str
    http_status: int | None
    rpc_error: int | None
    is_error: bool | None
    cause: str
    background: bool
    arguments_size: int
    result_size: int
    event_count: int
    repeated: int
    writer: UUID
    shaped_size: int | None = None


class Link(NamedTuple):
    """The position of a record in its chain: the columns of `Call` after its outcome."""

    chain_position: int
    chain_hash: bytes


class Payload(NamedTuple):
    """Arguments and result: the columns of `CallPayload`. `packed` is set when long texts are written."""

    call_id: UUID
    arguments: str
    result: str
    packed: bytes | None = None


class EventRow(NamedTuple):
    """An event: the columns of `CallEvent` without its primary key."""

    call_id: UUID
    sequence: int
    at: datetime
    kind: str
    data: str


class Answer(NamedTuple):
    """A sealed result that waits to be retrieved: the columns of `CallAnswer`."""

    call_id: UUID
    sealed: bytes
    is_task: bool
    expires_at: datetime


RUNNING_COLUMNS: Final = Facts._fields + RunningRow._fields
RECORD_COLUMNS: Final = Facts._fields + FinishedRow._fields
# The columns that the hash of a record covers, in this order, besides its events and payload.
HASHED: Final = (*RECORD_COLUMNS, "recorded_us")
CALL_COLUMNS: Final = (*RECORD_COLUMNS, *Link._fields, "recorded_us", "hash_version")
# The columns that each version of the hash added to those of the first. Records are verified by the rules of the
# version that they state, so a version never changes: a new column is added by a new one, and is null before.
ADDED: Final[Mapping[int, tuple[str, ...]]] = {}
HASH_VERSION: Final = max(ADDED, default=1)


class CallStarted(msgspec.Struct, frozen=True):
    """The intent of a call, stored as a `RunningCall` until the call is settled."""

    facts: Facts
    row: RunningRow

    @property
    def call_id(self) -> UUID:
        """The id of the call."""
        return self.facts.id


class CallEventEntry(msgspec.Struct, frozen=True):
    """An event of a call. Once durable, subscribers of `topic` are notified, with `notice`, its encrypted form."""

    row: EventRow
    topic: str = ""
    notice: bytes = b""

    @property
    def call_id(self) -> UUID:
        """The id of the call."""
        return self.row.call_id


class CallFinished(msgspec.Struct, frozen=True):
    """A call's terminal record.

    `settles`: it replaces a `RunningCall`, and only the process that deletes that row may write this. `only_queued`:
    the row may be deleted only while the call is still queued. Subscribers of `topic` are notified, with `notice`, the
    encrypted outcome, if this record was written.
    """

    facts: Facts
    row: FinishedRow
    payload: Payload
    settles: bool
    only_queued: bool = False
    answer: Answer | None = None
    topic: str = ""
    notice: bytes = b""

    @property
    def call_id(self) -> UUID:
        """The id of the call."""
        return self.facts.id


Entry = CallStarted | CallEventEntry | CallFinished


# The id of this process, which is constant for its lifetime.
process_id = Service(new_id)


def process_row(kind: str) -> Process:
    """Return the row of this process; `kind` is "web" or "worker"."""
    return Process(id=process_id(), kind=kind, host=socket.gethostname()[:255], pid=os.getpid())
