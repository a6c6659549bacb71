"""JSON Schemas compiled once and checked per call, with every failing field named."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
import orjson

from tools_app.protocol import schema_bounds

MOST_PROBLEMS = 20
LONGEST_RECEIVED = 200


class BadSchema(ValueError):
    """A schema that cannot be compiled, or that would make too much work."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One field that fails: its path in dotted form ("" for the whole), why, and what came."""

    field: str
    message: str
    received: Any

    def as_json(self) -> dict[str, Any]:
        """The problem as it goes over the wire."""
        return {"field": self.field, "message": self.message, "received": self.received}


class CompiledSchema:
    """A schema ready to check values, following the dialect that it names (2020-12 if it names none).

    References to other documents are never fetched: such a schema raises BadSchema here.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        try:
            schema_bounds.check(schema)
            self._validator = jsonschema_rs.validator_for(dict(schema), retriever=_refuse, validate_formats=True)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as problem:
            raise BadSchema(str(problem)) from problem

    def accepts(self, value: Any) -> bool:
        """Whether `value` fits: the quick answer."""
        return self._validator.is_valid(value)

    def problems(self, value: Any) -> list[FieldProblem]:
        """Every field of `value` that fails, at most MOST_PROBLEMS."""
        found: list[FieldProblem] = []
        for error in self._validator.iter_errors(value):
            found.extend(_problems(error))
            if len(found) >= MOST_PROBLEMS:
                break
        return found[:MOST_PROBLEMS]


def _problems(error: Any) -> list[FieldProblem]:
    """The fields that one error is about: a missing or unexpected property is named itself, not its parent."""
    path = [str(step) for step in error.instance_path]
    if error.kind.name == "required":
        name = error.kind.property
        return [FieldProblem(".".join([*path, name]), f"'{name}' is required", None)]
    if error.kind.name == "additionalProperties":
        return [
            FieldProblem(".".join([*path, name]), f"'{name}' is not expected", _shortened(error.instance[name]))
            for name in error.kind.unexpected
        ]
    return [FieldProblem(".".join(path), error.message, _shortened(error.instance))]


def _shortened(value: Any) -> Any:
    """A value small enough to send back: what is longer is cut and says so."""
    if value is None or isinstance(value, bool | int | float):
        return value
    as_text = value if isinstance(value, str) else orjson.dumps(value).decode()
    if len(as_text) <= LONGEST_RECEIVED:
        return value
    return as_text[:LONGEST_RECEIVED] + "…"


def _refuse(uri: str) -> Any:
    raise ValueError(f"'{uri}' is outside of this schema; only local references are followed")
