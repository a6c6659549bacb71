"""The invocation of a tool, resource or prompt, and the builder of its audit records."""

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

from tools_app.audit.recorder.entries import (
    Answer,
    CallEventEntry,
    CallFinished,
    CallStarted,
    EventRow,
    Facts,
    FinishedRow,
    Payload,
    RunningRow,
    process_id,
)
from tools_app.audit.recorder.redaction import redacted_cause, redacted_json, shown
from tools_app.calls.events import (
    PROGRESS_KEY,
    SEALED_KEY,
    answer_purpose,
    end_notice,
    event_notice,
    event_purpose,
)
from tools_app.calls.sessions import SessionFacts
from tools_app.catalog.compiled import CompiledTool
from tools_app.core import encryption
from tools_app.core.ids import new_id
from tools_app.core.sanitize import for_column, sanitized
from tools_app.core.telemetry.log_context import log_fields
from tools_app.identity.principal import Principal
from tools_app.models import CallStatus, Outcome, RunningCall
from tools_app.protocol import exact_json


class Client(msgspec.Struct, frozen=True):
    """The client's claimed name and version, as columns store them, and its address. Recorded, never trusted."""

    name: str
    version: str
    remote_address: str


ANSWER_TTL = timedelta(minutes=10)


class Round(msgspec.Struct, frozen=True):
    """What a client sends when it retries a request: answers by the names of their questions, and the state.

    `refused` counts the invalid answers to each question.
    """

    answers: dict[str, Any] = {}
    state: dict[str, Any] = {}
    refused: dict[str, int] = {}


FIRST_ROUND = Round()


class Invocation(msgspec.Struct, frozen=True):
    """A request to run something: `name` is the name of a tool or prompt, or the URI of a resource.

    `request_id` is JSON text, `version` the revision of the response, `capabilities` are those that the client
    declares, and `progress_token` is None if it did not request progress.
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
    trace_id: str = ""
    call_id: UUID = msgspec.field(default_factory=new_id)


@dataclass(slots=True)
class CallRecordBuilder:
    """Builds the records of one call. Threads that add to them hold `record_order` from building to queueing.

    `waited_us` is how many microseconds it waited before it ran; `began_ns` when it arrived, by `perf_counter_ns`.
    """

    facts: Facts
    arguments: str
    arguments_size: int
    more_keys: tuple[str, ...]
    background: bool = False
    is_started: bool = False
    event_count: int = 0
    task_seconds: float | None = None
    waited_us: int | None = None
    record_order: Lock = field(default_factory=Lock)
    began_ns: int = field(default_factory=perf_counter_ns)

    def started(self, status: CallStatus, timeout_seconds: float, sealed: bytes | None = None) -> CallStarted:
        """Return the call's intent. From now on the call must be settled by its end."""
        self.is_started = True
        begun = RunningRow(
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
        return CallStarted(self.facts, begun)

    def event(self, kind: str, data: dict[str, Any], topic: str = "") -> CallEventEntry:
        """Return the record of the call's next event. With a topic, the notification carries the event.

        Hold `record_order` until it is queued: a client that resumes could otherwise read a later event first, and
        would never get this one.
        """
        self.event_count += 1
        sequence = self.event_count
        text = self._shown(kind, data, sequence)
        notice = event_notice(self.facts.id, sequence, kind, text) if topic else b""
        return CallEventEntry(EventRow(self.facts.id, sequence, datetime.now(UTC), kind, text), topic, notice)

    def _shown(self, kind: str, data: dict[str, Any], sequence: int) -> str:
        """Return an event as the audit log shows it; a redacted question keeps its full form, encrypted, to be sent."""
        raw = encoded(data)
        if kind == "log":
            return raw.decode()
        text, _ = redacted_json(raw, self.more_keys)
        if kind != "request" or text.encode() == raw:
            return text
        sealed = base64.b64encode(encryption.seal(raw, event_purpose(self.facts.id, sequence))).decode()
        return encoded({"name": data["name"], "shown": orjson.Fragment(text), SEALED_KEY: sealed}).decode()

    def finished(
        self, end: "End", topic: str = "", *, answer: bytes | None = None, only_queued: bool = False
    ) -> CallFinished:
        """Return the call's final record, with the serialized answer for a process that waits for it.

        With `only_queued`, it applies only while no process has started the call.
        """
        result, size = redacted_json(end.whole or end.wire, self.more_keys) if end.wire else ("", 0)
        now = datetime.now(UTC)
        if self.background:
            duration_us = microseconds(now - self.facts.started_at)
        else:
            duration_us = (perf_counter_ns() - self.began_ns) // 1000
        ended = FinishedRow(
            finished_at=now,
            duration_us=duration_us,
            waited_us=self.waited_us,
            outcome=end.outcome.value,
            http_status=end.http_status,
            rpc_error=end.rpc_error,
            is_error=end.is_error,
            cause=sanitized(redacted_cause(end.cause, self.more_keys)) if end.cause else "",
            background=self.background,
            arguments_size=self.arguments_size,
            result_size=size,
            event_count=self.event_count,
            repeated=1,
            writer=process_id(),
            shaped_size=len(end.wire) if end.whole else None,
        )
        payload = Payload(self.facts.id, self.arguments, result)
        notice = b""
        if topic and answer is not None:
            notice = end_notice(self.facts.id, self.event_count, end.outcome, answer)
        return CallFinished(
            self.facts,
            ended,
            payload,
            self.is_started,
            only_queued=only_queued,
            answer=None if answer is None else self._answer(answer, now),
            topic=topic,
            notice=notice,
        )

    def _answer(self, answer: bytes, now: datetime) -> Answer:
        """Return the stored answer. A task keeps it for its TTL, another call until its client can have reconnected."""
        sealed = encryption.seal(answer, answer_purpose(self.facts.id))
        kept_until = now + ANSWER_TTL
        if self.task_seconds is None:
            return Answer(self.facts.id, sealed, False, kept_until)
        promised = self.facts.started_at + timedelta(seconds=self.task_seconds)
        return Answer(self.facts.id, sealed, True, max(promised, kept_until))


class End(msgspec.Struct, frozen=True):
    """The recorded end of a call. `wire` is its result as JSON, and `whole` what is recorded where that was shaped."""

    outcome: Outcome
    http_status: int | None = 200
    rpc_error: int | None = None
    is_error: bool | None = None
    cause: str = ""
    wire: bytes = b""
    whole: bytes = b""


def new_record_builder(
    invocation: Invocation,
    tool: CompiledTool | None = None,
    *,
    task_seconds: float | None = None,
) -> CallRecordBuilder:
    """Return the record builder of a call that just arrived; `tool` is what it runs, if that is a known tool."""
    principal, client = invocation.principal, invocation.client
    arguments, size = redacted_json(exact_json.dumps(invocation.arguments), principal.redacted_keys)
    facts = Facts(
        id=invocation.call_id,
        tenant_id=principal.tenant_id,
        api_key_id=principal.key_id,
        session_id=invocation.session.id if invocation.session else None,
        tool_id=tool.id if tool else None,
        # The name of a tool fits the column already.
        tool_name=invocation.name if tool else for_column(invocation.name, 128),
        tool_revision=tool.revision if tool else None,
        method=invocation.method,
        request_id=invocation.request_id,
        protocol_version=invocation.version,
        client_name=client.name,
        client_version=client.version,
        remote_address=client.remote_address,
        trace_id=invocation.trace_id,
        started_at=datetime.now(UTC),
        person_id=principal.person_id,
    )
    return CallRecordBuilder(
        facts=facts,
        arguments=arguments,
        arguments_size=size,
        more_keys=principal.redacted_keys,
        background=tool.background if tool else False,
        task_seconds=task_seconds,
    )


def record_builder_of_row(row: RunningCall, more_keys: tuple[str, ...] = (), event_count: int = 0) -> CallRecordBuilder:
    """Return the record builder of a call that another process started."""
    return CallRecordBuilder(
        facts=Facts(*(getattr(row, name) for name in Facts._fields)),
        arguments=row.arguments,
        arguments_size=len(row.arguments),
        more_keys=more_keys,
        background=row.background,
        is_started=True,
        event_count=event_count,
        task_seconds=row.task_seconds,
        waited_us=microseconds(row.run_at - row.started_at) if row.run_at else None,
    )


def microseconds(period: timedelta) -> int:
    """Return `period` in microseconds; 0 if the clock was set back in between."""
    return max(0, period // timedelta(microseconds=1))


def call_topic(call_id: UUID) -> str:
    """Return the topic that is notified of a call's events and its end."""
    return f"call:{call_id}"


def event_data(
    kind: str, data: dict[str, Any], progress_token: str | int | None, builder: CallRecordBuilder
) -> dict[str, Any]:
    """Return an event as it is recorded, so that it can be resent: progress with the client's token, and a log message
    without secrets, with the name of the tool unless its author set another logger (logging, §Security).
    """
    if kind == "progress" and progress_token is not None:
        return {PROGRESS_KEY: progress_token, **data}
    if kind == "log":
        return {"logger": builder.facts.tool_name, **data, "data": shown(data["data"], builder.more_keys)}
    return data


def encoded(value: Any) -> bytes:
    """Return a tool's value as JSON; types that JSON lacks become text."""
    return exact_json.dumps(value, default=exact_json.decimal_or_text)


def set_log_context(invocation: Invocation) -> None:
    """Set the log context of this asyncio task to this call."""
    session = invocation.session
    log_fields.set(
        (
            invocation.method,
            invocation.request_id,
            invocation.principal.tenant_slug,
            session.id if session is not None else None,
            invocation.call_id,
            invocation.trace_id,
            [invocation.arguments],
        )
    )


def set_log_context_of_row(row: RunningCall, tenant_slug: str, arguments: Mapping[str, Any]) -> None:
    """Set the log context to a call that runs from its row."""
    log_fields.set((row.method, row.request_id, tenant_slug, row.session_id, row.pk, row.trace_id, [arguments]))
