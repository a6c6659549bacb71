"""Compiled JSON Schemas that validate values and report every failing field."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import jsonschema_rs

from tools_app.protocol import exact_json, schema_bounds
from tools_app.protocol.occurrences import occurrences
from tools_app.protocol.schema_bounds import KIB, LINEAR, Measure, SchemaTooComplex, Weight, pattern_problems
from tools_app.protocol.unchecked_patterns import without_unchecked_patterns

MAX_PROBLEMS = 20
MAX_RECEIVED = 200
MAX_MESSAGE = 300
# The work on one value: its parts times the paths of the schema to one value, and its bytes times the KiB of the
# compiled regular expressions on them. No other thread runs while the validator does.
MAX_WORK: Final = 5_000_000
# Bytes times paths of a value whose errors are explained: each error repeats a part of it.
MAX_EXPLAINED: Final = 10_000_000
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
            schema_bounds.check(schema)
            if lenient:
                schema = without_unchecked_patterns(schema)
            for path, problem in pattern_problems(schema):
                raise InvalidSchema(f"{'.'.join(map(str, path)) or 'the schema'}: {problem}")
            self._weigh(schema)
            self._validator = jsonschema_rs.validator_for(
                dict(schema), retriever=_refuse, validate_formats=True, pattern_options=LINEAR
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as problem:
            raise InvalidSchema(str(problem)) from problem

    def _weigh(self, schema: Mapping[str, Any]) -> None:
        measure = Measure(schema)
        weight = self._weight = measure.weigh(schema)
        properties = schema.get("properties")
        # The weights of what each property is checked against. The parts of a circle weigh as much as the whole.
        self._weights: dict[str, Weight] = {}
        if isinstance(properties, dict) and not measure.is_recursive:
            self._weights = {name: measure.weigh(inner) for name, inner in properties.items()}
            self._weight = measure.weigh({name: inner for name, inner in schema.items() if name != "properties"})
        # Shorter values need no closer look: a part has at least two bytes.
        self._always_checked = 2 * (MAX_WORK - weight.paths) // (weight.paths + 2 * weight.pattern_bytes // KIB)
        # The paths to one value of so many levels, with all that an explanation repeats.
        self._schema = schema
        self._explaining: dict[int, int] = {}

    def accepts(self, value: Any) -> bool:
        """Whether `value` is valid: the fast check. False for a value that is too much work."""
        size = len(exact_json.dumps(value, default=str))
        return (size <= self._always_checked or not self._is_too_much(value)) and self._validator.is_valid(value)

    def problems(self, value: Any) -> list[FieldProblem]:
        """Return the failing fields of `value`, at most MAX_PROBLEMS; only the root if that is too much work."""
        written = _written(value)
        if len(written) > self._always_checked and self._is_too_much(value):
            return [FieldProblem("", TOO_MUCH_WORK, None)]
        if self._validator.is_valid(value):
            return []
        if len(written) * self._paths_explaining(_levels(value)) > MAX_EXPLAINED:
            return [FieldProblem("", UNEXPLAINED, None)]
        found: list[FieldProblem] = []
        for error in self._validator.iter_errors(value):
            found.extend(_problems(error))
            if len(found) >= MAX_PROBLEMS:
                break
        return found[:MAX_PROBLEMS]

    def _is_too_much(self, value: Any) -> bool:
        work = _work(value, self._weight)
        if isinstance(value, dict):
            work += sum(_work(inner, self._weights[name]) for name, inner in value.items() if name in self._weights)
        return work > MAX_WORK

    def _paths_explaining(self, levels: int) -> int:
        if levels not in self._explaining:
            try:
                self._explaining[levels] = Measure(self._schema, levels).weigh(self._schema).paths
            except SchemaTooComplex:
                self._explaining[levels] = MAX_EXPLAINED + 1
        return self._explaining[levels]


def _written(value: Any) -> bytes:
    try:
        return exact_json.dumps(value, default=str)
    except TypeError:  # an integer beyond 64 bits that is no Decimal
        return exact_json.dumps(exact_json.with_decimals(value), default=str)


def _work(value: Any, weight: Weight) -> int:
    written = _written(value)
    parts = 1 + sum(occurrences(written, byte) for byte in (b",", b"[", b"{"))
    return parts * weight.paths + len(written) * (weight.pattern_bytes // KIB)


def _levels(value: Any) -> int:
    """Return how deep a value is nested."""
    levels, waiting = 0, [value]
    while waiting := [
        inner
        for part in waiting
        if isinstance(part, dict | list)
        for inner in (part.values() if isinstance(part, dict) else part)
    ]:
        levels += 1
    return levels


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
