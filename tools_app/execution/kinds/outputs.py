"""What a Python function gives back: its output schema from the return hint, and its value as a tool result."""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from pydantic_core import to_json

from tools_app.execution.kinds import hints
from tools_app.execution.results import ToolResult, text

# Return hints that declare no structure: what such a function returns is shown as text.
_UNSTRUCTURED = (inspect.Parameter.empty, Any, NoneType, str, ToolResult)
_BINARY = (bytes, bytearray, memoryview)


@dataclass(frozen=True)
class Output:
    """The schema of a tool's structured content (tools, §Output Schema), None without, and how to make its result."""

    schema: dict[str, Any] | None
    package: Callable[[Any], ToolResult]


def read(hint: Any, place: str) -> Output:
    """What a return hint declares. Raises ImproperlyConfigured, naming `place`, for what has no JSON form.

    A type whose JSON form is an object is the structured content; any other is its only property, `result`.
    """
    if _is_unstructured(hint):
        return Output(None, unstructured)
    if hint in _BINARY:
        raise ImproperlyConfigured(f"{place}: bytes have no JSON form; return a ToolResult with a content block.")
    return _structured(hint, f"{place}, return value")


def declared(schema: Mapping[str, Any]) -> Output:
    """An output schema that the author wrote: the function returns what fits it, or a whole ToolResult."""

    def package(value: Any) -> ToolResult:
        if isinstance(value, ToolResult):
            return value
        return ToolResult(content=[text(_json_text(value))], structured=value)

    return Output(dict(schema), package)


def unstructured(value: Any) -> ToolResult:
    """A result that is passed through, nothing, a text, or any other value as JSON text."""
    if isinstance(value, ToolResult):
        return value
    if value is None:
        return ToolResult(content=[])
    return ToolResult(content=[text(value if isinstance(value, str) else _json_text(value))])


def _is_unstructured(hint: Any) -> bool:
    if typing.get_origin(hint) in hints.UNIONS:
        return all(_is_unstructured(member) for member in typing.get_args(hint))
    return hint in _UNSTRUCTURED


def _structured(hint: Any, place: str) -> Output:
    with hints.refusing(place):
        adapter = hints.adapter_for(hint)
        rendered = adapter.json_schema(mode="serialization", schema_generator=hints.QuietJsonSchema)
    schema = hints.without_class_titles(rendered, getattr(hint, "__name__", ""))
    # A plain value is left as it is, which keeps an int under a `float` hint an int.
    plain = hints.is_plain(hint)
    wrapped = not _describes_object(schema)

    def package(value: Any) -> ToolResult:
        data = value if plain else adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
        structured = {"result": data} if wrapped else data
        return ToolResult(content=[text(_json_text(structured))], structured=structured)

    return Output(_wrapped(schema) if wrapped else schema | {"type": "object"}, package)


def _describes_object(schema: dict[str, Any]) -> bool:
    """Whether a schema, or the definition it refers to at its root (a recursive type), is an object's."""
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    described = schema["$defs"][name] if name else schema
    return bool(described.get("type") == "object")


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    shared = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {"type": "object", "properties": {"result": inner}, "required": ["result"]} | shared


def _json_text(value: Any) -> str:
    return to_json(value, inf_nan_mode="null").decode()
