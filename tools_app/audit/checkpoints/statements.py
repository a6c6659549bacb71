"""Signed statements about the audit log, as JSON: how far chains reach, and what was pruned from them.

An Ed25519 key signs them. It is not in the database, so write access to the records is not enough to sign them.
"""

from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.conf import settings

from tools_app.audit.models import Statement
from tools_app.models import Checkpoint, Tenant

KEY_BYTES = 32
FINGERPRINT_LETTERS = 16
EXPORTED = 500


def sign(statement: str) -> bytes:
    """Return this hub's signature of a text."""
    return _private_key(settings.MCPHUB_AUDIT_KEY).sign(statement.encode())


def own_key() -> str:
    """Return this hub's public key, in hex."""
    public_key = _private_key(settings.MCPHUB_AUDIT_KEY).public_key()
    return public_key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def known_keys() -> frozenset[str]:
    """Return the trusted public keys: this hub's own and the configured ones."""
    return frozenset({own_key(), *settings.MCPHUB_AUDIT_PUBLIC_KEYS})


def fingerprint(public_key: str) -> str:
    """Return the fingerprint that people compare: the beginning of the SHA-256 of a public key."""
    return sha256(public_key.encode()).hexdigest()[:FINGERPRINT_LETTERS]


@lru_cache(maxsize=4)
def _private_key(secret: str) -> Ed25519PrivateKey:
    derivation = HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=None, info=b"mcphub audit log v1")
    return Ed25519PrivateKey.from_private_bytes(derivation.derive(secret.encode()))


class Head(NamedTuple):
    """The last record of a chain; `hash` in hex."""

    tenant: UUID | None
    position: int
    hash: str


class CitedCheckpoint(NamedTuple):
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
    seen: list[CitedCheckpoint]
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
        "signature": sign(statement),
        "public_key": own_key(),
    }


class NotTrusted(Exception):
    """A statement that is not trusted. The message explains why to an auditor."""


def opened(exported: Signed, keys: frozenset[str]) -> Text:
    """Return the contents of a statement. Raises NotTrusted unless one of `keys` signed it."""
    if exported.public_key not in keys:
        raise NotTrusted(f"signed with an unknown key, {fingerprint(exported.public_key)}")
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(exported.public_key))
        key.verify(bytes.fromhex(exported.signature), exported.statement.encode())
    except (InvalidSignature, ValueError) as error:
        raise NotTrusted("the signature does not fit") from error
    try:
        text: Text = msgspec.json.decode(exported.statement, type=Text)
    except msgspec.MsgspecError as problem:
        raise NotTrusted("this version of the hub does not understand it") from problem
    return text


def trusted(row: Statement, keys: frozenset[str]) -> Text | None:
    """Return the contents of a stored statement; None unless one of `keys` signed it."""
    try:
        return opened(exported(row), keys)
    except NotTrusted:
        return None


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
