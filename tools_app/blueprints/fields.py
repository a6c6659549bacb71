"""Which fields a file may have, told from the models: what people may write into a row of each kind.

A row in a file is the whole row: what is left out has its default.
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
    """Where what a row offers comes from: a row has one of these fields, and the others of its kind beside it.

    `stored` is the field of the model that takes it, `wanted` what must be written.
    """

    field: str
    kind: str
    stored: str
    type: type
    wanted: str
    others: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """A part of a file that has rows by their names. `key` is the field of the model that has the name."""

    name: str
    model: type[Tool | Resource | Prompt]
    key: str
    word: str
    sources: tuple[Source, ...]


FUNCTION: Final = "write the name of a registered function."
REQUEST: Final = "write an object with method, base_url, path and what else the request has."

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
        Source("text", "text", "text", str, "write a text.", DESCRIBED),
        Source("file", "file", "blob", bytes, "write the file in base64, after !!binary.", DESCRIBED),
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
            "write a list of messages with role and text.",
            ("title", "description", "enabled", "icons", "arguments"),
        ),
    ),
)
SECTIONS: Final = (TOOLS, RESOURCES, PROMPTS)
# All that the pages of a tenant let people write; its slug is its name to clients, and stays.
TENANT_FIELDS: Final = tuple(
    field.name for field in Tenant._meta.concrete_fields if field.editable and field.name != "slug"
)


def type_fault(model: type[models.Model], name: str, value: Any) -> str | None:
    """What is wrong with the type of a field's value, before the model is asked about the value itself."""
    field = model._meta.get_field(name)
    assert isinstance(field, models.Field)
    if value is None and field.null:
        return None
    fits, wanted = _type_of(field)
    is_flag = isinstance(value, bool)
    if isinstance(value, fits) and (is_flag == (fits is bool)) and is_json(value):
        return None
    return wanted + (" Leave it out for none." if field.null else "")


def is_json(value: Any) -> bool:
    """Whether JSON can say this: it cannot say bytes."""
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


def default_of(model: type[models.Model], name: str) -> Any:
    """What a field has that is left out."""
    field = model._meta.get_field(name)
    assert isinstance(field, models.Field)
    return field.get_default()


def _type_of(field: "models.Field[Any, Any]") -> tuple[Any, str]:
    match field:
        case models.BooleanField():
            return bool, "Write true or false."
        case models.FloatField():
            return (int, float), "Write a number."
        case models.IntegerField():
            return int, "Write a whole number."
        case models.JSONField():
            return (list, "Write a list.") if field.get_default() == [] else (dict, "Write an object.")
    return str, "Write a text, in quotes if YAML takes it for something else."
