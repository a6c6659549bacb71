"""Personal tokens for scripts that use the REST API, with the current roles of their person.

A token has 256 random bits, of which only a digest is stored. It is valid for the API only: MCP clients have API keys.
"""

import hmac
import secrets
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db.models import Q
from django.utils import timezone

from tools_app.identity.people import validity
from tools_app.models import PersonalToken
from tools_app.tenants.keys import KEY_BYTES, KEY_PREFIX, digest_of

PREFIX = "mcphubt_"
PREFIX_LENGTH = 13
MAX_LENGTH = 200
# How often the last use is written: a script may send many requests per second.
USE_INTERVAL = timedelta(minutes=1)


def is_api_key(credential: str) -> bool:
    """Whether this is an MCP client's API key, sent to the REST API by mistake."""
    return credential.startswith(KEY_PREFIX)


def issue(person: User, name: str, *, expires_at: datetime | None = None) -> tuple[PersonalToken, str]:
    """Store a new token of `person`. Return its row and the token itself, which cannot be retrieved later."""
    token = PREFIX + secrets.token_urlsafe(KEY_BYTES)
    row = PersonalToken.objects.create(
        person=person, name=name, prefix=token[:PREFIX_LENGTH], digest=digest_of(token), expires_at=expires_at
    )
    return row, token


def revoke(row: PersonalToken) -> bool:
    """Revoke a token immediately. Return False if it was already revoked."""
    if row.revoked_at is not None:
        return False
    row.revoked_at = timezone.now()
    row.save(update_fields=["revoked_at"])
    return True


def find(token: str) -> PersonalToken | None:
    """Return the row of a valid token: not revoked, not expired, its person active."""
    if not token.startswith(PREFIX) or len(token) > MAX_LENGTH:
        return None
    digest = digest_of(token)
    row = PersonalToken.objects.select_related("person").filter(digest=digest).first()
    if row is None or not hmac.compare_digest(row.digest, digest) or not is_valid(row):
        return None
    noted_until = timezone.now() - USE_INTERVAL
    if row.last_used_at is None or row.last_used_at <= noted_until:
        unnoted = Q(last_used_at=None) | Q(last_used_at__lte=noted_until)
        PersonalToken.objects.filter(unnoted, pk=row.pk).update(last_used_at=timezone.now())
    return row


def is_valid(row: PersonalToken) -> bool:
    """Whether a token is valid now, also by the last sign-in of its person."""
    if row.revoked_at is not None or not row.person.is_active:
        return False
    ends = (row.expires_at, validity.access_end(row.person_id))
    return all(end is None or end > timezone.now() for end in ends)
