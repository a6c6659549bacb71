"""A strict parser of untrusted YAML: bounded, and limited to JSON values and bytes.

Independent of what the values mean.
"""

from collections.abc import Callable, Hashable
from math import isfinite
from typing import Any, Final

import yaml

from tools_app.core.sanitize import is_storable
from tools_app.core.yaml_events import YamlError, refuse_growth

MAX_BYTES: Final = 8 * 1024 * 1024
# PostgreSQL and JSON store integers of up to 64 bits.
MAX_WHOLE: Final = 2**63 - 1
MAX_NUMBER: Final = 400
# What PyYAML raises for values that do not match an explicit tag.
PROBLEMS: Final = (yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError, TypeError, RecursionError)

Path = tuple[str | int, ...]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # chosen at run time
    """Reads JSON values as written: a date stays a string. Duplicate keys are rejected."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Construct a mapping. Raises YamlError for a duplicate key."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise YamlError(f"Line {key.start_mark.line + 1}: a name must be a string.")
            if key.value in seen:
                raise YamlError(f"Line {key.start_mark.line + 1}: {str(key.value)[:100]!r} is given twice.")
            seen.add(str(key.value))
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def _without_base_60(tag: str, make: Callable[[Any, yaml.ScalarNode], Any]) -> None:
    """Reject numbers with colons, which YAML 1.1 reads as base 60, and numbers that are too long to parse quickly."""

    def number(loader: Any, node: yaml.ScalarNode) -> Any:
        if ":" in node.value or len(node.value) > MAX_NUMBER:
            raise YamlError(f"Line {node.start_mark.line + 1}: put {node.value[:40]!r} in quotes.")
        return make(loader, node)

    _Loader.add_constructor(tag, number)


_without_base_60("tag:yaml.org,2002:int", yaml.SafeLoader.construct_yaml_int)
_without_base_60("tag:yaml.org,2002:float", yaml.SafeLoader.construct_yaml_float)
_Loader.yaml_implicit_resolvers = {
    start: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for start, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse(text: str) -> Any:
    """Return the value of a YAML text. Raises YamlError."""
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise YamlError(f"The file is larger than {MAX_BYTES // 1024**2} MB.")
    try:
        refuse_growth(text, _Loader)
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader with less in it
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"Line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise YamlError(f"{where}{error.problem or error.context}.") from error
    except PROBLEMS as error:
        raise (error if isinstance(error, YamlError) else YamlError(f"The file is not valid YAML: {error}")) from error
    _check(value, ())
    return value


def dotted(path: Path) -> str:
    """Return a path in dotted form."""
    return ".".join(str(part) for part in path) or "the file"


def _check(value: Any, path: Path) -> None:
    """Raise YamlError for a value that no store or client could accept."""
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
            raise YamlError(f"{dotted(path)}: {value} is not JSON.")
        case int() if abs(value) > MAX_WHOLE:
            raise YamlError(f"{dotted(path)}: this number is too large.")
        case None | bool() | int() | float() | bytes():
            return
        case _:
            raise YamlError(f"{dotted(path)}: a {type(value).__name__} is not JSON.")


def _check_key(name: Any, path: Path) -> None:
    if not isinstance(name, str):
        raise YamlError(f"{dotted((*path, str(name)))}: this name is not a string in YAML. Put it in quotes.")
    _check_text(name, path)


def _check_text(text: str, path: Path) -> None:
    if not is_storable(text):
        place = dotted(path).encode(errors="replace").decode()
        raise YamlError(f"{place}: contains a character that cannot be stored (U+0000 or half of a surrogate pair).")
