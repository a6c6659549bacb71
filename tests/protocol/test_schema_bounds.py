"""Bounds on the work of a schema (2026-07-28, base protocol, §JSON Schema Usage)."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from tools_app.protocol.authoring_schema import check_input_schema
from tools_app.protocol.schema import CompiledSchema, InvalidSchema
from tools_app.protocol.schema_bounds import TOO_DEEP, TOO_LARGE, TOO_MANY_ALTERNATIVES
from tools_app.toolkit import tool

LEVELS = 40
# Following every path through such a schema would take hours.
MAX_SECONDS = 30.0


def fanning_out(levels: int, named: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    """A schema of which each level refers twice to the one below, with references made by `named`."""
    inner = {f"a{level}": {"anyOf": [named(level + 1)["ref"]] * 2, **named(level)["own"]} for level in range(levels)}
    lowest = {"type": "string", **named(levels)["own"]}
    return {"type": "object", "$defs": {**inner, f"a{levels}": lowest}, "properties": {"x": named(0)["ref"]}}


def by_pointer(level: int) -> dict[str, Any]:
    return {"ref": {"$ref": f"#/$defs/a{level}"}, "own": {}}


def by_anchor(level: int) -> dict[str, Any]:
    return {"ref": {"$ref": f"#a{level}"}, "own": {"$anchor": f"a{level}"}}


def by_dynamic_anchor(level: int) -> dict[str, Any]:
    return {"ref": {"$dynamicRef": f"#a{level}"}, "own": {"$dynamicAnchor": f"a{level}"}}


def by_id(level: int) -> dict[str, Any]:
    return {"ref": {"$ref": f"urn:a{level}"}, "own": {"$id": f"urn:a{level}"}}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"not": schema}
    return {"type": "object", "properties": {"x": schema}}


def stairs(levels: int) -> dict[str, Any]:
    """A schema that validates each inner value twice as often as the one around it."""
    inner = {
        f"a{level}": {"allOf": [{"properties": {"x": {"$ref": f"#/$defs/a{level + 1}"}}}] * 2}
        for level in range(levels)
    }
    return {"type": "object", "$defs": {**inner, f"a{levels}": {}}, "properties": {"x": {"$ref": "#/$defs/a0"}}}


WIDE = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(100_001)}}
HIDDEN = {"type": "object", "properties": {"default": fanning_out(LEVELS, by_pointer)["properties"]["x"]}}
HIDDEN["$defs"] = fanning_out(LEVELS, by_pointer)["$defs"]
REFUSED = {
    "pointers": (fanning_out(LEVELS, by_pointer), TOO_MANY_ALTERNATIVES),
    "anchors": (fanning_out(LEVELS, by_anchor), TOO_MANY_ALTERNATIVES),
    "dynamic anchors": (fanning_out(LEVELS, by_dynamic_anchor), TOO_MANY_ALTERNATIVES),
    "ids": (fanning_out(LEVELS, by_id), TOO_MANY_ALTERNATIVES),
    "values in values": (stairs(LEVELS), TOO_MANY_ALTERNATIVES),
    "under a parameter's name": (HIDDEN, TOO_MANY_ALTERNATIVES),
    "parts": (WIDE, TOO_LARGE),
    "depth": (nested(65), TOO_DEEP),
    "great depth": (nested(900), TOO_DEEP),
}


@pytest.mark.shows("json-schema.bounds")
@pytest.mark.parametrize(("schema", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_a_schema_of_too_much_work_is_refused_at_once(registries: None, schema: dict[str, Any], reason: str) -> None:
    began = time.thread_time()
    with pytest.raises(InvalidSchema, match=reason):
        CompiledSchema(schema)
    with pytest.raises(ImproperlyConfigured, match=reason):
        tool(input_schema=schema)(give)
    assert time.thread_time() - began < MAX_SECONDS


@pytest.mark.shows("json-schema.bounds")
def test_an_admin_is_told_why() -> None:
    for schema in (fanning_out(LEVELS, by_pointer), nested(900)):
        problems = check_input_schema(schema)
        assert [
            str(problem) for problem in problems if TOO_MANY_ALTERNATIVES in str(problem) or TOO_DEEP in str(problem)
        ]


def give(x: str) -> str:
    return x


TREE = {
    "type": "object",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}, "up": {"$ref": "#"}},
            "additionalProperties": False,
        }
    },
    "properties": {"x": {"$ref": "#/$defs/node"}},
}


def friends(count: int) -> dict[str, Any]:
    """A number of definitions, each of which refers to all others."""
    known = {f"k{number}": {"$ref": f"#/$defs/k{number}"} for number in range(count)}
    kind = {"type": "object", "properties": known, "additionalProperties": False}
    return {
        "type": "object",
        "$defs": {name: dict(kind) for name in known},
        "properties": {"x": {"$ref": "#/$defs/k0"}},
    }


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (TREE, {"x": {"left": {"right": {}}}}, {"x": {"left": {"middle": {}}}}),
        (fanning_out(8, by_pointer), {"x": "a"}, {"x": 5}),
        (friends(60), {"x": {"k1": {"k59": {}}}}, {"x": {"k1": {"k60": {}}}}),
        (nested(62), {"x": "a"}, {"x": 5}),
        ({"type": "object", "properties": {"$ref": {"const": {"$ref": "#/never"}}}}, {}, {"$ref": 5}),
    ],
)
def test_what_people_write_is_taken(schema: dict[str, Any], good: object, bad: object) -> None:
    compiled = CompiledSchema(schema)
    assert (compiled.accepts(good), compiled.accepts(bad)) == (True, False)
    assert check_input_schema(schema) == []
