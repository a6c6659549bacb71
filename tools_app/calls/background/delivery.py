"""Delivery of events and results of calls that run elsewhere to the process that responds to the client.

They usually come with notifications. What a notification did not bring is read from the database, as is everything
by a slow poll. Cancellation goes the other way: by clients, and by people, whose action is recorded in the same
transaction.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial
from uuid import UUID

import msgspec
from django.db import Error, transaction

from tools_app.audit.changes import changes
from tools_app.calls import events, inputs, stop_reasons
from tools_app.calls.background import enqueue, update_reader
from tools_app.calls.events import CallUpdate, Event, SendEvent
from tools_app.calls.invocation import CallRecordBuilder, Invocation, call_topic
from tools_app.calls.outcomes import CallOutcome, deserialize, unanswered
from tools_app.calls.stop_reasons import StopReason
from tools_app.catalog.compiled import CompiledTool
from tools_app.core import fair_scheduler, large_work
from tools_app.core.database import run_in_db_thread
from tools_app.core.notifications import publish
from tools_app.core.notifications.listener import POLL_SECONDS, Subscription, TopicListener
from tools_app.models import Action, Outcome, RunningCall

log = logging.getLogger(__name__)


class AwaitingInput(msgspec.Struct, frozen=True):
    """A task is paused until its client answers its questions."""


async def run_in_worker(
    invocation: Invocation,
    tool: CompiledTool,
    builder: CallRecordBuilder,
    send_event: SendEvent,
    listener: TopicListener,
) -> CallOutcome:
    """Queue a call and follow it to its end. Raises RecorderUnavailable or RpcError if it cannot be queued."""
    call_id = builder.facts.id
    with listener.subscribe(call_topic(call_id)) as subscription:
        # A separate asyncio task: a partly started call could not be cancelled.
        start = asyncio.create_task(enqueue.start_background_call(invocation, tool, builder))
        try:
            await asyncio.shield(start)
            fair_scheduler.release_slot()
            finished = await forward_events(call_id, tool.name, send_event, subscription)
        except asyncio.CancelledError as cancellation:
            await asyncio.shield(give_up(call_id, start, stop_reasons.reason_of(cancellation)))
            raise
    assert isinstance(finished, CallOutcome), "only tasks are put aside"
    return finished


async def give_up(call_id: UUID, start: "asyncio.Task[None]", reason: StopReason) -> None:
    """Request the cancellation of a call, once the asyncio task that starts it has ended."""
    await asyncio.gather(start, return_exceptions=True)
    await request_cancel([call_id], reason)


async def forward_events(
    call_id: UUID, name: str, send_event: SendEvent, subscription: Subscription
) -> CallOutcome | AwaitingInput:
    """Send each event of a call as it becomes durable. Returns the outcome, or AwaitingInput."""
    async for update in follow(call_id, name, 0, subscription, is_new=True):
        if not isinstance(update, Event):
            return update
        send_event(update)
    raise AssertionError("a call that is followed ends")


async def follow(
    call_id: UUID, name: str, after: int, subscription: Subscription, *, is_new: bool = False
) -> AsyncIterator[Event | CallOutcome | AwaitingInput]:
    """Yield the events of a call after sequence `after` as they become durable, then its outcome or AwaitingInput.

    `is_new`: nothing of the call was recorded before the subscription began.
    """
    update = await (_next_update if is_new else _read_update)(call_id, after, subscription)
    while True:
        for event in update.events if update else ():
            yield event
            after = event.sequence
        if update and update.outcome is not None:
            outcome, answer = Outcome(update.outcome), update.answer
            if answer is None:
                yield unanswered(outcome, name)
            else:
                yield await large_work.run(len(answer), partial(deserialize, outcome, answer))
            return
        if update and (update.is_awaiting_input or not update.known):
            yield AwaitingInput() if update.is_awaiting_input else unanswered(Outcome.LOST, name)
            return
        again = update is not None and update.is_partial
        update = await (_read_update if again else _next_update)(call_id, after, subscription)


async def _next_update(call_id: UUID, after: int, subscription: Subscription) -> CallUpdate | None:
    """Wait for a notification or the slow poll, and return what happened since event `after`."""
    await subscription.wait(POLL_SECONDS - asyncio.get_running_loop().time() % POLL_SECONDS)
    carried = subscription.take_payloads()
    update = events.update_from(call_id, after, carried) if carried else None
    return update or await _read_update(call_id, after, subscription)


async def _read_update(call_id: UUID, after: int, _subscription: Subscription) -> CallUpdate | None:
    """Read an update from the database; None while it is unavailable: the call keeps running, and its client waits."""
    try:
        return await update_reader.read(call_id, after)
    except Error as problem:
        log.warning("The database is unavailable; following call %s later: %s", call_id, problem)
        return None


async def request_cancel(call_ids: list[UUID], reason: StopReason) -> int:
    """Request cancellation of these calls. Returns how many were running. The sweeper ends those that do not stop."""
    return await run_in_db_thread(cancel_now, call_ids, reason)


def cancel_now(call_ids: list[UUID], reason: StopReason) -> int:
    """Request cancellation from synchronous code, such as pages.

    The reason is durable before the running processes are notified, so that the record contains it.
    """
    with transaction.atomic():
        running = RunningCall.objects.select_for_update().filter(pk__in=call_ids, cancel_requested=False)
        found = list(running.values_list("pk", flat=True))
        inputs.note_reason(found, reason)
        cancelled_count = RunningCall.objects.filter(pk__in=found, cancel_requested=False).update(cancel_requested=True)
        transaction.on_commit(partial(publish.notify, *(f"cancel:{call_id}" for call_id in call_ids)))
    return cancelled_count


async def cancel_request(session_id: UUID, request_id: str, reason: StopReason) -> int:
    """Cancel the calls of a session's request, in any process. Raises the database's error."""
    # Only `tasks/cancel` cancels a task.
    rows = RunningCall.objects.filter(session_id=session_id, request_id=request_id, task_seconds=None)
    calls = await run_in_db_thread(lambda: list(rows.values_list("pk", flat=True)[:100]))
    return await request_cancel(calls, reason) if calls else 0


def cancel_by_person(row: RunningCall) -> bool:
    """Request the cancellation of a call, as its client would. False if already requested, or if the call ended."""
    actor = changes.actor()
    if actor is None:
        reason = stop_reasons.cancelled_by("an administrator", "no name is known")
    else:
        name = actor.person.get_username() if actor.person else actor.name
        reason = stop_reasons.cancelled_by(name, actor.via.label)
    with changes.change_log_transaction():
        if not cancel_now([row.pk], reason):
            return False
        row.cancel_requested = True
        changes.record(
            Action.CHANGED,
            row,
            name=row.tool_name,
            before={"cancel_requested": False},
            after={"cancel_requested": True},
        )
        return True
