"""Templates of HTTP tools: texts with `{argument}` and `{secret:NAME}`.

A literal brace is doubled. Templates do not depend on their position: encoding (percent-encoding, for example) is done
by the function that they are rendered with.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Any

from tools_app.catalog.tool_api.results import ToolError
from tools_app.core.bounded_cache import cached_for_short_names
from tools_app.protocol import exact_json

_TOKEN = re.compile(r"(?P<brace>\{\{|\}\})|\{(?P<secret>secret:)?(?P<name>[A-Za-z0-9_$.-]+)\}|(?P<literal>[^{}]+)")


class BadTemplate(ValueError):
    """The text is not a valid template. The message gives the error and its position."""


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
    """A parsed template: literal texts and places, in order."""

    parts: tuple[str | Argument | SecretValue, ...]

    @property
    def arguments(self) -> frozenset[str]:
        """The names of the arguments that it uses."""
        return frozenset(part.name for part in self.parts if isinstance(part, Argument))

    @property
    def secrets(self) -> frozenset[str]:
        """The names of the secrets that it uses."""
        return frozenset(part.name for part in self.parts if isinstance(part, SecretValue))

    @property
    def sole_argument(self) -> str | None:
        """The name of the argument if it is the whole template."""
        match self.parts:
            case (Argument(name),):
                return name
            case _:
                return None


@dataclass(frozen=True)
class Values:
    """The values for a template: the arguments of one call, and the tenant's secrets."""

    arguments: Mapping[str, Any]
    secrets: Mapping[str, str]

    def has(self, template: Template) -> bool:
        """Whether every argument of `template` was given; null counts as absent in a text."""
        return all(self.arguments.get(name) is not None for name in template.arguments)

    def secret(self, name: str) -> str:
        """Return the value of a secret. Raises ToolError if it was deleted."""
        if name not in self.secrets:
            raise ToolError(f"This tool requires the secret '{name}', which is not set.")
        return self.secrets[name]


@cached_for_short_names(maxsize=4096)
def parse(text: str) -> Template:
    """Parse a template. Raises BadTemplate."""
    parts: list[str | Argument | SecretValue] = []
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise BadTemplate(
                f"the brace at character {position + 1} is not part of {{argument}} or {{secret:NAME}};"
                " use two braces for a literal brace"
            )
        if token["name"]:
            parts.append(SecretValue(token["name"]) if token["secret"] else Argument(token["name"]))
        else:
            parts.append(token["literal"] or token["brace"][0])
        position = token.end()
    return Template(tuple(parts))


def rendered(
    template: Template,
    values: Values,
    value: Callable[[str], str] = str,
    literal: Callable[[str], str] = str,
) -> str:
    """Render a template whose arguments are all present. `value` and `literal` encode its parts.

    Raises ToolError.
    """
    texts = []
    for part in template.parts:
        match part:
            case str():
                texts.append(literal(part))
            case SecretValue(name):
                texts.append(value(values.secret(name)))
            case Argument(name):
                texts.append(value(as_text(values.arguments[name], name)))
    return "".join(texts)


def as_text(value: Any, name: str) -> str:
    """Return an argument as text: a string as it is, a number in decimal digits, anything else as JSON.

    Raises ToolError for invalid Unicode, and for what is no JSON.
    """
    if isinstance(value, float | Decimal) and isfinite(value):
        # A whole number may be an integer to its service, which reads neither 5.0 nor 1e+16.
        exact = value if isinstance(value, Decimal) else Decimal(repr(value))
        return str(int(exact)) if exact == exact.to_integral_value() else format(exact, "f")
    try:
        text = value if isinstance(value, str) else exact_json.dumps(exact_json.with_decimals(value)).decode()
    except (TypeError, ValueError, RecursionError) as problem:
        raise ToolError(f"The argument '{name}' cannot be written as text.") from problem
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise ToolError(f"The argument '{name}' is not valid Unicode text.") from problem
    return text
