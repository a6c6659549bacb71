"""Assertions and requests of SAML that were used: each counts once, in all processes, also while Redis is away."""

from datetime import datetime
from hashlib import sha256
from typing import Final

from django.db import IntegrityError, transaction
from django.utils import timezone

from tools_app.models import Issuer, UsedAssertion

# Of an issuer, that have not expired. Only what it signed is stored.
MAX_REMEMBERED: Final = 50_000
# Expired ones that a sign-in removes on its way; housekeeping removes the others.
MAX_REMOVED: Final = 100
MAX_PRUNED: Final = 10_000


class TooMany(Exception):
    """So many assertions of the issuer are remembered that no further one can be."""


def use(issuer: Issuer, ids: list[str], until: datetime) -> bool:
    """Store that an issuer's assertion, and the request that it answers, were used. Return False if one of them was.

    They are remembered `until` they have expired. Raises TooMany.
    """
    now = timezone.now()
    used = UsedAssertion.objects.filter(issuer=issuer)
    _remove(list(used.filter(expires_at__lte=now).values_list("pk", flat=True)[:MAX_REMOVED]))
    if used.count() + len(ids) > MAX_REMEMBERED:
        raise TooMany
    rows = [UsedAssertion(issuer=issuer, digest=_digest(issuer, id), expires_at=until) for id in ids]
    try:
        with transaction.atomic():
            UsedAssertion.objects.bulk_create(rows)
    except IntegrityError:
        return False
    return True


def prune(now: datetime) -> None:
    """Remove what has expired."""
    _remove(list(UsedAssertion.objects.filter(expires_at__lte=now).values_list("pk", flat=True)[:MAX_PRUNED]))


def _remove(keys: list[str]) -> None:
    if keys:
        UsedAssertion.objects.filter(pk__in=keys).delete()


def _digest(issuer: Issuer, id: str) -> str:
    return sha256(f"{issuer.pk}\n{id}".encode()).hexdigest()
