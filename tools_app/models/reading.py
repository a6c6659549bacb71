"""Reading rows that may point to what is gone: the audit log outlives what it tells of."""

from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Model


def related(row: Model, name: str) -> Any:
    """What `row` points to, or None if that is gone."""
    try:
        return getattr(row, name)
    except ObjectDoesNotExist:
        return None
