"""Times as pages show them: how long ago, with the full time on hover, in the viewer's time zone."""

from datetime import datetime, timedelta
from typing import Final

from django.template import Library
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

# The library of filters `times` of the templates.
register = Library()

NONE: Final = "-"
NOW_SECONDS: Final = 5
# A unit is used from its number of seconds on, up to that of the next.
UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
# From here on, either way, a date says more than a number of days.
MAX_RELATIVE: Final = timedelta(days=30)


@register.filter
def moment(value: datetime | None) -> SafeString | str:
    """Return a time as it stands in a list or a table: relative, with the full time on hover. `-` for None."""
    if value is None:
        return NONE
    text = relative_text(value, timezone.now())
    return format_html('<time datetime="{}" title="{}">{}</time>', value.isoformat(), full_text(value), text)


@register.filter
def full_text(value: datetime | None) -> str:
    """Return a time to the millisecond with its time zone: `2026-11-23 07:24:32.123 UTC`. `-` for None."""
    if value is None:
        return NONE
    local = timezone.localtime(value)
    return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03d} {local:%Z}"


def relative_text(value: datetime, now: datetime) -> str:
    """Return how long before or after `now` a time is: `12 s ago`, `in 3 d`. A distant time is a date."""
    distance = value - now
    if abs(distance) >= MAX_RELATIVE:
        return f"{timezone.localtime(value):%Y-%m-%d}"
    seconds = int(abs(distance).total_seconds())
    if seconds < NOW_SECONDS:
        return "just now"
    size, unit = next((size, unit) for size, unit in UNITS if seconds >= size)
    amount = f"{seconds // size} {unit}"
    return f"in {amount}" if distance > timedelta() else f"{amount} ago"
