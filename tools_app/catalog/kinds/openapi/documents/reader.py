"""A bounded reader of OpenAPI documents: JSON or YAML text into values.

Documents come from strangers. JSON is read by orjson. YAML is read with the core schema of YAML 1.2, so that `on`, a
date or `12:30` stay strings, and keys that are numbers, such as status codes, become strings. Aliases are allowed, as
long as the document with all of them written out stays within the bound on values.
"""

import re
from codecs import BOM_UTF8
from typing import Any, Final

import orjson
import yaml

from tools_app.catalog.validation.sizes import MAX_INT, MIN_INT

MAX_BYTES: Final = 64 * 1024 * 1024
MAX_DEPTH: Final = 128
# Objects, lists and scalars, with each alias counted as what it stands for.
MAX_VALUES: Final = 2_000_000
MAX_ALIASES: Final = 10_000
MAX_NUMBER: Final = 400

TOO_LARGE: Final = f"The document is larger than {MAX_BYTES // 1024**2} MB."
TOO_DEEP: Final = f"The document is nested deeper than {MAX_DEPTH} levels."
TOO_MANY: Final = f"The document has more than {MAX_VALUES} values."
# What PyYAML raises for values that do not match an explicit tag.
PROBLEMS: Final = (yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError, TypeError, RecursionError)


class UnreadableDocument(ValueError):
    """The text is no document that can be read; the message says where and why."""


def read(data: bytes) -> Any:
    """Return the value of a JSON or YAML text. Raises UnreadableDocument."""
    if len(data) > MAX_BYTES:
        raise UnreadableDocument(TOO_LARGE)
    data = data.removeprefix(BOM_UTF8)
    if data.lstrip()[:1] in {b"{", b"["}:
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError as problem:
            raise UnreadableDocument(f"The document is not valid JSON: {problem}.") from problem
    else:
        value = _yaml(data)
    level, count = [value], 0
    for _ in range(MAX_DEPTH + 1):
        count += len(level)
        if count > MAX_VALUES:
            raise UnreadableDocument(TOO_MANY)
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return value
    raise UnreadableDocument(TOO_DEEP)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # chosen at run time
    """Reads the values of YAML 1.2's core schema; keys are strings."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[str, Any]:
        """Construct a mapping whose keys are strings as written. The last of two equal keys counts."""
        self.flatten_mapping(node)
        return {self._key(key): self.construct_object(value, deep=deep) for key, value in node.value}

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise UnreadableDocument(f"Line {node.start_mark.line + 1}: a name must be a string.")
        return str(node.value)

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        """Construct a number: beyond 64 bits a float, as in JSON. One too long to parse quickly stays a string."""
        text = str(node.value)
        if len(text) > MAX_NUMBER:
            return text
        try:
            number = int(text, 10)
            return number if MIN_INT <= number <= MAX_INT else float(number)
        except OverflowError:
            return text
        except ValueError:
            return float(text.replace(".inf", "inf").replace(".nan", "nan").replace(".NaN", "nan"))

    def construct_flag(self, node: yaml.ScalarNode) -> bool:
        """Construct a boolean."""
        return str(node.value).lower() == "true"


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("null", r"(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+$", "-+0123456789"),
    ("float", r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)$", "-+.0123456789"),
    ("merge", r"<<$", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_number)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_number)
_Loader.add_constructor("tag:yaml.org,2002:bool", _Loader.construct_flag)
# Explicit tags of other types are texts here.
for _tag in ("timestamp", "binary", "value"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", yaml.SafeLoader.construct_yaml_str)


def _yaml(data: bytes) -> Any:
    try:
        text = data.decode()
    except UnicodeDecodeError as problem:
        raise UnreadableDocument("The document is not UTF-8 text.") from problem
    try:
        growth = _Growth()
        for event in yaml.parse(text, Loader=_Loader):
            growth.add(event)
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader with less in it
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        where = f"Line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise UnreadableDocument(
            f"The document is not valid YAML. {where}{problem.problem or problem.context}."
        ) from problem
    except PROBLEMS as problem:
        if isinstance(problem, UnreadableDocument):
            raise
        raise UnreadableDocument(f"The document is not valid YAML: {problem}.") from problem


class _Growth:
    """Counts the values of a YAML text with every alias written out, before anything is built."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.open: list[tuple[str | None, int]] = []
        self.values = 0
        self.aliases = 0

    def add(self, event: yaml.Event) -> None:
        """Count an event. Raises UnreadableDocument."""
        match event:
            case yaml.AliasEvent():
                self.aliases += 1
                # An anchor that is still open contains its own alias.
                if event.anchor not in self.sizes or self.aliases > MAX_ALIASES:
                    raise UnreadableDocument(f"{_where(event)}*{event.anchor} cannot be followed.")
                self.values += self.sizes[event.anchor]
            case yaml.CollectionStartEvent():
                self.open.append((event.anchor, self.values))
                self.sizes.pop(event.anchor or "", None)
                self.values += 1
                if len(self.open) > MAX_DEPTH:
                    raise UnreadableDocument(f"{_where(event)}{TOO_DEEP}")
            case yaml.CollectionEndEvent():
                anchor, before = self.open.pop()
                if anchor:
                    self.sizes[anchor] = self.values - before
            case yaml.ScalarEvent():
                self.values += 1
                if event.anchor:
                    self.sizes[event.anchor] = 1
        if self.values > MAX_VALUES:
            raise UnreadableDocument(TOO_MANY)


def _where(event: yaml.Event) -> str:
    mark = event.start_mark
    return f"Line {mark.line + 1}: " if mark else ""
