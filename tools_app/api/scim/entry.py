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

from tools_app.access.issuers import directory
from tools_app.access.limits import limits
from tools_app.access.limits.quotas import ConcurrencyLimit
from tools_app.access.principal import address_of, rate_limit_key
from tools_app.api.scim import bounds
from tools_app.audit.changes.changes import Actor, recording_as
from tools_app.models import Issuer, Via
from tools_app.models.ids import new_id

SECONDS: Final = 60.0
MEDIA_TYPE: Final = "application/scim+json"
ERROR: Final = "urn:ietf:params:scim:api:messages:2.0:Error"
Answer = Callable[[HttpRequest, Issuer, str], HttpResponse]


@csrf_exempt
@never_cache
@sensitive_variables()
def scim(request: HttpRequest, issuer: UUID, path: str) -> HttpResponse:
    """Answer a request of a directory, which authenticates with its token."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    row = directory.find(issuer, token.strip()) if scheme.lower() == "bearer" else None
    if row is None:
        return _refused(request)
    answer: Answer = import_string("tools_app.api.scim.service.answer")
    with recording_as(Actor(None, Via.DIRECTORY, address_of(request), row.name)):
        return answer(request, row, path)


def _refused(request: HttpRequest) -> HttpResponse:
    place = ConcurrencyLimit("address", "directory", bounds.MAX_FAILURES, f"scim:{rate_limit_key(address_of(request))}")
    if limits.hold_here([place], str(new_id()), SECONDS) is not None:
        answer = error(429, "Too many requests without a valid token. Wait a minute.")
        answer.headers["Retry-After"] = str(int(SECONDS))
        return answer
    answer = error(401, "The token is missing, withdrawn, or of another directory. Create one on the issuer's page.")
    answer.headers["WWW-Authenticate"] = 'Bearer realm="SCIM"'
    return answer


def error(status: int, detail: str, scim_type: str = "") -> HttpResponse:
    """Return an error (RFC 7644, section 3.12)."""
    said: dict[str, Any] = {"schemas": [ERROR], "status": str(status), "detail": detail}
    if scim_type:
        said["scimType"] = scim_type
    return HttpResponse(orjson.dumps(said), status=status, content_type=MEDIA_TYPE)
