"""Requests of devices without a browser: their codes, and what their person decides (RFC 8628)."""

import secrets
from datetime import timedelta
from typing import Final, NamedTuple
from uuid import UUID

from django.db.models import Count
from django.utils import timezone

from tools_app.models import Connection, DeviceCode, OAuthClient
from tools_app.tenants.keys import KEY_BYTES, digest_of

GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
# Where a device "returns to": policies name devices whose client has no verified host by it.
REDIRECT: Final = "device:"
DEVICE_START: Final = "mcphub_dc_"
# Without vowels, so that no code is a word, and without letters and digits that look alike (RFC 8628, section 6.1).
LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"
CODE_LENGTH: Final = 8
LIFETIME: Final = timedelta(minutes=10)
INTERVAL: Final = 5
MAX_INTERVAL: Final = 60
# Clocks and networks are not exact.
TOLERANCE: Final = timedelta(seconds=1)
MAX_OPEN: Final = 10_000
MAX_OPEN_OF_NETWORK: Final = 500


class TooManyRequests(Exception):
    """So many requests of a network wait for their people that no further one of it is stored."""


class Codes(NamedTuple):
    """The code that a device holds, and the one that it shows to its person."""

    device: str
    user: str


def begin(client: OAuthClient, tenant_slug: str, scope: str, network: str = "") -> Codes:
    """Store a request from a network and return its codes. Raises TooManyRequests.

    If too many wait in all, the network that has the most loses its oldest one whose code nobody entered.
    """
    now = timezone.now()
    waiting = DeviceCode.objects.filter(connection=None, refused_at=None, expires_at__gt=now)
    counts = dict(waiting.order_by().values_list("network").annotate(Count("pk")))
    if counts.get(network, 0) >= MAX_OPEN_OF_NETWORK:
        raise TooManyRequests
    if sum(counts.values()) >= MAX_OPEN:
        crowded = max(counts, key=lambda name: counts[name])
        oldest = waiting.filter(network=crowded, entered_at=None).order_by("created_at").first()
        if oldest is None:
            raise TooManyRequests
        oldest.delete()
    user_code = ""
    while not user_code or DeviceCode.objects.filter(user_digest=digest_of(user_code)).exists():
        user_code = "".join(secrets.choice(LETTERS) for _ in range(CODE_LENGTH))
    codes = Codes(DEVICE_START + secrets.token_urlsafe(KEY_BYTES), user_code)
    DeviceCode.objects.create(
        digest=digest_of(codes.device),
        user_digest=digest_of(codes.user),
        client=client,
        tenant_slug=tenant_slug,
        scope=scope,
        interval=INTERVAL,
        created_at=now,
        expires_at=now + LIFETIME,
        network=network,
    )
    return codes


def find(device_code: str, client_id: UUID) -> DeviceCode | None:
    """Return the request of a device of this client, expired or not."""
    rows = DeviceCode.objects.select_related("connection__client", "connection__person", "connection__tenant")
    return rows.filter(digest=digest_of(device_code), client=client_id).first()


def find_open(user_code: str) -> DeviceCode | None:
    """Return the request that waits for its person's decision, who has entered its code, however it is spelt."""
    letters = normalized(user_code)
    if len(letters) != CODE_LENGTH:
        return None
    waiting = DeviceCode.objects.filter(connection=None, refused_at=None, expires_at__gt=timezone.now())
    entered = waiting.filter(user_digest=digest_of(letters), client__blocked_at=None)
    entered.update(entered_at=timezone.now())
    return entered.select_related("client").first()


def normalized(user_code: str) -> str:
    """Return the letters of a code that a person typed."""
    return "".join(letter for letter in user_code[:100].upper() if letter in LETTERS)


def spelt(user_code: str) -> str:
    """Return a code as it is shown."""
    letters = normalized(user_code)
    return f"{letters[:4]}-{letters[4:]}"


def allow(row: DeviceCode, connection: Connection, scope: str) -> bool:
    """Let a device have the tokens of a connection. Return False if the request was decided, or has expired."""
    return _decide(row, connection=connection, scope=scope)


def refuse(row: DeviceCode) -> bool:
    """Refuse a request. Return False if it was decided, or has expired."""
    return _decide(row, refused_at=timezone.now())


def asks_too_often(row: DeviceCode) -> bool:
    """Note that a device asked, and return whether it did so before its interval, which then grows."""
    now = timezone.now()
    is_early = row.polled_at is not None and now < row.polled_at + timedelta(seconds=row.interval) - TOLERANCE
    if is_early:
        row.interval = min(row.interval + INTERVAL, MAX_INTERVAL)
    row.polled_at = now
    row.save(update_fields=["interval", "polled_at"])
    return is_early


def _decide(row: DeviceCode, **columns: object) -> bool:
    waiting = DeviceCode.objects.filter(pk=row.pk, connection=None, refused_at=None, expires_at__gt=timezone.now())
    return bool(waiting.update(**columns))
