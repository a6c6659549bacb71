"""Personal tokens: what a person's scripts carry to the REST API, with the roles that the person has at that moment.

A token has 256 random bits, of which only a digest is kept. It opens nothing but the API: MCP clients have API keys.
"""

import hmac
import secrets
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db.models import Q
from django.utils import timezone

from tools_app.auth.keys import KEY_BYTES, KEY_START, digest_of
from tools_app.models import PersonalToken

START = "mcphubt_"
PREFIX_LENGTH = 13
LONGEST = 200
# How often the last use is written down: a script may call many times a second.
USE_NOTED_EVERY = timedelta(minutes=1)


def is_api_key(credential: str) -> bool:
    """Whether this is the credential of an MCP client, sent to the wrong door."""
    return credential.startswith(KEY_START)


def issue(person: User, name: str, *, expires_at: datetime | None = None) -> tuple[PersonalToken, str]:
    """Store a new token of `person` and return its row and the token itself, which cannot be had again."""
    token = START + secrets.token_urlsafe(KEY_BYTES)
    row = PersonalToken.objects.create(
        person=person, name=name, prefix=token[:PREFIX_LENGTH], digest=digest_of(token), expires_at=expires_at
    )
    return row, token


def revoke(row: PersonalToken) -> bool:
    """Revoke a token from now on. False if it was revoked before."""
    if row.revoked_at is not None:
        return False
    row.revoked_at = timezone.now()
    row.save(update_fields=["revoked_at"])
    return True


def find(token: str) -> PersonalToken | None:
    """The token that this is, if it opens the door now: not revoked, not expired, its person active."""
    if not token.startswith(START) or len(token) > LONGEST:
        return None
    digest = digest_of(token)
    row = PersonalToken.objects.select_related("person").filter(digest=digest).first()
    if row is None or not hmac.compare_digest(row.digest, digest) or not is_good(row):
        return None
    _note_use(row)
    return row


def is_good(row: PersonalToken) -> bool:
    """Whether a token opens the door now."""
    expired = row.expires_at is not None and row.expires_at <= timezone.now()
    return row.revoked_at is None and not expired and row.person.is_active


def _note_use(row: PersonalToken) -> None:
    now = timezone.now()
    if row.last_used_at is not None and row.last_used_at > now - USE_NOTED_EVERY:
        return
    unnoted = Q(last_used_at=None) | Q(last_used_at__lte=now - USE_NOTED_EVERY)
    PersonalToken.objects.filter(unnoted, pk=row.pk).update(last_used_at=now)
