"""What can be wrong with a prompt that an admin writes, told with the place of the fault. Knows nothing of forms."""

from collections.abc import Collection
from typing import Any

from tools_app.execution.checks.shapes import FLAG, TEXT, TEXTS, Shape, list_faults
from tools_app.execution.kinds.written import PLACEHOLDER
from tools_app.protocol.authoring_schema import SchemaProblem

ROLES = ("user", "assistant")


def check_arguments(arguments: list[Any]) -> list[SchemaProblem]:
    """The faults of a prompt's arguments, which are declared for `Prompt.arguments`."""
    optional = {"description": TEXT, "required": FLAG, "values": TEXTS}
    return list_faults(arguments, {"name": NAME}, optional) + _repeated(names_of(arguments))


def check_messages(messages: list[Any], names: Collection[str] | None) -> list[SchemaProblem]:
    """The faults of a prompt's messages, whose placeholders are arguments of these `names` (None: unknown yet)."""
    return list_faults(messages, {"role": ROLE, "text": MESSAGE}, {}) + _undeclared(messages, names)


def names_of(arguments: list[Any]) -> list[Any]:
    """The name of each argument, in their order; None for one that has no name."""
    return [argument.get("name") if isinstance(argument, dict) else None for argument in arguments]


def _repeated(names: list[Any]) -> list[SchemaProblem]:
    return [
        SchemaProblem((position, "name"), f"another argument is named {name} too.")
        for position, name in enumerate(names)
        if name is not None and name in names[:position]
    ]


def _undeclared(messages: list[Any], names: Collection[str] | None) -> list[SchemaProblem]:
    if names is None:
        return []
    return [
        SchemaProblem((position, "text"), f"{{{name}}} is no argument: declare it, or write it without braces.")
        for position, message in enumerate(messages)
        for name in _placeholders(message)
        if name not in names
    ]


def _placeholders(message: Any) -> list[str]:
    text = message.get("text") if isinstance(message, dict) else None
    return list(dict.fromkeys(PLACEHOLDER.findall(text))) if isinstance(text, str) else []


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(PLACEHOLDER.fullmatch(f"{{{value}}}"))


def _is_message(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


NAME = Shape(_is_name, "write a name of letters, digits and underscore that begins with no digit.")
# A list is no member of a set, but may be looked for in a tuple.
ROLE = Shape(lambda value: value in ROLES, 'write "user" or "assistant".')
MESSAGE = Shape(_is_message, "write a text that is not empty.")
