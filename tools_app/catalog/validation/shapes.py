"""Validation of JSON lists that admins write, with the path of each error: icons, arguments and messages of prompts.

Independent of forms. A `Shape` is what a field of an object may hold.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tools_app.catalog.stored import PLACEHOLDER
from tools_app.protocol.authoring_schema import SchemaProblem
from tools_app.protocol.schema_keywords import Path


@dataclass(frozen=True)
class Shape:
    """The allowed values of a field: a test, and a message for any other value."""

    fits: Callable[[Any], bool]
    wanted: str


Shapes = Mapping[str, Shape]

IS_TEXT = Shape(lambda value: isinstance(value, str), "must be a string.")
IS_FLAG = Shape(lambda value: isinstance(value, bool), "must be true or false.")
ARE_TEXTS = Shape(
    lambda value: isinstance(value, list) and all(isinstance(entry, str) for entry in value),
    'must be a list of strings, such as ["a", "b"].',
)


def object_faults(value: Any, required: Shapes, optional: Shapes, path: Path = ()) -> list[SchemaProblem]:
    """Return the errors of one object: missing fields, unknown fields, and invalid values."""
    known = {**required, **optional}
    if not isinstance(value, dict):
        return [SchemaProblem(path, f"must be an object with {_listed(known)}.")]
    missing = [SchemaProblem(path, f"{name} is required.") for name in required if name not in value]
    return missing + [
        SchemaProblem(
            (*path, name), known[name].wanted if name in known else f"unknown field. Known fields: {_listed(known)}."
        )
        for name, held in value.items()
        if name not in known or not known[name].fits(held)
    ]


def list_faults(values: list[Any], required: Shapes, optional: Shapes) -> list[SchemaProblem]:
    """Return the errors of each object of a list."""
    return [
        problem
        for position, value in enumerate(values)
        for problem in object_faults(value, required, optional, (position,))
    ]


def _listed(known: Shapes) -> str:
    return ", ".join(known)


# Clients display icons to users: no unencrypted URLs, and no data that is not an image.
SOURCES = re.compile(r"https://[^/\s]\S*|data:image/\S+")
SOURCE = Shape(
    lambda value: isinstance(value, str) and bool(SOURCES.fullmatch(value)),
    "must be a URL that starts with https:// or data:image/.",
)


def check_icons(icons: list[Any]) -> list[SchemaProblem]:
    """Return the errors of a list of icons."""
    return list_faults(icons, {"src": SOURCE}, {"mimeType": IS_TEXT, "sizes": ARE_TEXTS})


ROLES = ("user", "assistant")


def check_prompt_arguments(arguments: list[Any]) -> list[SchemaProblem]:
    """Return the errors of a prompt's arguments, in the format of `Prompt.arguments`."""
    optional = {"description": IS_TEXT, "required": IS_FLAG, "values": ARE_TEXTS}
    problems, seen = list_faults(arguments, {"name": NAME}, optional), set()
    for position, name in enumerate(names_of(arguments)):
        # A value that is not a string is reported by its shape.
        if isinstance(name, str) and name in seen:
            problems.append(SchemaProblem((position, "name"), f"another argument has the same name, {name}."))
        elif isinstance(name, str):
            seen.add(name)
    return problems


def check_prompt_messages(messages: list[Any], names: Collection[str] | None) -> list[SchemaProblem]:
    """Return the errors of a prompt's messages; placeholders must be arguments in `names` (None: unknown yet)."""
    problems = list_faults(messages, {"role": ROLE, "text": MESSAGE}, {})
    if names is None:
        return problems
    declared = set(map(str, names))
    for position, message in enumerate(messages):
        text = message.get("text") if isinstance(message, dict) else None
        for name in dict.fromkeys(PLACEHOLDER.findall(text) if isinstance(text, str) else ()):
            if name not in declared:
                about = f"{{{name}}} is not an argument. Declare it, or remove the braces."
                problems.append(SchemaProblem((position, "text"), about))
    return problems


def names_of(arguments: list[Any]) -> list[Any]:
    """Return the name of each argument, in order; None for one without a name."""
    return [argument.get("name") if isinstance(argument, dict) else None for argument in arguments]


NAME = Shape(
    lambda value: isinstance(value, str) and bool(PLACEHOLDER.fullmatch(f"{{{value}}}")),
    "must be a name of letters, digits and underscores that does not start with a digit.",
)
# A list is not hashable, so it cannot be looked up in a set, but it can in a tuple.
ROLE = Shape(lambda value: value in ROLES, 'must be "user" or "assistant".')
MESSAGE = Shape(lambda value: isinstance(value, str) and bool(value.strip()), "must be a non-empty string.")
