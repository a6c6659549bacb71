"""Compiled schemas: all invalid fields are named."""

import pytest

from tools_app.protocol.schema import MAX_PROBLEMS, CompiledSchema, InvalidSchema

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "inner": {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}},
    },
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        ({"name": "a"}, []),
        ({}, ["name"]),
        ({"name": 1}, ["name"]),
        ({"name": "a", "inner": {}}, ["inner.x"]),
        ({"name": "a", "inner": {"x": "1"}}, ["inner.x"]),
        ({"name": 1, "b": 1, "c": 2}, ["b", "c", "name"]),
    ],
)
def test_every_failing_field_is_named(value: object, fields: list[str]) -> None:
    schema = CompiledSchema(SCHEMA)
    assert sorted(problem.field for problem in schema.problems(value)) == fields
    assert schema.accepts(value) is (not fields)


def test_what_came_is_shown_but_not_at_any_length() -> None:
    (problem,) = CompiledSchema({"type": "integer"}).problems("x" * 1000)
    assert problem.received == "x" * 200 + "…"


def test_an_integer_of_a_python_function_may_have_any_length() -> None:
    assert CompiledSchema({"type": "integer"}).problems(2**70) == []


def test_the_number_of_problems_is_bounded() -> None:
    schema = CompiledSchema({"items": {"type": "integer"}})
    assert len(schema.problems(["x"] * 100)) == MAX_PROBLEMS


@pytest.mark.shows("json-schema.references", "json-schema.unresolved", "json-schema.valid")
@pytest.mark.parametrize("schema", [{"type": "nothing"}, {"$ref": "https://example.com/s.json"}, {"pattern": "("}])
def test_a_schema_that_cannot_be_compiled_is_bad(schema: dict[str, object]) -> None:
    with pytest.raises(InvalidSchema):
        CompiledSchema(schema)
