"""The record of what people change: who, what, before and after, in one chain.

A change and its record are one transaction, and records are written one after the other: whoever has written one
keeps the turn until its transaction ends. Code that runs for no person, as calls do, records nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from getpass import getuser
from hashlib import sha256
from types import EllipsisType
from typing import Any, Final
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db import connection, models, transaction

from tools_app.models import Action, Change, Tenant, Via
from tools_app.models.ids import new_id

START: Final = sha256(b"mcphub changes v1\n").digest()
# The number of PostgreSQL's advisory lock for the end of the chain: any that nothing else in the database uses.
TURN: Final = 0x6D63_7068_7562
MOST_NAME: Final = 500
# What the digest of a change covers, beside that of the change before it.
SAID: Final = (
    "id",
    "at",
    "tenant_id",
    "person_id",
    "person_name",
    "via",
    "remote_address",
    "action",
    "kind",
    "object_id",
    "object_name",
    "before",
    "after",
    "position",
)


@dataclass(frozen=True)
class Actor:
    """Who changes something, and how. Who works at the command line is no person of the hub, but has a `name`."""

    person: User | None
    via: Via
    remote_address: str = ""
    name: str = ""


Whoever = Actor | Callable[[], Actor | None]

_acting: ContextVar[Whoever | None] = ContextVar("acting", default=None)


@contextmanager
def acting(actor: Whoever) -> Iterator[None]:
    """Have what is changed in here recorded as this actor's, or as that of whom the function names when asked."""
    token = _acting.set(actor)
    try:
        yield
    finally:
        _acting.reset(token)


def actor() -> Actor | None:
    """Who acts now; None where nobody does."""
    whoever = _acting.get()
    return whoever() if callable(whoever) else whoever


def at_command_line() -> Actor:
    """Whoever runs this process, as the operating system calls them."""
    try:
        name = getuser()
    except (KeyError, OSError):
        # A container's user may have a number and no name.
        name = "unknown"
    return Actor(None, Via.COMMAND, name=name)


@contextmanager
def in_turn() -> Iterator[None]:
    """One transaction that has the turn from its beginning.

    For changes that write several rows: one that took the turn later could wait for another one's row, which waits
    for the turn.
    """
    with transaction.atomic():
        take_turn()
        yield


def take_turn() -> None:
    """Wait until nobody else records changes, if somebody acts. The turn ends with the transaction.

    Raises TransactionManagementError if there is none: what fails to be recorded could not be undone.
    """
    if actor() is None:
        return
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError(
            "A change is recorded in the transaction that makes it: wrap both in transaction.atomic."
        )
    # On SQLite every transaction that may write has the database to itself.
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [TURN])


def record(
    action: Action,
    row: models.Model,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    tenant_id: UUID | EllipsisType | None = ...,
    kind: str | None = None,
    name: str | None = None,
) -> Change | None:
    """Write down that the actor did `action` to `row`; None where nobody acts.

    `before` and `after` are the fields that differ, as JSON values and without secrets. What is not given is read off
    the row. Raises TransactionManagementError outside of the transaction that makes the change.
    """
    by = actor()
    if by is None:
        return None
    take_turn()
    last = Change.objects.order_by("-position").values_list("position", "digest").first()
    position, previous = (last[0], bytes(last[1])) if last else (0, START)
    change = Change(
        id=new_id(),
        at=datetime.now(UTC),
        tenant_id=tenant_of(row) if isinstance(tenant_id, EllipsisType) else tenant_id,
        person_id=by.person.pk if by.person else None,
        person_name=by.person.get_username() if by.person else by.name[:150],
        via=by.via.value,
        remote_address=by.remote_address[:45],
        action=action.value,
        kind=kind or str(row._meta.model_name),
        object_id=str(row.pk),
        object_name=(str(row) if name is None else name)[:MOST_NAME],
        before=as_text(before),
        after=as_text(after),
        position=position + 1,
    )
    change.digest = digest(previous, said_by(change))
    change.save(force_insert=True)
    return change


def tenant_of(row: models.Model) -> UUID | None:
    """The tenant that a row belongs to, or is; None for what belongs to the whole hub."""
    found: UUID | None = row.pk if isinstance(row, Tenant) else getattr(row, "tenant_id", None)
    return found


def as_text(fields: Mapping[str, Any] | None) -> str:
    """Fields as JSON text."""
    return orjson.dumps(dict(fields or {}), default=str).decode()


def said_by(change: Change) -> tuple[Any, ...]:
    """All that a change says, in the order of SAID."""
    return tuple(getattr(change, name) for name in SAID)


def digest(previous: bytes, said: tuple[Any, ...]) -> bytes:
    """The digest of a change that follows the digest `previous`."""
    return sha256(previous + orjson.dumps(said)).digest()
