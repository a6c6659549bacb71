"""Validation of schemas that people write: errors and their paths."""

from typing import Any

import pytest

from tools_app.protocol.authoring_schema import check_input_schema, check_schema


def faults_of(schema: Any) -> list[str]:
    return [str(problem) for problem in check_schema(schema)]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"a": {"type": ["string", "null"], "pattern": "^a+$"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "definitions": {"x": {}}},
        {"$defs": {"x": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/x"}}},
        {"properties": {"$ref": {"type": "string"}}, "default": {"$ref": "https://example.com"}},
        {"$id": "https://example.com/own", "properties": {"a": {"$ref": "#"}}},
    ],
)
def test_a_good_schema_has_no_faults(schema: Any) -> None:
    assert faults_of(schema) == []


@pytest.mark.shows(
    "json-schema.declared-dialect", "json-schema.references", "json-schema.unresolved", "json-schema.valid"
)
@pytest.mark.parametrize(
    ("schema", "path", "part"),
    [
        ({"properties": {"a": {"type": "strin"}}}, "properties.a.type", "'strin' is not one of"),
        ({"required": "a"}, "required", "'a' is not of type 'array'"),
        ({"properties": {"a": {"pattern": "["}}}, "properties.a.pattern", "not a valid regular expression"),
        ({"anyOf": [{"minimum": "3"}]}, "anyOf.0.minimum", "'3' is not of type 'number'"),
        ({"$schema": "https://example.com/mine"}, "$schema", "this dialect is unknown"),
        ({"$schema": 4}, "$schema", "this dialect is unknown"),
        ({"properties": {"a": {"$ref": "https://example.com/x"}}}, "properties.a.$ref", "outside of this schema"),
        (
            {"items": [{"$ref": "file:///etc/passwd"}], "$schema": "http://json-schema.org/draft-07/schema"},
            "items.0.$ref",
            "outside",
        ),
        ({"$ref": "#/$defs/missing"}, "the schema", "'/$defs/missing' does not exist"),
        ([], "the schema", "a schema is a JSON object"),
    ],
)
def test_a_fault_is_named_with_its_path(schema: Any, path: str, part: str) -> None:
    (problem,) = faults_of(schema)
    assert problem.startswith(f"{path}: ")
    assert part in problem


@pytest.mark.shows("json-schema.declared-dialect")
def test_a_schema_of_draft_4_is_judged_by_the_rules_of_draft_4() -> None:
    schema = {"exclusiveMinimum": True, "minimum": 1}
    assert faults_of(schema | {"$schema": "http://json-schema.org/draft-04/schema#"}) == []
    assert faults_of(schema)


@pytest.mark.shows("tools.input-schema")
@pytest.mark.parametrize("schema", [{}, {"type": "string"}, {"type": ["object"]}, True, []])
def test_arguments_are_an_object(schema: Any) -> None:
    (problem,) = check_input_schema(schema)
    assert '"type": "object"' in problem.message


def test_a_long_value_does_not_flood_the_message() -> None:
    (problem,) = check_schema({"required": "x" * 10_000})
    assert len(problem.message) < 400
