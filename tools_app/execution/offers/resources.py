"""Resources that are Python functions: the registry of what installed apps offer, and what their values become."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from django.core.exceptions import ImproperlyConfigured, ValidationError

from tools_app.execution.context import ToolContext
from tools_app.execution.offers import uris
from tools_app.execution.offers.functions import TextFunction
from tools_app.execution.results import ResourceNotFound, ResourceResult, contents
from tools_app.models.catalog import RESOURCE_URI

Read = Callable[[str, dict[str, str], ToolContext], Coroutine[Any, Any, ResourceResult]]


@dataclass(frozen=True)
class ResourceDefinition:
    """What a client sees of a resource or of a template for many (resources, §Data Types)."""

    uri: str
    name: str
    title: str
    description: str
    mime_type: str
    annotations: Mapping[str, Any]
    icons: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class ResourceFunction:
    """A registered function: what clients see of it, and how to read it."""

    definition: ResourceDefinition
    function: TextFunction
    timeout_seconds: float

    async def read(self, uri: str, variables: dict[str, str], context: ToolContext) -> ResourceResult:
        """What `uri` holds, whose template gave these values.

        Raises ResourceNotFound for values that the function does not take, and whatever it raises itself.
        """
        if not self.function.arguments.accepts(variables):
            raise ResourceNotFound
        return packaged(await self.function.work(variables, context), uri, self.definition.mime_type)


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
    """Offer `function` as the resource `uri`; a URI with `{variables}` is a template, and they are its arguments.

    Raises ImproperlyConfigured for a bad URI, one that another function has, a time limit that is not above zero, and
    parameters that are not just the variables.
    """
    read = TextFunction(function)
    _check(read, uri, timeout_seconds)
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
    """The function registered for `uri`."""
    return _functions.get(uri)


def all_registered() -> Mapping[str, ResourceFunction]:
    """Every registered function, in the order of their URIs."""
    return dict(sorted(_functions.items()))


def packaged(value: Any, uri: str, mime_type: str) -> ResourceResult:
    """A function's value: text as text, bytes in Base64, anything else as JSON."""
    if isinstance(value, ResourceResult):
        return value
    if isinstance(value, str):
        return ResourceResult([contents(uri, value, mime_type or "text/plain")])
    if isinstance(value, bytes | bytearray | memoryview):
        return ResourceResult([contents(uri, bytes(value), mime_type or "application/octet-stream")])
    return ResourceResult([contents(uri, orjson.dumps(value, default=str).decode(), mime_type or "application/json")])


def _check(read: TextFunction, uri: str, timeout_seconds: float) -> None:
    try:
        RESOURCE_URI(uri)
        variables = set(uris.parse(uri).variables)
    except (ValidationError, uris.BadTemplate) as problem:
        said = problem.message if isinstance(problem, ValidationError) else problem
        raise ImproperlyConfigured(f"{read.place}: {uri!r} cannot be a resource's URI. {said}") from problem
    holder = _functions.get(uri)
    # The same place again is a reloaded module, not a second resource.
    if holder and holder.function.place != read.place:
        raise ImproperlyConfigured(f"Two resources have the URI {uri!r}: {holder.function.place} and {read.place}.")
    if variables != set(read.parameters):
        raise ImproperlyConfigured(
            f"{read.place}: its parameters are {sorted(read.parameters)}, the variables of {uri!r} {sorted(variables)}."
        )
    if timeout_seconds <= 0:
        raise ImproperlyConfigured(f"{read.place}: its time limit must be above zero, not {timeout_seconds}.")
