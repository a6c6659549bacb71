"""The API for authors of tools, resources and prompts: `from tools_app.toolkit import ToolContext, tool`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model
from pydantic import Field

from tools_app.catalog import prompt_functions as prompts
from tools_app.catalog import resource_functions as resources
from tools_app.catalog.authoring import resource_updated
from tools_app.catalog.completion import Completer
from tools_app.catalog.kinds.django import models as model_rows
from tools_app.catalog.kinds.django.models import TIMEOUT_SECONDS, Visible
from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.tool_api.context import CapabilityMissing, ToolContext
from tools_app.catalog.tool_api.elicitation import BadAnswer, Elicit, Elicited, ElicitUrl, ListRoots, Refused, Sample
from tools_app.catalog.tool_api.results import (
    CallCancelled,
    PromptResult,
    ProtocolError,
    ResourceNotFound,
    ResourceResult,
    ToolError,
    ToolResult,
    assistant,
    audio,
    contents,
    embedded,
    image,
    link,
    text,
    user,
)
from tools_app.protocol.mirrored import KEYWORD

__all__ = [
    "BadAnswer",
    "CallCancelled",
    "CapabilityMissing",
    "Elicit",
    "ElicitUrl",
    "Elicited",
    "ListRoots",
    "PromptResult",
    "ProtocolError",
    "Refused",
    "ResourceNotFound",
    "ResourceResult",
    "Sample",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "assistant",
    "audio",
    "completer",
    "contents",
    "embedded",
    "header",
    "image",
    "link",
    "model_tools",
    "prompt",
    "resource",
    "resource_updated",
    "text",
    "tool",
    "user",
    "viewset_tools",
]

Function = TypeVar("Function", bound=Callable[..., Any])
Viewset = TypeVar("Viewset", bound=type[Any])


@overload
def tool(function: Function, /) -> Function: ...
@overload
def tool(
    *,
    name: str | None = None,
    title: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    icons: Sequence[Mapping[str, Any]] = (),
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    background: bool = False,
    task: str = "never",
    timeout: float = 60.0,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
) -> Callable[[Function], Function]: ...
def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    icons: Sequence[Mapping[str, Any]] = (),
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    background: bool = False,
    task: str = "never",
    timeout: float = 60.0,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
) -> Function | Callable[[Function], Function]:
    """Register a function, sync or async, as a tool that admins can enable: `@tool` or `@tool(background=True)`.

    Its schemas come from its type hints unless they are given, its description and those of its parameters from its
    docstring. The function itself is not changed. `timeout` is in seconds; `background` runs it in a Celery worker;
    `task` says whether clients that support tasks get one: "never", "optional" (when the call takes long) or
    "required". `read_only`, `destructive`, `idempotent` and `open_world` set the hints of ToolAnnotations and override
    `annotations`; None leaves a hint out. Raises ImproperlyConfigured as `python.register` does.
    """
    declared_hints = {
        "readOnlyHint": read_only,
        "destructiveHint": destructive,
        "idempotentHint": idempotent,
        "openWorldHint": open_world,
    }
    hints = dict(annotations or {}) | {hint: value for hint, value in declared_hints.items() if value is not None}

    def offer(offered: Function) -> Function:
        python.register(
            offered,
            name=name,
            title=title,
            annotations=hints,
            icons=icons,
            input_schema=input_schema,
            output_schema=output_schema,
            background=background,
            task=task,
            timeout_seconds=timeout,
        )
        return offered

    return offer if function is None else offer(function)


def resource(
    uri: str,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    icons: Sequence[Mapping[str, Any]] = (),
    timeout: float = 30.0,
) -> Callable[[Function], Function]:
    """Register a function, sync or async, as a resource: `@resource("docs://guide")`, or as a template: `("docs://{page}")`.

    The variables of a template are the function's parameters, which are strings. It returns a string, bytes, a value
    that is serialized as JSON, or a ResourceResult; it raises ResourceNotFound for values that match nothing. `timeout`
    is in seconds. Raises ImproperlyConfigured as `resources.register` does.
    """

    def offer(offered: Function) -> Function:
        resources.register(
            offered,
            uri,
            name=name,
            title=title,
            description=description,
            mime_type=mime_type,
            annotations=annotations,
            icons=icons,
            timeout_seconds=timeout,
        )
        return offered

    return offer


@overload
def prompt(function: Function, /) -> Function: ...
@overload
def prompt(
    *, name: str | None = None, title: str | None = None, icons: Sequence[Mapping[str, Any]] = ()
) -> Callable[[Function], Function]: ...
def prompt(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    icons: Sequence[Mapping[str, Any]] = (),
) -> Function | Callable[[Function], Function]:
    """Register a function, sync or async, as a prompt: `@prompt` or `@prompt(title="Review")`.

    Its parameters, which are strings, are the prompt's arguments. It returns a string, a list of messages built by
    `user` and `assistant`, or a PromptResult. Raises ImproperlyConfigured as `prompts.register` does.
    """

    def offer(offered: Function) -> Function:
        prompts.register(offered, name=name, title=title, icons=icons)
        return offered

    return offer if function is None else offer(function)


def completer(function: Callable[..., Any], argument: str) -> Callable[[Completer], Completer]:
    """Suggest values for an argument of a prompt or a variable of a resource: `@completer(weather, "city")`.

    The decorated function receives the text typed so far and the arguments already set, and returns the best
    suggestions first. Raises ImproperlyConfigured for a function that is neither, and for an unknown argument.
    """
    offered = [
        entry.function
        for registry in (prompts.all_registered(), resources.all_registered())
        for entry in registry.values()
        if entry.function.function is function
    ]
    if not offered:
        raise ImproperlyConfigured(f"{function!r} is neither a registered prompt nor a registered resource.")

    def suggest(suggesting: Completer) -> Completer:
        for entry in offered:
            entry.complete(argument, suggesting)
        return suggesting

    return suggest


def header(name: str) -> Any:
    """Mark a parameter that clients repeat in a header, by annotating its type hint with this.

    Proxies can then route calls by `Mcp-Param-<name>` without reading their bodies; the hub rejects a call whose header
    does not match.
    """
    return Field(json_schema_extra={KEYWORD: name})


@overload
def viewset_tools(
    viewset: Viewset, /, *, actions: Sequence[str], name: str | None = None, timeout: float = 60.0
) -> Viewset: ...
@overload
def viewset_tools(
    *, actions: Sequence[str], name: str | None = None, timeout: float = 60.0
) -> Callable[[Viewset], Viewset]: ...
def viewset_tools(
    viewset: Viewset | None = None, /, *, actions: Sequence[str], name: str | None = None, timeout: float = 60.0
) -> Viewset | Callable[[Viewset], Viewset]:
    """Register actions of a viewset of Django REST framework as tools: `viewset_tools(OrderViewSet, actions=["list"])`.

    Without a viewset, it decorates one. Each action becomes the tool `<name>_<action>`, where `name` is by default that
    of the model. Calls run the view itself for the person of the caller's key or connection; without one, the tools are
    not offered. `timeout` is in seconds. Raises ImproperlyConfigured as `viewsets.register` does.
    """
    # Describing views takes time and memory, which processes of apps without any do not spend.
    from tools_app.catalog.kinds.django import viewsets  # noqa: PLC0415

    def offer(offered: Viewset) -> Viewset:
        viewsets.register(offered, actions, name=name, timeout_seconds=timeout)
        return offered

    return offer if viewset is None else offer(viewset)


def model_tools(
    model: type[Model],
    *,
    fields: Sequence[str],
    queryset: Visible,
    name: str | None = None,
    description: str = "",
    sensitive: Sequence[str] = (),
    timeout: float = TIMEOUT_SECONDS,
) -> None:
    """Register the tools `list_<name>` and `get_<name>`, which read these fields of a model and change nothing.

    `queryset` is called with the person and the slug of the tenant, and returns the rows that the person may see.
    `name` is by default that of the model, and `description` tells language models more of the rows. A field that looks
    like a secret must be in `sensitive` too; `timeout` is in seconds. Raises ImproperlyConfigured as `models.register`
    does.
    """
    model_rows.register(
        model,
        fields,
        queryset,
        name=name,
        description=description,
        sensitive=sensitive,
        timeout_seconds=timeout,
    )
