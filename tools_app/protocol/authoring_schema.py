"""Validation of tool schemas, with explanations for their authors.

Calls are checked by the compiled validator; this module is slower and reports where a schema is wrong and why. It never
fetches anything: a schema may refer only to itself (tools, §Security Considerations: no remote `$ref`).
"""

from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import jsonschema_rs
from jsonschema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
    FormatChecker,
)

from tools_app.protocol import schema_bounds
from tools_app.protocol.schema_bounds import LINEAR, pattern_problems
from tools_app.protocol.schema_keywords import REFERENCES, Path, subschemas

ROOT = "the schema"
DEFAULT_DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_MESSAGE = 300
# Explaining a schema of this size takes up to 0.1 s.
MAX_PATTERN_FAULTS = 10
# `jsonschema` finds and explains every error, and takes 0.5 ms for each part of a schema.
MAX_EXPLAINED_PARTS = 500
# Regular expressions are checked by `pattern_problems`: Python's engine never runs one of a schema.
FORMATS = FormatChecker(sorted(FormatChecker.checkers.keys() - {"regex"}))


class Dialect(Protocol):
    """The part of a `jsonschema` validator class that is used here."""

    META_SCHEMA: dict[str, Any]

    def __call__(self, schema: Any, *, format_checker: Any) -> Any:
        """Return a validator of values against `schema`."""


DIALECTS: dict[str, Dialect] = {
    dialect.META_SCHEMA.get("$id", dialect.META_SCHEMA.get("id")).rstrip("#"): dialect
    for dialect in (Draft4Validator, Draft6Validator, Draft7Validator, Draft201909Validator, Draft202012Validator)
}


@dataclass(frozen=True)
class SchemaProblem:
    """One error of a schema: the path of the invalid value from the root, and what is wrong with it."""

    path: Path
    message: str

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.message}"


def dotted(path: Path) -> str:
    """Return a path in dotted form, such as `properties.a.type`."""
    return ".".join(str(part) for part in path) or ROOT


def check_input_schema(schema: Any) -> list[SchemaProblem]:
    """Return the errors of a tool's `inputSchema`, which must describe an object (tools, §Tool)."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return [SchemaProblem((), 'arguments are an object, so write "type": "object" here.')]
    return check_schema(schema)


def check_schema(schema: Any) -> list[SchemaProblem]:
    """Return the errors of a JSON Schema under the dialect of its `$schema`, 2020-12 by default."""
    if not isinstance(schema, dict):
        return [SchemaProblem((), "a schema is a JSON object.")]
    named = schema.get("$schema", DEFAULT_DIALECT)
    dialect = DIALECTS.get(named.rstrip("#")) if isinstance(named, str) else None
    if dialect is None:
        return [SchemaProblem(("$schema",), f"this dialect is unknown here. Known are {', '.join(DIALECTS)}.")]
    try:
        # Before anything else traverses the schema.
        schema_bounds.check(schema)
    except schema_bounds.SchemaTooComplex as problem:
        return [SchemaProblem((), f"{problem}.")]
    patterns = islice(pattern_problems(schema), MAX_PATTERN_FAULTS)
    problems = [SchemaProblem(path, f"{problem}.") for path, problem in patterns] + _broken_rules(schema, dialect)
    return problems or _foreign_references(schema) or _uncompilable(schema)


def _broken_rules(schema: dict[str, Any], dialect: Dialect) -> list[SchemaProblem]:
    """Return violations of the dialect. The fast validator detects them, and for a large schema also explains them."""
    try:
        jsonschema_rs.meta.validate(schema)
    except jsonschema_rs.ValidationError as problem:
        if sum(1 for _ in subschemas(schema)) > MAX_EXPLAINED_PARTS:
            return [SchemaProblem(tuple(problem.instance_path), f"{_cut(problem.message)}.")]
    else:
        return []
    errors = dialect(dialect.META_SCHEMA, format_checker=FORMATS).iter_errors(schema)
    # Of several alternatives the first is the most likely: for `type` it lists the valid names.
    return [
        SchemaProblem(tuple(error.absolute_path), f"{_cut((error.context[0] if error.context else error).message)}.")
        for error in errors
    ]


def _cut(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}…"


def _foreign_references(schema: dict[str, Any]) -> list[SchemaProblem]:
    return [
        SchemaProblem(
            (*path, keyword),
            f"{part[keyword]!r} is outside of this schema: only references that start with # are followed.",
        )
        for path, part in subschemas(schema)
        for keyword in sorted(REFERENCES & part.keys())
        if isinstance(part[keyword], str) and not part[keyword].startswith("#")
    ]


def _uncompilable(schema: dict[str, Any]) -> list[SchemaProblem]:
    """Return what the compiled validator refuses beyond the dialect's rules, such as an unresolved reference."""

    def retrieve_nothing(uri: str) -> Any:
        raise ValueError(f"{uri} is not fetched")

    try:
        jsonschema_rs.validator_for(schema, retriever=retrieve_nothing, pattern_options=LINEAR)
    except ValueError as problem:
        return [SchemaProblem((), f"{str(problem).splitlines()[0]}.")]
    return []
