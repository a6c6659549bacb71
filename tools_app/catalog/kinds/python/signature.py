"""Signatures and docstrings of Python functions as JSON: input schemas and arguments, output schemas and results."""

import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import docstring_parser
import orjson
from annotated_types import BaseMetadata
from django.core.exceptions import ImproperlyConfigured
from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import to_json

from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.results import ToolError, ToolResult, text
from tools_app.protocol import exact_json
from tools_app.protocol.schema_keywords import subschemas

UNIONS = (Union, UnionType)

# `int` is not included, also in literals: JSON Schema accepts 2.0 as an integer, which Python code must not receive
# as a float.
_JSON_TYPES = (str, float, bool, NoneType, Any)
_JSON_LITERALS = (str, bool, NoneType)


# Values of Python types as JSON. The formats of JSON Schema accept less: times have an offset (RFC 3339), durations
# neither a sign nor fractions, addresses no zone, and URLs only what RFC 3986 allows.
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = "[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?"
_OFFSET = "([Zz]|[-+][0-9]{2}:[0-9]{2})"
_AMOUNT = "[0-9]+([.][0-9]+)?"
_DURATION = f"^[-+]?P({_AMOUNT}[YMWD])*(T({_AMOUNT}[HMS])+)?$"
_IPV6 = "^[0-9A-Fa-f:.]{2,45}(%[^%/]+)?$"
_URL = "^[A-Za-z][A-Za-z0-9+.-]*:"


class QuietJsonSchema(GenerateJsonSchema):
    """JSON Schema 2020-12 without the titles that only repeat a field's name, and with patterns in place of formats
    that do not accept all values of a type.
    """

    def datetime_schema(self, schema: Any) -> dict[str, Any]:
        """Return the schema of a datetime, with or without an offset."""
        return self._time(f"{_DATE}[Tt ]{_TIME}", schema) or super().datetime_schema(schema)

    def time_schema(self, schema: Any) -> dict[str, Any]:
        """Return the schema of a time, with or without an offset."""
        return self._time(_TIME, schema) or super().time_schema(schema)

    def _time(self, pattern: str, schema: Any) -> dict[str, Any] | None:
        match schema.get("tz_constraint"):
            case None:
                return {"type": "string", "pattern": f"^{pattern}{_OFFSET}?$"}
            case "naive":
                return {"type": "string", "pattern": f"^{pattern}$"}
        return None  # aware, as the format

    def timedelta_schema(self, schema: Any) -> dict[str, Any]:
        """Return the schema of a duration in ISO 8601, or of a number of seconds if a model is configured so."""
        rendered = super().timedelta_schema(schema)
        return {"type": "string", "pattern": _DURATION} if "format" in rendered else rendered

    def url_schema(self, schema: Any) -> dict[str, Any]:
        """Return the schema of a URL."""
        rendered = {name: value for name, value in super().url_schema(schema).items() if name != "format"}
        return rendered | {"pattern": _URL}

    def generate_inner(self, schema: Any) -> dict[str, Any]:
        """Return the schema of any type."""
        rendered = super().generate_inner(schema)
        return {"type": "string", "pattern": _IPV6} if rendered == {"type": "string", "format": "ipv6"} else rendered

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's hook
        """Return False: explicit titles are not set through this method."""
        return False


def is_plain(hint: Any) -> bool:
    """Whether a JSON value that matches the hint's schema needs no conversion."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return is_plain(arguments[0]) and all(isinstance(note, FieldInfo | BaseMetadata) for note in arguments[1:])
    if origin is Literal:
        return all(type(value) in _JSON_LITERALS for value in arguments)
    if origin in (list, dict, *UNIONS):
        return all(is_plain(argument) for argument in arguments)
    return hint in _JSON_TYPES or hint in (list, dict)


def adapter_for(hint: Any) -> TypeAdapter[Any]:
    """Return the converter between JSON values and `hint`. Raises pydantic's errors, see `refusing`."""
    return TypeAdapter(hint)


def without_class_titles(schema: dict[str, Any], root: str = "") -> dict[str, Any]:
    """Remove the titles that only repeat a class's name, from the definitions and from a schema of class `root`."""
    definitions = {name: _untitled(inner, name) for name, inner in schema.get("$defs", {}).items()}
    return _untitled(schema, root) | ({"$defs": definitions} if definitions else {})


@contextmanager
def refusing(place: str) -> Iterator[None]:
    """Convert pydantic's errors for a hint without a JSON form into ImproperlyConfigured with `place`."""
    try:
        yield
    except (PydanticUserError, PydanticUndefinedAnnotation) as problem:
        raise ImproperlyConfigured(f"{place}: {problem.message}") from problem


def _untitled(schema: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if (key, value) != ("title", name)}


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class Signature:
    """The parameters of a tool: their JSON Schema, and their conversion from JSON.

    `converters` holds the parameters whose JSON value differs from their hint's type, and `decimals` the names of those
    whose hint contains a Decimal; `contexts` holds the parameters that take the ToolContext; `returns` is the return
    hint, `inspect.Parameter.empty` without one.
    """

    schema: dict[str, Any]
    converters: Mapping[str, TypeAdapter[Any]]
    decimals: frozenset[str]
    contexts: tuple[str, ...]
    returns: Any

    def bind(self, arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """Return keyword arguments from arguments that match `schema`. Raises ToolError."""
        try:
            orjson.dumps(arguments)
        except TypeError:
            arguments = {
                name: value if name in self.decimals else exact_json.without_decimals(value)
                for name, value in arguments.items()
            }
        if not self.converters and not self.contexts:
            return arguments
        bound = arguments | dict.fromkeys(self.contexts, context)
        for name, converter in self.converters.items():
            if name in arguments:
                try:
                    bound[name] = converter.validate_python(arguments[name])
                except ValidationError as problem:
                    errors = problem.errors(include_url=False, include_context=False, include_input=False)
                    places = (".".join(map(str, (name, *error["loc"]))) for error in errors)
                    messages = (f"Argument {at!r}: {error['msg']}." for at, error in zip(places, errors, strict=True))
                    raise ToolError("\n".join(messages)) from problem
        return bound


def read(function: Callable[..., Any], descriptions: Mapping[str, str]) -> Signature:
    """Read a function's hints; `descriptions` are used for parameters without their own.

    Raises ImproperlyConfigured, naming function and parameter, for a type that JSON arguments cannot fill.
    """
    try:
        annotations = typing.get_type_hints(function, include_extras=True)
    except NameError as problem:
        raise ImproperlyConfigured(f"{place_of(function)}: a type hint cannot be resolved: {problem}.") from problem
    contexts, adapters = [], {}
    required, defaults = [], {}
    for parameter in inspect.signature(function).parameters.values():
        place = f"{place_of(function)}, parameter {parameter.name!r}"
        if parameter.kind not in _NAMED:
            raise ImproperlyConfigured(
                f"{place}: {parameter.kind.description} parameters are not supported, only named ones."
            )
        if parameter.name not in annotations:
            raise ImproperlyConfigured(f"{place}: a type hint is required.")
        hint = annotations[parameter.name]
        if hint is ToolContext or (typing.get_origin(hint) in UNIONS and ToolContext in typing.get_args(hint)):
            contexts.append(parameter.name)
            continue
        adapters[parameter.name] = _adapter(hint, place)
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        else:
            adapter = adapters[parameter.name]
            try:
                adapter.validate_python(parameter.default, strict=True)
            except ValidationError as problem:
                message = f"{place}: its default {parameter.default!r} does not match the type hint."
                raise ImproperlyConfigured(message) from problem
            defaults[parameter.name] = adapter.dump_python(parameter.default, mode="json", by_alias=True)
    return Signature(
        schema=_schema(adapters, required, defaults, descriptions),
        converters={name: adapter for name, adapter in adapters.items() if not is_plain(annotations[name])},
        decimals=frozenset(name for name, adapter in adapters.items() if _takes_decimals(adapter.core_schema)),
        contexts=tuple(contexts),
        returns=annotations.get("return", inspect.Parameter.empty),
    )


def place_of(function: Callable[..., Any]) -> str:
    """Return the location of a function in the code: `module.qualified_name`."""
    return f"{function.__module__}.{function.__qualname__}"


def _adapter(hint: Any, place: str) -> TypeAdapter[Any]:
    with refusing(place):
        adapter = adapter_for(hint)
        # Each schema is rendered alone first: an error about all together would not name the parameter.
        adapter.json_schema()
    if adapter.get_default_value() is not None:
        raise ImproperlyConfigured(f"{place}: set the default in the signature, not in Field().")
    return adapter


def _takes_decimals(core_schema: Any) -> bool:
    """Whether a part of pydantic's schema of a type is that of Decimal."""
    if isinstance(core_schema, dict):
        return core_schema.get("type") == "decimal" or any(map(_takes_decimals, core_schema.values()))
    return isinstance(core_schema, list | tuple) and any(map(_takes_decimals, core_schema))


def _schema(
    adapters: Mapping[str, TypeAdapter[Any]],
    required: list[str],
    defaults: Mapping[str, Any],
    descriptions: Mapping[str, str],
) -> dict[str, Any]:
    """Return the object schema of all parameters, without additional properties (tools, §Tool: inputSchema)."""
    rendered, shared = TypeAdapter.json_schemas(
        [(name, "validation", adapter) for name, adapter in adapters.items()],
        schema_generator=QuietJsonSchema,
    )
    properties = {name: dict(schema) for (name, _), schema in rendered.items()}
    for name, schema in properties.items():
        if name in descriptions:
            schema.setdefault("description", descriptions[name])
        if name in defaults:
            schema["default"] = defaults[name]
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": required} if required else {}) | without_class_titles(shared)


# Return hints without structure: the value of such a function is returned as text.
_UNSTRUCTURED = (inspect.Parameter.empty, Any, NoneType, str, ToolResult)
# How pydantic describes bytes that it writes as UTF-8, which they need not be.
_BINARY = {"type": "string", "format": "binary"}


@dataclass(frozen=True)
class Output:
    """The schema of a tool's structured content (tools, §Output Schema) or None, and how to make its result."""

    schema: dict[str, Any] | None
    package: Callable[[Any], ToolResult]


def output_of(hint: Any, place: str) -> Output:
    """Return the output of a return hint. Raises ImproperlyConfigured with `place` for a type without a JSON form.

    A type whose JSON form is an object is the structured content; any other is its only property, `result`.
    """
    if _is_unstructured(hint):
        return Output(None, unstructured)
    return _structured(hint, f"{place}, return value")


def declared_output(schema: Mapping[str, Any]) -> Output:
    """Return the output of a schema by the author: the function returns a matching value, or a ToolResult."""

    def package(value: Any) -> ToolResult:
        if isinstance(value, ToolResult):
            return value
        return ToolResult(content=[text(_json_text(value))], structured=value)

    return Output(dict(schema), package)


def unstructured(value: Any) -> ToolResult:
    """Convert a value into a result: a result is unchanged, None is empty, other values become text (JSON)."""
    if isinstance(value, ToolResult):
        return value
    if value is None:
        return ToolResult(content=[])
    return ToolResult(content=[{"type": "text", "text": value if isinstance(value, str) else _json_text(value)}])


def _is_unstructured(hint: Any) -> bool:
    if typing.get_origin(hint) in UNIONS:
        return all(_is_unstructured(member) for member in typing.get_args(hint))
    return hint in _UNSTRUCTURED


def _structured(hint: Any, place: str) -> Output:
    with refusing(place):
        adapter = adapter_for(hint)
        rendered = adapter.json_schema(mode="serialization", schema_generator=QuietJsonSchema)
    if any(part.items() >= _BINARY.items() for _, part in subschemas(rendered)):
        raise ImproperlyConfigured(
            f"{place}: bytes have no JSON form; return pydantic's Base64Bytes, or a ToolResult with a content block."
        )
    schema = without_class_titles(rendered, getattr(hint, "__name__", ""))
    # A plain value is not converted, which keeps an int under a `float` hint an int.
    plain = is_plain(hint)
    # The root of a recursive type is a reference to its definition.
    root = schema.get("$ref", "").removeprefix("#/$defs/")
    wrapped = (schema["$defs"][root] if root else schema).get("type") != "object"
    output_schema = schema | {"type": "object"}
    if wrapped:
        inner = {key: value for key, value in schema.items() if key != "$defs"}
        output_schema = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
        output_schema |= {"$defs": schema["$defs"]} if "$defs" in schema else {}

    def package(value: Any) -> ToolResult:
        data = value if plain else adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
        structured = {"result": data} if wrapped else data
        return ToolResult(content=[text(_json_text(structured))], structured=structured)

    return Output(output_schema, package)


def _json_text(value: Any) -> str:
    return to_json(value, inf_nan_mode="null").decode()


# What starts a section of Google style, or a field of reST, either of which ends before the next unindented line.
_SECTION = re.compile(r"(Args|Arguments|Parameters|Params|Returns?|Yields?|Raises):\s*\Z|:\w+[^:]*:")


@dataclass(frozen=True)
class Docstring:
    """The description of a function for the model, and the description of each parameter by name."""

    description: str
    parameters: Mapping[str, str]


def parse_docstring(source: str | None) -> Docstring:
    """Parse a docstring in the style of Google, NumPy, reST or Epydoc.

    Sections on parameters, results and exceptions in Google style or reST are left out of the description, because the
    schemas describe them. The parser's own description would end there.
    """
    prose: list[str] = []
    is_prose = True
    for line in inspect.cleandoc(source or "").splitlines():
        if line and not line[0].isspace():
            is_prose = _SECTION.match(line) is None
        if is_prose:
            prose.append(line)
    parameters = {
        parameter.arg_name: " ".join((parameter.description or "").split())
        for parameter in docstring_parser.parse(source or "").params
    }
    return Docstring(re.sub(r"\n{3,}", "\n\n", "\n".join(prose)).strip(), parameters)
