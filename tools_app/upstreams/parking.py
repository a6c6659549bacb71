"""Parked calls: running calls of upstreams whose client answers their questions with another request.

The process that has the connection to the upstream holds the call. The request with the answers may arrive in any
process: both meet in the row of the parked call, and tell each other by notifications. A call is never sent again: if
its holder is lost, so is its outcome.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final
from uuid import UUID

import orjson
from django.conf import settings
from django.db import DatabaseError

from tools_app.audit.recorder.entries import process_id
from tools_app.core import encryption
from tools_app.core.database import run_in_db_thread
from tools_app.core.notifications import publish
from tools_app.core.notifications.listener import Subscription, TopicListener
from tools_app.models import ParkedCall, ParkedStatus, Process
from tools_app.models.ids import new_id
from tools_app.tool_api.results import CallLost, ToolError
from tools_app.upstreams.client import Listen, Message
from tools_app.upstreams.errors import ErrorResponse, UpstreamFailed
from tools_app.upstreams.questions import Request
from tools_app.upstreams.runs import Run

log = logging.getLogger(__name__)

# Parked calls of one process, and of one tenant and one upstream in it. Each keeps a connection of its own.
MAX_PARKED: Final = 500
MAX_PARKED_OF_TENANT: Final = 100
MAX_PARKED_OF_UPSTREAM: Final = 32
# How often events are passed on, and both sides read the row if no notification comes.
FLUSH_SECONDS: Final = 0.25
POLL_SECONDS: Final = 0.5
# Events between two sets of questions. Further ones are dropped.
MAX_EVENTS: Final = 500
MAX_EVENT_BYTES: Final = 256 * 1024
LOST: Final = (
    "The process that held the call was lost. The call may have run partially. Check before you call it again."
)
GONE: Final = (
    "The call no longer waits for this answer: it was answered before, no answer came in time, or the process that held"
    " it was lost. It is not run again. It may have run: check before you call it again."
)

Replies = Mapping[str, Mapping[str, Any]]


class NoRoom(Exception):
    """No further call can be parked. The message is for the upstream."""


@dataclass(frozen=True)
class Ticket:
    """A parked call and the round of its questions."""

    id: UUID
    round: int


@dataclass
class Step:
    """What became of a parked call: `asked` are its further questions, `outcome` is its end."""

    ticket: Ticket
    asked: dict[str, Request]
    outcome: dict[str, Any] | None = None

    def result(self) -> dict[str, Any]:
        """Return the result of an ended call. Raises ErrorResponse, UpstreamFailed and ToolError, as the call did."""
        assert self.outcome is not None
        kind, said = self.outcome["kind"], self.outcome["said"]
        match kind:
            case "error":
                raise ErrorResponse(said["code"], said["message"], said["data"])
            case "failure":
                raise UpstreamFailed(said["message"], said["cause"])
            case "problem":
                raise ToolError(said["message"])
        result: dict[str, Any] = said
        return result


class _Outbox:
    """Collects the notifications of a call for the request that has answered it last."""

    def __init__(self) -> None:
        self.events: list[Message] = []
        self.unwritten = False
        self._size = 0

    def add(self, message: Message) -> None:
        self._size += len(orjson.dumps(message))
        if len(self.events) < MAX_EVENTS and self._size <= MAX_EVENT_BYTES:
            self.events.append(message)
            self.unwritten = True


class Parking:
    """The parked calls of this process, and the requests in it that attend others. On the loop of the connections."""

    def __init__(self) -> None:
        self._held: dict[UUID, asyncio.Task[None]] = {}
        # By tenant and by upstream.
        self._counts: Counter[UUID] = Counter()
        self._listener = TopicListener()

    async def park(self, run: Run, tenant_id: UUID, upstream_id: UUID, call_id: UUID) -> Ticket:
        """Hold a run that asks. Raises NoRoom; then the run is still the caller's."""
        counts = self._counts
        if (
            len(self._held) >= MAX_PARKED
            or counts[tenant_id] >= MAX_PARKED_OF_TENANT
            or counts[upstream_id] >= MAX_PARKED_OF_UPSTREAM
        ):
            raise NoRoom("Too many calls wait for their clients. Try again later.")
        id = new_id()
        counts.update((tenant_id, upstream_id))
        try:
            await run_in_db_thread(_insert, id, tenant_id, call_id)
        except BaseException as problem:
            counts.subtract((tenant_id, upstream_id))
            if isinstance(problem, DatabaseError):
                raise NoRoom("The call cannot be kept while the database is not available.") from problem
            # Its client has gone away. The row may have been written.
            await asyncio.shield(self.abandon(Ticket(id, 1)))
            raise
        task = self._held[id] = asyncio.get_running_loop().create_task(self._hold(id, run))

        def forget(_task: "asyncio.Task[None]") -> None:
            del self._held[id]
            counts.subtract((tenant_id, upstream_id))

        task.add_done_callback(forget)
        return Ticket(id, 1)

    async def answer(self, ticket: Ticket, tenant_id: UUID, replies: Replies, listen: Listen) -> Step:
        """Pass answers to the holder, and return what comes of them. `listen` gets notifications of the upstream.

        Raises CallLost if the call no longer waits for them, or if its holder is lost. If this is cancelled once the
        answers are accepted, so is the call.
        """
        topic = _topic(ticket.id)
        with self._listener.subscribe(topic) as subscription:
            sealed = encryption.seal(orjson.dumps(replies), _purpose(ticket.id, "answers"))
            await run_in_db_thread(_store_answers, ticket, tenant_id, sealed)
            publish.notify(topic)
            try:
                return await self._attend(ticket, subscription, listen)
            except asyncio.CancelledError:
                # The request that attends it has ended: its client went away, or its time is over.
                await asyncio.shield(self.abandon(ticket))
                raise

    async def abandon(self, ticket: Ticket) -> None:
        """Cancel a call that is no longer attended."""
        try:
            await run_in_db_thread(_delete, ticket.id)
        except DatabaseError as problem:
            log.warning("A parked call could not be cancelled; it ends by its timeout: %s", problem)
        publish.notify(_topic(ticket.id))

    async def close(self) -> None:
        """Cancel the calls that are held here."""
        held = list(self._held.values())
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        await self._listener.stop()

    # --- The process of the request with the answers ---

    async def _attend(self, ticket: Ticket, subscription: Subscription, listen: Listen) -> Step:
        heard = doubts = 0
        while True:
            row = await _patiently(_row, ticket.id)
            if row is None:
                raise CallLost(LOST, "its parked call was deleted")
            output = _opened(row, "output") if row.output else {"events": []}
            for event in output["events"][heard:]:
                listen(event)
            heard = len(output["events"])
            if row.status == ParkedStatus.ENDED:
                await _patiently(_delete, ticket.id)
                return Step(ticket, {}, output["outcome"])
            if row.round > ticket.round:
                return Step(Ticket(ticket.id, row.round), output["asked"])
            # At the second look: its holder may have written and let go of it in between.
            doubts = doubts + 1 if await self._is_lost(row) else 0
            if doubts > 1:
                await _patiently(_delete, ticket.id)
                raise CallLost(LOST, "the process that held the parked call was lost")
            await subscription.wait(POLL_SECONDS)

    async def _is_lost(self, row: ParkedCall) -> bool:
        if row.owner == process_id():
            return row.pk not in self._held
        return not await _patiently(Process.objects.filter(pk=row.owner).exists)

    # --- The process that holds the call ---

    async def _hold(self, id: UUID, run: Run) -> None:
        try:
            with self._listener.subscribe(_topic(id)) as subscription:
                number = 1
                while (replies := await self._answers(id, number, run, subscription)) is not None:
                    box = _Outbox()
                    run.listener = box.add
                    run.reply(replies)
                    asked = await self._next(id, run, box)
                    if not asked:
                        return
                    number += 1
                    output = {"events": box.events, "asked": asked}
                    await _write(id, output, round=number, status=ParkedStatus.ASKING)
        except _Gone:
            return
        except Exception:
            log.exception("A parked call failed")
            await _patiently(_delete, id)
        finally:
            run.cancel()

    async def _answers(self, id: UUID, number: int, run: Run, subscription: Subscription) -> Replies | None:
        """Wait for the client's answers. None if the call has ended meanwhile, by itself or because none came."""
        until = monotonic() + settings.MCPHUB_ELICITATION_TIMEOUT
        while True:
            row = await _patiently(_row, id)
            if row is None:
                return None
            if row.status == ParkedStatus.ANSWERED and row.round == number:
                replies: Replies = _opened(row, "answers")
                return replies
            if run.is_done():
                await _write(id, {"events": [], "outcome": _outcome(run)}, status=ParkedStatus.ENDED)
                return None
            if monotonic() > until + POLL_SECONDS:
                # The row stays, so that a sweep records that no answer came.
                return None
            await subscription.wait(POLL_SECONDS)

    async def _next(self, id: UUID, run: Run, box: _Outbox) -> dict[str, Request]:
        """Wait for further questions, or for the end, which is written. Raises _Gone if the call was cancelled."""
        while True:
            try:
                async with asyncio.timeout(FLUSH_SECONDS):
                    asked = await run.next()
            except TimeoutError:
                if box.unwritten:
                    box.unwritten = False
                    await _write(id, {"events": box.events})
                elif await _patiently(_row, id) is None:
                    raise _Gone from None
                continue
            if not asked:
                outcome = {"events": box.events, "outcome": _outcome(run)}
                await _write(id, outcome, status=ParkedStatus.ENDED)
            return asked


class _Gone(Exception):
    """The row was deleted: the call was cancelled."""


def _outcome(run: Run) -> dict[str, Any]:
    """Return how a run ended, for another process."""
    try:
        return {"kind": "result", "said": run.result()}
    except ErrorResponse as problem:
        return {"kind": "error", "said": {"code": problem.code, "message": problem.message, "data": problem.data}}
    except UpstreamFailed as problem:
        return {"kind": "failure", "said": {"message": problem.message, "cause": problem.cause}}
    except ToolError as problem:
        return {"kind": "problem", "said": {"message": str(problem)}}
    except asyncio.CancelledError:
        return {"kind": "problem", "said": {"message": "The call was cancelled."}}


async def _patiently(query: Any, *args: Any) -> Any:
    """Return what a query returns, once the database is available. The caller is bounded in time, or holds on."""
    while True:
        try:
            return await run_in_db_thread(query, *args)
        except DatabaseError as problem:
            log.warning("A parked call waits for the database: %s", problem)
            await asyncio.sleep(POLL_SECONDS)


async def _write(id: UUID, output: Mapping[str, Any], **fields: Any) -> None:
    """Store what the holder has to say. Raises _Gone."""
    sealed = encryption.seal(orjson.dumps(output), _purpose(id, "output"))
    if not await _patiently(_update, id, {"output": sealed, **fields}):
        raise _Gone
    publish.notify(_topic(id))


def _insert(id: UUID, tenant_id: UUID, call_id: UUID) -> None:
    ParkedCall.objects.create(id=id, tenant_id=tenant_id, call_id=call_id, owner=process_id())


def _update(id: UUID, fields: Mapping[str, Any]) -> int:
    return ParkedCall.objects.filter(pk=id).update(**fields)


def _row(id: UUID) -> ParkedCall | None:
    return ParkedCall.objects.filter(pk=id).first()


def _delete(id: UUID) -> None:
    ParkedCall.objects.filter(pk=id).delete()


def _store_answers(ticket: Ticket, tenant_id: UUID, sealed: bytes) -> None:
    """Store the answers of one round, once. Raises CallLost if the call does not wait for them."""
    rows = ParkedCall.objects.filter(pk=ticket.id, tenant=tenant_id)
    waiting = rows.filter(round=ticket.round, status=ParkedStatus.ASKING)
    if waiting.update(status=ParkedStatus.ANSWERED, answers=sealed, output=None):
        return
    # One that has ended by itself needs no answer.
    if not rows.filter(round=ticket.round, status=ParkedStatus.ENDED).exists():
        raise CallLost(GONE, "its parked call does not wait for an answer of this round")


def _opened(row: ParkedCall, field: str) -> Any:
    return orjson.loads(encryption.unseal(bytes(getattr(row, field)), _purpose(row.pk, field)))


def _purpose(id: UUID, direction: str) -> str:
    return f"parked:{direction}:{id}"


def _topic(id: UUID) -> str:
    return f"parked:{id}"
