"""How long people have access without a word of their issuer.

SAML has no way to ask about a person later. So access ends within an hour of a sign-in, also if no check runs, and no
later than the session at the provider, unless a directory (SCIM) says who has it. An admin may set an end for everybody
who comes from an issuer.
"""

from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import DateTimeField, Exists, F, Func, OuterRef, Q, QuerySet
from django.utils import timezone

from tools_app.core.current_time import CurrentTime
from tools_app.models import DirectoryUser, Identity, IssuerProtocol

# An hour, less the time between two checks.
SAML_LASTS: Final = timedelta(minutes=57)
# A directory that is silent for longer confirms no person any more.
MAX_DIRECTORY_SILENCE: Final = timedelta(days=30)


class _MinutesLater(Func):
    """A time and a number of minutes after it, on SQLite to the millisecond: Django multiplies no durations there."""

    output_field = DateTimeField()
    template = "(%(expressions)s * interval '1 minute')"
    arg_joiner = " + "

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Return SQL that gives the time as Django stores it."""
        form = "strftime('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', %(expressions)s || ' minutes')"
        return self.as_sql(compiler, connection, template=form, arg_joiner=", ", **context)


def by_directory(identity: Any) -> QuerySet[DirectoryUser]:
    """Return what a connected directory says of a person who is active: it also says when they leave.

    One that has been silent for MAX_DIRECTORY_SILENCE may have been taken out of service.
    """
    known = DirectoryUser.objects.filter(identity=identity, active=True)
    return known.filter(issuer__directory__last_used_at__gte=CurrentTime(-MAX_DIRECTORY_SILENCE))


def lapsed(path: str) -> Q:
    """Return the condition that the person at `path`, such as "person", has to sign in with their issuer again."""
    rows = _with_due().filter(person=OuterRef(path))
    over = Q(verified_at__lte=CurrentTime(-SAML_LASTS)) | Q(session_ends_at__lte=CurrentTime())
    is_saml = Q(issuer__protocol=IssuerProtocol.SAML) & ~Exists(by_directory(OuterRef("pk")))
    return Q(Exists(rows.filter((is_saml & over) | Q(sign_in_due__lte=CurrentTime()))))


def check_due(before: datetime) -> QuerySet[Identity]:
    """Return the identities with access that were last checked before a time, the oldest first.

    Who has to sign in again is checked then, too. Who may stay because of the directory is checked next as everybody
    is.
    """
    now = timezone.now()
    over = Q(verified_at__lte=now - SAML_LASTS, checked_at__lt=F("verified_at") + SAML_LASTS)
    over |= Q(session_ends_at__lte=now, checked_at__lt=F("session_ends_at"))
    late = Q(sign_in_due__lte=now, checked_at__lt=F("sign_in_due"))
    due = Q(checked_at__lt=before) | (Q(issuer__protocol=IssuerProtocol.SAML) & over) | late
    rows = _with_due().filter(due, ended_at=None).order_by("checked_at")
    return rows.select_related("issuer__tenant", "person")


def access_end(person_id: int | None) -> datetime | None:
    """Return when access of a person ends unless they sign in again; None for no such end."""
    if person_id is None:
        return None
    found = Identity.objects.filter(person=person_id).select_related("issuer").first()
    return end_of(found) if found is not None else None


def end_of(identity: Identity) -> datetime | None:
    """Return when the access of an identity ends unless its person signs in again; None for no such end."""
    ends = []
    if identity.issuer.protocol == IssuerProtocol.SAML and not by_directory(identity).exists():
        ends += [identity.verified_at + SAML_LASTS]
        ends += [identity.session_ends_at] if identity.session_ends_at else []
    if identity.issuer.sign_in_minutes:
        ends += [identity.signed_in_at + timedelta(minutes=identity.issuer.sign_in_minutes)]
    return min(ends, default=None)


def _with_due() -> QuerySet[Identity]:
    """Return the identities, with when each has to sign in again because its issuer's admin says so (or NULL)."""
    return Identity.objects.alias(sign_in_due=_MinutesLater("signed_in_at", "issuer__sign_in_minutes"))
