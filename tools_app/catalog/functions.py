"""Functions of resources and prompts: string arguments, and return values of any type."""

import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from tools_app.catalog.completion import Completer, enumerated
from tools_app.catalog.kinds.python import signature
from tools_app.catalog.kinds.python.runner import in_thread
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.protocol.schema import CompiledSchema

Work = Callable[[dict[str, Any], ToolContext], Coroutine[Any, Any, Any]]


class TextFunction:
    """A function whose parameters are strings: its declaration, and how to run it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.place = signature.place_of(function)
        described = signature.parse_docstring(function.__doc__)
        self.description = described.description
        taken = signature.read(function, described.parameters)
        self.parameters: Mapping[str, Mapping[str, Any]] = taken.schema["properties"]
        self.required = frozenset(taken.schema.get("required", ()))
        self.arguments = CompiledSchema(taken.schema)
        self.completers: dict[str, Completer] = {}
        for name, schema in self.parameters.items():
            if schema.get("type") != "string":
                raise ImproperlyConfigured(
                    f"{self.place}, parameter {name!r}: completions are strings, so the type hint must be str."
                )
            if suggesting := enumerated(schema):
                self.completers[name] = suggesting
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ImproperlyConfigured(f"{self.place}: must return a result, so it cannot be a generator.")

        async def run_here(arguments: dict[str, Any], context: ToolContext) -> Any:
            return await function(**taken.bind(arguments, context))

        async def run_in_thread(arguments: dict[str, Any], context: ToolContext) -> Any:
            return await in_thread(function, taken.bind(arguments, context), context.caller.tenant_id)

        self.work: Work = run_here if inspect.iscoroutinefunction(function) else run_in_thread

    def complete(self, name: str, completer: Completer) -> None:
        """Set the completer of a parameter. Raises ImproperlyConfigured for an unknown parameter."""
        if name not in self.parameters:
            raise ImproperlyConfigured(f"{self.place} has no parameter {name!r} to complete.")
        self.completers[name] = completer
