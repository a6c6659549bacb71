"""One `tools/call` on its way: who asks for what, what has been recorded of it, and what will be."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Lock
from time import perf_counter_ns
from typing import Any
from uuid import UUID

import msgspec
import orjson

from tools_app.audit.entries import Beginning, Ending, Saying
from tools_app.audit.identity import process_id
from tools_app.audit.redaction import kept, kept_json, shown
from tools_app.audit.rows import Answer, Begun, Ended, Facts, Payload, Said
from tools_app.auth import vault
from tools_app.auth.principal import Principal
from tools_app.auth.sessions import SessionFacts
from tools_app.events.store import SEALED, event_purpose
from tools_app.execution.context import Caller
from tools_app.models import CallStatus, Outcome, RunningCall
from tools_app.models.ids import new_id
from tools_app.models.storable import sound, storable


class Client(msgspec.Struct, frozen=True):
    """What the client says of itself, and where it calls from. Shown and recorded, never believed."""

    name: str
    version: str
    remote_address: str


ANSWERS_LIVE = timedelta(minutes=10)
# Where a recorded progress keeps its client's token: a name that ends in "token" would be hidden as a secret.
HEARD_UNDER = "to"


class Round(msgspec.Struct, frozen=True):
    """What a client brought to a request that it makes anew: answers by the names of their questions, and the state."""

    answers: dict[str, Any] = {}
    state: dict[str, Any] = {}


FIRST_ROUND = Round()


class Invocation(msgspec.Struct, frozen=True):
    """What a request asks to run: `name` is a tool's, a prompt's, or a resource's URI.

    `request_id` is JSON text, `version` the revision that its answer must fit, `capabilities` are what the client
    declares, `progress_token` is None if it does not want to hear of progress, and `headers` are those that may repeat
    arguments, None where the transport or the revision has none.
    """

    principal: Principal
    session: SessionFacts | None
    client: Client
    version: str
    request_id: str
    method: str
    name: str
    arguments: dict[str, Any]
    capabilities: Mapping[str, Any]
    progress_token: str | int | None = None
    round: Round = FIRST_ROUND
    headers: Mapping[str, str] | None = None
    trace_id: str = ""
    call_id: UUID = msgspec.field(default_factory=new_id)

    def caller(self) -> Caller:
        """The caller as far as a tool may know it."""
        return Caller(
            tenant_id=self.principal.tenant_id,
            tenant_slug=self.principal.tenant_slug,
            remote_address=self.client.remote_address,
            client_name=self.client.name,
            client_version=self.client.version,
            protocol_version=self.version,
            capabilities=self.capabilities,
        )


def facts_of(invocation: Invocation, tool_id: UUID | None = None, revision: int | None = None) -> Facts:
    """The columns that are known when a call arrives."""
    client = invocation.client
    return Facts(
        id=invocation.call_id,
        tenant_id=invocation.principal.tenant_id,
        api_key_id=invocation.principal.key_id,
        session_id=invocation.session.id if invocation.session else None,
        tool_id=tool_id,
        tool_name=storable(invocation.name, 128),
        tool_revision=revision,
        method=invocation.method,
        request_id=storable(invocation.request_id, 200),
        protocol_version=invocation.version,
        client_name=storable(client.name, 200),
        client_version=storable(client.version, 100),
        remote_address=client.remote_address,
        trace_id=invocation.trace_id,
        started_at=datetime.now(UTC),
    )


def facts_of_row(row: RunningCall) -> Facts:
    """The same columns of a call that stands as a row."""
    return Facts(*(getattr(row, name) for name in Facts._fields))


@dataclass(slots=True)
class Ledger:
    """Makes the records of one call. Its sequence numbers may be drawn from any thread."""

    facts: Facts
    arguments: str
    arguments_size: int
    more_keys: tuple[str, ...]
    background: bool = False
    begun: bool = False
    said: int = 0
    task_seconds: float | None = None
    waited_us: int | None = None
    _numbering: Lock = field(default_factory=Lock)
    _clock: int = field(default_factory=perf_counter_ns)

    def beginning(self, status: CallStatus, timeout_seconds: float, sealed: bytes | None = None) -> Beginning:
        """The call's intent. From here on its end must settle it."""
        self.begun = True
        begun = Begun(
            status=status.value,
            background=self.background,
            owner=process_id(),
            timeout_seconds=timeout_seconds,
            cancel_requested=False,
            arguments=self.arguments,
            sealed_arguments=sealed,
            run_at=None,
            task_seconds=self.task_seconds,
            asked="{}",
            changed_at=self.facts.started_at,
        )
        return Beginning(self.facts, begun)

    def runs(self) -> None:
        """Note that the call begins to run now, in the process in which it arrived."""
        self.waited_us = (perf_counter_ns() - self._clock) // 1000

    def saying(self, kind: str, data: dict[str, Any], topic: str = "") -> Saying:
        """The call's next event."""
        with self._numbering:
            self.said += 1
            sequence = self.said
        text = self._shown(kind, data, sequence)
        return Saying(Said(self.facts.id, sequence, datetime.now(UTC), kind, text), topic)

    def _shown(self, kind: str, data: dict[str, Any], sequence: int) -> str:
        """An event as the audit log shows it; a question, which goes out from here, keeps what it hides sealed."""
        raw = encoded(data)
        if kind == "log":
            return raw.decode()
        text, _ = kept_json(raw, self.more_keys)
        if kind != "request" or text.encode() == raw:
            return text
        sealed = base64.b64encode(vault.seal(raw, event_purpose(self.facts.id, sequence))).decode()
        return encoded({"name": data["name"], "shown": orjson.Fragment(text), SEALED: sealed}).decode()

    def ending(self, end: "End", topic: str = "") -> Ending:
        """The call's terminal record."""
        result, size = kept_json(end.result, self.more_keys) if end.result else ("", 0)
        now = datetime.now(UTC)
        ended = Ended(
            finished_at=now,
            duration_us=self._duration_us(now),
            waited_us=self.waited_us,
            outcome=end.outcome.value,
            http_status=end.http_status,
            rpc_error=end.rpc_error,
            is_error=end.is_error,
            cause=sound(end.cause) if end.cause else "",
            background=self.background,
            arguments_size=self.arguments_size,
            result_size=size,
            event_count=self.said,
            repeated=1,
            writer=process_id(),
        )
        payload = Payload(self.facts.id, self.arguments, result)
        answer = self._answer(end.sealed_answer, now) if end.sealed_answer is not None else None
        return Ending(self.facts, ended, payload, settles=self.begun, answer=answer, topic=topic)

    def _answer(self, sealed: bytes, now: datetime) -> Answer:
        """A task is kept for as long as it was promised, another call until its client has had time to come back."""
        kept_until = now + ANSWERS_LIVE
        if self.task_seconds is None:
            return Answer(self.facts.id, sealed, False, kept_until)
        promised = self.facts.started_at + timedelta(seconds=self.task_seconds)
        return Answer(self.facts.id, sealed, True, max(promised, kept_until))

    def _duration_us(self, now: datetime) -> int:
        if self.background:
            return microseconds(now - self.facts.started_at)
        return (perf_counter_ns() - self._clock) // 1000


class End(msgspec.Struct, frozen=True):
    """How a call ended, before it is recorded. `result` is JSON."""

    outcome: Outcome
    http_status: int | None = 200
    rpc_error: int | None = None
    is_error: bool | None = None
    cause: str = ""
    result: bytes = b""
    sealed_answer: bytes | None = None

    def with_answer(self, sealed: bytes) -> "End":
        """The same with the answer for whoever waits in another process."""
        return msgspec.structs.replace(self, sealed_answer=sealed)


def open_ledger(
    invocation: Invocation,
    tool_id: UUID | None = None,
    revision: int | None = None,
    *,
    background: bool = False,
    task_seconds: float | None = None,
) -> Ledger:
    """The ledger of a call that just arrived."""
    arguments, size = kept(invocation.arguments, invocation.principal.redacted_keys)
    return Ledger(
        facts=facts_of(invocation, tool_id, revision),
        arguments=arguments,
        arguments_size=size,
        more_keys=invocation.principal.redacted_keys,
        background=background,
        task_seconds=task_seconds,
    )


def ledger_of_row(row: RunningCall, more_keys: tuple[str, ...] = (), said: int = 0) -> Ledger:
    """The ledger of a call that another process began."""
    return Ledger(
        facts=facts_of_row(row),
        arguments=row.arguments,
        arguments_size=len(row.arguments),
        more_keys=more_keys,
        background=row.background,
        begun=True,
        said=said,
        task_seconds=row.task_seconds,
        waited_us=microseconds(row.run_at - row.started_at) if row.run_at else None,
    )


def microseconds(period: timedelta) -> int:
    """How many there are in `period`; 0 where a clock was set back meanwhile."""
    return max(0, period // timedelta(microseconds=1))


def call_topic(call_id: UUID) -> str:
    """What is rung when a call said something or ended."""
    return f"call:{call_id}"


def as_said(kind: str, data: dict[str, Any], progress_token: str | int | None, ledger: Ledger) -> dict[str, Any]:
    """An event as it is recorded, to be sent anew: progress under the token by which its client knows it, and a log
    message without secrets, under the name of what runs unless its author gave another one (logging, §Security).
    """
    if kind == "progress" and progress_token is not None:
        return {HEARD_UNDER: progress_token, **data}
    if kind == "log":
        return {"logger": ledger.facts.tool_name, **data, "data": shown(data["data"], ledger.more_keys)}
    return data


def encoded(value: Any) -> bytes:
    """JSON of a tool's value; what JSON lacks becomes text."""
    return orjson.dumps(value, default=str)
