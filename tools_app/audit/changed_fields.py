"""What is told of a row when it is changed: its fields as JSON values, without secrets and without noise."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import User
from django.db import models

Values = Mapping[str, Any]

# Never told: what identifies the row beside its name and tenant, what the hub itself writes, and digests of secrets.
UNTOLD: Final = frozenset(
    {
        "id",
        "tenant",
        "catalog_version",
        "created_at",
        "created_by",
        "date_joined",
        "digest",
        "invited_by",
        "last_login",
        "last_used_at",
        "updated_at",
    }
)
# Of these only that they changed is told, under this name.
SEALED: Final = {"password": "password", "ciphertext": "value"}
CHANGED: Final = "changed"
EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})


def stored(row: models.Model) -> Values | None:
    """The columns of a row as the database has them now; None if it has no such row."""
    return type(row)._default_manager.filter(pk=row.pk).values(*_columns(row)).first()


def held(row: models.Model) -> Values:
    """The columns of a row as they are in memory."""
    return {name: getattr(row, name) for name in _columns(row)}


def difference(row: models.Model, old: Values, new: Values, only: Iterable[str] | None = None) -> tuple[Values, Values]:
    """The told fields in which two states of a row differ: as they were, and as they are.

    `only`: names of fields beyond which nothing was written.
    """
    written = None if only is None else set(only)
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for field in _told(row):
        if written is not None and not written & {field.name, field.attname}:
            continue
        one, other = plain(field, old[field.attname]), plain(field, new[field.attname])
        if one == other:
            continue
        if field.name in SEALED:
            after[SEALED[field.name]] = CHANGED
        else:
            before[field.name], after[field.name] = one, other
    return before, after


def filled(row: models.Model, values: Values) -> Values:
    """The told fields of a row that are not empty, for one that was made or is gone."""
    told = {field.name: plain(field, values[field.attname]) for field in _told(row) if field.name not in SEALED}
    return {name: value for name, value in told.items() if value not in EMPTY}


def plain(field: "models.Field[Any, Any]", value: Any) -> Any:
    """The value of a field as JSON has it. Of bytes, their number and SHA-256; of a person, the user name."""
    match value:
        case bytes() | bytearray() | memoryview():
            return {"bytes": len(bytes(value)), "sha256": sha256(bytes(value)).hexdigest()} if value else None
        case datetime():
            return value.isoformat()
        case UUID():
            return str(value)
    if isinstance(field, models.ForeignKey) and field.related_model is User and value is not None:
        return User.objects.filter(pk=value).values_list("username", flat=True).first() or value
    return value


def _told(row: models.Model) -> "list[models.Field[Any, Any]]":
    # What was not loaded is not written either.
    untold = UNTOLD | row.get_deferred_fields()
    return [field for field in row._meta.concrete_fields if field.name not in untold]


def _columns(row: models.Model) -> list[str]:
    return [field.attname for field in _told(row)]
