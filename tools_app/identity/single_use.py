"""What counts once: signed assertions, requests that were answered, and codes of second factors.

Each is a row whose key is unique, so it counts once in all processes, also while Redis is away.
"""

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Final

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils import timezone

from tools_app.models import Issuer, OAuthClient, UsedAssertion

# Of an issuer or a client, that have not expired. Only what it signed is stored.
MAX_REMEMBERED: Final = 50_000
# Expired ones that a further use removes on its way; housekeeping removes the others.
MAX_REMOVED: Final = 100
MAX_PRUNED: Final = 10_000


class TooMany(Exception):
    """So many assertions of the issuer or client are remembered that no further one can be."""


def use(owner: Issuer | OAuthClient | User, ids: Sequence[str], until: datetime) -> bool:
    """Store that these IDs of an owner were used. Return False if one of them was before; then none is stored.

    They are remembered `until` they have expired. Raises TooMany.
    """
    columns = {}
    if not isinstance(owner, User):
        columns = {"issuer" if isinstance(owner, Issuer) else "client": owner}
        used = UsedAssertion.objects.filter(**columns)
        _remove(list(used.filter(expires_at__lte=timezone.now()).values_list("pk", flat=True)[:MAX_REMOVED]))
        if used.count() + len(ids) > MAX_REMEMBERED:
            raise TooMany
    digests = [sha256(f"{owner.pk}\n{id}".encode(errors="surrogatepass")).hexdigest() for id in ids]
    try:
        with transaction.atomic():
            UsedAssertion.objects.bulk_create(
                [UsedAssertion(digest=digest, expires_at=until, **columns) for digest in digests]
            )
    except IntegrityError:
        return False
    return True


def prune(now: datetime) -> None:
    """Remove what has expired."""
    _remove(list(UsedAssertion.objects.filter(expires_at__lte=now).values_list("pk", flat=True)[:MAX_PRUNED]))


def _remove(keys: list[str]) -> None:
    if keys:
        UsedAssertion.objects.filter(pk__in=keys).delete()
