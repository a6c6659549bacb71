"""Whether a JSON Schema is fit to describe a tool, explained for the person who writes it.

Calls are checked by the compiled validator; this module is slower and says where a schema is wrong and why. It never
fetches anything: a schema may refer to itself only (tools, §Security Considerations: no remote `$ref`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import jsonschema_rs
from jsonschema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
    ValidationError,
)

from tools_app.protocol import schema_bounds
from tools_app.protocol.schema_keywords import DATA, REFERENCES, SCHEMA_MAPS

Path = tuple[str | int, ...]

ROOT = "the schema"
DEFAULT_DIALECT = "https://json-schema.org/draft/2020-12/schema"
LONGEST_MESSAGE = 300


class Dialect(Protocol):
    """What is used of a validator class of `jsonschema`."""

    META_SCHEMA: dict[str, Any]
    FORMAT_CHECKER: Any

    def __call__(self, schema: Any, *, format_checker: Any) -> Any:
        """A validator of values against `schema`."""


DIALECTS: dict[str, Dialect] = {
    dialect.META_SCHEMA.get("$id", dialect.META_SCHEMA.get("id")).rstrip("#"): dialect
    for dialect in (Draft4Validator, Draft6Validator, Draft7Validator, Draft201909Validator, Draft202012Validator)
}


@dataclass(frozen=True)
class SchemaProblem:
    """One fault of a schema: the path of the offending value from the root, and what is wrong with it."""

    path: Path
    message: str

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.message}"


def dotted(path: Path) -> str:
    """A path as people write it, such as `properties.a.type`."""
    return ".".join(str(part) for part in path) or ROOT


def check_input_schema(schema: Any) -> list[SchemaProblem]:
    """The faults of a tool's `inputSchema`, which must describe an object (tools, §Tool). Empty if there are none."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return [SchemaProblem((), 'arguments are an object, so write "type": "object" here.')]
    return check_schema(schema)


def check_schema(schema: Any) -> list[SchemaProblem]:
    """The faults of a JSON Schema under the dialect that its `$schema` names, 2020-12 if it names none."""
    if not isinstance(schema, dict):
        return [SchemaProblem((), "a schema is a JSON object.")]
    dialect = _dialect(schema)
    if dialect is None:
        return [SchemaProblem(("$schema",), f"this dialect is unknown here. Known are {', '.join(DIALECTS)}.")]
    return _too_much(schema) or _broken_rules(schema, dialect) or _foreign_references(schema) or _uncompilable(schema)


def _too_much(schema: dict[str, Any]) -> list[SchemaProblem]:
    """What makes a schema too much work, which is looked for before anything else walks through it."""
    try:
        schema_bounds.check(schema)
    except schema_bounds.TooMuch as problem:
        return [SchemaProblem((), f"{problem}.")]
    return []


def _dialect(schema: dict[str, Any]) -> Dialect | None:
    named = schema.get("$schema", DEFAULT_DIALECT)
    return DIALECTS.get(named.rstrip("#")) if isinstance(named, str) else None


def _broken_rules(schema: dict[str, Any], dialect: Dialect) -> list[SchemaProblem]:
    errors = dialect(dialect.META_SCHEMA, format_checker=dialect.FORMAT_CHECKER).iter_errors(schema)
    return [SchemaProblem(tuple(error.absolute_path), _message(error)) for error in errors]


def _message(error: ValidationError) -> str:
    # Of alternatives the first is the one people mean: for `type` it lists the names that exist.
    told = error.context[0] if error.context else error
    message = told.message if len(told.message) <= LONGEST_MESSAGE else f"{told.message[:LONGEST_MESSAGE]}…"
    return message.replace("is not a 'regex'", "is not a valid regular expression") + "."


def _foreign_references(schema: dict[str, Any]) -> list[SchemaProblem]:
    return [
        SchemaProblem(path, f"{target!r} is outside of this schema: only references that start with # are followed.")
        for path, target in _references(schema, ())
        if not target.startswith("#")
    ]


def _references(schema: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(schema, list):
        for position, entry in enumerate(schema):
            yield from _references(entry, (*path, position))
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        here = (*path, keyword)
        if keyword in REFERENCES and isinstance(value, str):
            yield here, value
        elif keyword in SCHEMA_MAPS and isinstance(value, dict):
            for name, inner in value.items():
                yield from _references(inner, (*here, name))
        elif keyword not in DATA:
            yield from _references(value, here)


def _uncompilable(schema: dict[str, Any]) -> list[SchemaProblem]:
    """What the compiled validator refuses beyond the dialect's own rules, such as a reference that leads nowhere."""
    try:
        jsonschema_rs.validator_for(schema, retriever=_retrieve_nothing)
    except ValueError as problem:
        return [SchemaProblem((), f"{str(problem).splitlines()[0]}.")]
    return []


def _retrieve_nothing(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched")
