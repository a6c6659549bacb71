"""The status of API keys, with badge colours and notes."""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from unfold.contrib.filters.admin import DropdownFilter

from tools_app.models import ApiKey
from tools_app.tenants import keys
from tools_app.web.admin.scoping import ScopedAdmin
from tools_app.web.admin.times import full_text

UNITS: Final = (
    ("day", timedelta(days=1)),
    ("hour", timedelta(hours=1)),
    ("minute", timedelta(minutes=1)),
    ("second", timedelta(seconds=1)),
)


class Status(NamedTuple):
    """A label and the colour of its badge."""

    text: str
    colour: str


class Note(NamedTuple):
    """A note at the top of a key's page; `key` is the other key that it refers to."""

    text: str
    key: ApiKey | None = None
    urgent: bool = True


class StatusFilter(DropdownFilter):
    """Filter by status: active, expiring, replaced, expired or revoked."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: ScopedAdmin) -> list[tuple[str, str]]:
        return [
            ("active", "Active"),
            ("soon", "Expiring soon"),
            ("replaced", "Replaced"),
            ("expired", "Expired"),
            ("revoked", "Revoked"),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
        return keys.with_status(queryset, self.value())


def status_of(key: ApiKey) -> Status:
    """Return the status of a key: valid, until when if limited, or why it is not valid."""
    if key.revoked_at:
        return Status("Revoked", "danger")
    now = timezone.now()
    is_replaced = key.replaced_by_id is not None
    if key.expires_at and key.expires_at <= now:
        return Status("Replaced", "info") if is_replaced else Status("Expired", "warning")
    if is_replaced and key.expires_at:
        return Status(f"Replaced, ends in {left(key.expires_at, now)}", "info")
    if key.expires_at and key.expires_at <= now + keys.EXPIRES_SOON:
        return Status(f"Expires in {left(key.expires_at, now)}", "warning")
    return Status("Active", "success")


def left(until: datetime, now: datetime | None = None) -> str:
    """Format the remaining time in its largest unit."""
    rest = until - (now or timezone.now())
    for name, unit in UNITS:
        if rest >= unit:
            return f"{rest // unit} {name}{'s' if rest // unit != 1 else ''}"
    return "a moment"


def notes_on(key: ApiKey, reader: User | None) -> list[Note]:
    """Return the notes to show at the top of a key's page."""
    notes: list[Note] = []
    if key.revoked_at:
        return notes
    now, successor = timezone.now(), key.replaced_by
    is_over = key.expires_at is not None and key.expires_at <= now
    if name := keys.foreign_person(key, reader):
        notes.append(Note(f"This key acts for {name}. Others can only rename and revoke it."))
    if successor is not None:
        until = "It is no longer valid." if is_over else f"It is valid for another {left(key.expires_at or now)}."
        is_used = bool(key.last_used_at and key.last_used_at > successor.created_at)
        still = "A client still uses it" if is_used else "No client has used it since"
        used = f"(last used {_last_use(key)}); its successor was last used {_last_use(successor)}:"
        notes.append(Note(f"This key was replaced. {until} {still} {used}", successor, urgent=is_used))
    elif key.expires_at and is_over:
        at = full_text(key.expires_at)
        notes.append(Note(f"This key expired on {at} and its clients are rejected. Issue a new key for them."))
    elif key.expires_at and key.expires_at <= now + keys.EXPIRES_SOON:
        at = f"in {left(key.expires_at)}, on {full_text(key.expires_at)}"
        advice = "Rotate it: the old and the new key both work during the overlap."
        notes.append(Note(f"This key expires {at}. {advice}"))
    for old in keys.valid_keys(key.replaces.all()):
        valid = f"valid for another {left(old.expires_at or now)} and was last used {_last_use(old)}:"
        notes.append(Note(f"This key replaces one that is {valid}", old, urgent=False))
    return notes


def _last_use(key: ApiKey) -> str:
    return full_text(key.last_used_at) if key.last_used_at else "never"
