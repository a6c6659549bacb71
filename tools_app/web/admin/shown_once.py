"""Secrets that a page shows once, after a redirect: a new key, a personal token, the link of an invitation.

The POST that creates a secret keeps it, encrypted, in the user's session and redirects to a page that takes it out and
shows it. Reloading that page creates no second secret. The session is in the database, so that any process can answer
the redirect; what lies there can be opened only for the same user and the same object, and only for SECONDS.
"""

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from django.contrib.admin import ModelAdmin
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
GONE_STATUS: Final = 410
GONE_MESSAGE: Final = "The {noun} was shown already, or was created more than five minutes ago."

Values = dict[str, str]


class _StoredSecret(msgspec.Struct, frozen=True, array_like=True):
    """The values of a page and when they can no longer be shown, in seconds since 1970."""

    expires: float
    values: Values


def store(request: HttpRequest, row: Model, values: Values) -> None:
    """Keep the `values` of the page that shows the secret of `row` to the user of `request`, once."""
    encoded = msgspec.json.encode(_StoredSecret(time.time() + SECONDS, values))
    sealed = base64.b64encode(encryption.seal(encoded, _purpose(request, row))).decode()
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
        stored = msgspec.json.decode(
            encryption.unseal(base64.b64decode(sealed), _purpose(request, row)), type=_StoredSecret
        )
    except (ValueError, encryption.DecryptionError):
        return None
    return stored.values if stored.expires > time.time() else None


@dataclass(frozen=True)
class SecretPage:
    """The page that shows a secret, `noun`, once, and says what to do if it is lost: `advice`. It leads to `place`.

    `template` extends "web/issued.html". `place` is the page of the secret's row, unless `place_view` names another
    view of the admin. Browsers and proxies must not store the page.
    """

    template: str
    noun: str
    advice: str
    place: str
    place_view: str = ""

    def response(
        self,
        request: HttpRequest,
        admin: "ModelAdmin[Any]",
        row: Model,
        context_of: Callable[[Values], dict[str, Any]],
    ) -> TemplateResponse:
        """Return the page of the secret of `row`, with the context that `context_of` makes of its values."""
        here = reverse(f"admin:tools_app_{row._meta.model_name}_change", args=[row.pk])
        context = {
            **admin.admin_site.each_context(request),
            "opts": admin.opts,
            "original": row,
            "warning": f"Copy the {self.noun} now: it is not shown again. If you lose it, {self.advice}",
            "back_url": reverse(self.place_view) if self.place_view else here,
        }
        values = take(request, row)
        if values is None:
            template, status = "web/shown_already.html", GONE_STATUS
            context |= {
                "title": f"This {self.noun} is not shown again",
                "message": GONE_MESSAGE.format(noun=self.noun),
                "advice": f"If you did not copy it, {self.advice}",
                "back": f"Go to {self.place}",
            }
        else:
            template, status = self.template, 200
            context |= context_of(values)
        return TemplateResponse(request, template, context, status=status, headers={"Cache-Control": "no-store"})


def _waiting(request: HttpRequest) -> dict[str, str]:
    waiting = request.session.get(SESSION_KEY)
    return dict(waiting) if isinstance(waiting, dict) else {}


def _name(row: Model) -> str:
    return f"{row._meta.model_name}:{row.pk}"


def _purpose(request: HttpRequest, row: Model) -> str:
    assert not isinstance(request.user, AnonymousUser), "the view requires a login"
    return f"shown once:{request.user.pk}:{_name(row)}"
