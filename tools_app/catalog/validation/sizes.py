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


def json_size_fault(value: Any, most: int = MAX_JSON_BYTES) -> str | None:
    """Return the error of a JSON value's size."""
    try:
        size = len(orjson.dumps(value))
    except TypeError:
        return "It cannot be stored: it contains invalid Unicode, or is not JSON."
    return f"It has {size} bytes of JSON. The limit is {most}." if size > most else None


def size_faults(row: models.Model) -> Iterator[tuple[str, str]]:
    """Return the errors of fields above their size limit whose columns have no maximum length."""
    for field in row._meta.concrete_fields:
        value = getattr(row, field.attname)
        if isinstance(field, models.JSONField):
            if fault := json_size_fault(value):
                yield field.name, fault
        elif field.name == "description" and len(value) > MAX_DESCRIPTION_LENGTH:
            yield field.name, f"It has {len(value)} characters. The limit is {MAX_DESCRIPTION_LENGTH}."
