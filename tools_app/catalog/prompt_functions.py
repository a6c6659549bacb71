"""Prompts as Python functions: the registry of installed apps' functions, and conversion of their values."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured, ValidationError

from tools_app.catalog.functions import TextFunction
from tools_app.catalog.models import PROMPT_NAME
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.results import PromptResult, user

TIMEOUT_SECONDS = 30.0

Render = Callable[[dict[str, str], ToolContext], Coroutine[Any, Any, PromptResult]]


@dataclass(frozen=True)
class PromptArgument:
    """One argument of a prompt (prompts, §Prompt)."""

    name: str
    description: str
    required: bool


@dataclass(frozen=True)
class PromptDefinition:
    """The definition of a prompt for clients."""

    name: str
    title: str
    description: str
    arguments: tuple[PromptArgument, ...]
    icons: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class PromptFunction:
    """A registered function: its definition, and how to run it."""

    definition: PromptDefinition
    function: TextFunction

    async def render(self, arguments: dict[str, str], context: ToolContext) -> PromptResult:
        """Return the messages for these arguments. Raises the exceptions of the function."""
        return packaged(await self.function.work(arguments, context), self.definition.description)


_functions: dict[str, PromptFunction] = {}


def register(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    icons: Sequence[Mapping[str, Any]] = (),
) -> PromptFunction:
    """Register `function` as a prompt, named `name` or as the function; its parameters are the prompt's arguments.

    Raises ImproperlyConfigured for an invalid or duplicate name, and for parameters that are not strings.
    """
    name = name or function.__name__
    text_function = TextFunction(function)
    place = text_function.place
    try:
        PROMPT_NAME(name)
    except ValidationError as error:
        raise ImproperlyConfigured(f"{place}: {name!r} cannot be a prompt's name. {error.message}") from error
    # The same location again is a reloaded module, not a duplicate.
    if name in _functions and (other := _functions[name].function.place) != place:
        raise ImproperlyConfigured(f"Two prompts are named {name!r}: {other} and {place}.")
    definition = PromptDefinition(
        name=name,
        title=title or name.replace("_", " ").replace("-", " ").capitalize(),
        description=text_function.description,
        arguments=tuple(
            PromptArgument(parameter, schema.get("description", ""), parameter in text_function.required)
            for parameter, schema in text_function.parameters.items()
        ),
        icons=[dict(icon) for icon in icons],
    )
    _functions[name] = PromptFunction(definition, text_function)
    return _functions[name]


def registered(name: str) -> PromptFunction | None:
    """Return the function registered under `name`."""
    return _functions.get(name)


def all_registered() -> Mapping[str, PromptFunction]:
    """Return every registered function, by name."""
    return dict(sorted(_functions.items()))


def packaged(value: Any, description: str) -> PromptResult:
    """Convert a function's value: a string is one user message, a list is the messages."""
    if isinstance(value, PromptResult):
        return value
    return PromptResult([user(value)] if isinstance(value, str) else list(value), description)
