"""Parked calls: running calls of upstreams whose client answers their questions with another request.

The process that has the connection to the upstream holds the call. The request with the answers may arrive in any
process: both meet in the row of the parked call, and tell each other by notifications. A call is never sent again: if
its holder is lost, so is its outcome.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final
from uuid import UUID

import orjson
from django.conf import settings
from django.db import DatabaseError

from tools_app.audit.recorder.entries import process_id
from tools_app.core.database import run_in_db_thread
from tools_app.core.notifications import publish
from tools_app.core.notifications.listener import Subscription, TopicListener
from tools_app.models import ParkedStatus
from tools_app.models.ids import new_id
from tools_app.tool_api.results import CallLost, ToolError
from tools_app.upstreams import parked_rows
from tools_app.upstreams.client import Listen, Message
from tools_app.upstreams.errors import ErrorResponse, UpstreamFailed
from tools_app.upstreams.parked_rows import LOST, MAX_KEPT_BYTES, NoRoom, State, Ticket
from tools_app.upstreams.questions import Request
from tools_app.upstreams.runs import Run

log = logging.getLogger(__name__)

# How often events are passed on, and both sides read the row if no notification comes.
FLUSH_SECONDS: Final = 0.25
POLL_SECONDS: Final = 0.5
# Events between two sets of questions. Further ones are dropped.
MAX_EVENTS: Final = 500
MAX_EVENT_BYTES: Final = 256 * 1024
UNSURE: Final = (
    "The database did not confirm the answer in time. The call may have run partially, and is not run again. Check"
    " before you call it again."
)
# The state of a row that was not looked at yet.
HERE: Final = State(ParkedStatus.ASKING, 1, 0, None, is_owner_alive=True)

Replies = Mapping[str, Mapping[str, Any]]


@dataclass
class Step:
    """What became of a parked call: `asked` are its further questions, `outcome` is its end."""

    ticket: Ticket
    asked: dict[str, Request]
    outcome: dict[str, Any] | None = None

    def result(self) -> dict[str, Any]:
        """Return the result of an ended call. Raises what ended the call: see Exchange.run."""
        assert self.outcome is not None
        kind, said = self.outcome["kind"], self.outcome["said"]
        match kind:
            case "error":
                raise ErrorResponse(said["code"], said["message"], said["data"])
            case "failure":
                raise UpstreamFailed(said["message"], said["cause"])
            case "problem":
                raise ToolError(said["message"])
            case parked_rows.UNANSWERED | parked_rows.HOLDER_LOST:
                raise CallLost(LOST, said["cause"])
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
        self._attended: Counter[UUID] = Counter()
        self._seen: dict[UUID, State | None] = {}
        self._looking: asyncio.Task[None] | None = None
        self._listener = TopicListener()

    async def park(self, run: Run, tenant_id: UUID, upstream_id: UUID, call_id: UUID) -> Ticket:
        """Hold a run that asks. Raises NoRoom; then the run is still the caller's."""
        ticket = Ticket(new_id(), 1)
        inserting = asyncio.ensure_future(run_in_db_thread(parked_rows.insert, ticket, tenant_id, upstream_id, call_id))
        try:
            await asyncio.shield(inserting)
        except (DatabaseError, asyncio.CancelledError) as problem:
            # The row may have been written, or is written right now. After a cancellation, its client has gone away.
            await asyncio.wait([inserting])
            await asyncio.shield(self.abandon(ticket, call_id))
            if isinstance(problem, DatabaseError):
                raise NoRoom("The call cannot be kept while the database is not available.") from problem
            raise
        self._held[ticket.id] = asyncio.get_running_loop().create_task(self._hold(_Held(ticket, run)))
        self._held[ticket.id].add_done_callback(lambda _task: self._held.pop(ticket.id))
        self._look_on()
        return ticket

    async def answer(self, ticket: Ticket, call_id: UUID, tenant_id: UUID, replies: Replies, listen: Listen) -> Step:
        """Pass answers of the call `call_id` to the holder, and return what comes of them.

        `listen` gets notifications of the upstream. Raises CallLost if the parked call no longer waits for them, or if
        its holder is lost. If this is cancelled once the answers are accepted, so is the parked call.
        """
        topic = _topic(ticket.id)
        with self._listener.subscribe(topic) as subscription, self._attending(ticket.id):
            sealed = parked_rows.sealed_answers(ticket.id, replies)
            try:
                await run_in_db_thread(parked_rows.accept, ticket, tenant_id, call_id, sealed)
                publish.notify(topic)
                return await self._attend(ticket, call_id, subscription, listen)
            except asyncio.CancelledError:
                # The request that attends it has ended: its client went away, or its time is over.
                await asyncio.shield(self.abandon(ticket, call_id, ParkedStatus.ANSWERED))
                raise
            except DatabaseError as problem:
                await self.abandon(ticket, call_id, ParkedStatus.ANSWERED)
                raise CallLost(UNSURE, f"the answers could not be stored: {problem}") from problem

    async def abandon(self, ticket: Ticket, call_id: UUID, status: str = ParkedStatus.ASKING) -> None:
        """Cancel a parked call that is in this state. The record of the call `call_id` tells of it."""
        try:
            await run_in_db_thread(parked_rows.abandon, ticket, call_id, status)
        except DatabaseError as problem:
            log.warning("A parked call could not be cancelled; a sweep will end it: %s", problem)
        publish.notify(_topic(ticket.id))

    async def close(self) -> None:
        """Cancel the calls that are held here. Their rows tell so."""
        held = list(self._held.values())
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        if self._looking is not None:
            self._looking.cancel()
        await self._listener.stop()

    # --- One look at all rows that this process waits for ---

    @contextmanager
    def _attending(self, id: UUID) -> Iterator[None]:
        self._attended[id] += 1
        self._look_on()
        try:
            yield
        finally:
            self._attended[id] -= 1
            if not self._attended[id]:
                del self._attended[id]

    def _look_on(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._read_states())

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
            changed = [id for id in ids if id not in self._seen or self._seen[id] != states.get(id)]
            self._seen = {id: states.get(id) for id in ids}
            for id in changed:
                self._listener.notify(_topic(id))
        self._seen = {}

    # --- The process of the request with the answers ---

    async def _attend(self, ticket: Ticket, call_id: UUID, subscription: Subscription, listen: Listen) -> Step:
        """Return the next step. The row stays until the record of this call exists: a sweep deletes it."""
        heard = doubts = 0
        while True:
            row = await _patiently(parked_rows.row_of, ticket.id)
            if row is None or row.attender not in (None, call_id):
                raise CallLost(LOST, "its parked call was ended elsewhere")
            output = parked_rows.opened(row, "output") if row.output else {"events": []}
            for event in output["events"][heard:]:
                listen(event)
            heard = len(output["events"])
            if row.attender is None and row.status == ParkedStatus.ENDED:
                # It asked again, and then ended by itself.
                await _patiently(parked_rows.fetch, ticket.id, call_id)
                continue
            if row.status == ParkedStatus.ENDED:
                return Step(ticket, {}, output.get("outcome") or parked_rows.lost("it was cancelled"))
            if row.status == ParkedStatus.ASKING:
                return Step(Ticket(ticket.id, row.round), output["asked"])
            # At the second look: its holder may have written and let go of it in between.
            doubts = doubts + 1 if self._is_lost(row) else 0
            if doubts > 1:
                raise CallLost(LOST, "the process that held the parked call was lost")
            while not await subscription.wait(POLL_SECONDS) and not self._is_lost(row):
                pass

    def _is_lost(self, row: Any) -> bool:
        return row.pk not in self._held if row.owner == process_id() else not row.is_owner_alive

    # --- The process that holds the call ---

    async def _hold(self, held: "_Held") -> None:
        run = held.run
        try:
            with self._listener.subscribe(_topic(held.ticket.id)) as subscription:
                while (replies := await self._answers(held, subscription)) is not None:
                    box = _Outbox()
                    run.listener = box.add
                    run.reply(replies)
                    if not (asked := await self._next(held, box)):
                        break
                    await held.ask(box.events, asked)
        except _Gone:
            return
        except Exception:
            log.exception("A parked call failed")
            await _patiently(parked_rows.release, held.ticket.id)
        except asyncio.CancelledError:
            run.cancel()
            with suppress(DatabaseError):  # then a sweep ends it
                await run_in_db_thread(parked_rows.release, held.ticket.id)
            raise
        finally:
            run.cancel()

    async def _answers(self, held: "_Held", subscription: Subscription) -> Replies | None:
        """Wait for the client's answers. None if the call has ended meanwhile, by itself or because none came."""
        until = monotonic() + settings.MCPHUB_ELICITATION_TIMEOUT
        while True:
            row = await _patiently(parked_rows.row_of, held.ticket.id)
            if row is None or row.status == ParkedStatus.ENDED:
                return None
            if row.status == ParkedStatus.ANSWERED:
                replies: Replies = parked_rows.opened(row, "answers")
                return replies
            if held.run.is_done():
                if await held.end(_outcome(held.run)):
                    return None
            elif monotonic() > until and await held.end(parked_rows.unanswered(), attender=held.ticket.id):
                return None
            while not await subscription.wait(POLL_SECONDS):
                if held.run.is_done() or monotonic() > until:
                    break

    async def _next(self, held: "_Held", box: _Outbox) -> dict[str, Request]:
        """Wait for further questions, or for the end, which is written. Raises _Gone if the call was cancelled."""
        while True:
            try:
                async with asyncio.timeout(FLUSH_SECONDS):
                    asked = await held.run.next()
            except TimeoutError:
                seen = self._seen.get(held.ticket.id, HERE)
                if seen is None or seen.status == ParkedStatus.ENDED:
                    raise _Gone from None
                if box.unwritten:
                    box.unwritten = False
                    await held.write(ParkedStatus.ANSWERED, {"events": box.events})
                continue
            if not asked:
                outcome = {"events": box.events, "outcome": _outcome(held.run)}
                await held.write(ParkedStatus.ANSWERED, outcome, status=ParkedStatus.ENDED)
            return asked


@dataclass
class _Held:
    """A call that this process holds, the round of its questions, and how often the row was written."""

    ticket: Ticket
    run: Run
    writes: int = 0

    async def write(self, expected: str, output: Mapping[str, Any], **fields: Any) -> None:
        """Store what the holder has to say, if the row is in the expected state. Raises _Gone."""
        self.writes += 1
        fields["output"] = parked_rows.sealed_output(self.ticket.id, output)
        if not await _patiently(parked_rows.write, self.ticket, expected, self.writes, fields):
            raise _Gone
        publish.notify(_topic(self.ticket.id))

    async def ask(self, events: list[Message], asked: dict[str, Request]) -> None:
        """Store further questions. A call whose questions are too large to be kept ends. Raises _Gone."""
        if _size(asked) > MAX_KEPT_BYTES:
            self.run.cancel()
            outcome = _problem("The upstream asked too much at once. The call was cancelled.")
            await self.write(ParkedStatus.ANSWERED, {"events": events, "outcome": outcome}, status=ParkedStatus.ENDED)
            raise _Gone
        number = self.ticket.round + 1
        output = {"events": events, "asked": asked}
        await self.write(
            ParkedStatus.ANSWERED, output, round=number, status=ParkedStatus.ASKING, answers=None, attender=None
        )
        self.ticket = Ticket(self.ticket.id, number)

    async def end(self, outcome: dict[str, Any], **fields: Any) -> bool:
        """Store the outcome of a call that no other attends. False if it was answered just now, or is gone."""
        if _size(outcome) > MAX_KEPT_BYTES:
            outcome = _problem(f"The call ended without its answer, with a result of more than {MAX_KEPT_BYTES} bytes.")
        try:
            await self.write(
                ParkedStatus.ASKING, {"events": [], "outcome": outcome}, status=ParkedStatus.ENDED, **fields
            )
        except _Gone:
            return False
        return True


class _Gone(Exception):
    """The row is in another state than expected: the call was cancelled."""


def _size(value: Any) -> int:
    return len(orjson.dumps(value))


def _problem(message: str) -> dict[str, Any]:
    return {"kind": "problem", "said": {"message": message}}


def _outcome(run: Run) -> dict[str, Any]:
    """Return how a run ended, for another process."""
    try:
        return {"kind": "result", "said": run.result()}
    except ErrorResponse as problem:
        return {"kind": "error", "said": {"code": problem.code, "message": problem.message, "data": problem.data}}
    except UpstreamFailed as problem:
        return {"kind": "failure", "said": {"message": problem.message, "cause": problem.cause}}
    except ToolError as problem:
        return _problem(str(problem))
    except asyncio.CancelledError:
        return _problem("The call was cancelled.")


async def _patiently(query: Any, *args: Any) -> Any:
    """Return what a query returns, once the database is available. The caller is bounded in time, or holds on."""
    while True:
        try:
            return await run_in_db_thread(query, *args)
        except DatabaseError as problem:
            log.warning("A parked call waits for the database: %s", problem)
            await asyncio.sleep(POLL_SECONDS)


def _topic(id: UUID) -> str:
    return f"parked:{id}"
