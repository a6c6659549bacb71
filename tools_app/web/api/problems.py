"""Errors as RFC 9457 problem details, with the media type `application/problem+json`.

`errors` names the invalid fields, nested ones with dots; problems that concern no single field are in `detail`.
"""

import logging
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from django.core.exceptions import NON_FIELD_ERRORS, PermissionDenied, SuspiciousOperation
from django.core.exceptions import ValidationError as ModelProblem
from django.db import IntegrityError, OperationalError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.settings import api_settings

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
NO_FIELD = frozenset({NON_FIELD_ERRORS, api_settings.NON_FIELD_ERRORS_KEY, ""})
RETRY_SECONDS = 2
NOTHING = "Not found, or not visible to you. URLs end with a slash."

# The name of each status in `type`: urn:mcphub:problem:NAME.
NAMES = {
    400: "invalid",
    401: "unauthenticated",
    403: "forbidden",
    404: "missing",
    405: "method",
    409: "conflict",
    412: "changed-meanwhile",
    413: "too-large",
    415: "media-type",
    429: "throttled",
    503: "unavailable",
}


class TooLarge(exceptions.APIException):
    """The body exceeds the maximum size."""

    status_code = 413
    default_detail = "The body is too large."


class ChangedMeanwhile(exceptions.APIException):
    """The row has changed since the client read it (RFC 9110, §13.1.1)."""

    status_code = 412
    default_detail = "The row has changed. Read it again, then retry with the new ETag in If-Match."


class Conflict(exceptions.APIException):
    """The change conflicts with the current state."""

    status_code = 409
    default_detail = "The name has just been taken. Read the list again."


class Unavailable(exceptions.APIException):
    """The database is unavailable."""

    status_code = 503
    default_detail = "The database is unavailable. Try again in a moment."
    wait = RETRY_SECONDS


def problem_answer(raised: Exception, _context: Mapping[str, Any]) -> Response | None:
    """Return the response to an exception of a view. None if it is unexpected: Django logs it and answers with 500."""
    error = _expected(raised)
    if error is None:
        return None
    headers = {"Cache-Control": "no-store"}
    if getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = error.auth_header
    if getattr(error, "wait", None):
        headers["Retry-After"] = str(max(1, round(error.wait)))
    return Response(problem(error), status=int(error.status_code), headers=headers, content_type=MEDIA_TYPE)


def problem(error: exceptions.APIException) -> dict[str, Any]:
    """Return an error as a problem details object."""
    status = int(error.status_code)
    body: dict[str, Any] = {
        "type": f"urn:mcphub:problem:{NAMES.get(status, 'other')}",
        "title": HTTPStatus(status).phrase,
        "status": status,
    }
    if not isinstance(error.detail, dict | list):
        return {**body, "detail": str(error.detail)}
    faults: dict[str, list[str]] = {}
    for field, message in _flat(error.detail, ""):
        faults.setdefault(field, []).append(message)
    general = [message for field in NO_FIELD for message in faults.pop(field, [])]
    counted = "One value is" if len(faults) == 1 else f"{len(faults)} values are"
    detail = " ".join(general) or f"{counted} invalid. See `errors`."
    return {**body, "detail": detail, "errors": faults}


def _expected(raised: Exception) -> exceptions.APIException | None:
    expected: exceptions.APIException | None = None
    match raised:
        case exceptions.APIException():
            expected = raised
        case Http404():
            expected = exceptions.NotFound(NOTHING)
        case PermissionDenied():
            expected = exceptions.PermissionDenied(*raised.args)
        case SuspiciousOperation():
            expected = exceptions.ParseError(str(raised))
        case ModelProblem():
            messages = raised.message_dict if hasattr(raised, "error_dict") else raised.messages
            expected = exceptions.ValidationError(messages)
        case IntegrityError():
            expected = Conflict()
        case OperationalError():
            log.warning("The database is unavailable to the REST API: %s", raised)
            expected = Unavailable()
    return expected


def _flat(detail: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield every message with the dotted path of its field."""
    match detail:
        case dict():
            for name, inner in detail.items():
                segment = "" if name in NO_FIELD else str(name)
                yield from _flat(inner, f"{path}.{segment}" if path and segment else path or segment)
        case list() if any(isinstance(entry, dict) for entry in detail):
            for position, inner in enumerate(detail):
                yield from _flat(inner, f"{path}.{position}" if path else str(position))
        case list():
            for message in detail:
                yield path, str(message)
        case _:
            yield path, str(detail)
