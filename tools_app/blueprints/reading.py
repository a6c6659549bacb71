"""Reading YAML that may come from anybody: bounded, nothing but JSON values and bytes, and no tricks.

Knows nothing of what the values mean.
"""

from collections.abc import Callable, Hashable
from math import isfinite
from typing import Any, Final

import yaml

MOST_BYTES: Final = 8 * 1024 * 1024
DEEPEST: Final = 64
# PostgreSQL and JSON keep whole numbers of 64 bits.
MOST_WHOLE: Final = 2**63 - 1
LONGEST_NUMBER: Final = 400
# What PyYAML raises for texts of which an explicit tag says that they are something else.
PROBLEMS: Final = (yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError, TypeError, RecursionError)

Path = tuple[str | int, ...]


class Unreadable(ValueError):
    """A text that is refused; the message says where and why."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # chosen at run time
    """Reads what JSON can say as it was written: a date stays the text that it is, and no key comes twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A mapping. Raises Unreadable for a key that comes twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise Unreadable(f"Line {key.start_mark.line + 1}: a name must be a text.")
            if key.value in seen:
                raise Unreadable(f"Line {key.start_mark.line + 1}: {str(key.value)[:100]!r} is there twice.")
            seen.add(str(key.value))
        made: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return made


def _without_base_60(tag: str, make: Callable[[Any, yaml.ScalarNode], Any]) -> None:
    """Take no number with colons, which YAML 1.1 reads as one of base 60, and a long one for minutes."""

    def number(loader: Any, node: yaml.ScalarNode) -> Any:
        if ":" in node.value or len(node.value) > LONGEST_NUMBER:
            raise Unreadable(f"Line {node.start_mark.line + 1}: put {node.value[:40]!r} in quotes.")
        return make(loader, node)

    _Loader.add_constructor(tag, number)


_without_base_60("tag:yaml.org,2002:int", yaml.SafeLoader.construct_yaml_int)
_without_base_60("tag:yaml.org,2002:float", yaml.SafeLoader.construct_yaml_float)
_Loader.yaml_implicit_resolvers = {
    start: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for start, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse(text: str) -> Any:
    """The value of a YAML text. Raises Unreadable."""
    if len(text.encode(errors="replace")) > MOST_BYTES:
        raise Unreadable(f"The file is too large: {MOST_BYTES // 1024**2} MB are the most.")
    try:
        _refuse_tricks(text)
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader with less in it
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        where = f"Line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise Unreadable(f"{where}{problem.problem or problem.context}.") from problem
    except PROBLEMS as problem:
        raise problem if isinstance(problem, Unreadable) else Unreadable(f"This is no YAML: {problem}") from problem
    _check(value, ())
    return value


def dotted(path: Path) -> str:
    """A path as people write it."""
    return ".".join(str(part) for part in path) or "the file"


def _refuse_tricks(text: str) -> None:
    """Refuse what a short text could grow by, before anything is built of it."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise Unreadable(f"{_where(event)}*{event.anchor} refers to another place. Write it out instead.")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise Unreadable(f"{_where(event)}nested deeper than {DEEPEST} levels.")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _where(event: yaml.Event) -> str:
    mark = event.start_mark
    return f"Line {mark.line + 1}: " if mark else ""


def _check(value: Any, path: Path) -> None:
    """Raise Unreadable for a value that no store or client could take."""
    match value:
        case dict():
            for name, inner in value.items():
                _check_key(name, path)
                _check(inner, (*path, name))
        case list():
            for position, inner in enumerate(value):
                _check(inner, (*path, position))
        case str():
            _check_text(value, path)
        case float() if not isfinite(value):
            raise Unreadable(f"{dotted(path)}: {value} is not JSON.")
        case int() if abs(value) > MOST_WHOLE:
            raise Unreadable(f"{dotted(path)}: this number is too large.")
        case None | bool() | int() | float() | bytes():
            return
        case _:
            raise Unreadable(f"{dotted(path)}: a {type(value).__name__} is not JSON.")


def _check_key(name: Any, path: Path) -> None:
    if not isinstance(name, str):
        raise Unreadable(f"{dotted((*path, str(name)))}: this name is no text to YAML. Put it in quotes.")
    _check_text(name, path)


def _check_text(text: str, path: Path) -> None:
    if "\x00" in text:
        raise Unreadable(f"{dotted(path)}: the character \\0 cannot be stored.")
