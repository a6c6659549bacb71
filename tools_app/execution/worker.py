"""A call as it is run from its row: claimed once, recorded event by event, settled once.

Celery workers run background calls so. A web process runs a task so whose tool does not run in the background.
"""

import asyncio
import logging
from collections.abc import Callable, Container
from functools import partial
from itertools import chain, count
from threading import Lock
from time import monotonic, sleep
from typing import Any
from uuid import UUID

import msgspec
from django.db import connection
from django.utils import timezone

from tools_app.audit import recorder
from tools_app.audit.entries import Ending
from tools_app.audit.identity import process_id
from tools_app.audit.recorder import RecorderGone
from tools_app.auth import vault
from tools_app.events import publish
from tools_app.events.store import answer_purpose
from tools_app.execution import catalog, inputs, limiting, local, logged, traced
from tools_app.execution.catalog import CompiledTool
from tools_app.execution.context import Caller, Emit, ToolContext
from tools_app.execution.conversation import Conversation, OnStream, Rounds
from tools_app.execution.invocation import Invocation, Ledger, Round, as_said, call_topic, ledger_of_row
from tools_app.execution.local import LocalCall
from tools_app.execution.results import InputRequired, failed
from tools_app.execution.run import Ran, ran, run_tool
from tools_app.models import CallStatus, Outcome, RunningCall, Tenant
from tools_app.models.bridge import in_store, in_store_patiently
from tools_app.telemetry import tracing
from tools_app.telemetry.tallies import tallies

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.25
# Longer than a restart or a failover of the database; what outlasts it is left to the sweeper.
PATIENCE_SECONDS = 120.0


class Brought(msgspec.Struct, frozen=True):
    """What a call brings to whoever runs it, beside its row. `used` are the keys that its questions had so far."""

    arguments: dict[str, Any]
    capabilities: dict[str, Any]
    progress_token: str | int | None
    round: Round
    used: list[str] = []

    def sealed(self, call_id: UUID) -> bytes:
        """The same, sealed for the way."""
        return vault.seal(msgspec.json.encode(self), _purpose(call_id))


class Claim(msgspec.Struct, frozen=True):
    """A call that this process runs, as far as it could be prepared."""

    row: RunningCall
    ledger: Ledger
    tenant: Tenant
    tool: CompiledTool | None
    brought: Brought

    @property
    def is_limited(self) -> bool:
        """Whether it has a place among its tenant's or its tool's calls."""
        by_tool = self.tool is not None and self.tool.allowed.calls_at_once
        return bool(by_tool) or self.tenant.calls_in_flight is not None


def brought_by(invocation: Invocation) -> Brought:
    """What an invocation brings."""
    return Brought(invocation.arguments, dict(invocation.capabilities), invocation.progress_token, invocation.round)


def brought_to(row: RunningCall) -> Brought:
    """What a row holds of it. Raises vault.Unsealable."""
    opened = vault.unseal(bytes(row.sealed_arguments or b""), _purpose(row.pk))
    return msgspec.json.decode(opened, type=Brought)


def run_claimed(call_id: UUID) -> None:
    """Run a queued call. One that another process took, or that was settled meanwhile, is left alone."""
    claim = _claim(call_id)
    if claim is not None:
        connection.close()  # a tool may run for hours; the connection is not held meanwhile
        _settle(claim, asyncio.run(_run(claim)))


async def run_here(call_id: UUID) -> None:
    """The same on the running loop."""
    claim = await in_store(_claim, call_id)
    if claim is not None:
        await in_store_patiently(_settle, claim, await _run(claim))


def _claim(call_id: UUID) -> Claim | None:
    """Take a queued call; one that could not even begin is settled as lost, with its cause for the auditor."""
    taken = RunningCall.objects.filter(pk=call_id, status=CallStatus.QUEUED).update(
        status=CallStatus.RUNNING, owner=process_id(), run_at=timezone.now()
    )
    row = RunningCall.objects.filter(pk=call_id).first() if taken else None
    if row is None or row.tenant_id is None:
        return None
    tallies.observe("mcphub_call_queue_seconds", [_seconds_in_queue(row)])
    tenant = Tenant.objects.get(pk=row.tenant_id)
    # Only a task may have said something before: it is run anew after each answer of its client.
    ledger = ledger_of_row(row, tuple(tenant.redacted_keys), row.said() if row.task_seconds is not None else 0)
    try:
        return Claim(row, ledger, tenant, _tool_of(row), brought_to(row))
    except Exception as problem:
        log.exception("Call %s could not begin", row.pk)
        lost = ran(Outcome.LOST, failed(f"The call of '{row.tool_name}' could not begin.", str(problem)))
        _record(ledger, lost)
        return None


def _seconds_in_queue(row: RunningCall) -> float:
    """How long it waited: since it came, or since its client answered what it asked."""
    assert row.run_at is not None
    return max(0.0, (row.run_at - row.changed_at).total_seconds())


def _tool_of(row: RunningCall) -> CompiledTool | None:
    assert row.tenant_id is not None
    found = catalog.load([row.tenant_id]).get(row.tenant_id)
    return found.tools.get(row.tool_name) if found else None


class _RowCall(LocalCall):
    """A call that runs from its row, on the loop of this task."""

    def __init__(self, row: RunningCall, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
        # A task is cancelled by its own method only: no notification about its request finds it.
        session_id = row.session_id if row.task_seconds is None else None
        super().__init__(row.pk, session_id, row.request_id, row.timeout_seconds)
        self._loop = loop
        self._task = task

    def interrupt(self) -> None:
        """Cancel what the call awaits."""
        self._loop.call_soon_threadsafe(self._task.cancel)


async def _run(claim: Claim) -> Ran:
    row, tool = claim.row, claim.tool
    logged.speak_of_row(row, claim.tenant.slug, claim.brought.arguments)
    if tool is None:
        return ran(Outcome.LOST, failed(f"The tool '{row.tool_name}' is no longer there."))
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    call = _RowCall(row, loop, task)
    local.add(call)
    try:
        if row.cancel_requested:
            call.stop(Outcome.CANCELLED)
        emit = _emitter(claim)
        converse = partial(_conversation, claim, emit, call)
        context = ToolContext(row.pk, _caller(claim), emit, call.cancelled, converse)
        context.belongs_to(loop)
        run = run_tool if tracing.active is None else traced.run
        return await run(tool, claim.brought.arguments, context, call)
    finally:
        local.remove(call)


def _caller(claim: Claim) -> Caller:
    row, tenant = claim.row, claim.tenant
    return Caller(
        tenant.pk,
        tenant.slug,
        row.remote_address,
        row.client_name,
        row.client_version,
        row.protocol_version,
        claim.brought.capabilities,
    )


def _conversation(claim: Claim, emit: Emit, call: LocalCall) -> Conversation:
    """How the function asks: by its client's era."""
    if claim.row.session_id is None:
        return Rounds(claim.brought.round.answers, claim.brought.round.state)

    return OnStream(emit, call.answer)


def _emitter(claim: Claim) -> Callable[[str, dict[str, Any]], None]:
    ledger, token = claim.ledger, claim.brought.progress_token
    topic = call_topic(ledger.facts.id)
    one_by_one = Lock()

    def emit(kind: str, data: dict[str, Any]) -> None:
        """Record an event; whoever streams the call is rung once it is durable.

        Numbers are drawn in the order of the records: who follows the call never passes over an earlier event.
        """
        with one_by_one:
            recorder.current().submit(ledger.saying(kind, as_said(kind, data, token, ledger), topic))

    return emit


def _settle(claim: Claim, finished: Ran) -> None:
    """Record how a run ended. A task that asks is put aside; it runs anew when its client has answered."""
    if isinstance(finished.result, InputRequired) and claim.row.task_seconds is not None:
        _put_aside(claim, finished.result)
        return
    _record(claim.ledger, finished)
    if claim.is_limited:
        limiting.let_go_of(claim.row.tenant_id, claim.row.tool_id, claim.row.pk)


def _record(ledger: Ledger, finished: Ran) -> None:
    """The end, with the whole answer for whoever waits. If somebody else settled the call, that stands."""
    call_id = ledger.facts.id
    if finished.outcome == Outcome.CANCELLED and not finished.result.cause:
        finished = finished.because(inputs.reason_of(call_id))
    answer = vault.seal(finished.kept(), answer_purpose(call_id))
    _record_though_it_takes(ledger.ending(finished.end().with_answer(answer), call_topic(call_id)))
    if ledger.facts.session_id is not None:
        inputs.forget(call_id)


def _record_though_it_takes(ending: Ending) -> None:
    """Wait for a database that is away: what a call has done must not be forgotten. Raises RecorderGone at last."""
    until = monotonic() + PATIENCE_SECONDS
    while True:
        try:
            recorder.current().record(ending)
            return
        except RecorderGone:
            if monotonic() > until:
                raise
            sleep(RETRY_SECONDS)


def _put_aside(claim: Claim, unfinished: InputRequired) -> None:
    """Keep a task without a process until its questions have answers. No key ever stands for two questions."""
    row, brought = claim.row, claim.brought
    asked, used = {}, list(brought.used)
    for name, request in unfinished.requests.items():
        key = _unused(name, used)
        asked[key] = {"name": name, "request": request}
        used.append(key)
    kept = msgspec.structs.replace(brought, round=Round(unfinished.answers, unfinished.state), used=used)
    RunningCall.objects.filter(pk=row.pk, status=CallStatus.RUNNING).update(
        status=CallStatus.WAITING, asked=asked, sealed_arguments=kept.sealed(row.pk), changed_at=timezone.now()
    )
    publish.ring(call_topic(row.pk))


def _unused(name: str, used: Container[str]) -> str:
    keys = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(key for key in keys if key not in used)


def _purpose(call_id: UUID) -> str:
    """What a call's arguments are sealed for on their way to whoever runs it."""
    return f"arguments:{call_id}"
