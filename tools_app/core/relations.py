"""Reads of rows within a limit of bytes, of related rows that may be deleted, and of values of an indexed column."""

from collections.abc import Iterator
from functools import reduce
from itertools import accumulate
from operator import add
from typing import Any, TypeVar

from django.core.exceptions import ObjectDoesNotExist
from django.db import models
from django.db.models.functions import Cast

M = TypeVar("M", bound=models.Model)


def related(row: models.Model, name: str) -> Any:
    """Return the related object of `row`, or None if it was deleted: the audit log outlives its subjects."""
    try:
        return getattr(row, name)
    except ObjectDoesNotExist:
        return None


class OctetLength(models.Func):
    """The length of a text or binary column in bytes; 0 for NULL."""

    function = "OCTET_LENGTH"
    template = "COALESCE(%(function)s(%(expressions)s), 0)"
    output_field = models.BigIntegerField()

    def as_sqlite(self, compiler: Any, connection: Any, **options: Any) -> Any:
        """Cast to BLOB: SQLite's LENGTH counts the characters of a text, but the bytes of a blob."""
        counted = "COALESCE(LENGTH(CAST(%(expressions)s AS BLOB)), 0)"
        return self.as_sql(compiler, connection, template=counted, **options)


def large_columns(model: type[models.Model]) -> "list[models.Field[Any, Any]]":
    """Return the columns whose type has no maximum length."""
    kinds = (models.TextField, models.JSONField, models.BinaryField)
    return [field for field in model._meta.concrete_fields if isinstance(field, kinds)]


def first_within(rows: models.QuerySet[M], most: int, max_bytes: int) -> tuple[list[M], bool]:
    """Return the first of ordered rows whose large columns fit in `max_bytes`, and whether there are more.

    Returns at least one and at most `most` rows. Lengths are queried first, so that excess rows are never read.
    """
    left_out, _ = rows.query.deferred_loading
    large = [
        OctetLength(Cast(field.name, models.TextField()) if isinstance(field, models.JSONField) else field.name)
        for field in large_columns(rows.model)
        if field.name not in left_out
    ]
    if not large:
        found = list(rows[: most + 1])
        return found[:most], len(found) > most
    lengths = list(rows.values_list(reduce(add, large), flat=True)[: most + 1])
    together = list(accumulate(lengths[:most]))
    taken = max(1, sum(size <= max_bytes for size in together))
    return list(rows[:taken]), len(lengths) > taken


def distinct_values(rows: models.QuerySet[Any], column: str) -> Iterator[Any]:
    """Yield the values of an indexed column, NULL excluded, by a look-up for each instead of a scan."""
    rows = rows.filter(**{f"{column}__isnull": False}).order_by(column)
    value = rows.values_list(column, flat=True).first()
    while value is not None:
        yield value
        value = rows.filter(**{f"{column}__gt": value}).values_list(column, flat=True).first()
