"""Schemas that no value would match as they are written: fields of the other direction, subtypes, enumerations."""

from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator

from tests.catalog.openapi.documents import document, get, only, parsed, post
from tools_app.catalog.kinds.openapi.documents.operations import Operation, ParseOptions, parse

TEXT = {"type": "string"}


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def operation_of(body: Any, **named: Any) -> Operation:
    operation = only(parsed({"/a": post({"type": "array", "items": body})}, components={"schemas": named}))
    Draft202012Validator.check_schema(operation.definition["input_schema"])
    return operation


def accepts(operation: Operation, item: Any, *, whole: bool = False) -> bool:
    schema = operation.definition["input_schema"]
    return bool(Draft202012Validator(schema).is_valid({"body": item if whole else [item]}))


# --- Fields of requests and of responses ---

HIDDEN = {"type": "integer", "readOnly": True, "writeOnly": True}
WITH_ID = {"type": "object", "properties": {"id": HIDDEN, "a": TEXT}, "required": ["id", "a"]}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (WITH_ID, {"a": "x"}),
        ({**WITH_ID, "additionalProperties": False}, {"a": "x"}),
        ({"properties": {"in": ref("WithId")}, "required": ["in"]}, {"in": {"a": "x"}}),
        ({"type": "array", "items": ref("WithId")}, [{"a": "x"}]),
        ({"anyOf": [{"type": "null"}, {"oneOf": [WITH_ID]}]}, {"a": "x"}),
        ({"allOf": [{"properties": {"id": HIDDEN}}, {"required": ["id"]}]}, {}),
        ({"allOf": [ref("WithId"), {"required": ["id", "b"]}]}, {"a": "x", "b": 1}),
        ({"allOf": [ref("Required"), {"properties": {"id": HIDDEN}}]}, {}),
        ({"oneOf": [{"properties": {"id": HIDDEN}}, {"properties": {"name": TEXT}}], "required": ["id"]}, {}),
        ({"properties": {"id": ref("Hidden")}, "required": ["id"]}, {}),
        ({"properties": {"id": {"allOf": [ref("Hidden")]}}, "required": ["id"]}, {}),
        ({"additionalProperties": ref("WithId")}, {"x": {"a": "x"}}),
    ],
)
def test_what_only_the_other_side_writes_is_neither_required_nor_offered_at_any_depth(schema: Any, value: Any) -> None:
    named = {"WithId": WITH_ID, "Hidden": HIDDEN, "Required": {"type": "object", "required": ["id"]}}
    operation = operation_of(schema, **named)
    assert accepts(operation, value)
    assert '"id":{"' not in orjson.dumps(operation.definition["input_schema"]).decode()

    response = {"description": "OK", "content": {"application/json": {"schema": {"type": "array", "items": schema}}}}
    data = orjson.dumps(document({"/a": get(responses={"200": response})}, components={"schemas": named}))
    output_schema = only(parse(data, ParseOptions(output_schemas=True))).definition["output_schema"]
    assert Draft202012Validator(output_schema).is_valid({"result": [value]})
    assert '"id":{"' not in orjson.dumps(output_schema).decode()


# --- Subtypes ---

PET = {
    "type": "object",
    "properties": {"kind": TEXT},
    "required": ["kind"],
    "additionalProperties": False,
    "discriminator": {"propertyName": "kind"},
}
CAT = {"allOf": [ref("Pet"), {"properties": {"claws": {"type": "integer"}}, "additionalProperties": False}]}
LION = {"allOf": [ref("Cat"), {"properties": {"mane": TEXT}}]}
PETS = {"Pet": PET, "Cat": CAT, "Lion": LION, "Plain": {"allOf": [ref("Pet")]}}


def test_a_base_type_accepts_and_describes_its_subtypes() -> None:
    operation = operation_of(ref("Pet"), **PETS)

    for pet in ({"kind": "Cat", "claws": 4}, {"kind": "Lion", "claws": 4, "mane": "x"}, {"kind": "Plain"}):
        assert accepts(operation, pet)
    assert not accepts(operation, {"claws": 4})
    alternatives = operation.definition["input_schema"]["$defs"]["Pet"]["anyOf"]
    assert alternatives[0] == {"$ref": "#/$defs/Cat.part", "properties": {"kind": {"const": "Cat"}}}


@pytest.mark.parametrize(
    ("schema", "pet"),
    [
        (ref("Pet"), {"kind": "Cat", "claws": 4}),
        ({"allOf": [ref("Pet")], "description": "A pet."}, {"kind": "Cat", "claws": 4}),
        ({"properties": {"pet": {"allOf": [ref("Pet")]}}}, {"pet": {"kind": "Cat", "claws": 4}}),
        (ref("Lion"), {"kind": "Lion", "claws": 4, "mane": "x"}),
        (
            {"allOf": [{"properties": {"a": TEXT}, "additionalProperties": False}, {"required": ["b"]}]},
            {"a": "", "b": 1},
        ),
        (
            {"properties": {"a": TEXT}, "oneOf": [{"properties": {"b": TEXT}, "additionalProperties": False}]},
            {"a": "", "b": ""},
        ),
        ({"additionalProperties": False, "anyOf": [{"properties": {"b": TEXT}}]}, {"b": ""}),
        ({"properties": {}, "required": ["b"], "additionalProperties": False}, {"b": 1}),
    ],
)
def test_schemas_of_one_value_do_not_refuse_the_fields_of_each_other(schema: Any, pet: Any) -> None:
    assert accepts(operation_of(schema, **PETS), pet)


def test_a_body_of_a_base_type_is_one_argument_that_accepts_the_subtypes() -> None:
    mapped = {**PET, "discriminator": {"propertyName": "kind", "mapping": {"dog": "Dog", "pet": ref("Pet")["$ref"]}}}
    dog = {"type": "object", "properties": {"kind": TEXT, "tail": TEXT}, "additionalProperties": False}
    many = {f"Kind{n}": {"allOf": [ref("Pet"), {"properties": {f"p{n}": TEXT}}]} for n in range(40)}
    for named in ({"Pet": mapped, "Dog": dog}, {"Pet": PET, **many}):
        operation = only(parsed({"/a": post(ref("Pet"))}, components={"schemas": named}))
        assert accepts(operation, {"kind": "dog", "tail": "x"}, whole=True)

    old = {"type": "object", "properties": {"kind": TEXT}, "discriminator": "kind", "additionalProperties": False}
    child = {"allOf": [{"$ref": "#/definitions/Pet"}, {"properties": {"claws": TEXT}}]}
    item = {"post": {"parameters": [{"in": "body", "name": "b", "schema": {"$ref": "#/definitions/Pet"}}]}}
    operation = only(parsed({"/a": item}, "2.0", definitions={"Pet": old, "Cat": child}))
    assert accepts(operation, {"kind": "Cat", "claws": "x"}, whole=True)


# --- Values that cannot be sent ---


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "string", "enum": [1, 2.5, True]}, {"type": "string", "enum": ["1", "2.5", "true"]}),
        ({"type": "string", "enum": ["a", 1, None]}, {"type": "string", "enum": ["a", "1", None]}),
        ({"type": "integer", "enum": ["1", "2"], "default": "1"}, {"type": "integer", "enum": [1, 2], "default": 1}),
        ({"type": "number", "enum": ["1.5", 2]}, {"type": "number", "enum": [1.5, 2]}),
        ({"type": "integer", "enum": ["low", "high"]}, {"enum": ["low", "high"]}),
        ({"type": "boolean", "enum": ["true", "false"]}, {"type": "boolean", "enum": [True, False]}),
        ({"type": "object", "enum": ["a"]}, {"enum": ["a"]}),
        ({"type": "array", "enum": ["a", "b"]}, {"type": "array", "items": {"enum": ["a", "b"]}}),
        (
            {"type": "array", "items": {"type": "string"}, "enum": [1]},
            {"type": "array", "items": {"type": "string", "enum": ["1"]}},
        ),
        (
            {"type": "array", "items": {"type": "string"}, "enum": [["a"]]},
            {"type": "array", "items": {"type": "string"}, "enum": [["a"]]},
        ),
        ({"type": "string", "const": 5}, {"type": "string", "const": "5"}),
        ({"type": "string", "pattern": "/^[a-z]+$/"}, {"type": "string", "pattern": "^[a-z]+$"}),
        ({"type": "string", "pattern": "/^[a-z]+$/i"}, {"type": "string"}),
        ({"type": "string", "pattern": "/a/"}, {"type": "string", "pattern": "/a/"}),
        ({"type": "string", "pattern": "^a$\n"}, {"type": "string", "pattern": "^a$"}),
        ({"type": "string", "minLength": 5, "maxLength": 2}, {"type": "string"}),
    ],
)
def test_values_that_could_never_be_sent_are_repaired(old: Any, new: Any) -> None:
    operation = only(parsed({"/a": get({"in": "query", "name": "x", "schema": old})}))

    assert operation.definition["input_schema"]["properties"]["x"] == new
    assert bool(operation.notes) == (old != new)


def test_a_repair_is_noted_with_its_place_also_in_definitions() -> None:
    operation = operation_of(ref("Level"), Level={"type": "string", "enum": [1, 2]})

    assert operation.notes == ["#/components/schemas/Level: The values were given the type string."]


@pytest.mark.parametrize(
    ("pattern", "kept"), [("[\\u0000-\\u007F]*", "[\\u0000-\\u007F]*"), ("^[^\x00]$", "^[^\\x00]$")]
)
def test_an_escape_in_a_pattern_is_no_nul_character(pattern: str, kept: str) -> None:
    operation = only(
        parsed({"/a": get({"in": "query", "name": "x", "schema": {"type": "string", "pattern": pattern}})})
    )

    assert operation.definition["input_schema"]["properties"]["x"]["pattern"] == kept


def test_a_nul_character_in_a_text_is_replaced_and_one_in_a_value_is_told() -> None:
    item = get({"in": "query", "name": "x", "description": "a\x00b"}, summary="c\x00")
    found = parsed({"/a": item, "/b": get({"in": "query", "name": "x", "schema": {"enum": ["\x00"]}})})

    [operation] = found.operations
    assert operation.definition["input_schema"]["properties"]["x"]["description"] == "a�b"
    assert "U+0000" in found.skipped[0].reason


def test_patterns_that_are_too_large_together_are_left_out() -> None:
    fields = {f"p{n}": {"type": "string", "pattern": f"^[\\w]{{1,{n + 1}}}$"} for n in range(501)}
    item = {"/a": {**post({"type": "array", "items": {"properties": {**fields, "pattern": TEXT}}})}}

    operation = only(parsed(item))

    items = operation.definition["input_schema"]["properties"]["body"]["items"]
    assert (items["properties"]["p1"], items["properties"]["pattern"]) == (TEXT, TEXT)
    assert "too large together" in operation.notes[0]
