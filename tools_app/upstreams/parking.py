"""Parked calls: running calls of upstreams whose client answers their questions with another request.

The process that has the connection to the upstream holds the call. The request with the answers may arrive in any
process: both meet in the row of the parked call, and tell each other by notifications. A call is never sent again: if
its holder is lost, so is its outcome.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError

from tools_app.audit.recorder.entries import process_id
from tools_app.catalog.tool_api.results import CallLost, ToolError, size_of
from tools_app.core import large_work
from tools_app.core.database import run_in_db_thread
from tools_app.core.ids import new_id
from tools_app.core.notifications import publish
from tools_app.core.notifications.listener import Subscription, TopicListener
from tools_app.models import ParkedStatus
from tools_app.protocol import exact_json
from tools_app.upstreams import parked_rows
from tools_app.upstreams.client import Listen, Message
from tools_app.upstreams.errors import ErrorResponse, TaskFailed, UpstreamFailed
from tools_app.upstreams.parked_rows import LOST, MAX_STORED_BYTES, OUTCOME_DATA, State, Ticket, TooManyParked
from tools_app.upstreams.questions import Request
from tools_app.upstreams.runs import UpstreamRequest

log = logging.getLogger(__name__)

# How often events are passed on, and both sides read the row if no notification comes.
FLUSH_SECONDS: Final = 0.25
POLL_SECONDS: Final = 0.5
# Events between two sets of questions. Further ones are dropped.
MAX_EVENTS: Final = 500
MAX_EVENT_BYTES: Final = 256 * 1024
UNCONFIRMED: Final = (
    "The database did not confirm the answer in time. The call may have run partially, and is not run again. Check"
    " before you call it again."
)
# The state of a row that was not looked at yet.
INITIAL_STATE: Final = State(ParkedStatus.ASKING, 1, 0, None, is_owner_alive=True)

Replies = Mapping[str, Mapping[str, Any]]


@dataclass
class Step:
    """What became of a parked call: `questions` are its further ones, `outcome` is its end."""

    ticket: Ticket
    questions: dict[str, Request]
    outcome: dict[str, Any] | None = None

    def result(self) -> dict[str, Any]:
        """Return the result of an ended call. Raises what ended the call: see Exchange.run."""
        assert self.outcome is not None
        kind, data = self.outcome["kind"], self.outcome[OUTCOME_DATA]
        match kind:
            case "error":
                raise ErrorResponse(data["code"], data["message"], data["data"])
            case parked_rows.TASK_FAILED:
                raise TaskFailed(data["code"], data["message"], data["data"])
            case "failure":
                raise UpstreamFailed(data["message"], data["cause"])
            case "problem":
                raise ToolError(data["message"])
            case parked_rows.UNANSWERED | parked_rows.HOLDER_LOST:
                raise CallLost(LOST, data["cause"])
        result: dict[str, Any] = data
        return result


class _EventBuffer:
    """Collects the notifications of a call for the request that has answered it last."""

    def __init__(self) -> None:
        self.events: list[Message] = []
        self.has_unwritten = False
        self._size = 0

    def add(self, message: Message) -> None:
        self._size += len(exact_json.dumps(message))
        if len(self.events) < MAX_EVENTS and self._size <= MAX_EVENT_BYTES:
            self.events.append(message)
            self.has_unwritten = True


class ParkedCalls:
    """The parked calls of this process, and the requests in it that attend others. On the loop of the connections."""

    def __init__(self, is_left: Callable[[UUID], bool]) -> None:
        """`is_left` tells whether another process goes on with a call when this one stops."""
        self._is_left = is_left
        self._held: dict[UUID, asyncio.Task[None]] = {}
        self._attended: Counter[UUID] = Counter()
        self._states: dict[UUID, State | None] = {}
        self._polling: asyncio.Task[None] | None = None
        self._listener = TopicListener()

    async def park(self, run: UpstreamRequest, tenant_id: UUID, upstream_id: UUID, call_id: UUID) -> Ticket:
        """Hold a run that asks. Raises TooManyParked; then the run is still the caller's."""
        ticket = Ticket(new_id(), 1)
        inserting = asyncio.ensure_future(run_in_db_thread(parked_rows.insert, ticket, tenant_id, upstream_id, call_id))
        try:
            await asyncio.shield(inserting)
        except (DatabaseError, asyncio.CancelledError) as problem:
            # The row may have been written, or is written right now. After a cancellation, its client has gone away.
            await asyncio.wait([inserting])
            await asyncio.shield(self.abandon(ticket, call_id))
            if isinstance(problem, DatabaseError):
                raise TooManyParked("The call cannot be kept while the database is not available.") from problem
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
        with self._listener.subscribe(topic) as subscription, self._attending(ticket.id):
            sealed_answers = parked_rows.sealed_answers(ticket.id, replies)
            try:
                await run_in_db_thread(parked_rows.accept, ticket, tenant_id, call_id, sealed_answers)
                publish.notify(topic)
                return await self._attend(ticket, call_id, subscription, listen)
            except asyncio.CancelledError:
                # The request that attends it has ended: its client went away, or its time is over.
                await asyncio.shield(self.abandon(ticket, call_id, ParkedStatus.ANSWERED))
                raise
            except DatabaseError as problem:
                await self.abandon(ticket, call_id, ParkedStatus.ANSWERED)
                raise CallLost(UNCONFIRMED, f"the answers could not be stored: {problem}") from problem

    async def abandon(self, ticket: Ticket, call_id: UUID, status: str = ParkedStatus.ASKING) -> None:
        """Cancel a parked call that is in this state. The record of the call `call_id` tells of it."""
        try:
            await run_in_db_thread(parked_rows.abandon, ticket, call_id, status)
        except DatabaseError as problem:
            log.warning("A parked call could not be cancelled; a sweep will end it: %s", problem)
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

    # --- One look at all rows that this process waits for ---

    @contextmanager
    def _attending(self, parked_id: UUID) -> Iterator[None]:
        self._attended[parked_id] += 1
        self._start_polling()
        try:
            yield
        finally:
            self._attended[parked_id] -= 1
            if not self._attended[parked_id]:
                del self._attended[parked_id]

    def _start_polling(self) -> None:
        if self._polling is None or self._polling.done():
            self._polling = asyncio.get_running_loop().create_task(self._read_states())

    async def _read_states(self) -> None:
        """Wake the calls that wait for a row that has changed, as long as there is any: notifications may be lost."""
        while self._held or self._attended:
            await asyncio.sleep(POLL_SECONDS)
            ids = {*self._held, *self._attended}
            try:
                states = await run_in_db_thread(parked_rows.states, ids)
            except DatabaseError as problem:
                log.warning("Parked calls wait for the database: %s", problem)
                continue
            except Exception:
                log.exception("Parked calls could not be looked at")
                continue
            changed = [id for id in ids if id not in self._states or self._states[id] != states.get(id)]
            self._states = {id: states.get(id) for id in ids}
            for id in changed:
                self._listener.notify(_topic(id))
        self._states = {}

    # --- The process of the request with the answers ---

    async def _attend(self, ticket: Ticket, call_id: UUID, subscription: Subscription, listen: Listen) -> Step:
        """Return the next step. The row stays until the record of this call exists: a sweep deletes it."""
        sent_count = lost_count = 0
        while True:
            row = await _with_retry(parked_rows.row_of, ticket.id)
            if row is None or row.attender not in (None, call_id):
                raise CallLost(LOST, "its parked call was ended elsewhere")
            output: dict[str, Any] = {"events": []}
            if row.output:
                output = await large_work.run(len(row.output), partial(parked_rows.opened, row, "output"))
            for event in output["events"][sent_count:]:
                listen(event)
            sent_count = len(output["events"])
            if row.attender is None and row.status == ParkedStatus.ENDED:
                # It asked again, and then ended by itself.
                await _with_retry(parked_rows.fetch, ticket.id, call_id)
                continue
            if row.status == ParkedStatus.ENDED:
                return Step(ticket, {}, output.get("outcome") or parked_rows.lost("it was cancelled"))
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
                    buffer = _EventBuffer()
                    run.listener = buffer.add
                    run.reply(replies)
                    if not (questions := await self._next(call, buffer)):
                        break
                    await call.ask(buffer.events, questions)
        except _RowChanged:
            return
        except Exception:
            log.exception("A parked call failed")
            await _with_retry(parked_rows.release, call.ticket.id)
        except asyncio.CancelledError:
            run.cancel()
            # Another process finds one that was left like one whose process died: by its owner.
            if not self._is_left(call.call_id):
                with suppress(DatabaseError):  # then a sweep ends it
                    await run_in_db_thread(parked_rows.release, call.ticket.id)
            raise
        finally:
            run.cancel()

    async def _answers(self, call: "_HeldCall", subscription: Subscription) -> Replies | None:
        """Wait for the client's answers. None if the call has ended meanwhile, by itself or because none came."""
        deadline = monotonic() + settings.MCPHUB_ELICITATION_TIMEOUT
        while True:
            row = await _with_retry(parked_rows.row_of, call.ticket.id)
            if row is None or row.status == ParkedStatus.ENDED:
                return None
            if row.status == ParkedStatus.ANSWERED:
                replies: Replies = parked_rows.opened(row, "answers")
                return replies
            if call.run.is_done():
                if await call.end(_outcome(call.run)):
                    return None
            elif monotonic() > deadline and await call.end(parked_rows.unanswered(), attender=call.ticket.id):
                return None
            while not await subscription.wait(POLL_SECONDS):
                if call.run.is_done() or monotonic() > deadline:
                    break

    async def _next(self, call: "_HeldCall", buffer: _EventBuffer) -> dict[str, Request]:
        """Wait for further questions, or for the end, which is written. Raises _RowChanged for a cancelled call."""
        while True:
            try:
                async with asyncio.timeout(FLUSH_SECONDS):
                    questions = await call.run.next()
            except TimeoutError:
                state = self._states.get(call.ticket.id, INITIAL_STATE)
                if state is None or state.status == ParkedStatus.ENDED:
                    raise _RowChanged from None
                if buffer.has_unwritten:
                    buffer.has_unwritten = False
                    await call.write(ParkedStatus.ANSWERED, {"events": [*buffer.events]})
                continue
            if not questions:
                outcome = {"events": [*buffer.events], "outcome": _outcome(call.run)}
                await call.write(ParkedStatus.ANSWERED, outcome, status=ParkedStatus.ENDED)
            return questions


@dataclass
class _HeldCall:
    """A call that this process holds, the round of its questions, and how often the row was written.

    `call_id` is the call that asked its client first.
    """

    ticket: Ticket
    call_id: UUID
    run: UpstreamRequest
    writes: int = 0

    async def write(self, expected: str, output: Mapping[str, Any], **fields: Any) -> None:
        """Store what the holder has to say, if the row is in the expected state. Raises _RowChanged."""
        self.writes += 1
        sealed = partial(parked_rows.sealed_output, self.ticket.id, output)
        fields["output"] = await large_work.run(size_of(output), sealed)
        if not await _with_retry(parked_rows.write, self.ticket, expected, self.writes, fields):
            raise _RowChanged
        publish.notify(_topic(self.ticket.id))

    async def ask(self, events: list[Message], questions: dict[str, Request]) -> None:
        """Store further questions. A call whose questions are too large to be kept ends. Raises _RowChanged."""
        if _size(questions) > MAX_STORED_BYTES:
            self.run.cancel()
            outcome = _problem("The upstream asked too much at once. The call was cancelled.")
            await self.write(ParkedStatus.ANSWERED, {"events": events, "outcome": outcome}, status=ParkedStatus.ENDED)
            raise _RowChanged
        round_number = self.ticket.round + 1
        output = {"events": events, "asked": questions}
        await self.write(
            ParkedStatus.ANSWERED, output, round=round_number, status=ParkedStatus.ASKING, answers=None, attender=None
        )
        self.ticket = Ticket(self.ticket.id, round_number)

    async def end(self, outcome: dict[str, Any], **fields: Any) -> bool:
        """Store the outcome of a call that no other attends. False if it was answered just now, or is gone."""
        if await large_work.run(size_of(outcome), partial(_size, outcome)) > MAX_STORED_BYTES:
            outcome = _problem(
                f"The call ended without its answer, with a result of more than {MAX_STORED_BYTES} bytes."
            )
        try:
            await self.write(
                ParkedStatus.ASKING, {"events": [], "outcome": outcome}, status=ParkedStatus.ENDED, **fields
            )
        except _RowChanged:
            return False
        return True


class _RowChanged(Exception):
    """The row is in another state than expected: the call was cancelled."""


def _size(value: Any) -> int:
    return len(exact_json.dumps(value))


def _problem(message: str) -> dict[str, Any]:
    return {"kind": "problem", OUTCOME_DATA: {"message": message}}


def _outcome(run: UpstreamRequest) -> dict[str, Any]:
    """Return how a run ended, for another process."""
    try:
        return {"kind": "result", OUTCOME_DATA: run.result()}
    except ErrorResponse as problem:
        error_kind = parked_rows.TASK_FAILED if isinstance(problem, TaskFailed) else "error"
        return {
            "kind": error_kind,
            OUTCOME_DATA: {"code": problem.code, "message": problem.message, "data": problem.data},
        }
    except UpstreamFailed as problem:
        return {"kind": "failure", OUTCOME_DATA: {"message": problem.message, "cause": problem.cause}}
    except ToolError as problem:
        return _problem(str(problem))
    except asyncio.CancelledError:
        return _problem("The call was cancelled.")


async def _with_retry(query: Any, *args: Any) -> Any:
    """Return what a query returns, once the database is available. The caller is bounded in time, or holds on."""
    while True:
        try:
            return await run_in_db_thread(query, *args)
        except DatabaseError as problem:
            log.warning("A parked call waits for the database: %s", problem)
            await asyncio.sleep(POLL_SECONDS)


def _topic(id: UUID) -> str:
    return f"parked:{id}"
