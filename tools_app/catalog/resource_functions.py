"""Resources as Python functions: the registry of installed apps' functions, and conversion of their values."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured, ValidationError

from tools_app.catalog import uri_templates
from tools_app.catalog.functions import TextFunction
from tools_app.catalog.models import RESOURCE_URI
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.results import ResourceNotFound, ResourceResult, contents, size_of
from tools_app.core import large_work
from tools_app.protocol import exact_json

Read = Callable[[str, dict[str, str], ToolContext], Coroutine[Any, Any, ResourceResult]]


@dataclass(frozen=True)
class ResourceDefinition:
    """The definition of a resource or a resource template for clients (resources, §Data Types)."""

    uri: str
    name: str
    title: str
    description: str
    mime_type: str
    annotations: Mapping[str, Any]
    icons: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class ResourceFunction:
    """A registered function: its definition, and how to read it."""

    definition: ResourceDefinition
    function: TextFunction
    timeout_seconds: float

    async def read(self, uri: str, variables: dict[str, str], context: ToolContext) -> ResourceResult:
        """Return the contents of `uri`, whose template gave these values.

        Raises ResourceNotFound for values that the function rejects, and the exceptions of the function.
        """
        if not self.function.arguments.accepts(variables):
            raise ResourceNotFound
        value = await self.function.work(variables, context)
        package = partial(packaged, value, uri, self.definition.mime_type)
        return await large_work.run(size_of(value), package)


_functions: dict[str, ResourceFunction] = {}


def register(
    function: Callable[..., Any],
    uri: str,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    icons: Sequence[Mapping[str, Any]] = (),
    timeout_seconds: float = 30.0,
) -> ResourceFunction:
    """Register `function` as the resource `uri`; a URI with `{variables}` is a template with these arguments.

    Raises ImproperlyConfigured for an invalid or duplicate URI, a time limit that is not positive, and parameters that
    differ from the variables.
    """
    read = TextFunction(function)
    try:
        RESOURCE_URI(uri)
        variables = set(uri_templates.parse(uri).variables)
    except (ValidationError, uri_templates.BadTemplate) as error:
        message = error.message if isinstance(error, ValidationError) else error
        raise ImproperlyConfigured(f"{read.place}: {uri!r} cannot be a resource's URI. {message}") from error
    # The same location again is a reloaded module, not a duplicate.
    if uri in _functions and (other := _functions[uri].function.place) != read.place:
        raise ImproperlyConfigured(f"Two resources have the URI {uri!r}: {other} and {read.place}.")
    if variables != set(read.parameters):
        raise ImproperlyConfigured(
            f"{read.place}: the parameters {sorted(read.parameters)} must be the variables of {uri!r}:"
            f" {sorted(variables)}."
        )
    if timeout_seconds <= 0:
        raise ImproperlyConfigured(f"{read.place}: the time limit must be greater than zero, not {timeout_seconds}.")
    name = name or function.__name__
    definition = ResourceDefinition(
        uri=uri,
        name=name,
        title=title or name.replace("_", " ").replace("-", " ").capitalize(),
        description=read.description if description is None else description,
        mime_type=mime_type or "",
        annotations=dict(annotations or {}),
        icons=[dict(icon) for icon in icons],
    )
    _functions[uri] = ResourceFunction(definition, read, timeout_seconds)
    return _functions[uri]


def registered(uri: str) -> ResourceFunction | None:
    """Return the function registered for `uri`."""
    return _functions.get(uri)


def all_registered() -> Mapping[str, ResourceFunction]:
    """Return every registered function, by URI."""
    return dict(sorted(_functions.items()))


def packaged(value: Any, uri: str, mime_type: str) -> ResourceResult:
    """Convert a function's value: strings as text, bytes in Base64, anything else as JSON."""
    if isinstance(value, ResourceResult):
        return value
    if isinstance(value, str):
        return ResourceResult([contents(uri, value, mime_type or "text/plain")])
    if isinstance(value, bytes | bytearray | memoryview):
        return ResourceResult([contents(uri, bytes(value), mime_type or "application/octet-stream")])
    written = exact_json.dumps(value, default=exact_json.decimal_or_text).decode()
    return ResourceResult([contents(uri, written, mime_type or "application/json")])
