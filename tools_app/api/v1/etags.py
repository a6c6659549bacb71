"""ETags of rows that know when they were changed, and `If-Match`: nobody undoes unseen what somebody else did.

Without `If-Match` the last change counts.
"""

import hashlib
from typing import Any

from django.utils.http import parse_etags
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.api.v1.problems import ChangedMeanwhile

LENGTH = 16


def etag_of(row: Any) -> str | None:
    """The row's entity tag; None for one that does not know when it was changed."""
    changed_at = getattr(row, "updated_at", None)
    if changed_at is None:
        return None
    return f'"{hashlib.sha256(f"{row.pk}|{changed_at.isoformat()}".encode()).hexdigest()[:LENGTH]}"'


def tagged(response: Response, row: Any) -> Response:
    """The answer with the row's ETag in it."""
    if tag := etag_of(row):
        response["ETag"] = tag
    return response


def check_unchanged(request: Request, row: Any) -> None:
    """Raise ChangedMeanwhile if the request is for another state of the row."""
    wanted = request.headers.get("If-Match")
    if wanted is None:
        return
    tags = parse_etags(wanted)
    if "*" not in tags and etag_of(row) not in tags:
        raise ChangedMeanwhile
