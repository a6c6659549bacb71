"""Checks on untrusted YAML before it is loaded."""

from typing import Any, Final

import yaml

MAX_DEPTH: Final = 64


class YamlError(ValueError):
    """The text is rejected; the message says where and why."""


def refuse_growth(text: str, loader: Any) -> None:
    """Reject what lets a short text expand: aliases, which repeat their anchor's value, and deep nesting.

    Raises YamlError, and yaml.YAMLError for invalid YAML.
    """
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent):
            raise YamlError(f"{_where(event)}*{event.anchor} is an alias. Write out the value instead.")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise YamlError(f"{_where(event)}nested deeper than {MAX_DEPTH} levels.")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _where(event: yaml.Event) -> str:
    mark = event.start_mark
    return f"Line {mark.line + 1}: " if mark else ""
