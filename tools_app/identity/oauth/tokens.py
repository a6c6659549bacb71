"""Codes and tokens of connections: issued, exchanged, rotated and ended. Only their digests are stored.

A code begins a family. A refresh token that is used again later than GRACE after its rotation, or a code that is used
twice, ends the family: somebody else has it (RFC 9700, section 4.14.2).

What issues or ends tokens of a connection takes its lock, so that none is issued to a family that ends meanwhile.
"""

import secrets
from datetime import datetime, timedelta
from functools import cache
from hashlib import sha256
from typing import Final, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from tools_app.core.current_time import CurrentTime
from tools_app.core.ids import new_id
from tools_app.identity.oauth import scopes
from tools_app.identity.people import validity
from tools_app.models import AccessToken, AuthorizationCode, Connection, DeviceCode, Membership, RefreshToken
from tools_app.tenants.keys import ACCESS_PREFIX, KEY_BYTES, access_digest, digest_of, signed_digest

CODE_START: Final = "mcphub_ac_"
REFRESH_START: Final = "mcphub_rt_"
CODE_LIFETIME: Final = timedelta(seconds=60)
ACCESS_LIFETIME: Final = timedelta(hours=1)
REFRESH_LIFETIME: Final = timedelta(days=30)
# Sessions of one client that run in parallel refresh with the same token.
GRACE: Final = timedelta(minutes=5)
MAX_PAIRS_OF_FAMILY: Final = 50
# Access tokens of a service client, or of a workload, at a time; and those that an issuer signed for one subject.
MAX_LIVE: Final = 100
MAX_SIGNED: Final = 1000


class Replayed(Exception):
    """A code or refresh token was used twice; its family has ended."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection


class TokenRevoked(Exception):
    """A code or refresh token ended while it was used: its connection or its family has."""


class TooManyTokens(Exception):
    """A subject has MAX_SIGNED tokens that are valid now."""


class Pair(NamedTuple):
    """An access token and the refresh token that renews it, which is "" for a client that needs none."""

    access: str
    refresh: str
    scope: str
    expires_in: int


def issue_code(connection: Connection, *, redirect_uri: str, challenge: str, scope: str) -> str:
    """Return a new code, which is valid for CODE_LIFETIME and once.

    Raises TokenRevoked if the connection does not have this scope any more.
    """
    code = CODE_START + secrets.token_urlsafe(KEY_BYTES)
    with transaction.atomic():
        lock(connection)
        if not scopes.covers(connection.scope, scope):
            raise TokenRevoked
        AuthorizationCode.objects.create(
            digest=digest_of(code),
            connection=connection,
            family=new_id(),
            scope=scope,
            redirect_uri=redirect_uri,
            code_challenge=challenge,
            expires_at=timezone.now() + CODE_LIFETIME,
        )
    return code


def find_code(code: str, client_id: UUID) -> AuthorizationCode | None:
    """Return the row of a code of this client, used or not; None if it is unknown, or expired and unused."""
    rows = AuthorizationCode.objects.select_related("connection__client", "connection__person", "connection__tenant")
    row = rows.filter(digest=digest_of(code), connection__client=client_id).first()
    if row is None or (row.used_at is None and row.expires_at <= timezone.now()):
        return None
    return row


def exchange_code(row: AuthorizationCode, *, is_bound: bool = False) -> Pair:
    """Return the tokens of a code. Raises Replayed for its second use, and TokenRevoked.

    `is_bound`: the client authenticated, and has to do so to use the refresh token.
    """
    return _exchange(row, row.connection, row.family, is_bound=is_bound)


def exchange_device_code(row: DeviceCode, *, is_bound: bool = False) -> Pair:
    """Return the tokens of an allowed request of a device. Raises Replayed for its second use, and TokenRevoked."""
    assert row.connection is not None
    return _exchange(row, row.connection, row.pk, is_bound=is_bound)


def issue_access(connection: Connection, scope: str) -> Pair:
    """Return an access token for a client that can ask for another at any time. The oldest beyond MAX_LIVE end."""
    access = ACCESS_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    row, lasts = new_id(), _lifetime(connection)
    with transaction.atomic():
        lock(connection)
        live = AccessToken.objects.filter(connection=connection).order_by("-created_at", "-id")
        AccessToken.objects.filter(pk__in=list(live.values_list("pk", flat=True)[MAX_LIVE - 1 :])).delete()
        ends = timezone.now() + lasts
        AccessToken.objects.create(
            id=row, digest=access_digest(access), connection=connection, family=row, scope=scope, expires_at=ends
        )
    return Pair(access, "", scope, int(lasts.total_seconds()))


def store_signed(connection: Connection, token: str, place: str, scope: str, expires_at: datetime) -> None:
    """Accept a token that an issuer signed from now on, at one endpoint (`place`; see `keys.signed_digest`).

    Raises TooManyTokens, and IntegrityError for a token that is accepted already.
    """
    # One row for what was signed: its holder can write an ES256 signature, and base64, in more than one way.
    statement = signed_digest(token.rpartition(".")[0], place)
    family = UUID(bytes=sha256(statement.encode()).digest()[:16])
    digest, rows = signed_digest(token, place), AccessToken.objects.filter(connection=connection)
    with transaction.atomic():
        lock(connection)
        rows.filter(family=family).exclude(digest=digest).delete()
        if rows.filter(expires_at__gt=timezone.now()).count() >= MAX_SIGNED:
            raise TooManyTokens
        AccessToken.objects.create(
            digest=digest, connection=connection, family=family, scope=scope, expires_at=expires_at
        )


def find_refresh_token(token: str, client_id: UUID) -> RefreshToken | None:
    """Return the row of a refresh token of this client, rotated or not; None if it is unknown or expired."""
    rows = RefreshToken.objects.select_related("connection__client", "connection__person", "connection__tenant")
    return rows.filter(digest=digest_of(token), connection__client=client_id, expires_at__gt=timezone.now()).first()


def rotate(row: RefreshToken, scope: str, *, is_bound: bool = False) -> Pair:
    """Return the tokens that follow a refresh token, one pair for each use within GRACE.

    Raises Replayed for a later use, and for more uses than parallel sessions need. Raises TokenRevoked.
    """
    with transaction.atomic():
        lock(row.connection)
        now = timezone.now()
        if RefreshToken.objects.filter(pk=row.pk, rotated_at=None).update(rotated_at=now):
            return _issue(row.connection, row.family, scope, is_bound=is_bound)
        rotated_at = RefreshToken.objects.filter(pk=row.pk).values_list("rotated_at", flat=True).first()
        if rotated_at is None:
            raise TokenRevoked
        pairs = RefreshToken.objects.filter(family=row.family, rotated_at=None).count()
        if rotated_at >= now - GRACE and pairs < MAX_PAIRS_OF_FAMILY:
            return _issue(row.connection, row.family, scope, is_bound=is_bound)
        end_family(row.family, row.connection)
    raise Replayed(row.connection)


def end_family(family: UUID, connection: Connection) -> None:
    """End all tokens that one code of a connection began."""
    with transaction.atomic():
        lock(connection)
        AccessToken.objects.filter(family=family).delete()
        RefreshToken.objects.filter(family=family).delete()


def end_all(connection: Connection) -> None:
    """End all codes and tokens of a connection."""
    with transaction.atomic():
        lock(connection)
        for model in (AuthorizationCode, DeviceCode, AccessToken, RefreshToken):
            model.objects.filter(connection=connection).delete()


def lock(connection: Connection) -> None:
    """Lock a connection, whose tokens no other transaction issues or ends then, and read what it allows now.

    Locks are taken in this order: the change log, an issuer, a connection, its key. Another order is a deadlock.
    """
    rows = Connection.objects.select_for_update(of=("self",), no_key=True).filter(pk=connection.pk)
    for name, value in (rows.values("scope", "redirect_uri", "asserted_until").first() or {}).items():
        setattr(connection, name, value)


def family_of(token: str, client_id: UUID) -> tuple[UUID, Connection] | None:
    """Return the family and connection of an access or refresh token of this client."""
    for model, digest in ((AccessToken, access_digest(token)), (RefreshToken, digest_of(token))):
        row = model.objects.select_related("connection").filter(digest=digest, connection__client=client_id).first()
        if row is not None:
            return row.family, row.connection
    return None


def valid_connections(path: str = "") -> Q:
    """Return the condition of a valid connection at `path`, such as "connection__".

    Its key is neither revoked nor expired, its client not blocked, its tenant active, and so is its person, if it has
    one. That the person still belongs to the tenant is the condition of `is_member`.
    """
    person = Q(**{f"{path}person": None}) | Q(**{f"{path}person__is_active": True})
    unexpired = Q(**{f"{path}key__expires_at": None}) | Q(**{f"{path}key__expires_at__gt": CurrentTime()})
    return (unexpired & person) & Q(
        **{
            f"{path}key__revoked_at": None,
            f"{path}client__blocked_at": None,
            f"{path}tenant__is_active": True,
        }
    )


def is_member(path: str = "") -> Q:
    """Return the condition that the person of the connection at `path`, if it has one, may still use its tenant.

    Who signed in by SAML, or with an issuer that asks for it, has to sign in again after a time.
    """
    members = Membership.objects.filter(user=OuterRef(f"{path}person"), tenant=OuterRef(f"{path}tenant"))
    present = Q(Exists(members)) & ~validity.lapsed(f"{path}person")
    return Q(**{f"{path}person": None}) | Q(**{f"{path}person__is_superuser": True}) | present


def is_valid(connection: Connection) -> bool:
    """Whether a connection may get tokens now."""
    return Connection.objects.filter(valid_connections() & is_member(), pk=connection.pk).exists()


def valid_access_tokens() -> QuerySet[AccessToken]:
    """Return the access tokens that are valid at the time of the query."""
    return _valid_access_tokens().all()


@cache
def _valid_access_tokens() -> QuerySet[AccessToken]:
    # Each process asks once a second which of its tokens are valid: building the query costs as much as sending it.
    condition = valid_connections("connection__") & is_member("connection__")
    return AccessToken.objects.filter(condition, expires_at__gt=CurrentTime())


def prune(before: datetime) -> None:
    """Delete codes and tokens that expired before this time."""
    for model in (AuthorizationCode, DeviceCode, AccessToken, RefreshToken):
        model.objects.filter(expires_at__lt=before).delete()


def _exchange(row: AuthorizationCode | DeviceCode, connection: Connection, family: UUID, *, is_bound: bool) -> Pair:
    rows = type(row)._default_manager.filter(pk=row.pk)
    with transaction.atomic():
        lock(connection)
        if rows.filter(used_at=None).update(used_at=timezone.now()):
            return _issue(connection, family, row.scope, is_bound=is_bound)
        if not rows.exists():
            raise TokenRevoked
        end_family(family, connection)
    raise Replayed(connection)


def _issue(connection: Connection, family: UUID, scope: str, *, is_bound: bool) -> Pair:
    access = ACCESS_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    refresh = REFRESH_START + secrets.token_urlsafe(KEY_BYTES)
    now, lasts = timezone.now(), _lifetime(connection)
    common = {"connection": connection, "family": family, "scope": scope}
    AccessToken.objects.create(digest=access_digest(access), expires_at=now + lasts, **common)
    RefreshToken.objects.create(
        digest=digest_of(refresh), expires_at=now + REFRESH_LIFETIME, is_bound=is_bound, **common
    )
    return Pair(access, refresh, scope, int(lasts.total_seconds()))


def _lifetime(connection: Connection) -> timedelta:
    """Return how long an access token is valid: not longer than its person has access."""
    end = validity.access_end(connection.person_id)
    return ACCESS_LIFETIME if end is None else max(timedelta(0), min(ACCESS_LIFETIME, end - timezone.now()))
