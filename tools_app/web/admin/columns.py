"""Columns and read-only fields that lists and pages share: times, and names that are cut where they are too long."""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

from django.contrib.admin.filters import BooleanFieldListFilter, FieldListFilter
from django.utils.safestring import SafeString

from tools_app.models import Role
from tools_app.web.admin.decorators import column
from tools_app.web.admin.scoping import badge, narrow
from tools_app.web.admin.times import full_text, moment

# Where stubs expect names only, a function is as good.
Cell = Any


# Django compares the entries of `fields` and `readonly_fields`: the same field is the same function.
@cache
def moment_column(field: str, description: str, ordering: str = "") -> Cell:
    """Return a list's column of times: how long ago, with the full time on hover."""
    value = _value_of(field)
    return _column(field, description, lambda row: moment(value(row)), ordering)


@cache
def full_moment(field: str, description: str) -> Cell:
    """Return a read-only field with a full time."""
    value = _value_of(field)
    return _column(field, description, lambda row: full_text(value(row)))


def _value_of(field: str) -> Callable[[Any], Any]:
    """Return what reads a field, also of a related row: `key__expires_at`."""
    return attrgetter(field.replace("__", "."))


@cache
def cut_column(field: str, description: str) -> Cell:
    """Return a list's column of names, which are cut where they are too long, with the whole on hover."""
    return _column(field, description, lambda row: narrow(getattr(row, field) or "-"))


@cache
def yes_no_column(field: str, description: str) -> Cell:
    """Return a list's column of a flag whose name in the model is not the name on the page."""

    def cell(row: Any) -> bool:
        return bool(getattr(row, field))

    cell.__name__ = field
    return column(description, ordering=field, boolean=True)(cell)


def yes_no_filter(title: str) -> type[FieldListFilter]:
    """Return a filter by such a flag."""

    class YesNoFilter(BooleanFieldListFilter):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.title = title

    return YesNoFilter


def _column(field: str, description: str, cell: Callable[[Any], str], ordering: str = "") -> Cell:
    # Names the class of the cell on the page.
    cell.__name__ = field
    return column(description, ordering=ordering or field)(cell)


def role_badge(role: str) -> SafeString:
    """Return the label of a member's or an invited person's role."""
    return badge(Role(role).label, "primary" if role == Role.ADMIN else "info")
