"""Following calls that run elsewhere, as the process that answers for them sees it.

What whoever runs the call records is read from the store whenever the doorbell rings, and at a slow poll in any case.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from uuid import UUID

import msgspec
from django.db import Error

from tools_app.events import publish, store
from tools_app.events.store import Event
from tools_app.events.switchboard import Switchboard, Watch
from tools_app.execution import detached, inputs, turnstile
from tools_app.execution.catalog import CompiledTool
from tools_app.execution.inline import Say
from tools_app.execution.invocation import Invocation, Ledger, call_topic
from tools_app.execution.run import Ran, restored, unanswered
from tools_app.models import Outcome, RunningCall
from tools_app.models.bridge import in_store

log = logging.getLogger(__name__)


class PutAside(msgspec.Struct, frozen=True):
    """A task waits for its client: nothing more happens until it was answered."""


async def run_in_worker(
    invocation: Invocation, tool: CompiledTool, ledger: Ledger, say: Say, switchboard: Switchboard
) -> Ran:
    """Queue a call and follow it to its end. Raises RecorderGone or RpcError if it could not even be queued."""
    call_id = ledger.facts.id
    with switchboard.watching(call_topic(call_id)) as watch:
        # A task of its own: a call that is half begun could not be cancelled.
        beginning = asyncio.create_task(detached.begin(invocation, tool, ledger))
        try:
            await asyncio.shield(beginning)
            turnstile.step_aside()
            finished = await heard(call_id, tool.name, say, watch)
        except asyncio.CancelledError as cancellation:
            await asyncio.shield(_give_up(call_id, beginning, "".join(cancellation.args)))
            raise
    assert isinstance(finished, Ran), "only tasks are put aside"
    return finished


async def _give_up(call_id: UUID, beginning: "asyncio.Task[None]", reason: str) -> None:
    await asyncio.gather(beginning, return_exceptions=True)
    if reason:
        await in_store(inputs.note_reason, [call_id], reason)
    await request_cancel([call_id])


async def heard(call_id: UUID, name: str, say: Say, watch: Watch) -> Ran | PutAside:
    """Say each event of a call as it becomes durable; how it ended, or that it waits for its client."""
    async for news in followed(call_id, name, 0, watch):
        if not isinstance(news, Event):
            return news
        say(news)
    raise AssertionError("a call that is followed ends")


async def followed(call_id: UUID, name: str, after: int, watch: Watch) -> AsyncIterator[Event | Ran | PutAside]:
    """The events of a call after sequence `after` as they become durable, and at last how it ended, or waits."""
    while True:
        news = await _news(call_id, after)
        for event in news.events if news else ():
            yield event
            after = event.sequence
        if news and news.outcome is not None:
            yield _ran(Outcome(news.outcome), news.answer, name)
            return
        if news and (news.put_aside or not news.known):
            yield PutAside() if news.put_aside else unanswered(Outcome.LOST, name)
            return
        if news is None or len(news.events) < store.MOST_EVENTS:
            await watch.wait()


async def _news(call_id: UUID, after: int) -> store.News | None:
    """What the store says; None while it is away: the call goes on without it, and so does whoever waits."""
    try:
        return await in_store(store.news, call_id, after)
    except Error as problem:
        log.warning("The store is away, call %s is followed later: %s", call_id, problem)
        return None


def _ran(outcome: Outcome, answer: bytes | None, name: str) -> Ran:
    return unanswered(outcome, name) if answer is None else restored(outcome, answer)


async def request_cancel(call_ids: list[UUID]) -> int:
    """Ask whoever runs these calls to stop; how many were still running. The sweeper ends what does not stop."""
    asked = await in_store(_request_cancel, call_ids)
    publish.ring(*(f"cancel:{call_id}" for call_id in call_ids))
    return asked


def cancel_now(call_ids: list[UUID]) -> int:
    """The same for code that is not asynchronous, as pages are."""
    asked = _request_cancel(call_ids)
    publish.ring(*(f"cancel:{call_id}" for call_id in call_ids))
    return asked


def _request_cancel(call_ids: list[UUID]) -> int:
    return RunningCall.objects.filter(pk__in=call_ids, cancel_requested=False).update(cancel_requested=True)


async def cancel_request(session_id: UUID, request_id: str, reason: str = "") -> int:
    """Cancel what a session's request runs, in whichever process. Raises the database's error."""
    calls = await in_store(_calls_of, session_id, request_id)
    if reason:
        await in_store(inputs.note_reason, calls, reason)
    return await request_cancel(calls)


def _calls_of(session_id: UUID, request_id: str) -> list[UUID]:
    """The calls of a request; a task is cancelled by its own method only."""
    rows = RunningCall.objects.filter(session_id=session_id, request_id=request_id, task_seconds=None)
    return list(rows.values_list("pk", flat=True)[:100])
