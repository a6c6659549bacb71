"""Templates of HTTP tools: texts with `{argument}` and `{secret:NAME}` in them.

A brace that stands for itself is written twice. A template never sees where its text goes: what each place needs
(percent-encoding, say) is done by the function that it is rendered with.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tools_app.execution.results import ToolError

_TOKEN = re.compile(r"(?P<brace>\{\{|\}\})|\{(?P<secret>secret:)?(?P<name>[A-Za-z0-9_$.-]+)\}|(?P<literal>[^{}]+)")


class BadTemplate(ValueError):
    """The text is no template. The message says what is wrong and where."""


@dataclass(frozen=True)
class Argument:
    """The place of an argument of the call."""

    name: str


@dataclass(frozen=True)
class SecretValue:
    """The place of a secret of the tenant."""

    name: str


@dataclass(frozen=True)
class Template:
    """A parsed template: literal texts and places, in their order."""

    parts: tuple[str | Argument | SecretValue, ...]

    @property
    def arguments(self) -> frozenset[str]:
        """The names of the arguments used."""
        return frozenset(part.name for part in self.parts if isinstance(part, Argument))

    @property
    def secrets(self) -> frozenset[str]:
        """The names of the secrets used."""
        return frozenset(part.name for part in self.parts if isinstance(part, SecretValue))

    @property
    def sole_argument(self) -> str | None:
        """The name of the argument that is all of this template."""
        match self.parts:
            case (Argument(name),):
                return name
            case _:
                return None


@dataclass(frozen=True)
class Values:
    """What a template is filled with: the arguments of one call, and the tenant's secrets."""

    arguments: Mapping[str, Any]
    secrets: Mapping[str, str]

    def has(self, template: Template) -> bool:
        """Whether every argument that `template` names was given; null is as good as absent in a text."""
        return all(self.arguments.get(name) is not None for name in template.arguments)

    def secret(self, name: str) -> str:
        """The value of a secret. Raises ToolError if it is gone."""
        if name not in self.secrets:
            raise ToolError(f"This tool needs the secret '{name}', which is not set.")
        return self.secrets[name]


@lru_cache(maxsize=4096)
def parse(text: str) -> Template:
    """Read a template. Raises BadTemplate."""
    parts: list[str | Argument | SecretValue] = []
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise BadTemplate(
                f"the brace at character {position + 1} belongs to no {{argument}} or {{secret:NAME}};"
                " a brace that stands for itself is written twice"
            )
        parts.append(_part(token))
        position = token.end()
    return Template(tuple(parts))


def _part(token: re.Match[str]) -> str | Argument | SecretValue:
    if token["name"]:
        return SecretValue(token["name"]) if token["secret"] else Argument(token["name"])
    return token["literal"] or token["brace"][0]


def rendered(
    template: Template,
    values: Values,
    value: Callable[[str], str] = str,
    literal: Callable[[str], str] = str,
) -> str:
    """The text of a template, all of whose arguments are there. `value` and `literal` encode its parts.

    Raises ToolError.
    """
    return "".join(literal(part) if isinstance(part, str) else value(_filled(part, values)) for part in template.parts)


def _filled(part: Argument | SecretValue, values: Values) -> str:
    if isinstance(part, SecretValue):
        return values.secret(part.name)
    return as_text(values.arguments[part.name], part.name)


def as_text(value: Any, name: str) -> str:
    """An argument as text: a text as it is, anything else as JSON. Raises ToolError if it is no valid Unicode."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise ToolError(f"The argument '{name}' is not valid Unicode text.") from problem
    return text
