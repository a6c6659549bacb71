"""Compiled JSON Schemas that validate values and report every failing field."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import jsonschema_rs

from tools_app.protocol import exact_json, schema_bounds
from tools_app.protocol.occurrences import LONG, occurrences
from tools_app.protocol.schema_bounds import KIB, LINEAR, References, compiled_bytes, pattern_problems, patterns
from tools_app.protocol.schema_keywords import REFERENCES, subschemas
from tools_app.protocol.unchecked_patterns import without_unchecked_patterns

MAX_PROBLEMS = 20
MAX_RECEIVED = 200
MAX_MESSAGE = 300
TOO_MUCH_WORK = "this value is too expensive to validate: send shorter strings or fewer items"
UNEXPLAINED = "this value does not match the schema, and is too large to tell which field fails: send a smaller one"


class InvalidSchema(ValueError):
    """A schema that cannot be compiled, or that is too expensive to check."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One failing field: its path in dotted form ("" for the root), the reason, and the value."""

    field: str
    message: str
    received: Any

    def as_json(self) -> dict[str, Any]:
        """Return the problem in its wire format."""
        return {"field": self.field, "message": self.message, "received": self.received}


class CompiledSchema:
    """A compiled schema in the dialect that it names, 2020-12 by default.

    References to other documents are never fetched: such a schema raises InvalidSchema here. `lenient`: regular
    expressions that the engine cannot run are left out; otherwise they raise InvalidSchema.
    """

    def __init__(self, schema: Mapping[str, Any], *, lenient: bool = False) -> None:
        try:
            ways = schema_bounds.check(schema)
            if lenient:
                schema = without_unchecked_patterns(schema)
            _check_patterns(schema)
            self._work = SchemaWork(schema, ways)
            self._validator = jsonschema_rs.validator_for(
                dict(schema), retriever=_refuse, validate_formats=True, pattern_options=LINEAR
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as problem:
            raise InvalidSchema(str(problem)) from problem

    def accepts(self, value: Any) -> bool:
        """Whether `value` is valid: the fast check. False for a value that is too expensive to check."""
        try:
            self._work.check(value)
        except TooMuchWork:
            return False
        return self._validator.is_valid(value)

    def problems(self, value: Any) -> list[FieldProblem]:
        """Return the failing fields of `value`, at most MAX_PROBLEMS; only the root if it is too expensive to check."""
        try:
            self._work.check(value)
        except TooMuchWork:
            return [FieldProblem("", TOO_MUCH_WORK, None)]
        if self._validator.is_valid(value):
            return []
        try:
            self._work.check_explaining(value)
        except TooMuchWork:
            return [FieldProblem("", UNEXPLAINED, None)]
        found: list[FieldProblem] = []
        for error in self._validator.iter_errors(value):
            found.extend(_problems(error))
            if len(found) >= MAX_PROBLEMS:
                break
        return found[:MAX_PROBLEMS]


def _check_patterns(schema: Mapping[str, Any]) -> None:
    for path, problem in pattern_problems(schema):
        raise InvalidSchema(f"{'.'.join(map(str, path)) or 'the schema'}: {problem}")


def _problems(error: Any) -> list[FieldProblem]:
    """Return the fields of one error: a missing or unexpected property is named itself, not its parent."""
    path = [str(step) for step in error.instance_path]
    if error.kind.name == "required":
        name = error.kind.property
        return [FieldProblem(".".join([*path, name]), f"'{name}' is required", None)]
    if error.kind.name == "additionalProperties":
        return [
            FieldProblem(".".join([*path, name]), f"'{name}' is not expected", _shortened(error.instance[name]))
            for name in error.kind.unexpected
        ]
    return [FieldProblem(".".join(path), _cut(error.message, MAX_MESSAGE), _shortened(error.instance))]


def _shortened(value: Any) -> Any:
    """Return a value small enough to send back: a longer one is truncated and marked."""
    if value is None or isinstance(value, bool | int | float | Decimal):
        return value
    as_text = value if isinstance(value, str) else exact_json.dumps(value).decode()
    return value if len(as_text) <= MAX_RECEIVED else _cut(as_text, MAX_RECEIVED)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"


def _refuse(uri: str) -> Any:
    raise ValueError(f"'{uri}' is outside of this schema; only local references are followed")


# --- Cost estimate of checking a value against a schema ---
#
# The costs of the two multiply: a pattern meets each character of a text, a list of alternatives each entry of a list.
# The hub checks values in the process that serves all tenants, so expensive checks are refused. A fast estimate passes
# nearly all values; a value above it is traversed together with the schema, which is exact about the parts of a value
# that a pattern never meets.

# Nanoseconds of the validator on a slow machine: one part of a schema meets one part of a value, one KiB of a compiled
# pattern meets one character (its automaton, when no cache helps), a number is divided by a fraction.
MEETING_NS: Final = 100
PATTERN_NS: Final = 100
DIVISION_NS: Final = 20_000
ALTERNATIVE_NS: Final = 800
MAX_NS: Final = 500_000_000
# Pairs of schema part and value part that meet while both are traversed, counted with repetition.
MAX_MEETINGS: Final = 300_000
# Characters that errors repeat: the value, and the alternatives that it does not match.
MAX_EXPLAINED: Final = 10_000_000

_SAME_VALUE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SAME_VALUE: Final = ("not", "if", "then", "else")
_EACH_MEMBER: Final = ("additionalProperties", "unevaluatedProperties")
_EACH_ENTRY: Final = ("items", "additionalItems", "unevaluatedItems", "contains")


class TooMuchWork(ValueError):
    """A value that is too expensive to check."""


class SchemaWork:
    """The cost of a schema, for values of any kind."""

    def __init__(self, schema: Mapping[str, Any], ways: int) -> None:
        self._schema = schema
        self._target = References(schema).target
        self._applied: dict[int, list[_Part]] = {}
        pattern_ns = sum(_pattern_ns(pattern) for _, pattern in patterns(schema))
        parts = [_Part(part) for _, part in subschemas(schema)]
        self._ns_each_byte = pattern_ns * ways
        self._ns_each_part = ways * (MEETING_NS + max((part.extra_ns for part in parts), default=0))

    def check(self, value: Any) -> None:
        """Raise TooMuchWork for a value that is too expensive to check."""
        try:
            written = exact_json.dumps(value, default=str)
        except TypeError:
            written = None
        # An upper bound in nanoseconds, from the length of the value.
        if written is not None:
            if len(written) < LONG:
                count = 1 + written.count(b",") + written.count(b"[") + written.count(b"{")
            else:
                count = 1 + sum(occurrences(written, byte) for byte in (b",", b"[", b"{"))
            if count * self._ns_each_part + len(written) * self._ns_each_byte <= MAX_NS:
                return
        spent = 0
        for part_of_value, applied in self._meetings(value):
            length = len(part_of_value) if isinstance(part_of_value, str) else 0
            spent += sum(MEETING_NS + part.extra_ns + length * part.ns_each_character for part in applied)
            if isinstance(part_of_value, dict):
                spent += sum(map(len, part_of_value)) * sum(part.ns_each_character_of_names for part in applied)
            if spent > MAX_NS:
                raise TooMuchWork

    def check_explaining(self, value: Any) -> None:
        """Raise TooMuchWork for a value whose errors are too expensive to explain.

        The validator collects all errors before it returns the first, and visits parts of the value more than once.
        """
        sizes = _Sizes()
        spent = 0
        for part_of_value, applied in self._meetings(value):
            spent += len(applied) * sizes.of(part_of_value) + sum(part.choice_count for part in applied)
            if spent > MAX_EXPLAINED:
                raise TooMuchWork

    def _meetings(self, value: Any) -> Iterator[tuple[Any, list["_Part"]]]:
        """Yield each part of a value with the schema parts that apply to it, as often as they do."""
        waiting: list[Iterator[tuple[Any, list[Any]]]] = [iter([(value, [self._schema])])]
        seen = 0
        while waiting:
            part_of_value, schemas = next(waiting[-1], (None, None))
            if schemas is None:
                waiting.pop()
                continue
            try:
                applied = [part for schema in schemas for part in self._on_same_value(schema)]
            except RecursionError:
                raise TooMuchWork from None
            seen += 1 + len(applied)
            if seen > MAX_MEETINGS:
                raise TooMuchWork
            if applied:
                yield part_of_value, applied
                waiting.append(_inside(part_of_value, applied))

    def _on_same_value(self, schema: Any, around: tuple[int, ...] = ()) -> "list[_Part]":
        """Return a part of the schema and all parts that it applies to the same value. Safe from any thread."""
        if not isinstance(schema, dict):
            return []
        if id(schema) in around:
            # It refers to itself without descending into the value: the cost is unknown.
            raise TooMuchWork
        if id(schema) not in self._applied:
            part, path = _Part(schema), (*around, id(schema))
            inner = [*part.same_value, *(self._target(reference) for reference in part.references)]
            self._applied[id(schema)] = [part, *(found for one in inner for found in self._on_same_value(one, path))]
        return self._applied[id(schema)]


def _inside(value: Any, applied: Sequence["_Part"]) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the names, members and entries of a value, each with the schemas that apply to it."""
    if isinstance(value, dict):
        on_names = [schema for part in applied for schema in part.on_names]
        on_members = [schema for part in applied for schema in part.on_members]
        properties = [part.properties for part in applied if part.properties]
        for name, inner in value.items():
            yield name, on_names
            yield inner, on_members + [part_schemas[name] for part_schemas in properties if name in part_schemas]
    elif isinstance(value, list):
        on_entries = [schema for part in applied for schema in part.on_entries]
        positions = [part.positions for part in applied if part.positions]
        for position, inner in enumerate(value):
            yield (
                inner,
                on_entries + [part_schemas[position] for part_schemas in positions if position < len(part_schemas)],
            )


class _Part:
    """One object of a schema: the cost of its keywords, and the schemas that it applies to parts of the value."""

    def __init__(self, schema: dict[str, Any]) -> None:
        pattern, named = schema.get("pattern"), _mapping(schema, "patternProperties")
        choices = schema["enum"] if isinstance(schema.get("enum"), list) else []
        self.ns_each_character = _pattern_ns(pattern) if isinstance(pattern, str) else 0
        self.ns_each_character_of_names = sum(map(_pattern_ns, named))
        self.extra_ns = ALTERNATIVE_NS * sum(isinstance(choice, dict | list) for choice in choices)
        if isinstance(schema.get("multipleOf"), float):
            self.extra_ns += DIVISION_NS
        self.choice_count = len(choices)
        self.references = [schema[name] for name in REFERENCES if isinstance(schema.get(name), str)]
        self.same_value = [one for name in _SAME_VALUE_LISTS for one in _listed(schema, name)]
        self.same_value += [schema[name] for name in _SAME_VALUE if name in schema]
        self.same_value += _mapping(schema, "dependentSchemas").values()
        self.same_value += _mapping(schema, "dependencies").values()
        self.on_names = [schema["propertyNames"]] if "propertyNames" in schema else []
        self.on_members = [*named.values(), *(schema[name] for name in _EACH_MEMBER if name in schema)]
        self.properties = _mapping(schema, "properties")
        self.on_entries = [schema[name] for name in _EACH_ENTRY if isinstance(schema.get(name), dict)]
        self.positions = _listed(schema, "prefixItems") or _listed(schema, "items")


class _Sizes:
    """The number of characters in parts of one value, each part counted once."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def of(self, value: Any) -> int:
        """Return the approximate length of a value as JSON."""
        if isinstance(value, str):
            return len(value) + 2
        if not isinstance(value, dict | list):
            return 8
        if id(value) not in self._known:
            inner = value.values() if isinstance(value, dict) else value
            names = sum(map(len, value)) if isinstance(value, dict) else 0
            self._known[id(value)] = 2 + names + sum(map(self.of, inner))
        return self._known[id(value)]


def _pattern_ns(pattern: str) -> int:
    return PATTERN_NS * compiled_bytes(pattern) // KIB


def _mapping(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _listed(schema: dict[str, Any], keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []
