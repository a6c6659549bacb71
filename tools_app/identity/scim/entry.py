"""The endpoint of companies' directories (SCIM 2.0, RFC 7644): who is let in, and answers to those who are not.

The modules that answer are loaded with the first request that has a valid token: their libraries take a while, and most
processes never need them.
"""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import orjson
from django.http import HttpRequest, HttpResponse
from django.utils.module_loading import import_string
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_variables

from tools_app.audit.changes.changes import Actor, recording_as
from tools_app.core.ids import new_id
from tools_app.core.sanitize import sanitized
from tools_app.identity.people import directory
from tools_app.identity.principal import client_ip_of
from tools_app.identity.scim import bounds
from tools_app.models import Issuer, Via
from tools_app.tenants.limits import limits
from tools_app.tenants.limits.quotas import SECOND, ConcurrencyLimit, Rate

# So long does a change that was interrupted hold up the next one.
CHANGE_SECONDS: Final = 60.0
# Methods that change nothing, and the end of the path of a search.
READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
SEARCH: Final = ".search"
MEDIA_TYPE: Final = "application/scim+json"
ERROR: Final = "urn:ietf:params:scim:api:messages:2.0:Error"
Answer = Callable[[HttpRequest, Issuer, str], HttpResponse]


@csrf_exempt
@never_cache
@sensitive_variables()
def scim(request: HttpRequest, issuer: UUID, path: str) -> HttpResponse:
    """Answer a request of a directory, which authenticates with its token."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    try:
        row = directory.admit(issuer, token.strip() if scheme.lower() == "bearer" else "", client_ip_of(request))
    except directory.TooManyFailures:
        return _retry_later("Too many requests without a valid token. Wait a minute.", int(directory.FAILURE_SECONDS))
    if row is None:
        refused = error(
            401, "The token is missing, withdrawn, or of another directory. Create one on its issuer's page."
        )
        refused.headers["WWW-Authenticate"] = 'Bearer realm="SCIM"'
        return refused
    rate = Rate("directory", "requests", bounds.MAX_REQUESTS, SECOND, f"scim:requests:{row.pk}")
    used_up = limits.take_blocking([rate])
    if used_up is not None:
        return _retry_later(f"A directory sends at most {bounds.MAX_REQUESTS} requests a second.", used_up.retry_after)
    if request.method in READS or path.rstrip("/").endswith(SEARCH):
        return _answered(request, row, path)
    place, id = ConcurrencyLimit("directory", "changes", 1, f"scim:changes:{row.pk}"), str(new_id())
    if limits.acquire_blocking([place], id, CHANGE_SECONDS) is not None:
        return _retry_later("The directory's previous change is in progress. Send one change at a time.", 1)
    try:
        return _answered(request, row, path)
    finally:
        limits.release_of([place.key], id)


def _answered(request: HttpRequest, row: Issuer, path: str) -> HttpResponse:
    answer: Answer = import_string("tools_app.identity.scim.service.answer")
    with recording_as(Actor(None, Via.DIRECTORY, client_ip_of(request), row.name)):
        return answer(request, row, path)


def _retry_later(detail: str, seconds: int) -> HttpResponse:
    answer = error(429, detail)
    answer.headers["Retry-After"] = str(seconds)
    return answer


def error(status: int, detail: str, scim_type: str = "") -> HttpResponse:
    """Return an error (RFC 7644, section 3.12)."""
    body: dict[str, Any] = {"schemas": [ERROR], "status": str(status), "detail": sanitized(detail)}
    if scim_type:
        body["scimType"] = scim_type
    return HttpResponse(orjson.dumps(body), status=status, content_type=MEDIA_TYPE)
