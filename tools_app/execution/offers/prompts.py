"""Prompts that are Python functions: the registry of what installed apps offer, and what their values become."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured, ValidationError

from tools_app.execution.context import ToolContext
from tools_app.execution.offers.functions import TextFunction
from tools_app.execution.results import PromptResult, user
from tools_app.models.catalog import PROMPT_NAME

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
    """What a client sees of a prompt."""

    name: str
    title: str
    description: str
    arguments: tuple[PromptArgument, ...]
    icons: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class PromptFunction:
    """A registered function: what clients see of it, and how to run it."""

    definition: PromptDefinition
    function: TextFunction

    async def render(self, arguments: dict[str, str], context: ToolContext) -> PromptResult:
        """The messages for these arguments. Raises whatever the function raises."""
        return packaged(await self.function.work(arguments, context), self.definition.description)


_functions: dict[str, PromptFunction] = {}


def register(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    icons: Sequence[Mapping[str, Any]] = (),
) -> PromptFunction:
    """Offer `function` as a prompt, under its own name unless `name` is given; its parameters are its arguments.

    Raises ImproperlyConfigured for a bad name, a name that another function has, and parameters that are no texts.
    """
    name = name or function.__name__
    told = TextFunction(function)
    _check(told, name)
    definition = PromptDefinition(
        name=name,
        title=title or name.replace("_", " ").replace("-", " ").capitalize(),
        description=told.description,
        arguments=tuple(
            PromptArgument(parameter, schema.get("description", ""), parameter in told.required)
            for parameter, schema in told.parameters.items()
        ),
        icons=[dict(icon) for icon in icons],
    )
    _functions[name] = PromptFunction(definition, told)
    return _functions[name]


def registered(name: str) -> PromptFunction | None:
    """The function registered under `name`."""
    return _functions.get(name)


def all_registered() -> Mapping[str, PromptFunction]:
    """Every registered function, in the order of their names."""
    return dict(sorted(_functions.items()))


def packaged(value: Any, description: str) -> PromptResult:
    """A function's value: a text is one message of the user, a list is the messages."""
    if isinstance(value, PromptResult):
        return value
    return PromptResult([user(value)] if isinstance(value, str) else list(value), description)


def _check(told: TextFunction, name: str) -> None:
    try:
        PROMPT_NAME(name)
    except ValidationError as problem:
        raise ImproperlyConfigured(f"{told.place}: {name!r} cannot be a prompt's name. {problem.message}") from problem
    holder = _functions.get(name)
    # The same place again is a reloaded module, not a second prompt.
    if holder and holder.function.place != told.place:
        raise ImproperlyConfigured(f"Two prompts are named {name!r}: {holder.function.place} and {told.place}.")
