"""What a Python function takes: its input schema from type hints and docstring, and its arguments from JSON."""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from pydantic import TypeAdapter, ValidationError

from tools_app.execution.context import ToolContext
from tools_app.execution.kinds import hints
from tools_app.execution.results import ToolError

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class Signature:
    """The parameters of a tool: their JSON Schema, and what stands between JSON and the function.

    `converters` holds the parameters whose JSON value is not yet what their hint asks for; `contexts` the
    parameters that want the ToolContext; `returns` is the return hint, `inspect.Parameter.empty` without one.
    """

    schema: dict[str, Any]
    converters: Mapping[str, TypeAdapter[Any]]
    contexts: tuple[str, ...]
    returns: Any

    def bind(self, arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """Keyword arguments for the function, from arguments that passed `schema`. Raises ToolError."""
        if not self.converters and not self.contexts:
            return arguments
        bound = arguments | dict.fromkeys(self.contexts, context)
        for name, converter in self.converters.items():
            if name in arguments:
                bound[name] = _converted(name, arguments[name], converter)
        return bound


def read(function: Callable[..., Any], descriptions: Mapping[str, str]) -> Signature:
    """Read a function's hints, with `descriptions` for parameters that do not describe themselves.

    Raises ImproperlyConfigured, naming function and parameter, for what JSON arguments cannot fill.
    """
    annotations = _hints_of(function)
    contexts, adapters = [], {}
    required, defaults = [], {}
    for parameter in inspect.signature(function).parameters.values():
        place = f"{place_of(function)}, parameter {parameter.name!r}"
        hint = _hint_of(parameter, annotations, place)
        if _asks_for_context(hint):
            contexts.append(parameter.name)
            continue
        adapters[parameter.name] = _adapter(hint, place)
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        else:
            defaults[parameter.name] = _json_default(parameter.default, adapters[parameter.name], place)
    return Signature(
        schema=_schema(adapters, required, defaults, descriptions),
        converters={name: adapter for name, adapter in adapters.items() if not hints.is_plain(annotations[name])},
        contexts=tuple(contexts),
        returns=annotations.get("return", inspect.Parameter.empty),
    )


def place_of(function: Callable[..., Any]) -> str:
    """Where a function stands in the code, for people: `module.qualified_name`."""
    return f"{function.__module__}.{function.__qualname__}"


def _hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as problem:
        raise ImproperlyConfigured(f"{place_of(function)}: a type hint cannot be resolved: {problem}.") from problem


def _hint_of(parameter: inspect.Parameter, annotations: Mapping[str, Any], place: str) -> Any:
    if parameter.kind not in _NAMED:
        raise ImproperlyConfigured(f"{place}: a tool is called by name, so it takes no {parameter.kind.description}.")
    if parameter.name not in annotations:
        raise ImproperlyConfigured(f"{place}: needs a type hint, from which its schema is made.")
    return annotations[parameter.name]


def _asks_for_context(hint: Any) -> bool:
    return hint is ToolContext or (typing.get_origin(hint) in hints.UNIONS and ToolContext in typing.get_args(hint))


def _adapter(hint: Any, place: str) -> TypeAdapter[Any]:
    with hints.refusing(place):
        adapter = hints.adapter_for(hint)
        # Rendered alone first: all together, an error would not tell which parameter it is about.
        adapter.json_schema()
    if adapter.get_default_value() is not None:
        raise ImproperlyConfigured(f"{place}: write the default into the signature, not into Field().")
    return adapter


def _json_default(default: Any, adapter: TypeAdapter[Any], place: str) -> Any:
    try:
        adapter.validate_python(default, strict=True)
    except ValidationError as problem:
        raise ImproperlyConfigured(f"{place}: its default {default!r} does not fit its type hint.") from problem
    return adapter.dump_python(default, mode="json", by_alias=True)


def _schema(
    adapters: Mapping[str, TypeAdapter[Any]],
    required: list[str],
    defaults: Mapping[str, Any],
    descriptions: Mapping[str, str],
) -> dict[str, Any]:
    """The object schema of all parameters, closed to any other (tools, §Tool: inputSchema)."""
    rendered, shared = TypeAdapter.json_schemas(
        [(name, "validation", adapter) for name, adapter in adapters.items()], schema_generator=hints.QuietJsonSchema
    )
    properties = {name: dict(schema) for (name, _), schema in rendered.items()}
    for name, schema in properties.items():
        if name in descriptions:
            schema.setdefault("description", descriptions[name])
        if name in defaults:
            schema["default"] = defaults[name]
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": required} if required else {}) | hints.without_class_titles(shared)


def _converted(name: str, value: Any, converter: TypeAdapter[Any]) -> Any:
    try:
        return converter.validate_python(value)
    except ValidationError as problem:
        raise ToolError(_explained(name, problem)) from problem


def _explained(name: str, problem: ValidationError) -> str:
    return "\n".join(
        f"Argument {'.'.join(map(str, (name, *error['loc'])))!r}: {error['msg']}."
        for error in problem.errors(include_url=False, include_context=False, include_input=False)
    )
