"""Rows of the audit tables as tuples, in the order of the columns they are written to.

The hot path builds them without the ORM; `tests/audit` holds the column names against the models.
"""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class Facts(NamedTuple):
    """What is known of a call from its first moment on: the columns of `CallFacts`."""

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


class Begun(NamedTuple):
    """The intent of a call: the columns of `RunningCall` that follow the facts."""

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


class Ended(NamedTuple):
    """How a call ended: the columns of `Call` that follow the facts."""

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


class Link(NamedTuple):
    """The place of a record in its chain: the columns of `Call` that follow its end."""

    chain_position: int
    chain_hash: bytes


class Written(NamedTuple):
    """What is known of a record only when it is written: the last columns of `Call`."""

    recorded_us: int


class Payload(NamedTuple):
    """Arguments and result: the columns of `CallPayload`. `packed` is filled when long ones are written."""

    call_id: UUID
    arguments: str
    result: str
    packed: bytes | None = None


class Said(NamedTuple):
    """One event: the columns of `CallEvent` without its own key."""

    call_id: UUID
    sequence: int
    at: datetime
    kind: str
    data: str


class Answer(NamedTuple):
    """A sealed answer that waits to be taken: the columns of `CallAnswer`."""

    call_id: UUID
    sealed: bytes
    is_task: bool
    expires_at: datetime


RUNNING_COLUMNS = Facts._fields + Begun._fields
RECORD_COLUMNS = Facts._fields + Ended._fields
CALL_COLUMNS = RECORD_COLUMNS + Link._fields + Written._fields
