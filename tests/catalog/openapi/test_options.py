"""The options of an import: the depth of recursive schemas, and output schemas."""

from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator

from tests.catalog.openapi.documents import document, only, post
from tools_app.catalog.kinds.openapi.documents.operations import ParseOptions, parse
from tools_app.catalog.kinds.openapi.documents.reader import UnreadableDocument
from tools_app.catalog.kinds.openapi.documents.schemas import ANY_SCHEMA, MAX_DEFINITIONS_BYTES
from tools_app.protocol import schema_bounds

CUT = {"description": ANY_SCHEMA}


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def fields(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def input_of(depth: int, **named: Any) -> Any:
    body = fields(root=ref(next(iter(named))))
    data = orjson.dumps(document({"/a": post(body)}, components={"schemas": named}))
    schema = only(parse(data, ParseOptions(cycle_depth=depth))).definition["input_schema"]
    Draft202012Validator.check_schema(schema)
    return schema


def output_of(schema: Any, version: str = "3.1.0", *, method: str = "get", **named: Any) -> Any:
    response = {"description": "OK", "content": {"application/json": {"schema": schema}}}
    return output_with({"200": response}, version, method=method, **named)


def output_with(responses: Any, version: str = "3.1.0", *, method: str = "get", **more: Any) -> Any:
    named = more.pop("named", more)
    data = orjson.dumps(
        document({"/a": {method: {"responses": responses}}}, version, components={"schemas": named}, definitions=named)
    )
    schema = only(parse(data, ParseOptions(output_schemas=True))).definition["output_schema"]
    if schema is not None:
        Draft202012Validator.check_schema(schema)
    return schema


# --- Cycles ---


@pytest.mark.parametrize(("depth", "levels"), [(1, ["Node"]), (3, ["Node", "Node@2", "Node@3"])])
def test_a_schema_that_refers_to_itself_is_cut_at_the_depth(depth: int, levels: list[str]) -> None:
    defs = input_of(depth, Node=fields(next=ref("Node"), value={"type": "string"}))["$defs"]

    assert list(defs) == levels
    for at, name in enumerate(levels[1:]):
        assert defs[levels[at]]["properties"]["next"] == {"$ref": f"#/$defs/{name}"}
    assert defs[levels[-1]]["properties"] == {"next": CUT, "value": {"type": "string"}}


def test_a_cycle_through_others_is_cut_and_what_is_in_no_cycle_stays() -> None:
    named = {
        "A": fields(b=ref("B"), plain=ref("Plain")),
        "B": {"anyOf": [{"type": "array", "items": ref("A")}, {"type": "null"}]},
        "Plain": fields(leaf=ref("Leaf")),
        "Leaf": {"type": "string"},
    }
    defs = input_of(2, **named)["$defs"]

    assert set(defs) == {"A", "B@2", "Plain", "Leaf"}
    assert defs["B@2"]["anyOf"][0] == {"type": "array", "items": CUT}
    assert defs["Plain"]["properties"] == {"leaf": {"$ref": "#/$defs/Leaf"}}


def test_a_document_without_cycles_is_the_same_at_each_depth() -> None:
    named = {"A": fields(b=ref("B"), c=ref("B")), "B": fields(text={"enum": [{"$ref": "#/$defs/A"}]})}

    assert input_of(1, **named) == input_of(0, **named)


def test_many_cycles_together_are_cut_earlier_instead_of_becoming_too_large() -> None:
    names = [f"N{at}" for at in range(40)]
    schema = input_of(5, **{name: fields(**{one: ref(one) for one in names}) for name in names})

    schema_bounds.check(schema)
    assert "N0" in schema["$defs"]
    assert len(orjson.dumps(schema)) < MAX_DEFINITIONS_BYTES * 1.5


# --- Responses ---


@pytest.mark.parametrize("version", ["3.0.3", "3.1.1"])
def test_a_response_that_is_an_object_is_the_output_schema(version: str) -> None:
    book = {**fields(title={"type": "string"}, author=ref("Person")), "required": ["title"]}
    schema = output_of(ref("Book"), version, Book=book, Person=fields(name={"type": "string"}))

    assert schema["type"] == "object"
    assert schema["required"] == ["title"]
    assert schema["$defs"] == {"Person": fields(name={"type": "string"})}


def test_a_response_of_a_2_0_document_is_read_too() -> None:
    responses = {"200": {"description": "OK", "schema": {"$ref": "#/definitions/Book"}}, "404": {"description": "-"}}

    assert output_with(responses, "2.0", Book=fields(title={})) == fields(title={})


@pytest.mark.parametrize("schema", [{"type": "array", "items": {"type": "string"}}, {"type": ["string", "null"]}])
def test_any_other_value_is_the_result(schema: Any) -> None:
    assert output_of(schema) == {"type": "object", "properties": {"result": schema}, "required": ["result"]}


def test_what_can_only_be_written_is_not_required_of_a_response() -> None:
    book = {**fields(title={}, password={"type": "string", "writeOnly": True}), "required": ["title", "password"]}

    assert output_of(ref("Book"), Book=book)["required"] == ["title"]


@pytest.mark.parametrize(
    ("schema", "is_object"),
    [
        ({"allOf": [ref("Book"), {"required": ["title"]}]}, True),
        ({"oneOf": [ref("Book"), ref("Book")]}, True),
        ({"oneOf": [{"type": "array"}, {"type": "string"}]}, False),
        ({"oneOf": [ref("Book"), {"type": "string"}]}, None),
        ({**fields(), "nullable": True}, None),
        ({"type": ["object", "null"]}, None),
        ({}, None),
        (ref("None"), None),
        (ref("Loop"), None),
    ],
)
def test_a_schema_that_does_not_say_whether_it_is_an_object_is_left_out(schema: Any, is_object: bool | None) -> None:
    output_schema = output_of(schema, Book=fields(title={}), Loop={"$ref": "#/components/schemas/Loop"})

    assert (None if output_schema is None else "result" not in output_schema.get("properties", {})) is is_object


@pytest.mark.parametrize(
    "responses",
    [
        {},
        {"default": {"description": "-", "content": {"application/json": {"schema": fields()}}}},
        {"200": {"description": "-", "content": {"text/csv": {"schema": {"type": "string"}}}}},
        {
            "200": {"description": "-", "content": {"application/json": {"schema": fields()}}},
            "204": {"description": "-"},
        },
        {
            "200": {"description": "-", "content": {"application/json": {"schema": fields(a={})}}},
            "2XX": {"description": "-", "content": {"application/json": {"schema": fields(b={})}}},
        },
    ],
)
def test_without_one_schema_of_all_successes_there_is_none(responses: Any) -> None:
    assert output_with(responses) is None


def test_a_tool_of_head_has_none() -> None:
    assert output_of(fields(title={}), method="head") is None


def test_an_output_schema_costs_a_model_tokens() -> None:
    def cost(options: ParseOptions) -> int:
        response = {"description": "OK", "content": {"application/json": {"schema": fields(title={"type": "string"})}}}
        data = orjson.dumps(document({"/a": {"get": {"responses": {"200": response}}}}))
        return only(parse(data, options)).tokens

    assert cost(ParseOptions(output_schemas=True)) > cost(ParseOptions())


# --- Selected operations ---

SHELVES = {
    "/shelves": {"get": {"operationId": "shelves/list", "tags": ["shelf"]}, "post": {"operationId": "addShelf"}},
    "/shelves/{id}": {"delete": {"tags": ["shelf", "admin"]}},
    "/people": {"get": {"operationId": "people/list"}},
}
KEYS = ["GET /shelves", "POST /shelves", "DELETE /shelves/{id}", "GET /people"]


@pytest.mark.parametrize(
    ("selection", "keys"),
    [
        ([], KEYS),
        (["/shelves*"], KEYS[:3]),
        (["GET /*"], [KEYS[0], KEYS[3]]),
        (["tag:shelf"], [KEYS[0], KEYS[2]]),
        (["tag:adm*", "people/*"], KEYS[2:]),
        (["shelves_list", "delete_shelves_id"], [KEYS[0], KEYS[2]]),
        (["Shelves*"], []),
    ],
)
def test_only_selected_operations_are_read(selection: list[str], keys: list[str]) -> None:
    found = parse(orjson.dumps(document(SHELVES)), ParseOptions(selection=selection))

    assert [one.key for one in found.operations] == keys
    assert found.unselected == len(KEYS) - len(keys)


def test_the_number_of_operations_is_bounded_for_those_that_are_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools_app.catalog.kinds.openapi.documents.operations.MAX_OPERATIONS", 2)
    broken = {"/broken": {"get": {"parameters": [{"$ref": "#/nowhere"}]}}}
    data = orjson.dumps(document({**SHELVES, **broken}))

    with pytest.raises(UnreadableDocument, match="has 5 operations, of which 5 are selected"):
        parse(data)
    found = parse(data, ParseOptions(selection=["/people"]), kept=["POST /shelves"])
    assert ([one.key for one in found.operations], found.skipped) == (["POST /shelves", "GET /people"], [])
