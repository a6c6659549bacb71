"""Middleware: whose changes a request records, in which time zone pages show times, and the headers of responses."""

import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

from asgiref.sync import iscoroutinefunction
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.decorators import sync_and_async_middleware

from tools_app.audit.changes.changes import Actor, recording_as
from tools_app.identity.principal import client_ip_of
from tools_app.models import Via
from tools_app.tenants.permissions import tenant_permissions_of

Respond = Callable[[HttpRequest], Any]

API = "/api/"
# The consent pages, and a person's own connections.
SIGN_IN = ("/oauth/", "/device", "/connections")
# The viewer's time zone, which the browser sends.
ZONE_COOKIE: Final = "mcphub_zone"
PAGES: Final = "/admin/"
ZONE_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,31}(/[A-Za-z0-9_+-]{1,31}){0,2}")
MAX_ZONES: Final = 100
POLICY: Final = "Content-Security-Policy"
# Responses that are not HTML pages must not run or load anything, even if a browser opens them as a page.
INERT: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"
UNUSED_FEATURES: Final = (
    "accelerometer",
    "camera",
    "display-capture",
    "geolocation",
    "gyroscope",
    "hid",
    "magnetometer",
    "microphone",
    "midi",
    "payment",
    "screen-wake-lock",
    "serial",
    "usb",
)
# For pages with a secret in their URL: their requests send only the hub's origin as referrer. With "no-referrer",
# browsers submit forms without an origin, which Django rejects.
ORIGIN_ONLY: Final = "strict-origin"


def in_context(context_of: Callable[[HttpRequest], AbstractContextManager[object]]) -> Callable[[Respond], Respond]:
    """Return middleware, sync and async, that responds to each request within `context_of` it."""

    @sync_and_async_middleware
    def middleware(get_response: Respond) -> Respond:
        if iscoroutinefunction(get_response):

            async def respond_later(request: HttpRequest) -> HttpResponse:
                with context_of(request):
                    response: Awaitable[HttpResponse] = get_response(request)
                    return await response

            return respond_later

        def respond(request: HttpRequest) -> HttpResponse:
            with context_of(request):
                response: HttpResponse = get_response(request)
                return response

        return respond

    return middleware


def actor_of(request: HttpRequest) -> Actor | None:
    """Return the user authenticated by session or, on the REST API, by token; None if anonymous."""
    # A user authenticated by token is set on the request by its view.
    person = getattr(request, "user", None)
    if not isinstance(person, User) or not person.is_authenticated:
        return None
    path = request.path_info
    via = Via.API if path.startswith(API) else Via.SIGN_IN if path.startswith(SIGN_IN) else Via.ADMIN
    return Actor(person, via, client_ip_of(request), confirm=tenant_permissions_of(request).confirm)


# The user is looked up only when a change is recorded.
acting_person = in_context(lambda request: recording_as(lambda: actor_of(request)))


@lru_cache(maxsize=MAX_ZONES)
def zone_named(name: str) -> ZoneInfo | None:
    """Return the time zone with this name, or None if it does not exist."""
    try:
        return ZoneInfo(name) if ZONE_NAME.fullmatch(name) else None
    except (KeyError, ValueError, OSError):
        # No such file, a directory, or a file without time zone data.
        return None


def _zone_of(request: HttpRequest) -> AbstractContextManager[object]:
    # The REST API, metrics and the MCP endpoints stay in UTC.
    zone = zone_named(request.COOKIES.get(ZONE_COOKIE, "")) if request.path_info.startswith(PAGES) else None
    return timezone.override(zone) if zone else nullcontext()


viewers_zone = in_context(_zone_of)


@sync_and_async_middleware
def response_headers(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Set the headers that a view did not set itself."""
    if iscoroutinefunction(get_response):

        async def respond_later(request: HttpRequest) -> HttpResponseBase:
            response: Awaitable[HttpResponseBase] = get_response(request)
            return _completed(await response)

        return respond_later

    def respond(request: HttpRequest) -> HttpResponseBase:
        return _completed(get_response(request))

    return respond


def _completed(response: HttpResponseBase) -> HttpResponseBase:
    features = ", ".join(f"{name}=()" for name in UNUSED_FEATURES)
    response.headers.setdefault("Permissions-Policy", features)
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers.setdefault("Referrer-Policy", "same-origin")
    # HTML to be displayed, or empty, like a redirect.
    is_page = response.headers.get("Content-Type", "text/html").partition(";")[0].strip().lower() == "text/html"
    if not is_page or response.headers.get("Content-Disposition", "").startswith("attachment"):
        response.headers.setdefault(POLICY, INERT)
    return response
