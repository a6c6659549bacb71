"""How long people have access without a word of their issuer.

SAML has no way to ask about a person later. So access ends within an hour of a sign-in, also if no check runs, unless a
directory (SCIM) says who has it.
"""

from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from tools_app.models import DirectoryUser, Identity, IssuerProtocol

# An hour, less the time between two checks.
SAML_LASTS: Final = timedelta(minutes=57)
# A directory that is silent for longer no longer vouches for anybody.
VOUCHES_FOR: Final = timedelta(days=30)


def vouched(identity: Any, now: datetime) -> QuerySet[DirectoryUser]:
    """Return what a connected directory says of a person who is active: it says so, too, when they leave.

    One that has been silent for VOUCHES_FOR may have been taken out of service.
    """
    known = DirectoryUser.objects.filter(identity=identity, active=True)
    return known.filter(issuer__directory__last_used_at__gte=now - VOUCHES_FOR)


def saml_lapsed(path: str) -> Q:
    """Return the condition that the sign-in by SAML of the person at `path`, such as "person", is too old."""
    return Q(Exists(_bounded(OuterRef(path)).filter(verified_at__lte=timezone.now() - SAML_LASTS)))


def check_due(before: datetime) -> QuerySet[Identity]:
    """Return the identities with access that were last checked before a time, the oldest first.

    A sign-in by SAML is checked when its time is over, too. Who may stay then because of the directory is checked next
    as everybody is.
    """
    over = Q(issuer__protocol=IssuerProtocol.SAML, verified_at__lte=timezone.now() - SAML_LASTS)
    over &= Q(checked_at__lt=F("verified_at") + SAML_LASTS)
    rows = Identity.objects.filter(Q(checked_at__lt=before) | over, ended_at=None).order_by("checked_at")
    return rows.select_related("issuer__tenant", "person")


def access_end(person_id: int | None) -> datetime | None:
    """Return when access of a person ends unless they sign in again; None for no such end."""
    if person_id is None:
        return None
    row = _bounded(person_id).values_list("verified_at", flat=True).first()
    return row + SAML_LASTS if row is not None else None


def _bounded(person: Any) -> QuerySet[Identity]:
    """Return the identity of a person who came by SAML, and for whom no directory vouches."""
    rows = Identity.objects.filter(person=person, issuer__protocol=IssuerProtocol.SAML)
    return rows.exclude(Exists(vouched(OuterRef("pk"), timezone.now())))
