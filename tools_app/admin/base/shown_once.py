"""Secrets that a page shows once, after a redirect: a new key, a personal token, the link of an invitation.

The POST that creates a secret keeps it, encrypted, in the user's session and redirects to a page that takes it out and
shows it. Reloading that page creates no second secret. The session is in the database, so that any process can answer
the redirect; what lies there can be opened only for the same user and the same object, and only for SECONDS.
"""

import base64
import time
from typing import Any, Final

import msgspec
from django.contrib.auth.models import AnonymousUser
from django.db.models import Model
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse

from tools_app.core import encryption

SESSION_KEY: Final = "shown_once"
SECONDS: Final = 300.0
# Secrets that wait in one session; the oldest give way.
MAX_WAITING: Final = 8
# HTTP 410: the page was here, and does not come back.
GONE: Final = 410
GONE_MESSAGE: Final = "It was shown already, or you opened this page more than five minutes after creating it."

Values = dict[str, str]


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """The values of a page and when they can no longer be shown, in seconds since 1970."""

    expires: float
    values: Values


def keep(request: HttpRequest, row: Model, values: Values) -> None:
    """Keep the `values` of the page that shows the secret of `row` to the user of `request`, once."""
    kept = msgspec.json.encode(_Kept(time.time() + SECONDS, values))
    sealed = base64.b64encode(encryption.seal(kept, _purpose(request, row))).decode()
    waiting = {name: text for name, text in _waiting(request).items() if name != _name(row)}
    newest = [*waiting.items(), (_name(row), sealed)][-MAX_WAITING:]
    request.session[SESSION_KEY] = dict(newest)


def take(request: HttpRequest, row: Model) -> Values | None:
    """Return the values that were kept for `row`, and forget them; None if they were shown before or expired."""
    waiting = _waiting(request)
    sealed = waiting.pop(_name(row), None)
    if sealed is None:
        return None
    request.session[SESSION_KEY] = waiting
    try:
        kept = msgspec.json.decode(encryption.unseal(base64.b64decode(sealed), _purpose(request, row)), type=_Kept)
    except (ValueError, encryption.DecryptionError):
        return None
    return kept.values if kept.expires > time.time() else None


def page(request: HttpRequest, template: str, context: dict[str, Any]) -> TemplateResponse:
    """Return the page of a secret, which browsers and proxies must not store."""
    return TemplateResponse(request, template, context, headers={"Cache-Control": "no-store"})


def gone(
    request: HttpRequest, context: dict[str, Any], noun: str, advice: str, *, place: str, place_url: str = ""
) -> TemplateResponse:
    """Return the page that says that a secret, `noun`, is not shown again; `advice` says what to do.

    It leads to `place`, which is the page of the row that is the `original` of the context, unless it has another URL.
    """
    row = context["original"]
    told = {
        "title": f"This {noun} is not shown again",
        "message": GONE_MESSAGE,
        "advice": f"If you did not copy it, {advice}",
        "back": f"Go to {place}",
        "back_url": place_url or reverse(f"admin:tools_app_{row._meta.model_name}_change", args=[row.pk]),
    }
    template = "admin/tools_app/shown_already.html"
    return TemplateResponse(request, template, context | told, status=GONE, headers={"Cache-Control": "no-store"})


def _waiting(request: HttpRequest) -> dict[str, str]:
    waiting = request.session.get(SESSION_KEY)
    return dict(waiting) if isinstance(waiting, dict) else {}


def _name(row: Model) -> str:
    return f"{row._meta.model_name}:{row.pk}"


def _purpose(request: HttpRequest, row: Model) -> str:
    assert not isinstance(request.user, AnonymousUser), "the view requires a login"
    return f"shown once:{request.user.pk}:{_name(row)}"
