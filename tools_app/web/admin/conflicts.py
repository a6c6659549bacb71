"""Edits of one row by two people at a time: noticed when the second one saves, and resolved on the form.

A form carries a digest of each stored value that it was opened with. Where another value is stored when it is saved,
and the form would overwrite it, nothing is saved: the form comes back as it was typed, with both values, who saved the
other one and when, and a choice for each field. A value that cannot be shown, such as a secret's, is typed again.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import orjson
from django import forms
from django.db.models import Model
from django.http import HttpRequest

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.audit.changes.signals import SECRET_FIELDS
from tools_app.core.relations import first_within
from tools_app.models import Change
from tools_app.web.admin import json_source
from tools_app.web.admin.history import HistoryAdmin
from tools_app.web.admin.times import full_text

OPENED: Final = "_opened"
TAKE: Final = "_take_"
MINE, THEIRS = "mine", "theirs"
MAX_OPENED_LENGTH: Final = 8192
# How far back the change log is searched for who saved a field.
MAX_CHANGES: Final = 20
MAX_CHANGES_BYTES: Final = 256 * 1024
MAX_SHOWN: Final = 4_000
DIGEST_LENGTH: Final = 16
# The column of the fields of a form that are no columns, such as the request of an HTTP tool.
PACKED: Final = "config"


@dataclass(frozen=True)
class Conflict:
    """A field with two values. `mine` is None for a value that is never shown. `take`: which one is preselected."""

    name: str
    label: str
    mine: str | None
    theirs: str
    change: Change | None
    take: str


class ConflictForm(forms.ModelForm):  # type: ignore[type-arg]
    """Base of the forms of existing rows: `WRITE_ONLY` of a form maps fields whose value is not shown to columns."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._write_only: Mapping[str, str] = getattr(self, "WRITE_ONLY", {})
        self.conflicts: list[Conflict] = []
        # Read now: validation writes the typed values into the instance. A disabled field, such as the one that
        # describes a password, overwrites nothing.
        self._stored = {
            name: self._digest_of(
                name,
                getattr(self.instance, self._write_only[name])
                if name in self._write_only
                else self.get_initial_for_field(field, name),
            )
            for name, field in self.fields.items()
            if not field.disabled
        }

    @property
    def opened(self) -> str:
        """The digests of the stored values, for the form's hidden field."""
        return json.dumps(self._stored)

    @property
    def recorded_row(self) -> Model:
        """The row under which changes of these fields are recorded."""
        row: Model = self.instance
        return row

    def full_clean(self) -> None:
        """Validate the form, with stored values where the user chose them, and find what it would overwrite."""
        if not self.is_bound:
            super().full_clean()
            return
        try:
            seen = orjson.loads(self.data.get(OPENED, "")[: MAX_OPENED_LENGTH + 1])
        except ValueError:
            seen = {}
        seen = seen if isinstance(seen, dict) else {}
        # A choice holds for the value that was shown beside it.
        chosen = {
            name: str(self.data[TAKE + name])
            for name in self._stored
            if TAKE + name in self.data and seen.get(name) == self._stored[name]
        }
        taken = [name for name, choice in chosen.items() if choice == THEIRS and name not in self._write_only]
        # A disabled field keeps its stored value, also if another one was sent.
        for name in taken:
            self.fields[name].disabled = True
        super().full_clean()
        changed = self.changed_data
        for name in taken:
            self.fields[name].disabled = False
        overwritten = [name for name in changed if name in seen and seen[name] != self._stored[name]]
        if overwritten:
            kind = self.recorded_row._meta.verbose_name
            message = (
                f"Somebody else changed this {kind} while you edited it, and nothing was saved. Select which values to"
                " keep, then save again."
            )
            self.add_error(None, message)
        if self.errors and (overwritten or chosen):
            self.conflicts = self._between(sorted({*overwritten, *chosen}, key=list(self.fields).index), seen, chosen)

    def _between(self, names: list[str], seen: Mapping[str, str], chosen: Mapping[str, str]) -> list[Conflict]:
        changes = _changes_of(self.recorded_row, {name: self._recorded_as(name) for name in names})
        found = []
        for name in names:
            field, typed = self.fields[name], self.cleaned_data.get(name, self[name].value())
            if chosen.get(name) == THEIRS:
                # Validated was the stored value.
                typed = self[name].value()
            is_shown = name not in self._write_only
            # Who left a field alone wants what is stored now.
            usual = THEIRS if self._digest_of(name, typed) == seen.get(name) else MINE
            found.append(
                Conflict(
                    name,
                    str(self[name].label),
                    _text(field, typed) if is_shown else None,
                    _text(field, self[name].initial) if is_shown else "",
                    changes.get(name),
                    chosen.get(name, usual),
                )
            )
        return found

    def _recorded_as(self, name: str) -> str:
        column = self._write_only.get(name)
        if column:
            return SECRET_FIELDS.get(column, column)
        columns = (*self.instance._meta.concrete_fields, *self.instance._meta.many_to_many)
        return name if name in {field.name for field in columns} else PACKED

    def _digest_of(self, name: str, value: Any) -> str:
        if isinstance(self.fields[name], forms.ModelMultipleChoiceField):
            # Their order has no meaning.
            value = sorted(_keys(value))
        text = json.dumps(_plain(value), sort_keys=True, default=str)
        return sha256(text.encode(errors="backslashreplace")).hexdigest()[:DIGEST_LENGTH]


def _changes_of(row: Model, recorded: Mapping[str, str]) -> dict[str, Change]:
    """Return the newest change of each field, of those that are recorded under these names."""
    rows = Change.objects.filter(kind=row._meta.model_name, object_id=str(row.pk)).order_by("-position")
    newest, _ = first_within(rows, MAX_CHANGES, MAX_CHANGES_BYTES)
    written = [(change, orjson.loads(change.after)) for change in newest]
    found = {}
    for name, column in recorded.items():
        change = next((change for change, after in written if column in after), None)
        if change is not None:
            found[name] = change
    return found


def _plain(value: Any) -> Any:
    """Return a value in the form that it has in the database, as typed, and as JSON alike."""
    match value:
        case None:
            return ""
        case Model():
            return str(value.pk)
        case datetime():
            return value.astimezone(UTC).replace(microsecond=0).isoformat()
        case bytes() | memoryview():
            return sha256(bytes(value)).hexdigest()
        case str():
            # Browsers send line breaks of text as CRLF.
            return value.replace("\r\n", "\n")
    return value


def _keys(rows: Iterable[Any] | None) -> set[str]:
    """Return the keys of chosen rows, which are given as rows or as keys."""
    return {str(row.pk if isinstance(row, Model) else row) for row in rows or ()}


def _text(field: forms.Field, value: Any) -> str:
    """Return a value as the page shows it."""
    if isinstance(field, forms.ModelMultipleChoiceField):
        chosen = _keys(value)
        value = ", ".join(sorted(str(row) for row in field.queryset or () if str(row.pk) in chosen))
    match value:
        case None | "" | [] | {}:
            return "(empty)"
        case bool():
            return "Yes" if value else "No"
        case datetime():
            return full_text(value)
        case dict() | list():
            text = json_source.pretty(value)
        case _:
            choices = dict(getattr(field, "choices", ()) or ())
            text = str(choices.get(value, value))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} … ({len(text)} characters)"


class ConflictAdmin(HistoryAdmin):
    """Rows whose forms notice what somebody else saved meanwhile."""

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any) -> Any:
        """Return the form of a new row, or one that notices what somebody else saved meanwhile."""
        form = super().get_form(request, obj, change=change, **options)
        return type(form.__name__, (ConflictForm, form), {}) if change and obj is not None else form

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """Show a form, or save it. While an existing row is read, compared and saved, it is locked."""
        saves = request.method == "POST" and object_id is not None
        with change_log_transaction() if saves else nullcontext():
            return super().changeform_view(request, object_id, form_url, extra_context)
