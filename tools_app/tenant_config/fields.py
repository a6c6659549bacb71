"""The fields of a configuration file, derived from the models: what people may set in a row of each kind.

A row in a file is complete: fields that are left out have their defaults.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from django.db import models

from tools_app.models import Prompt, Resource, Tenant, Tool

Row = Mapping[str, Any]

LIMITS: Final = ("calls_per_second", "calls_per_minute", "calls_per_day", "calls_in_flight")
DESCRIBED: Final = ("name", "title", "description", "mime_type", "enabled", "annotations", "icons")


@dataclass(frozen=True)
class Source:
    """A source of a row's content: a row has exactly one of these fields, and the other fields of its kind.

    `stored` is the model field that holds it, `wanted` describes what to write.
    """

    field: str
    kind: str
    stored: str
    type: type
    wanted: str
    others: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """A section of a file with rows by name. `key` is the model field that holds the name."""

    name: str
    model: type[Tool | Resource | Prompt]
    key: str
    word: str
    sources: tuple[Source, ...]


FUNCTION: Final = "must be the name of a registered function."
REQUEST: Final = "must be an object with method, base_url, path and the other fields of the request."

TOOLS: Final = Section(
    "tools",
    Tool,
    "name",
    "tool",
    (
        Source("function", "python", "config", str, FUNCTION, ("enabled", *LIMITS)),
        Source(
            "request",
            "http",
            "config",
            dict,
            REQUEST,
            (
                "title",
                "description",
                "enabled",
                "input_schema",
                "output_schema",
                "annotations",
                "icons",
                "background",
                "task",
                "timeout_seconds",
                *LIMITS,
            ),
        ),
    ),
)
RESOURCES: Final = Section(
    "resources",
    Resource,
    "uri",
    "resource",
    (
        Source("function", "python", "config", str, FUNCTION, ("enabled",)),
        Source("text", "text", "text", str, "must be a string.", DESCRIBED),
        Source("file", "file", "blob", bytes, "must be base64 after !!binary.", DESCRIBED),
        Source("request", "http", "config", dict, REQUEST, (*DESCRIBED, "timeout_seconds")),
    ),
)
PROMPTS: Final = Section(
    "prompts",
    Prompt,
    "name",
    "prompt",
    (
        Source("function", "python", "config", str, FUNCTION, ("enabled",)),
        Source(
            "messages",
            "template",
            "messages",
            list,
            "must be a list of messages with role and text.",
            ("title", "description", "enabled", "icons", "arguments"),
        ),
    ),
)
SECTIONS: Final = (TOOLS, RESOURCES, PROMPTS)
# All fields of the tenant's admin pages. The slug is left out: clients know the tenant by it, and it does not change.
TENANT_FIELDS: Final = tuple(
    field.name for field in Tenant._meta.concrete_fields if field.editable and field.name != "slug"
)


def type_fault(model: type[models.Model], name: str, value: Any) -> str | None:
    """Return what is wrong with the type of a field's value, before the model validates the value itself."""
    field = model._meta.get_field(name)
    assert isinstance(field, models.Field)
    if value is None and field.null:
        return None
    fits, wanted = _type_of(field)
    is_flag = isinstance(value, bool)
    if isinstance(value, fits) and (is_flag == (fits is bool)) and is_json(value):
        return None
    return wanted + (" Remove the field for no value." if field.null else "")


def is_json(value: Any) -> bool:
    """Whether JSON can represent this value: it cannot represent bytes."""
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


def default_of(model: type[models.Model], name: str) -> Any:
    """Return the default of a field."""
    field = model._meta.get_field(name)
    assert isinstance(field, models.Field)
    return field.get_default()


def _type_of(field: "models.Field[Any, Any]") -> tuple[Any, str]:
    match field:
        case models.BooleanField():
            return bool, "Must be true or false."
        case models.FloatField():
            return (int, float), "Must be a number."
        case models.IntegerField():
            return int, "Must be a whole number."
        case models.JSONField():
            return (list, "Must be a list.") if field.get_default() == [] else (dict, "Must be an object.")
    return str, "Must be a string. Use quotes if YAML reads it as another type."
