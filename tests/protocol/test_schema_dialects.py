"""Supported dialects of JSON Schema (2025-11-25, base protocol, §JSON Schema Usage)."""

from pathlib import Path
from typing import Any

import pytest

from tools_app.protocol.authoring_schema import DEFAULT_DIALECT, DIALECTS, check_input_schema
from tools_app.protocol.schema import CompiledSchema

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "writing-tools.md"
LIST = {"type": "object", "properties": {"x": {"items": [{"type": "string"}]}}}
PREFIX = {"type": "object", "properties": {"x": {"prefixItems": [{"type": "string"}], "items": False}}}
DEPENDENT = {"type": "object", "dependentRequired": {"a": ["b"]}}
UNEVALUATED = {"type": "object", "$defs": {"a": {"properties": {"x": {}}}}, "$ref": "#/$defs/a"}


@pytest.mark.shows("json-schema.default-dialect")
@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (PREFIX, {"x": ["a"]}, {"x": ["a", "b"]}),
        (PREFIX, {"x": []}, {"x": [5]}),
        (DEPENDENT, {"a": 1, "b": 2}, {"a": 1}),
        ({**UNEVALUATED, "unevaluatedProperties": False}, {"x": 1}, {"y": 1}),
    ],
)
@pytest.mark.parametrize("named", [{}, {"$schema": DEFAULT_DIALECT}])
def test_a_schema_that_names_no_dialect_is_read_as_2020_12(
    schema: dict[str, Any], good: object, bad: object, named: dict[str, str]
) -> None:
    compiled = CompiledSchema({**named, **schema})
    assert (compiled.accepts(good), compiled.accepts(bad)) == (True, False)
    assert check_input_schema({**named, **schema}) == []


def test_a_schema_that_names_another_dialect_is_read_as_that() -> None:
    compiled = CompiledSchema({"$schema": "http://json-schema.org/draft-07/schema#", **LIST})
    assert (compiled.accepts({"x": ["a"]}), compiled.accepts({"x": [5]})) == (True, False)
    assert CompiledSchema({"$schema": "http://json-schema.org/draft-07/schema#", **DEPENDENT}).accepts({"a": 1})


@pytest.mark.shows("json-schema.dialects-documented")
def test_the_documentation_names_each_dialect() -> None:
    text = DOCUMENTATION.read_text(encoding="utf-8")
    assert [dialect for dialect in DIALECTS if f"`{dialect}`" not in text] == []
