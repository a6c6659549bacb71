"""Parked calls: running calls of upstreams whose client answers their questions with another request.

The process that has the connection to the upstream holds the call. The request with the answers may arrive in any
process: both meet in the row of the parked call, and tell each other by notifications. A call is never sent again: if
its holder is lost, so is its outcome.

Every statement changes only the state that it knows, so that no process undoes another's. Only a sweep deletes rows,
once the end of their call is recorded (`tools_app/calls/parked.py`).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from tools_app.audit.recorder.entries import process_id
from tools_app.catalog.tool_api.results import CallLost, ToolError, size_of
from tools_app.core import encryption, large_work
from tools_app.core.database import run_in_db_thread
from tools_app.core.ids import new_id
from tools_app.core.notifications import publish
from tools_app.core.notifications.listener import Subscription, TopicListener
from tools_app.models import ParkedCall, ParkedStatus, Process, RunningCall, Tenant
from tools_app.protocol import exact_json
from tools_app.upstreams.client import Listen, Message
from tools_app.upstreams.errors import ErrorResponse, TaskFailed, UpstreamFailed
from tools_app.upstreams.questions import Request, UpstreamRequest

log = logging.getLogger(__name__)

# Rows, ended ones too: of one holder, whose calls keep a connection each, of one tenant, one upstream and one API key.
MAX_PARKED: Final = 500
MAX_PARKED_OF_TENANT: Final = 100
MAX_PARKED_OF_UPSTREAM: Final = 32
MAX_PARKED_OF_KEY: Final = 24
# What a row keeps for a client that may not come: questions, or the outcome of a call that ended without an answer.
MAX_STORED_BYTES: Final = 1024 * 1024
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
UNCONFIRMED: Final = (
    "The database did not confirm the answer in time. The call may have run partially, and is not run again. Check"
    " before you call it again."
)
NO_ANSWER: Final = "its client did not answer; the upstream was told that the call is cancelled"
HOLDER_GONE: Final = "the process that held it let go of it; the upstream may have run it"
# Kinds of outcomes: a result, the error of this class with the values of `data` as its arguments, or the `cause` of an
# unknown end. Rows keep their form: while the hub is upgraded, processes of two versions read them.
RESULT, HOLDER_LOST, UNANSWERED = "result", "lost", "unanswered"
ERRORS: Final[Mapping[str, type[Exception]]] = {
    "error": ErrorResponse,
    "task failed": TaskFailed,
    "failure": UpstreamFailed,
    "problem": ToolError,
}

Replies = Mapping[str, Mapping[str, Any]]


class TooManyParked(Exception):
    """No further call can be parked. The message is for the upstream."""


class _RowChanged(Exception):
    """The row is in another state than expected: the call was cancelled."""


@dataclass(frozen=True)
class Ticket:
    """A parked call and the round of its questions."""

    id: UUID
    round: int


@dataclass
class Step:
    """What became of a parked call: `questions` are its further ones, `outcome` is its end."""

    ticket: Ticket
    questions: dict[str, Request]
    outcome: dict[str, Any] | None = None

    def result(self) -> dict[str, Any]:
        """Return the result of an ended call. Raises what ended the call: see Exchange.run."""
        assert self.outcome is not None
        kind, data = self.outcome["kind"], self.outcome["data"]
        if kind in {HOLDER_LOST, UNANSWERED}:
            raise CallLost(LOST, data["cause"])
        if kind in ERRORS:
            raise ERRORS[kind](*data.values())
        result: dict[str, Any] = data
        return result


# --- Rows ---


def insert(ticket: Ticket, tenant_id: UUID, upstream_id: UUID, call_id: UUID) -> None:
    """Add the row of a call that this process holds. Raises TooManyParked."""
    key_id = RunningCall.objects.filter(pk=call_id).values_list("api_key_id", flat=True).first()
    bounds = {
        "holder": (Q(owner=process_id()), MAX_PARKED),
        "tenant": (Q(tenant=tenant_id), MAX_PARKED_OF_TENANT),
        "upstream": (Q(upstream_id=upstream_id), MAX_PARKED_OF_UPSTREAM),
        "key": (Q(api_key_id=key_id, api_key_id__isnull=False), MAX_PARKED_OF_KEY),
    }
    with transaction.atomic():
        # Processes that count at the same time would exceed the bounds of the tenant.
        Tenant.objects.select_for_update(no_key=True).filter(pk=tenant_id).first()
        counts = ParkedCall.objects.aggregate(
            **{name: Count("pk", filter=condition) for name, (condition, _) in bounds.items()}
        )
        if any(counts[name] >= max_rows for name, (_, max_rows) in bounds.items()):
            raise TooManyParked("Too many calls wait for their clients. Try again later.")
        ParkedCall.objects.create(
            id=ticket.id,
            tenant_id=tenant_id,
            upstream_id=upstream_id,
            api_key_id=key_id,
            call_id=call_id,
            owner=process_id(),
            round=ticket.round,
        )


def row_of(id: UUID) -> ParkedCall | None:
    """Return a row, with `is_owner_alive`."""
    return _with_owners().filter(pk=id).first()


def states(ids: Collection[UUID]) -> dict[UUID, tuple[Any, ...]]:
    """Return what tells whether the rows that exist have changed; the status is the first."""
    fields = ("status", "round", "writes", "attender", "is_owner_alive")
    return {id: tuple(state) for id, *state in _with_owners().filter(pk__in=ids).values_list("pk", *fields)}


def _with_owners() -> QuerySet[ParkedCall]:
    return ParkedCall.objects.annotate(is_owner_alive=Exists(Process.objects.filter(pk=OuterRef("owner"))))


def accept(ticket: Ticket, tenant_id: UUID, attender: UUID, sealed: bytes) -> None:
    """Store the answers of one round, once, with the call that brought them. Raises CallLost if none are awaited."""
    rows = ParkedCall.objects.filter(pk=ticket.id, tenant=tenant_id, round=ticket.round)
    waiting = rows.filter(status=ParkedStatus.ASKING)
    if waiting.update(status=ParkedStatus.ANSWERED, answers=sealed, output=None, attender=attender):
        return
    # One that has ended by itself needs no answer.
    if not rows.filter(status=ParkedStatus.ENDED, attender=None).update(attender=attender):
        raise CallLost(GONE, "its parked call does not wait for an answer of this round")


def fetch(id: UUID, attender: UUID) -> None:
    """Have the outcome of a call that ended unattended recorded by `attender`, unless another took it."""
    ParkedCall.objects.filter(pk=id, status=ParkedStatus.ENDED, attender=None).update(attender=attender)


def abandon(ticket: Ticket, attender: UUID, status: str) -> None:
    """End a call that is in this state: its holder cancels it. `attender` is the call whose record tells of it."""
    rows = ParkedCall.objects.filter(pk=ticket.id, round=ticket.round, status=status)
    if status == ParkedStatus.ANSWERED:
        rows = rows.filter(attender=attender)
    rows.update(status=ParkedStatus.ENDED, attender=attender, output=None)


def write(ticket: Ticket, status: str, number: int, fields: Mapping[str, Any]) -> bool:
    """Write what the holder has to say, if the row is in this state. False if it is not.

    `number` is the holder's next one, so that a statement that was committed without confirmation can be repeated.
    """
    rows = ParkedCall.objects.filter(pk=ticket.id, owner=process_id())
    if rows.filter(round=ticket.round, status=status).update(writes=number, **fields):
        return True
    return rows.filter(writes=number).exists()


def release(id: UUID) -> None:
    """End a call that this process holds no longer.

    The call that attends it records that, or the client's next one, or else, if none comes in time, a sweep.
    """
    output = sealed(id, "output", {"events": [], "outcome": lost(HOLDER_GONE)})
    rows = ParkedCall.objects.filter(pk=id, owner=process_id()).exclude(status=ParkedStatus.ENDED)
    rows.update(status=ParkedStatus.ENDED, output=output)


def lost(cause: str, kind: str = HOLDER_LOST) -> dict[str, Any]:
    """Return the outcome of a call whose end is unknown."""
    return {"kind": kind, "data": {"cause": cause}}


def sealed(id: UUID, field: str, value: Any) -> bytes:
    """Return the `answers` or the `output` of a row as it is stored."""
    return encryption.seal(exact_json.dumps(value), f"parked:{field}:{id}")


def opened(row: ParkedCall, field: str) -> Any:
    """Return the `answers` or the `output` of a row. Raises DecryptionError."""
    return exact_json.loads(encryption.unseal(bytes(getattr(row, field)), f"parked:{field}:{row.pk}"))


async def _with_retry(query: Any, *args: Any) -> Any:
    """Return what a query returns, once the database is available. The caller is bounded in time, or holds on."""
    while True:
        try:
            return await run_in_db_thread(query, *args)
        except DatabaseError as error:
            log.warning("A parked call waits for the database: %s", error)
            await asyncio.sleep(POLL_SECONDS)


class ParkedCalls:
    """The parked calls of this process, and the requests in it that attend others. On the loop of the connections."""

    def __init__(self, is_left: Callable[[UUID], bool]) -> None:
        """`is_left` tells whether another process goes on with a call when this one stops."""
        self._is_left = is_left
        self._held: dict[UUID, asyncio.Task[None]] = {}
        self._attended: Counter[UUID] = Counter()
        self._states: dict[UUID, tuple[Any, ...] | None] = {}
        self._polling: asyncio.Task[None] | None = None
        self._listener = TopicListener()

    async def park(self, run: UpstreamRequest, tenant_id: UUID, upstream_id: UUID, call_id: UUID) -> Ticket:
        """Hold a run that asks. Raises TooManyParked; then the run is still the caller's."""
        ticket = Ticket(new_id(), 1)
        inserting = asyncio.ensure_future(run_in_db_thread(insert, ticket, tenant_id, upstream_id, call_id))
        try:
            await asyncio.shield(inserting)
        except (DatabaseError, asyncio.CancelledError) as error:
            # The row may have been written, or is written right now. After a cancellation, its client has gone away.
            await asyncio.wait([inserting])
            await asyncio.shield(self.abandon(ticket, call_id))
            if isinstance(error, DatabaseError):
                raise TooManyParked("The call cannot be kept while the database is not available.") from error
            raise
        self._held[ticket.id] = asyncio.get_running_loop().create_task(self._hold(_HeldCall(ticket, call_id, run)))
        self._held[ticket.id].add_done_callback(lambda _task: self._held.pop(ticket.id))
        self._start_polling()
        return ticket

    async def answer(self, ticket: Ticket, call_id: UUID, tenant_id: UUID, replies: Replies, listen: Listen) -> Step:
        """Pass answers of the call `call_id` to the holder, and return what comes of them.

        `listen` gets notifications of the upstream. Raises CallLost if the parked call no longer waits for them, or if
        its holder is lost. If this is cancelled once the answers are accepted, so is the parked call.
        """
        topic = _topic(ticket.id)
        self._attended += Counter([ticket.id])
        self._start_polling()
        try:
            with self._listener.subscribe(topic) as subscription:
                await run_in_db_thread(accept, ticket, tenant_id, call_id, sealed(ticket.id, "answers", replies))
                publish.notify(topic)
                return await self._attend(ticket, call_id, subscription, listen)
        except asyncio.CancelledError:
            # The request that attends it has ended: its client went away, or its time is over.
            await asyncio.shield(self.abandon(ticket, call_id, ParkedStatus.ANSWERED))
            raise
        except DatabaseError as error:
            await self.abandon(ticket, call_id, ParkedStatus.ANSWERED)
            raise CallLost(UNCONFIRMED, f"the answers could not be stored: {error}") from error
        finally:
            self._attended -= Counter([ticket.id])

    async def abandon(self, ticket: Ticket, call_id: UUID, status: str = ParkedStatus.ASKING) -> None:
        """Cancel a parked call that is in this state. The record of the call `call_id` tells of it."""
        try:
            await run_in_db_thread(abandon, ticket, call_id, status)
        except DatabaseError as error:
            log.warning("A parked call could not be cancelled; a sweep will end it: %s", error)
        publish.notify(_topic(ticket.id))

    async def close(self) -> None:
        """Cancel the calls that are held here. Their rows tell so, but for those that are left to other processes."""
        tasks = list(self._held.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._polling is not None:
            self._polling.cancel()
        await self._listener.stop()

    def _start_polling(self) -> None:
        if self._polling is None or self._polling.done():
            self._polling = asyncio.get_running_loop().create_task(self._read_states())

    async def _read_states(self) -> None:
        """Wake the calls that wait for a row that has changed, as long as there is any: notifications may be lost."""
        while self._held or self._attended:
            await asyncio.sleep(POLL_SECONDS)
            ids = {*self._held, *self._attended}
            try:
                found = await run_in_db_thread(states, ids)
            except Exception:
                log.exception("Parked calls could not be looked at")
                continue
            changed = [id for id in ids if id not in self._states or self._states[id] != found.get(id)]
            self._states = {id: found.get(id) for id in ids}
            for id in changed:
                self._listener.notify(_topic(id))
        self._states = {}

    # --- The process of the request with the answers ---

    async def _attend(self, ticket: Ticket, call_id: UUID, subscription: Subscription, listen: Listen) -> Step:
        """Return the next step. The row stays until the record of this call exists: a sweep deletes it."""
        sent_count = lost_count = 0
        while True:
            row = await _with_retry(row_of, ticket.id)
            if row is None or row.attender not in (None, call_id):
                raise CallLost(LOST, "its parked call was ended elsewhere")
            output: dict[str, Any] = {"events": []}
            if row.output:
                output = await large_work.run(len(row.output), partial(opened, row, "output"))
            for event in output["events"][sent_count:]:
                listen(event)
            sent_count = len(output["events"])
            if row.attender is None and row.status == ParkedStatus.ENDED:
                # It asked again, and then ended by itself.
                await _with_retry(fetch, ticket.id, call_id)
                continue
            if row.status == ParkedStatus.ENDED:
                return Step(ticket, {}, output.get("outcome") or lost("it was cancelled"))
            if row.status == ParkedStatus.ASKING:
                return Step(Ticket(ticket.id, row.round), output["asked"])
            # At the second look: its holder may have written and let go of it in between.
            lost_count = lost_count + 1 if self._is_lost(row) else 0
            if lost_count > 1:
                raise CallLost(LOST, "the process that held the parked call was lost")
            while not await subscription.wait(POLL_SECONDS) and not self._is_lost(row):
                pass

    def _is_lost(self, row: Any) -> bool:
        return row.pk not in self._held if row.owner == process_id() else not row.is_owner_alive

    # --- The process that holds the call ---

    async def _hold(self, call: "_HeldCall") -> None:
        run = call.run
        try:
            with self._listener.subscribe(_topic(call.ticket.id)) as subscription:
                while (replies := await self._answers(call, subscription)) is not None:
                    call.events, call.events_size = [], 0
                    run.listener = call.add_event
                    run.reply(replies)
                    if not (questions := await self._next(call)):
                        break
                    await call.ask(questions)
        except _RowChanged:
            return
        except Exception:
            log.exception("A parked call failed")
            await _with_retry(release, call.ticket.id)
        except asyncio.CancelledError:
            run.cancel()
            # Another process finds one that was left like one whose process died: by its owner.
            if not self._is_left(call.call_id):
                with suppress(DatabaseError):  # then a sweep ends it
                    await run_in_db_thread(release, call.ticket.id)
            raise
        finally:
            run.cancel()

    async def _answers(self, call: "_HeldCall", subscription: Subscription) -> Replies | None:
        """Wait for the client's answers. None if the call has ended meanwhile, by itself or because none came."""
        deadline = monotonic() + settings.MCPHUB_ELICITATION_TIMEOUT
        while True:
            row = await _with_retry(row_of, call.ticket.id)
            if row is None or row.status == ParkedStatus.ENDED:
                return None
            if row.status == ParkedStatus.ANSWERED:
                replies: Replies = opened(row, "answers")
                return replies
            if call.run.is_done():
                if await call.end(_outcome(call.run)):
                    return None
            elif monotonic() > deadline and await call.end(lost(NO_ANSWER, UNANSWERED), attender=call.ticket.id):
                return None
            while not await subscription.wait(POLL_SECONDS):
                if call.run.is_done() or monotonic() > deadline:
                    break

    async def _next(self, call: "_HeldCall") -> dict[str, Request]:
        """Wait for further questions, or for the end, which is written. Raises _RowChanged for a cancelled call."""
        while True:
            try:
                async with asyncio.timeout(FLUSH_SECONDS):
                    questions = await call.run.next()
            except TimeoutError:
                state = self._states.get(call.ticket.id, ("",))
                if state is None or state[0] == ParkedStatus.ENDED:
                    raise _RowChanged from None
                if call.has_unwritten_events:
                    await call.write(ParkedStatus.ANSWERED, {})
                continue
            if not questions:
                await call.write(ParkedStatus.ANSWERED, {"outcome": _outcome(call.run)}, status=ParkedStatus.ENDED)
            return questions


@dataclass
class _HeldCall:
    """A call that this process holds, the round of its questions, and how often the row was written.

    `call_id` is the call that asked its client first. `events` are those since its last answer.
    """

    ticket: Ticket
    call_id: UUID
    run: UpstreamRequest
    writes: int = 0
    events: list[Message] = field(default_factory=list)
    events_size: int = 0
    has_unwritten_events: bool = False

    def add_event(self, message: Message) -> None:
        """Keep a notification for the request that has answered the call last."""
        self.events_size += len(exact_json.dumps(message))
        if len(self.events) < MAX_EVENTS and self.events_size <= MAX_EVENT_BYTES:
            self.events.append(message)
            self.has_unwritten_events = True

    async def write(self, expected: str, output: Mapping[str, Any], **fields: Any) -> None:
        """Store what the holder has to say, if the row is in the expected state. Raises _RowChanged."""
        self.writes += 1
        self.has_unwritten_events = False
        output = {"events": [*self.events], **output}
        seal = partial(sealed, self.ticket.id, "output", output)
        fields["output"] = await large_work.run(size_of(output), seal)
        if not await _with_retry(write, self.ticket, expected, self.writes, fields):
            raise _RowChanged
        publish.notify(_topic(self.ticket.id))

    async def ask(self, questions: dict[str, Request]) -> None:
        """Store further questions. A call whose questions are too large to be kept ends. Raises _RowChanged."""
        if len(exact_json.dumps(questions)) > MAX_STORED_BYTES:
            self.run.cancel()
            outcome = _problem("The upstream asked too much at once. The call was cancelled.")
            await self.write(ParkedStatus.ANSWERED, {"outcome": outcome}, status=ParkedStatus.ENDED)
            raise _RowChanged
        fields = {"round": self.ticket.round + 1, "status": ParkedStatus.ASKING, "answers": None, "attender": None}
        await self.write(ParkedStatus.ANSWERED, {"asked": questions}, **fields)
        self.ticket = Ticket(self.ticket.id, self.ticket.round + 1)

    async def end(self, outcome: dict[str, Any], **fields: Any) -> bool:
        """Store the outcome of a call that no other attends. False if it was answered just now, or is gone."""
        size = await large_work.run(size_of(outcome), lambda: len(exact_json.dumps(outcome)))
        if size > MAX_STORED_BYTES:
            text = f"The call ended without its answer, with a result of more than {MAX_STORED_BYTES} bytes."
            outcome = _problem(text)
        try:
            await self.write(
                ParkedStatus.ASKING, {"events": [], "outcome": outcome}, status=ParkedStatus.ENDED, **fields
            )
        except _RowChanged:
            return False
        return True


def _problem(message: str) -> dict[str, Any]:
    return {"kind": "problem", "data": {"message": message}}


def _outcome(run: UpstreamRequest) -> dict[str, Any]:
    """Return how a run ended, for another process."""
    try:
        return {"kind": RESULT, "data": run.result()}
    except ErrorResponse as error:
        kind = "task failed" if isinstance(error, TaskFailed) else "error"
        return {"kind": kind, "data": {"code": error.code, "message": error.message, "data": error.data}}
    except UpstreamFailed as error:
        return {"kind": "failure", "data": {"message": error.message, "cause": error.cause}}
    except ToolError as error:
        return _problem(str(error))
    except asyncio.CancelledError:
        return _problem("The call was cancelled.")


def _topic(id: UUID) -> str:
    return f"parked:{id}"
