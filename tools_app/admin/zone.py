"""Times of the admin in the zone of whoever reads them: the browser tells it in a cookie, and each page follows it.

What programs read, the REST API, metrics and the MCP paths, stays in UTC.
"""

import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.decorators import sync_and_async_middleware

COOKIE: Final = "mcphub_zone"
PAGES: Final = "/admin/"
NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,31}(/[A-Za-z0-9_+-]{1,31}){0,2}")
MOST_ZONES: Final = 100


@sync_and_async_middleware
def viewers_zone(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Run each request for a page of the admin in its viewer's zone."""
    if iscoroutinefunction(get_response):

        async def respond_later(request: HttpRequest) -> HttpResponse:
            with _zone_of(request):
                response: Awaitable[HttpResponse] = get_response(request)
                return await response

        return respond_later

    def respond(request: HttpRequest) -> HttpResponse:
        with _zone_of(request):
            response: HttpResponse = get_response(request)
            return response

    return respond


def _zone_of(request: HttpRequest) -> AbstractContextManager[object]:
    zone = zone_named(request.COOKIES.get(COOKIE, "")) if request.path_info.startswith(PAGES) else None
    return timezone.override(zone) if zone else nullcontext()


def zone_named(name: str) -> ZoneInfo | None:
    """The zone with this name, None if there is no such zone."""
    return _known(name) if NAME.fullmatch(name) else None


@lru_cache(maxsize=MOST_ZONES)
def _known(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        # No such file, a directory of zones, or a file that describes none.
        return None


def zoned(moment: datetime) -> str:
    """A moment to the minute, with the zone in which it is told."""
    return f"{timezone.localtime(moment):%Y-%m-%d %H:%M %Z}"
