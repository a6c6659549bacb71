"""The rows of parked calls: every statement changes only the state that it knows, so that no process undoes another's.

Only a sweep deletes rows, once the end of their call is recorded (`tools_app/calls/parked.py`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from tools_app.audit.recorder.entries import process_id
from tools_app.catalog.tool_api.results import CallLost
from tools_app.core import encryption
from tools_app.models import ParkedCall, ParkedStatus, Process, RunningCall, Tenant
from tools_app.protocol import exact_json

# Rows, ended ones too: of one holder, whose calls keep a connection each, of one tenant, one upstream and one API key.
MAX_PARKED: Final = 500
MAX_PARKED_OF_TENANT: Final = 100
MAX_PARKED_OF_UPSTREAM: Final = 32
MAX_PARKED_OF_KEY: Final = 24
# What a row keeps for a client that may not come: questions, or the outcome of a call that ended without an answer.
MAX_STORED_BYTES: Final = 1024 * 1024

LOST: Final = (
    "The process that held the call was lost. The call may have run partially. Check before you call it again."
)
GONE: Final = (
    "The call no longer waits for this answer: it was answered before, no answer came in time, or the process that held"
    " it was lost. It is not run again. It may have run: check before you call it again."
)
NO_ANSWER: Final = "its client did not answer; the upstream was told that the call is cancelled"
HOLDER_GONE: Final = "the process that held it let go of it; the upstream may have run it"

# Kinds of outcomes that the hub adds to those of the upstream.
UNANSWERED, HOLDER_LOST = "unanswered", "lost"
# The kind of the outcome of a task that failed.
TASK_FAILED: Final = "task failed"
# The key of the data of an outcome.
OUTCOME_DATA: Final = "data"


class TooManyParked(Exception):
    """No further call can be parked. The message is for the upstream."""


@dataclass(frozen=True)
class Ticket:
    """A parked call and the round of its questions."""

    id: UUID
    round: int


class State(NamedTuple):
    """What tells whether a row has changed."""

    status: str
    round: int
    writes: int
    attender: UUID | None
    is_owner_alive: bool


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


def states(ids: Collection[UUID]) -> dict[UUID, State]:
    """Return the states of the rows that exist."""
    rows = _with_owners().filter(pk__in=ids).values_list("pk", *State._fields)
    return {id: State(*state) for id, *state in rows}


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
    output = sealed_output(id, {"events": [], "outcome": lost(HOLDER_GONE)})
    rows = ParkedCall.objects.filter(pk=id, owner=process_id()).exclude(status=ParkedStatus.ENDED)
    rows.update(status=ParkedStatus.ENDED, output=output)


def lost(cause: str) -> dict[str, Any]:
    """Return the outcome of a call whose end is unknown."""
    return {"kind": HOLDER_LOST, OUTCOME_DATA: {"cause": cause}}


def unanswered() -> dict[str, Any]:
    """Return the outcome of a call whose client did not answer."""
    return {"kind": UNANSWERED, OUTCOME_DATA: {"cause": NO_ANSWER}}


def sealed_output(id: UUID, output: Mapping[str, Any]) -> bytes:
    """Return an output as its row stores it."""
    return encryption.seal(exact_json.dumps(output), _purpose(id, "output"))


def sealed_answers(id: UUID, answers: Mapping[str, Any]) -> bytes:
    """Return answers as their row stores them."""
    return encryption.seal(exact_json.dumps(answers), _purpose(id, "answers"))


def opened(row: ParkedCall, field: str) -> Any:
    """Return the `answers` or the `output` of a row. Raises DecryptionError."""
    return exact_json.loads(encryption.unseal(bytes(getattr(row, field)), _purpose(row.pk, field)))


def _with_owners() -> QuerySet[ParkedCall]:
    return ParkedCall.objects.annotate(is_owner_alive=Exists(Process.objects.filter(pk=OuterRef("owner"))))


def _purpose(id: UUID, direction: str) -> str:
    return f"parked:{direction}:{id}"
