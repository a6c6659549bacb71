"""The change log: who changed what, before and after, in one hash chain.

A change and its record are one transaction. Records are written one at a time: the transaction that writes one holds a
lock until it ends. Code that runs on behalf of no person, such as calls, records nothing.

A request checks permissions before it waits for the lock. The actor's `confirm` checks them again under the lock, so
that what the request waited for, such as its person's own demotion, counts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from getpass import getuser
from hashlib import sha256
from types import EllipsisType
from typing import Any, Final
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db import connection, models, transaction

from tools_app.core.ids import new_id
from tools_app.models import Action, Change, Tenant, Via

START: Final = sha256(b"mcphub changes v1\n").digest()
# The PostgreSQL advisory lock for the end of the chain.
LOCK_ID: Final = 0x6D63_7068_7562
MAX_NAME: Final = 500
BATCH: Final = 200
# The fields that the digest of a change covers, besides the previous digest.
HASHED_FIELDS: Final = (
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
    """Who makes a change, and how. A command-line user is not a person of the hub, but has a `name`.

    `confirm` raises an exception, and so rolls the change back, if the actor may not make it any more.
    """

    person: User | None
    via: Via
    remote_address: str = ""
    name: str = ""
    confirm: Callable[[], None] | None = field(default=None, compare=False)


ActorSource = Actor | Callable[[], Actor | None]

_current_actor: ContextVar[ActorSource | None] = ContextVar("acting", default=None)
# Whether the actor is confirmed for the rest of a `change_log_transaction`, which may take away its own permissions.
_is_confirmed: ContextVar[bool] = ContextVar("confirmed", default=False)


@contextmanager
def recording_as(actor: ActorSource) -> Iterator[None]:
    """Record changes in this context as made by this actor, or by the actor that the function returns when called."""
    token = _current_actor.set(actor)
    try:
        yield
    finally:
        _current_actor.reset(token)


def actor() -> Actor | None:
    """Return the current actor, or None."""
    source = _current_actor.get()
    return source() if callable(source) else source


def at_command_line() -> Actor:
    """Return the operating system user of this process as an actor."""
    try:
        name = getuser()
    except (KeyError, OSError):
        # In a container, a user may have an id and no name.
        name = "unknown"
    return Actor(None, Via.COMMAND, name=name)


@contextmanager
def change_log_transaction() -> Iterator[None]:
    """Open a transaction that locks the change log from its start.

    For changes that write several rows: a transaction that takes the lock later could wait for a row of another one
    that waits for the lock.
    """
    with transaction.atomic():
        lock_change_log()
        token = _is_confirmed.set(actor() is not None)
        try:
            yield
        finally:
            _is_confirmed.reset(token)


def lock_change_log() -> None:
    """Lock the change log until the transaction ends, if there is an actor, and confirm the actor.

    Raises TransactionManagementError outside a transaction: a change that cannot be recorded could not be rolled back.
    """
    by = actor()
    if by is None:
        return
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError(
            "A change is recorded in the transaction that makes it: wrap both in transaction.atomic."
        )
    # On SQLite, every transaction that may write has exclusive access to the database.
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK_ID])
    if by.confirm is not None and not _is_confirmed.get():
        by.confirm()


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
    """Record that the actor did `action` to `row`; return None without an actor.

    `before` and `after` are the fields that differ, as JSON values and without secrets. Omitted arguments are taken
    from the row. Raises TransactionManagementError outside the transaction that makes the change.
    """
    by = actor()
    if by is None:
        return None
    lock_change_log()
    position, previous = _chain_end()
    owner = tenant_of(row) if isinstance(tenant_id, EllipsisType) else tenant_id
    label = str(row) if name is None else name
    change = _change(by, action, row, label, fields=(before, after), tenant_id=owner, position=position + 1)
    change.kind = kind or change.kind
    change.digest = digest(previous, hashed_fields(change))
    change.save(force_insert=True)
    return change


def record_created(rows: Iterable[tuple[models.Model, Mapping[str, Any]]]) -> None:
    """Record that the actor created many rows, each with its fields; in one write, and as `record` does for one."""
    by = actor()
    if by is None:
        return
    lock_change_log()
    position, previous = _chain_end()
    created = []
    for at, (row, after) in enumerate(rows, position + 1):
        change = _change(by, Action.CREATED, row, str(row), fields=(None, after), tenant_id=tenant_of(row), position=at)
        previous = change.digest = digest(previous, hashed_fields(change))
        created.append(change)
    Change.objects.bulk_create(created, batch_size=BATCH)


def _chain_end() -> tuple[int, bytes]:
    """Return the position and the digest of the last change."""
    last = Change.objects.order_by("-position").values_list("position", "digest").first()
    return (last[0], bytes(last[1])) if last else (0, START)


def _change(
    by: Actor,
    action: Action,
    row: models.Model,
    name: str,
    *,
    fields: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None],
    tenant_id: UUID | None,
    position: int,
) -> Change:
    """Return an unsaved change without its digest."""
    return Change(
        id=new_id(),
        at=datetime.now(UTC),
        tenant_id=tenant_id,
        person_id=by.person.pk if by.person else None,
        person_name=by.person.get_username() if by.person else by.name[:150],
        via=by.via.value,
        remote_address=by.remote_address[:45],
        action=action.value,
        kind=str(row._meta.model_name),
        object_id=str(row.pk),
        object_name=name[:MAX_NAME],
        before=as_text(fields[0]),
        after=as_text(fields[1]),
        position=position,
    )


def tenant_of(row: models.Model) -> UUID | None:
    """Return the tenant that a row belongs to, or is; None for rows of the whole hub."""
    found: UUID | None = row.pk if isinstance(row, Tenant) else getattr(row, "tenant_id", None)
    return found


def as_text(fields: Mapping[str, Any] | None) -> str:
    """Return fields as JSON text."""
    return orjson.dumps(dict(fields or {}), default=str).decode()


def hashed_fields(change: Change) -> tuple[Any, ...]:
    """Return the recorded values of a change, in the order of SAID."""
    return tuple(getattr(change, name) for name in HASHED_FIELDS)


def digest(previous: bytes, fields: tuple[Any, ...]) -> bytes:
    """Return the digest of a change that follows the digest `previous`."""
    return sha256(previous + orjson.dumps(fields)).digest()
