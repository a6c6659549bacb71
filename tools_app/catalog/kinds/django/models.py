"""Tools that read the rows of a Django model: a list with filters, order and pages, and one row by its primary key.

The author lists the fields, and a function returns the rows that a person may see. Nothing else is ever read.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any, Final

import orjson
from django.contrib.auth.models import User
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured, ValidationError
from django.db import connection, models
from django.utils.encoding import force_str

from tools_app.audit.recorder.redaction import is_secret
from tools_app.catalog.kinds.base import ToolDefinition
from tools_app.catalog.kinds.django.people import person_of
from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.kinds.python.runner import in_thread
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.results import CallCancelled, ToolError, ToolResult, text
from tools_app.core.config import config
from tools_app.core.sanitize import is_storable
from tools_app.models import TaskSupport

# The person and the slug of the tenant, to the rows that this person may see there.
Visible = Callable[[User, str], models.QuerySet[Any]]

MAX_PAGE_SIZE: Final = 100
USUAL_PAGE_SIZE: Final = 20
# A page further on makes the database count through all that is before it.
MAX_PAGE: Final = 1000
MAX_FILTER: Final = 200
# Of a JSON value: what is nested deeper is not shown.
MAX_NESTING: Final = 32
# Python writes no longer integers as text.
MAX_BITS: Final = 10_000
# Arguments of every list, of whose names a field can be.
OWN: Final = frozenset({"order", "page", "page_size"})
ANNOTATIONS: Final = {"readOnlyHint": True, "openWorldHint": False}
TIMEOUT_SECONDS: Final = 30.0

TEXTS: Final = (models.CharField, models.TextField)
NUMBERS: Final = (models.IntegerField, models.FloatField, models.DecimalField)
TIMES: Final = (models.DateField, models.TimeField)
EXACT: Final = (*TEXTS, *NUMBERS, *TIMES, models.BooleanField, models.UUIDField)


@dataclass(frozen=True)
class Column:
    """A field of a model that a tool shows. `name` is that of its value: `author_id` for a foreign key."""

    name: str
    field: Any
    is_filter: bool


@dataclass(frozen=True)
class Filter:
    """A filter of a list: the lookup of an argument, and the field that converts its value."""

    lookup: str
    field: Any
    schema: Mapping[str, Any]


def register(
    model: type[models.Model],
    fields: Sequence[str],
    queryset: Visible,
    *,
    name: str | None = None,
    description: str = "",
    sensitive: Sequence[str] = (),
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> list[python.PythonFunction]:
    """Register `list_<name>` and `get_<name>` for a model; `name` is by default that of the model.

    `queryset` returns the rows that a person may see; `description` tells language models more of them. `sensitive` are
    those of `fields` that look like secrets and are shown all the same; they are neither filters nor an order. Raises
    ImproperlyConfigured for an unknown field, one that looks like a secret and is not in `sensitive`, one of bytes, and
    a `queryset` that is no function.
    """
    place = f"model_tools({model._meta.label})"
    if not callable(queryset):
        raise ImproperlyConfigured(f"{place}: queryset must be a function of the person and the slug of the tenant.")
    if isinstance(fields, str) or not fields:
        raise ImproperlyConfigured(f'{place}: list the fields that clients may see, such as ["id", "name"].')
    unused = [one for one in sensitive if one not in fields]
    if unused:
        raise ImproperlyConfigured(f"{place}: {unused[0]!r} is in sensitive, but not in fields.")
    if isinstance(model._meta.pk, models.CompositePrimaryKey):
        raise ImproperlyConfigured(f"{place} has a primary key of several fields, which a tool cannot look up.")
    # Rows are looked up by it, even if it is not shown.
    _check_name(model._meta.pk.name, sensitive, place)
    rows = Rows(model, [_column(model, one, sensitive, place) for one in dict.fromkeys(fields)], queryset)
    base = name or str(model._meta.model_name)
    one, many = str(model._meta.verbose_name), str(model._meta.verbose_name_plural)
    kinds: tuple[tuple[str, dict[str, Any], Callable[..., ToolResult], str], ...] = (
        ("list", rows.list_schema(), rows.listed, f"List {many}, a page at a time."),
        ("get", rows.get_schema(), rows.one, f"Get one {one} by its primary key."),
    )
    return [
        python.add(
            python.PythonFunction(
                ToolDefinition(
                    name=f"{verb}_{base}",
                    title=f"{verb} {many if verb == 'list' else one}".capitalize(),
                    description=f"{opening} {description}".strip(),
                    input_schema=schema,
                    output_schema=None,
                    annotations=ANNOTATIONS,
                ),
                background=False,
                timeout_seconds=timeout_seconds,
                task=TaskSupport.NEVER,
                run=partial(_run_in_thread, run),
                place=f"{place}.{verb}",
                needs_person=True,
            )
        )
        for verb, schema, run, opening in kinds
    ]


async def _run_in_thread(run: Callable[..., ToolResult], arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    taken = {"arguments": arguments, "context": context}
    result: ToolResult = await in_thread(run, taken, context.caller.tenant_id)
    return result


def _check_name(name: str, sensitive: Sequence[str], place: str) -> None:
    if is_secret(name) and name not in sensitive:
        raise ImproperlyConfigured(
            f"{place}: {name!r} looks like a secret. Leave it out; to show it all the same, name it in sensitive, too."
        )


def _column(model: type[models.Model], name: str, sensitive: Sequence[str], place: str) -> Column:
    try:
        field: Any = model._meta.get_field(name)
    except FieldDoesNotExist:
        known = ", ".join(field.name for field in model._meta.concrete_fields)
        raise ImproperlyConfigured(f"{place} has no field {name!r}. Its fields are: {known}.") from None
    if not getattr(field, "concrete", False) or field.many_to_many:
        raise ImproperlyConfigured(f"{place}: {name!r} is no column of the model's own table.")
    if isinstance(field, models.BinaryField):
        raise ImproperlyConfigured(f"{place}: {name!r} holds bytes, which have no JSON form.")
    _check_name(name, sensitive, place)
    return Column(field.attname, field, name not in sensitive and isinstance(_value_field(field), EXACT))


class Rows:
    """The rows of a model that tools read: the columns, and the rows that a person may see."""

    def __init__(self, model: type[models.Model], columns: Sequence[Column], visible: Visible) -> None:
        self._model = model
        self._columns = columns
        self._visible = visible
        self._key: Any = model._meta.pk
        self._filters = {name: one for column in columns if column.is_filter for name, one in _filters_of(column)}
        self._order = [name for column in columns if column.is_filter for name in (column.name, f"-{column.name}")]

    def list_schema(self) -> dict[str, Any]:
        """Return the input schema of the list."""
        properties: dict[str, Any] = {name: dict(one.schema) for name, one in self._filters.items()}
        if self._order:
            description = "The order. A minus sign reverses it."
            properties["order"] = {"type": "string", "enum": self._order, "description": description}
        properties["page"] = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 1}
        bounds = {"minimum": 1, "maximum": MAX_PAGE_SIZE, "default": USUAL_PAGE_SIZE}
        properties["page_size"] = {"type": "integer", **bounds}
        return {"type": "object", "properties": properties, "additionalProperties": False}

    def get_schema(self) -> dict[str, Any]:
        """Return the input schema of one row."""
        schema = {**_schema_of(_value_field(self._key)), "description": "The primary key."}
        properties = {self._key.attname: schema}
        return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}

    def listed(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Return a page of rows. Raises ToolError for a value that a field does not take, and for a page too large."""
        rows = self._rows(context)
        for name, one in self._filters.items():
            if name in arguments:
                rows = rows.filter(**{one.lookup: _converted(one.field, name, arguments[name])})
        order = arguments.get("order")
        # The primary key last: without it, pages could repeat rows and leave others out.
        rows = rows.order_by(*([order] if order else rows.query.order_by or rows.model._meta.ordering), "pk")
        page, size = int(arguments.get("page", 1)), int(arguments.get("page_size", USUAL_PAGE_SIZE))
        start = (page - 1) * size
        shown: list[dict[str, Any]] = []
        left = config.MCPHUB_MAX_RESULT_BYTES
        has_more = False
        for row in rows.values_list(*self._names)[start : start + size + 1].iterator(chunk_size=10):
            if len(shown) == size:
                has_more = True
                break
            shown.append(self._shown(row))
            left -= len(orjson.dumps(shown[-1]))
            if left < 0:
                raise ToolError("The page is too large. Ask for a smaller page_size.")
        return _result({"rows": shown, "page": page, "page_size": size, "has_more": has_more})

    def one(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Return one row. Raises ToolError if there is none that the person may see."""
        name = self._key.attname
        key = _converted(_value_field(self._key), name, arguments[name])
        row = self._rows(context).filter(pk=key).values_list(*self._names).first()
        if row is None:
            raise ToolError(f"There is no {self._model._meta.verbose_name} with this {name}.")
        return _result(self._shown(row))

    @property
    def _names(self) -> list[str]:
        return [column.name for column in self._columns]

    def _rows(self, context: ToolContext) -> models.QuerySet[Any]:
        person = person_of(context.caller)
        if context.cancelled:
            raise CallCancelled
        rows: Any = self._visible(person, context.caller.tenant_slug)
        if not isinstance(rows, models.QuerySet) or not issubclass(rows.model, self._model):
            raise TypeError(f"The function for the rows of {self._model._meta.label} must return a queryset of them.")
        return rows

    def _shown(self, row: Sequence[Any]) -> dict[str, Any]:
        return {column.name: _json_value(value) for column, value in zip(self._columns, row, strict=True)}


def _result(value: dict[str, Any]) -> ToolResult:
    return ToolResult([text(orjson.dumps(value).decode())], structured=value)


def _value_field(field: Any) -> Any:
    """Return the field that holds the value: for a foreign key, the field that it refers to."""
    while field.is_relation:
        field = field.target_field
    return field


def _filters_of(column: Column) -> list[tuple[str, Filter]]:
    """Return the filters of a column by the names of their arguments."""
    field, name = _value_field(column.field), column.name
    schema = _schema_of(field)
    found = [(f"{name}__exact" if name in OWN else name, Filter(name, field, schema))]
    if isinstance(field, TEXTS):
        contained = {"type": "string", "minLength": 1, "maxLength": MAX_FILTER}
        found.append((f"{name}__contains", Filter(f"{name}__icontains", field, contained)))
    elif isinstance(field, (*NUMBERS, *TIMES)) and not column.field.is_relation:
        found += [(f"{name}__{edge}", Filter(f"{name}__{edge}", field, schema)) for edge in ("gte", "lte")]
    return found


def _schema_of(field: Any) -> dict[str, Any]:
    if isinstance(field, models.BooleanField):
        return {"type": "boolean"}
    if isinstance(field, models.IntegerField):
        return {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
    if isinstance(field, models.FloatField):
        return {"type": "number"}
    if isinstance(field, models.DecimalField):
        return {"type": ["number", "string"], "maxLength": MAX_FILTER}
    schema: dict[str, Any] = {"type": "string", "maxLength": MAX_FILTER}
    if isinstance(field, models.UUIDField):
        schema["format"] = "uuid"
    elif isinstance(field, models.DateTimeField):
        schema["description"] = "A date-time; without an offset, it is UTC."
    elif isinstance(field, models.DateField):
        schema["format"] = "date"
    return schema


def _converted(field: Any, name: str, value: Any) -> Any:
    """Return a value as its field has it. Raises ToolError."""
    if isinstance(value, str) and not is_storable(value):
        raise ToolError(f"{name}: it contains U+0000 or half of a character, which cannot be stored.")
    try:
        converted = field.to_python(value)
        if isinstance(converted, datetime):
            # Without an offset, it is UTC. With one, it may be before the first year or after the last.
            converted = (converted.replace(tzinfo=UTC) if converted.tzinfo is None else converted).astimezone(UTC)
        # What the adapter of the database refuses.
        field.get_db_prep_value(converted, connection)
        return converted
    except (ValidationError, ArithmeticError, ValueError) as problem:
        message = problem.messages[0] if isinstance(problem, ValidationError) else "it is out of range."
        raise ToolError(f"{name}: {message}") from problem


def _json_value(value: Any, depth: int = 0) -> Any:
    """Return the value of a column as JSON: times in ISO 8601, decimals and all other types as text.

    Integers beyond 64 bits are text, too. What is nested deeper than MAX_NESTING is left out, as "…".
    """
    match value:
        case dict() | list() | tuple() if depth == MAX_NESTING:
            found: Any = "…"
        case dict():
            found = {_text(str(name)): _json_value(inner, depth + 1) for name, inner in value.items()}
        case list() | tuple():
            found = [_json_value(inner, depth + 1) for inner in value]
        case float():
            found = value if math.isfinite(value) else None
        case int() if not -(2**63) <= value < 2**63:
            found = str(value) if value.bit_length() <= MAX_BITS else "…"
        case None | bool() | int():
            found = value
        case datetime() | date() | time():
            found = value.isoformat()
        case _:
            found = _text(str(value) if isinstance(value, Decimal) else force_str(value))
    return found


def _text(value: str) -> str:
    """Return a text with each half of a character, which JSON cannot hold, as a question mark."""
    return value.encode("utf-8", "replace").decode() if not value.isascii() else value
