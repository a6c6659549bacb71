"""Middleware that renders the admin's times in the viewer's time zone, which the browser sends in a cookie.

The REST API, metrics and the MCP endpoints stay in UTC.
"""

import re
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from django.http import HttpRequest
from django.utils import timezone

from tools_app.web.admin.middleware import in_context

COOKIE: Final = "mcphub_zone"
PAGES: Final = "/admin/"
NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,31}(/[A-Za-z0-9_+-]{1,31}){0,2}")
MAX_ZONES: Final = 100


def _zone_of(request: HttpRequest) -> AbstractContextManager[object]:
    zone = zone_named(request.COOKIES.get(COOKIE, "")) if request.path_info.startswith(PAGES) else None
    return timezone.override(zone) if zone else nullcontext()


viewers_zone = in_context(_zone_of)


def zone_named(name: str) -> ZoneInfo | None:
    """Return the time zone with this name, or None if it does not exist."""
    return _known(name) if NAME.fullmatch(name) else None


@lru_cache(maxsize=MAX_ZONES)
def _known(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        # No such file, a directory, or a file without time zone data.
        return None


def zoned(moment: datetime) -> str:
    """Format a time to the minute, with its time zone."""
    return f"{timezone.localtime(moment):%Y-%m-%d %H:%M %Z}"
