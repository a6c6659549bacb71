"""Size limits of what users write: the same in the admin, in the REST API and in files.

Declarations of code are not limited: rows of Python functions are not checked.
"""

from collections.abc import Iterator
from typing import Any, Final

import orjson
from django.db import models

MAX_DESCRIPTION_LENGTH: Final = 20_000
# One JSON field: a schema, a request, the messages of a prompt, icons. In compact form, in UTF-8.
MAX_JSON_BYTES: Final = 256 * 1024
MAX_SECRET_LENGTH: Final = 65_536
# A base URL or a path, before expansion.
MAX_URL_LENGTH: Final = 8192
# PostgreSQL returns larger floats as integers, which may exceed 64 bits: then no encoder writes them.
MAX_FLOAT: Final = 1e16
MIN_INT, MAX_INT = -(2**63), 2**64 - 1


def json_size_fault(value: Any, most: int = MAX_JSON_BYTES) -> str | None:
    """Return the error of a JSON value's size."""
    try:
        size = len(orjson.dumps(value))
    except TypeError:
        return "It cannot be stored: it contains invalid Unicode, or is not JSON."
    if size > most:
        return f"It has {size} bytes of JSON. The limit is {most}."
    return None if has_exact_numbers(value) else "It contains a number that cannot be stored exactly."


def has_exact_numbers(value: Any) -> bool:
    """Return whether all numbers within a JSON value are read from the database as they were written."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            pending += one.values()
        elif isinstance(one, list | tuple):
            pending += one
        elif isinstance(one, float):
            if not abs(one) < MAX_FLOAT:  # nor NaN
                return False
        elif isinstance(one, int) and not MIN_INT <= one <= MAX_INT:
            return False
    return True


def size_faults(row: models.Model) -> Iterator[tuple[str, str]]:
    """Return the errors of fields above their size limit whose columns have no maximum length."""
    for field in row._meta.concrete_fields:
        value = getattr(row, field.attname)
        if isinstance(field, models.JSONField):
            if fault := json_size_fault(value):
                yield field.name, fault
        elif field.name == "description" and len(value) > MAX_DESCRIPTION_LENGTH:
            yield field.name, f"It has {len(value)} characters. The limit is {MAX_DESCRIPTION_LENGTH}."
