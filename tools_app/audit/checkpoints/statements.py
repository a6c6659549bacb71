"""Signed statements about the audit log, as JSON: how far chains reach, and what was pruned from them."""

from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from tools_app.audit.checkpoints import signing
from tools_app.audit.models import Statement
from tools_app.models import Checkpoint, Tenant

EXPORTED = 500


class Head(NamedTuple):
    """The last record of a chain; `hash` in hex."""

    tenant: UUID | None
    position: int
    hash: str


class Cited(NamedTuple):
    """An existing checkpoint of another writer; `digest` in hex."""

    writer: UUID
    sequence: int
    digest: str


class Run(NamedTuple):
    """A run of pruned positions without a gap; `hash` is the one at the last of them, in hex."""

    first: int
    last: int
    hash: str


class ChangesHead(NamedTuple):
    """The last entry of the change log; `hash` in hex. Its chain belongs to no single process."""

    position: int
    hash: str


class CheckpointText(msgspec.Struct, frozen=True, tag_field="kind", tag="checkpoint", omit_defaults=True):
    """How far the chains of `writer` reach that changed since its previous checkpoint.

    `previous` is the digest of that checkpoint. `last`: the writer has ended. `by` is the process that signs: another
    one if the writer died. `changes`: the end of the chain of changes, if the writer had not signed it yet.
    """

    writer: UUID
    sequence: int
    previous: str | None
    made_at: datetime
    last: bool
    by: UUID
    heads: list[Head]
    seen: list[Cited]
    changes: ChangesHead | None = None


class PrunedText(msgspec.Struct, frozen=True, tag_field="kind", tag="pruned"):
    """What was pruned of a chain of records or checkpoints so far; `why` is the latest reason."""

    of: str
    writer: UUID
    tenant: UUID | None
    made_at: datetime
    runs: list[Run]
    why: str

    @property
    def position(self) -> int:
        """The position up to which all of the chain was pruned."""
        return self.runs[0].last if self.runs and self.runs[0].first == 1 else 0


Text = CheckpointText | PrunedText


class Signed(msgspec.Struct, frozen=True):
    """A statement as exported: `signature` and `public_key` in hex."""

    statement: str
    signature: str
    public_key: str


def signed(text: Text) -> dict[str, Any]:
    """Return the columns of `Statement` for a text, signed by this hub."""
    statement = msgspec.json.encode(text).decode()
    return {
        "writer": text.writer,
        "made_at": text.made_at,
        "statement": statement,
        "digest": sha256(statement.encode()).digest(),
        "signature": signing.sign(statement),
        "public_key": signing.own_key(),
    }


class NotTrusted(Exception):
    """A statement that is not trusted. The message explains why to an auditor."""


def opened(exported: Signed, keys: frozenset[str]) -> Text:
    """Return the contents of a statement. Raises NotTrusted unless one of `keys` signed it."""
    if exported.public_key not in keys:
        raise NotTrusted(f"signed with an unknown key, {signing.fingerprint(exported.public_key)}")
    if not signing.is_signed(exported.statement, _bytes(exported.signature), exported.public_key):
        raise NotTrusted("the signature does not fit")
    try:
        text: Text = msgspec.json.decode(exported.statement, type=Text)
    except msgspec.MsgspecError as problem:
        raise NotTrusted("this version of the hub does not understand it") from problem
    return text


def exported(row: Statement) -> Signed:
    """Return a stored statement as it is exported."""
    return Signed(row.statement, bytes(row.signature).hex(), row.public_key)


def exported_lines(tenant: Tenant | None = None, newest: int | None = None) -> Iterator[str]:
    """Yield the checkpoints as lines of JSON, in the order of creation; for a tenant, those that name it.

    `newest`: the maximum number of checkpoints, the newest ones.
    """
    rows = Checkpoint.objects.order_by("id")
    if newest is not None:
        for oldest in Checkpoint.objects.order_by("-id")[newest : newest + 1]:
            rows = rows.filter(id__gt=oldest.pk)
    if tenant is not None:
        rows = rows.filter(statement__contains=str(tenant.pk))
    for row in rows.iterator(EXPORTED):
        yield msgspec.json.encode(exported(row)).decode()


def digest_of(exported: Signed) -> str:
    """Return the digest that names a statement in later ones, in hex."""
    return sha256(exported.statement.encode()).hexdigest()


def _bytes(hexadecimal: str) -> bytes:
    try:
        return bytes.fromhex(hexadecimal)
    except ValueError:
        return b""
