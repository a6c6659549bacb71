"""What the pages that confirm a deletion list: rows that a person knows, without tables that only link two of them."""

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from django.apps import apps
from django.utils.text import capfirst

# A row without a page is listed as its kind and its text.
SEPARATOR: Final = ": "


@cache
def _link_tables() -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the names of the models that Django makes for many-to-many fields, and what their rows begin with."""
    linking = [model._meta for model in apps.get_models(include_auto_created=True) if model._meta.auto_created]
    plural = frozenset(str(meta.verbose_name_plural) for meta in linking)
    return plural, tuple(f"{capfirst(str(meta.verbose_name))}{SEPARATOR}" for meta in linking)


def without_link_tables(rows: Iterable[Any], counts: dict[str, int]) -> tuple[list[Any], dict[str, int]]:
    """Return the nested list of deleted rows, and their numbers by kind, without the rows of link tables."""
    plural, begin = _link_tables()
    return _without(rows, begin), {name: count for name, count in counts.items() if str(name) not in plural}


def _without(rows: Iterable[Any], begin: tuple[str, ...]) -> list[Any]:
    remaining = (_without(row, begin) if isinstance(row, list) else row for row in rows)
    return [row for row in remaining if row != [] and not (isinstance(row, str) and row.startswith(begin))]
