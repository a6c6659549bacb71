"""Parsing of documents: tools with names, input schemas and annotations, and the skipped operations."""

from itertools import permutations
from typing import Any

import orjson
import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.catalog.openapi.documents import OK, document, get, only, parsed, post, request
from tests.linear import assert_linear
from tools_app.catalog.kinds.openapi.documents.document import Document
from tools_app.catalog.kinds.openapi.documents.operations import parse
from tools_app.catalog.kinds.openapi.documents.reader import MAX_ALIASES, UnreadableDocument, read
from tools_app.catalog.kinds.openapi.documents.schemas import Schemas


def schema_of(paths: dict[str, Any], version: str = "3.1.0", **more: Any) -> Any:
    schema = only(parsed(paths, version, **more)).definition["input_schema"]
    Draft202012Validator.check_schema(schema)
    return schema


def schemas(**named: Any) -> dict[str, Any]:
    return {"components": {"schemas": named}}


# --- Documents ---


@pytest.mark.parametrize("version", ["2.0", "3.0.3", "3.1.1", "3.2.0"])
def test_every_version_from_2_0_to_3_2_is_read(version: str) -> None:
    assert only(parsed({"/a": get()}, version)).key == "GET /a"


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b"hello", b'{"openapi": "4.0.0"}', b'{"swagger": "1.2"}', b"{", b"a: [", b"\xff\xfe{}"]
)
def test_what_is_no_document_is_refused(text: bytes) -> None:
    with pytest.raises(UnreadableDocument):
        parse(text)


def test_yaml_is_read_as_json_would_be() -> None:
    text = b"""
openapi: 3.0.0
info: {title: Dates, version: 1.10}
paths:
  /a:
    get:
      operationId: on
      parameters:
        - {name: day, in: query, schema: {type: string, enum: [2020-01-01, 12:30:00, no, on, yes, off]}}
      responses:
        200: {description: OK}
        404: {description: Not found}
"""
    found = parse(text)

    operation = only(found)
    assert (operation.name, found.version) == ("on", "1.1")
    values = operation.definition["input_schema"]["properties"]["day"]["enum"]
    assert values == ["2020-01-01", "12:30:00", "no", "on", "yes", "off"]


def test_aliases_are_followed_until_they_grow_too_large() -> None:
    assert read(b"a: &one {b: 1}\nc: *one\n") == {"a": {"b": 1}, "c": {"b": 1}}
    laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
    )
    for text in (laughs, "a: &a [*a]\n", "a: &a 1\nb: [" + ", ".join(["*a"] * (MAX_ALIASES + 1)) + "]\n"):
        with pytest.raises(UnreadableDocument):
            read(text.encode())


# --- Names ---


def test_names_have_at_most_48_characters_with_the_number_of_a_collision() -> None:
    long = "a" * 70
    paths = {f"/{n}": {"get": {"operationId": long + str(n), **OK}} for n in range(12)}

    names = [operation.name for operation in parsed(paths).operations]

    assert len(set(names)) == 12
    assert max(map(len, names)) == 48
    assert names[1] == "a" * 46 + "_2"
    assert names[11] == "a" * 45 + "_12"


def test_a_name_comes_from_the_id_or_from_method_and_path() -> None:
    paths = {"/a": {"get": {"operationId": "repos/get.it", **OK}, "delete": OK}, "/a/{id}/b": {"post": OK}}

    assert [one.name for one in parsed(paths).operations] == ["repos_get_it", "delete_a", "post_a_id_b"]


def test_an_operation_that_is_skipped_takes_no_name() -> None:
    paths = {"/a": get({"$ref": "#/nowhere"}), "/b": get()}

    assert [one.name for one in parsed(paths).operations] == ["read"]


# --- Problems ---


@pytest.mark.parametrize(
    ("item", "pointer", "reason"),
    [
        (get({"$ref": "#/components/parameters/none"}), "#/paths/~1a/get/parameters/0", "is not in the document"),
        (get({"$ref": "other.yaml#/a"}), "#/paths/~1a/get/parameters/0", "is in another document"),
        (get({"in": "query"}), "#/paths/~1a/get/parameters/0", "needs a name"),
        (get({"in": "moon", "name": "x"}), "#/paths/~1a/get/parameters/0/in", "no place"),
        (get({"in": "query", "name": "x", "style": "wild"}), "#/paths/~1a/get/parameters/0/style", "cannot be used"),
        (post({"$ref": "#/components/schemas/None"}), "#/paths/~1a/post/requestBody/content", "is not in"),
        ({"get": "nothing"}, "#/paths/~1a/get", "object is expected"),
        ({"trace": OK}, "#/paths/~1a/trace", "TRACE"),
        ("nothing", "#/paths/~1a", "object is expected"),
    ],
)  # fmt: skip
def test_a_broken_operation_is_skipped_with_its_place_and_the_others_stay(item: Any, pointer: str, reason: str) -> None:
    found = parsed({"/a": item, "/b": get()})

    [skipped] = found.skipped
    assert skipped.pointer.startswith(pointer)
    assert reason in skipped.reason
    assert [operation.path for operation in found.operations] == ["/b"]


def test_references_in_a_circle_are_a_problem_of_their_operation_only() -> None:
    looping = {"parameters": {"a": {"$ref": "#/components/parameters/b"}, "b": {"$ref": "#/components/parameters/a"}}}
    found = parsed({"/a": get({"$ref": "#/components/parameters/a"}), "/b": get()}, components=looping)

    assert [one.reason for one in found.skipped] == ["The reference leads to itself."]


# --- Schemas ---


def test_a_cycle_stays_a_reference() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}, "value": {}}}
    schema = schema_of({"/a": post({"$ref": "#/components/schemas/Node"})}, **schemas(Node=node))

    assert schema["properties"]["next"] == {"$ref": "#/$defs/Node"}
    assert schema["$defs"]["Node"]["properties"]["next"] == {"$ref": "#/$defs/Node"}


def test_only_the_definitions_that_are_reached_are_included() -> None:
    named = schemas(A={"properties": {"b": {"$ref": "#/components/schemas/B"}}}, B={"type": "string"}, C={})
    schema = schema_of({"/a": post({"type": "array", "items": {"$ref": "#/components/schemas/A"}})}, **named)

    assert schema["$defs"].keys() == {"A", "B"}


def test_definitions_that_are_too_large_together_accept_anything() -> None:
    wide = {f"W{n}": {"properties": {f"p{i}": {"description": "x" * 1900} for i in range(20)}} for n in range(8)}
    refs = {"properties": {name: {"$ref": f"#/components/schemas/{name}"} for name in wide}}
    schema = schema_of({"/a": post({"type": "array", "items": refs})}, **schemas(**wide))

    assert len(orjson.dumps(schema)) < 240 * 1024
    assert set(schema["$defs"]["W7"]) == {"description"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "string", "enum": []}, {"type": "string"}),
        ({"type": "int"}, {"type": "integer"}),
        ({"type": "unknown"}, {}),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, {"type": "number", "exclusiveMinimum": 1}),
        ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"type": "string", "required": True, "minLength": "1", "example": "x", "x-y": 1}, {"type": "string"}),
        ({"type": "string", "pattern": "(?=a)b"}, {"type": "string"}),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, {"anyOf": [{"type": "number"}, {"type": "integer"}]}),
        ({"type": "array", "items": [{"type": "string"}]}, {"type": "array", "prefixItems": [{"type": "string"}]}),
        ("nothing", {}),
    ],
)
def test_what_is_no_json_schema_is_mended(old: Any, new: Any) -> None:
    schema = schema_of({"/a": get({"in": "query", "name": "x", "schema": old})}, "3.0.0")

    assert schema["properties"]["x"] == new


@pytest.mark.parametrize("number", [7.92e28, 1e16, -1e16, 2**64, -(2**63) - 1])
def test_numbers_that_a_database_would_change_are_left_out(number: float) -> None:
    expected = {"minimum": 2**63, "default": 1.5}
    for schema in ({"maximum": number}, {"enum": [1, number]}, {"const": number}, {"default": {"a": [number]}}):
        text = yaml.safe_dump(document({"/a": get({"name": "n", "in": "query", "schema": expected | schema})}))
        compiled = only(parse(text.encode())).definition["input_schema"]["properties"]["n"]
        assert compiled == {name: value for name, value in expected.items() if name not in schema}


def test_the_properties_of_a_plain_body_are_arguments_and_clashes_are_settled() -> None:
    item = {
        "parameters": [{"in": "path", "name": "id", "required": True, "schema": {"type": "string"}}],
        **post({"type": "object", "properties": {"id": {"type": "integer"}, "name": {}}, "required": ["id"]}),
    }
    item["post"]["parameters"] = [{"in": "query", "name": "id"}, {"in": "header", "name": "id"}]
    operation = only(parsed({"/a/{id}": item}))

    schema = operation.definition["input_schema"]
    assert list(schema["properties"]) == ["id", "id_query", "id_header", "id_body", "name"]
    assert schema["required"] == ["id", "id_body"]
    outbound = request(operation, {"id": "p", "id_query": "q", "id_header": "h", "id_body": 5})
    assert (str(outbound.url), outbound.body) == ("https://api.example.com/v1/a/p?id=q", b'{"id":5}')
    assert ("id", "h") in outbound.headers


def test_objects_in_all_of_are_merged_and_other_bodies_are_one_argument() -> None:
    part = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    merged = schema_of(
        {"/a": post({"allOf": [{"$ref": "#/components/schemas/P"}, {"properties": {"b": {}}}]})}, **schemas(P=part)
    )
    whole = schema_of({"/a": post({"anyOf": [{"type": "string"}, part]})})
    free = schema_of({"/a": post({"type": "object", "additionalProperties": True})})

    assert (list(merged["properties"]), merged["required"]) == (["a", "b"], ["a"])
    assert list(whole["properties"]) == list(free["properties"]) == ["body"]


def test_a_body_of_too_many_properties_is_one_argument() -> None:
    wide = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(501)}}

    assert list(schema_of({"/a": post(wide)})["properties"]) == ["body"]


def repeated(levels: int) -> dict[str, Any]:
    """Schemas that each merge the next one six times."""
    named = {f"s{n}": {"allOf": [{"$ref": f"#/components/schemas/s{n + 1}"}] * 6} for n in range(levels)}
    return schemas(**named, **{f"s{levels}": {"type": "object", "properties": {"x": {}}}})


def test_a_body_of_too_many_parts_is_one_argument() -> None:
    first = {"$ref": "#/components/schemas/s0"}
    assert "x" in schema_of({"/a": post(first)}, **repeated(3))["properties"]
    assert list(schema_of({"/a": post(first)}, **repeated(4))["properties"]) == ["body"]


def test_a_document_that_needs_too_much_work_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools_app.catalog.kinds.openapi.documents.document.MAX_STEPS", 5000)
    paths = {f"/a{n}": post({"$ref": "#/components/schemas/s0"}) for n in range(10)}
    with pytest.raises(UnreadableDocument, match="too entangled"):
        parsed(paths, **repeated(8))


def test_a_document_whose_operations_are_too_large_together_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools_app.catalog.kinds.openapi.documents.operations.MAX_PARSED_BYTES", 1000)
    with pytest.raises(UnreadableDocument, match="operations are larger"):
        parsed({f"/a{n}": get() for n in range(10)})


def test_schemas_with_the_same_last_segment_are_told_apart() -> None:
    named = {f"d{n}": {"Same": {"const": n}} for n in range(3)}
    body = {"anyOf": [{"$ref": f"#/x-named/d{n}/Same"} for n in range(3)]}
    found = schema_of({"/a": post(body)}, **{"x-named": named})["$defs"]
    assert {name: one["const"] for name, one in found.items()} == {"Same": 0, "Same_2": 1, "Same_3": 2}


def test_names_of_arguments_are_those_that_models_accept() -> None:
    operation = only(parsed({"/a": get({"in": "query", "name": "filter[a b]"}, {"in": "query", "name": "x" * 80})}))

    assert list(operation.definition["input_schema"]["properties"]) == ["filter_a_b", "x" * 64]
    assert request(operation, {"filter_a_b": "1"}).url.query == "filter%5Ba%20b%5D=1"


def test_properties_that_only_the_service_writes_are_left_out() -> None:
    body = {"type": "object", "properties": {"id": {"readOnly": True}, "a": {}}, "required": ["id", "a"]}

    assert schema_of({"/a": post(body)})["required"] == ["a"]


@pytest.mark.parametrize("order", list(permutations("ABC")))
def test_what_schemas_that_combine_each_other_hide_does_not_depend_on_the_order_of_operations(
    order: tuple[str, ...],
) -> None:
    # Each hides a property of its own, and requires those of all.
    ring = {
        name: {
            "allOf": [{"$ref": f"#/components/schemas/{other}"}],
            "properties": {f"of_{name}": {"readOnly": True}},
            "required": ["of_A", "of_B", "of_C", "kept"],
        }
        for name, other in zip("ABC", "BCA", strict=True)
    }
    uses = {f"/{name}": post({"items": {"$ref": f"#/components/schemas/{name}"}}) for name in order}
    found = parsed(uses, **schemas(**ring)).operations

    definitions = [one for operation in found for one in operation.definition["input_schema"]["$defs"].values()]
    assert len(found) == 3
    assert [(one["required"], "properties" in one) for one in definitions] == [(["kept"], False)] * len(definitions)


def test_what_a_long_ring_of_schemas_hides_is_found_in_linear_time() -> None:
    def convert(length: int) -> list[Any]:
        references = [{"$ref": f"#/components/schemas/S{n}"} for n in range(length)]
        ring = {
            f"S{n}": {"allOf": [following], "properties": {"id": {"readOnly": True}} if n == 0 else {}}
            for n, following in enumerate([*references[1:], references[0]])
        }
        found = Schemas(Document(document({}, **schemas(**ring))))
        parts = ({"allOf": [reference], "required": ["id"]} for reference in references)
        return [found.convert(part, "#").schema for part in parts]

    assert not any("required" in one for one in convert(50))
    assert_linear(convert, 500)


def test_variables_of_a_path_that_are_not_declared_are_strings() -> None:
    schema = schema_of({"/a/{id}": get()})

    assert (schema["properties"], schema["required"]) == ({"id": {"type": "string"}}, ["id"])


# --- Version 2.0 ---


def test_form_data_and_collections_of_2_0_are_lowered() -> None:
    operation = {
        "operationId": "send",
        "consumes": ["application/x-www-form-urlencoded"],
        "parameters": [
            {"in": "query", "name": "ids", "type": "array", "items": {"type": "integer"}, "collectionFormat": "pipes"},
            {"in": "formData", "name": "text", "type": "string", "required": True},
            {"in": "formData", "name": "tags", "type": "array", "items": {"type": "string"}, "collectionFormat": "csv"},
        ],
        **OK,
    }
    found = only(parsed({"/a": {"post": operation}}, "2.0"))

    assert found.definition["input_schema"]["required"] == ["text"]
    outbound = request(found, {"ids": [1, 2], "text": "a b", "tags": ["x", "y"]})
    assert (outbound.url.query, outbound.body) == ("ids=1%7C2", b"text=a%20b&tags=x,y")


def test_a_file_of_2_0_is_sent_as_multipart() -> None:
    operation = {"parameters": [{"in": "formData", "name": "f", "type": "file", "required": True}], **OK}
    found = only(parsed({"/a": {"post": operation}}, "2.0"))

    assert found.definition["config"]["body"]["mode"] == "multipart"
    assert found.definition["input_schema"]["properties"]["f"]["oneOf"] == [
        {"required": ["data"]},
        {"required": ["resource"]},
    ]


def test_servers_and_credentials_of_2_0() -> None:
    more = {
        "host": "example.com",
        "basePath": "/v2",
        "schemes": ["http", "https"],
        "securityDefinitions": {
            "basic": {"type": "basic"},
            "key": {"type": "apiKey", "in": "query", "name": "k"},
            "login": {"type": "oauth2"},
        },
        "security": [{"basic": []}, {"key": [], "login": []}],
    }
    found = parsed({"/a": get()}, "2.0", **more)

    assert [server["url"] for server in found.servers] == ["https://example.com/v2", "http://example.com/v2"]
    assert found.schemes == {
        "basic": {"kind": "basic", "name": "Authorization"},
        "key": {"kind": "query", "name": "k"},
        "login": {"kind": "bearer", "name": "Authorization"},
    }
    assert only(found).definition["config"]["security"] == [["basic"], ["key", "login"]]


# --- The rest of a definition ---


def test_annotations_come_from_the_method() -> None:
    paths = {"/a": dict.fromkeys(("get", "post", "put", "delete"), OK)}
    hints = {one.method: one.definition["annotations"] for one in parsed(paths).operations}

    assert hints["GET"]["readOnlyHint"] is True
    assert hints["DELETE"]["destructiveHint"] is True
    assert "destructiveHint" not in hints["POST"]


def test_methods_of_3_2_are_operations() -> None:
    item = {"query": OK, "additionalOperations": {"LINK": OK}}

    assert [one.method for one in parsed({"/a": item}, "3.2.0").operations] == ["QUERY", "LINK"]


def test_a_fragment_tells_operations_apart_and_is_not_sent() -> None:
    operation = only(parsed({"/a#second": get()}))

    assert (operation.key, request(operation, {}).url.path) == ("GET /a#second", "/v1/a")


def test_the_same_document_makes_the_same_operations() -> None:
    text = orjson.dumps(document({"/a": get(), "/b": get(), "/c": post({"properties": {"a": {}}})}))

    assert parse(text) == parse(text)
