"""Presentation of changes in the admin: changed fields and the object of a change."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.text import capfirst

from tools_app.audit.changes.signals import RECORDED
from tools_app.core import diff as differences
from tools_app.core.diff import DiffLine
from tools_app.models import Action, Change, Session
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin import json_source

MODELS: Mapping[str, type[Model]] = {str(model._meta.model_name): model for model in (*RECORDED, Session)}
ACTION_COLOURS = {
    Action.CREATED: "success",
    Action.CHANGED: "info",
    Action.DELETED: "danger",
    Action.ISSUED: "success",
    Action.REVOKED: "danger",
    Action.ROTATED: "warning",
    Action.RESTORED: "warning",
    Action.INVITED: "primary",
    Action.EXPORTED: "primary",
}
# Longer values are shown as a line diff.
SHORT = 60


@dataclass(frozen=True)
class ChangedField:
    """One field of a change: its values before and after, or None where not recorded."""

    name: str
    before: str | None
    after: str | None
    diff: list[DiffLine] | None

    @property
    def is_short(self) -> bool:
        """Whether both values fit on one line."""
        return all("\n" not in text and len(text) <= SHORT for text in (self.before or "", self.after or ""))

    @property
    def alone(self) -> str:
        """The value, where only one side was recorded."""
        return (self.before if self.after is None else self.after) or ""


def fields_of(change: Change) -> list[ChangedField]:
    """Return the fields of a change in recorded order."""
    before, after = _read(change.before), _read(change.after)
    return [
        ChangedField(
            name.replace("_", " "),
            _text(before, name),
            _text(after, name),
            differences.lines(before[name], after[name]) if name in before and name in after else None,
        )
        for name in {**before, **after}
    ]


def may_read_values(request: HttpRequest, change: Change) -> bool:
    """Return whether this user may read the changed values. Operators see only who, when and which object."""
    return tenant_permissions_of(request).audits(change.tenant_id)


def kind_name(kind: str) -> str:
    """Return the display name of a kind."""
    model = MODELS.get(kind)
    return capfirst(str(model._meta.verbose_name)) if model else capfirst(kind)


def actor_name(change: Change) -> str:
    """Return the name of the user who made a change."""
    return change.person_name or "-"


def object_link(change: Change) -> str:
    """Return the name of the changed object, linked to its page if it still exists."""
    model = MODELS.get(change.kind)
    if model is None or not model._default_manager.filter(pk=change.object_id).exists():
        return change.object_name or change.object_id
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_change", args=[change.object_id])
    return format_html('<a href="{}" class="text-link">{}</a>', address, change.object_name)


def _read(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except ValueError:
        return {"unreadable": text}
    return value if isinstance(value, dict) else {"value": value}


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    if name not in fields:
        return None
    value = fields[name]
    return value if isinstance(value, str) else json_source.pretty(value)
