"""Schemas of tools in the form that every client accepts, and what is validated where a pattern cannot be run."""

from typing import Any

import pytest

from tests.linear import assert_linear
from tools_app.protocol.schema import CompiledSchema, InvalidSchema
from tools_app.protocol.tool_schemas import arguments_schema, result_schema
from tools_app.protocol.unchecked_patterns import MAX_UNCHECKED, without_foreign_patterns

# As zod writes it.
EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
OBJECT = {"type": "object"}
NULL = {"type": "null"}
# Accepts "xz", and no value of another beginning.
LOOK_AHEAD = {"pattern": "^(?=x)"}
CYCLE = {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, NULL]}}}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, OBJECT),
        (True, OBJECT),
        ({"type": ["null", "object"], "title": None}, OBJECT),
        (
            {"properties": {"a": {"anyOf": [OBJECT], "nullable": True}}},
            {**OBJECT, "properties": {"a": {"anyOf": [OBJECT]}}},
        ),
        ({"anyOf": [OBJECT, {"required": ["a"]}]}, {**OBJECT, "anyOf": [OBJECT, {"required": ["a"]}]}),
        (
            {"properties": {"a": True, "b": False, "c": None, "title": {"const": None, "enum": None}}, "$defs": None},
            {**OBJECT, "properties": {"a": {}, "b": {"not": {}}, "c": {}, "title": {"const": None}}},
        ),
        # What is no keyword stays as it is.
        ({"x-own": {"a": None}, "default": {"a": None}}, {**OBJECT, "x-own": {"a": None}, "default": {"a": None}}),
    ],
)
def test_arguments_are_described_as_an_object(schema: Any, expected: dict[str, Any]) -> None:
    assert arguments_schema(schema) == expected
    assert arguments_schema(expected) == expected


@pytest.mark.parametrize("schema", [None, False, "object", [], {"type": "string"}, {"type": ["null"]}, deep(2000)])
def test_arguments_that_are_no_object_are_refused(schema: Any) -> None:
    with pytest.raises(InvalidSchema):
        CompiledSchema(arguments_schema(schema))


@pytest.mark.parametrize(
    ("schema", "is_object"),
    [
        (OBJECT, True),
        ({"type": ["object", "null"]}, True),
        ({"properties": {}}, True),
        ({"anyOf": [OBJECT, {"$ref": "#/$defs/a"}, NULL], "$defs": {"a": OBJECT}}, True),
        ({"allOf": [{"title": "a"}, {"oneOf": [OBJECT]}]}, True),
        ({"anyOf": [OBJECT, {"type": "array"}]}, False),
        ({"anyOf": [NULL]}, False),
        ({"type": ["object", "string"]}, False),
        ({"type": "array"}, False),
        ({"title": "anything"}, False),
        ({"$ref": "#/$defs/none"}, False),
        (CYCLE, False),
    ],
)
def test_structured_content_is_described_as_an_object_if_it_can_be_nothing_else(
    schema: dict[str, Any], is_object: bool
) -> None:
    assert result_schema(schema) == ({**schema, **OBJECT} if is_object else schema)


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({"allOf": [LOOK_AHEAD, {"maxLength": 2}]}, "xz", "too long"),
        ({"items": {**LOOK_AHEAD, "type": "string"}}, ["xz"], [5]),
        ({"not": LOOK_AHEAD, "type": "string"}, "z", 5),
        ({"if": LOOK_AHEAD, "then": {"minLength": 9}, "type": "string"}, "z", 5),
        ({"oneOf": [LOOK_AHEAD, {"type": "string", "minLength": 2}, {"type": "null"}], "type": "string"}, "zz", 5),
        ({"contains": LOOK_AHEAD, "maxContains": 1, "type": "array"}, ["xz", "z"], 5),
        ({"propertyNames": LOOK_AHEAD, "maxProperties": 1}, {"xz": 1}, {"x": 1, "y": 2}),
        (
            {"patternProperties": {"^(?=x)": {}, "^y": {"type": "null"}}, "additionalProperties": False},
            {"xz": 1},
            {"y": 5},
        ),
        (
            {"allOf": [{"patternProperties": {"^(?=x)": {}}}], "unevaluatedProperties": False, "maxProperties": 1},
            {"xz": 1},
            {"x": 1, "y": 2},
        ),
        # A property may be named like a keyword, and a value may look like a schema.
        ({"properties": {"pattern": LOOK_AHEAD, "not": {"type": "null"}}}, {"pattern": "xz"}, {"not": 5}),
        ({"enum": [LOOK_AHEAD, 5], "anyOf": [LOOK_AHEAD, {}]}, LOOK_AHEAD, {}),
    ],
)
def test_without_patterns_that_backtrack_a_schema_accepts_no_less(
    schema: dict[str, Any], valid: object, invalid: object
) -> None:
    with pytest.raises(InvalidSchema, match="uses look-around"):
        CompiledSchema(schema)
    lenient = CompiledSchema(schema, lenient=True)
    assert lenient.accepts(valid)
    assert not lenient.accepts(invalid)


JAVASCRIPT = [EMAIL, r"^\w+[\w.\-\]]{2,}?$", r"(?<n>a)|\p{L}*?|\/\u{41}\x41", "(?<!a)b(?:c)*", "a\nb", "[^[]+", ""]
FOREIGN = ["(?P<n>a)", "(?i)a", "(?i:a)", r"\Aa\z", r"a\-b", r"\@", "(?>a)", "a]", "a}", "a++", "^*", "a{,2}", r"\x4"]


def test_clients_get_no_pattern_of_a_result_that_is_no_javascript() -> None:
    schema = {"properties": {pattern: {"pattern": pattern} for pattern in [*JAVASCRIPT, *FOREIGN]}, "not": {"const": 5}}
    properties = without_foreign_patterns(schema)["properties"]
    assert [name for name, inner in properties.items() if inner] == JAVASCRIPT
    for repeated in ("[", "(", "\\d", "[a", "a{1", "{1}", "\\"):
        assert_linear(lambda size, text=repeated: without_foreign_patterns({"pattern": text * size}), 4000)


@pytest.mark.parametrize("pattern", ["(", "(?=(", "a{1000}{1000}", "(?=x)" * 1000])
def test_what_is_no_pattern_anywhere_or_is_too_large_is_refused_all_the_same(pattern: str) -> None:
    with pytest.raises(InvalidSchema):
        CompiledSchema({"pattern": pattern}, lenient=True)


def test_so_many_patterns_with_look_around_are_left_out_and_more_are_refused() -> None:
    def schema(count: int) -> dict[str, Any]:
        fields = {f"f{number}": {"type": "string", "pattern": f"^(?=x{number})"} for number in range(count)}
        return {"type": "object", "properties": fields}

    assert CompiledSchema(schema(MAX_UNCHECKED), lenient=True).accepts({"f1": "y"})
    with pytest.raises(InvalidSchema, match="look-around"):
        CompiledSchema(schema(MAX_UNCHECKED + 1), lenient=True)
