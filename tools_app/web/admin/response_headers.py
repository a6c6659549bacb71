"""Security headers of Django's responses, in addition to the policy of pages (`CONTENT_SECURITY_POLICY`)."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

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
    if not _is_page(response):
        response.headers.setdefault(POLICY, INERT)
    return response


def _is_page(response: HttpResponseBase) -> bool:
    """Return whether the response is HTML to be displayed, or empty, like a redirect."""
    if response.headers.get("Content-Disposition", "").startswith("attachment"):
        return False
    content_type = response.headers.get("Content-Type", "text/html")
    return content_type.partition(";")[0].strip().lower() == "text/html"
