"""Sign-ins by SAML that a browser has begun, kept in a signed cookie of its own.

The answer of an identity provider is a form of another site, with which browsers send no session. On HTTPS the name of
the cookie makes browsers accept it from this host alone (`__Host-`), so that no sibling domain can plant one.
"""

import time
from typing import Final, NamedTuple

from django.core import signing
from django.http import HttpRequest, HttpResponse

COOKIE_NAME: Final = "mcphub_saml"
HOST_PREFIX: Final = "__Host-"
COOKIE_PATH: Final = "/sign-in/"
LIFETIME_SECONDS: Final = 600
MAX_PENDING: Final = 5
# Browsers drop cookies of more than 4096 bytes, with their name and attributes.
MAX_BYTES: Final = 3800


class PendingRequest(NamedTuple):
    """A sign-in that has begun: the ID of its request, its issuer, the page that it leads to, and when it ends."""

    request_id: str
    issuer: str
    next: str
    expires_at: int


def pending_of(request: HttpRequest) -> list[PendingRequest]:
    """Return the sign-ins that this browser has begun and not ended, the oldest first."""
    try:
        entries = signing.loads(request.COOKIES.get(_name(request), ""), salt=COOKIE_NAME, max_age=LIFETIME_SECONDS)
    except signing.BadSignature:
        return []
    now = time.time()
    return [pending for pending in (PendingRequest(*fields) for fields in entries) if pending.expires_at > now]


def with_new_request(request: HttpRequest, request_id: str, issuer: str, next_page: str) -> list[PendingRequest]:
    """Return the sign-ins of this browser with one that begins now."""
    expires_at = int(time.time()) + LIFETIME_SECONDS
    return [*pending_of(request), PendingRequest(request_id, issuer, next_page, expires_at)]


def set_cookie(request: HttpRequest, response: HttpResponse, pending: list[PendingRequest]) -> None:
    """Set the cookie to the newest of these sign-ins, as many as it has room for; without any, delete it."""
    newest = pending[-MAX_PENDING:]
    while len(_serialize(newest)) > MAX_BYTES:
        newest = newest[1:]
    is_secure = request.is_secure()
    response.set_cookie(
        _name(request),
        _serialize(newest) if newest else "",
        max_age=LIFETIME_SECONDS if newest else 0,
        path="/" if is_secure else COOKIE_PATH,
        secure=is_secure,
        httponly=True,
        # The answer comes from another site. Cookies for that need HTTPS.
        samesite="None" if is_secure else "Lax",
    )


def _name(request: HttpRequest) -> str:
    return f"{HOST_PREFIX}{COOKIE_NAME}" if request.is_secure() else COOKIE_NAME


def _serialize(pending: list[PendingRequest]) -> str:
    return signing.dumps([list(request) for request in pending], salt=COOKIE_NAME, compress=True)
