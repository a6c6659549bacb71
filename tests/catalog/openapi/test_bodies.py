"""Bodies that are no JSON: what a tool takes for them, and what is sent."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.catalog.openapi.documents import OK, only, parsed, post, request
from tools_app.catalog.kinds.openapi.documents.operations import Operation

ITEM = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
BYTES = {"type": "string", "format": "binary"}
ROLE = {
    "type": "object",
    "required": ["Arn"],
    "properties": {
        "Note": {"type": "string", "xml": {"attribute": True}},
        "Arn": {"type": "string"},
        "Tags": {"type": "array", "items": {"type": "string", "xml": {"name": "Tag"}}, "xml": {"wrapped": True}},
        "Created": {"type": "string", "readOnly": True},
    },
    "xml": {"namespace": "https://roles.example/"},
}
ROLE_XML = '<Role Note="string" xmlns="https://roles.example/"><Arn>string</Arn><Tags><Tag>string</Tag></Tags></Role>'


def operation_of(media_type: str, media: Any, version: str = "3.1.0") -> Operation:
    body = {"required": True, "content": {media_type: media}}
    schemas = {"schemas": {"Role": ROLE, "Item": ITEM}}
    return only(parsed({"/a": {"post": {"requestBody": body, **OK}}}, version, components=schemas))


def ref(name: str, **beside: Any) -> dict[str, Any]:
    return {"schema": {"$ref": f"#/components/schemas/{name}", **beside}}


@pytest.mark.parametrize(
    ("media_type", "media", "value", "sent"),
    [
        # XML is a text.
        ("text/xml", ref("Role"), "<Role/>", b"<Role/>"),
        ("application/xml", ref("Role", type="string"), "<Role/>", b"<Role/>"),
        ("application/soap+xml", {"schema": {"type": "object"}}, "<a/>", b"<a/>"),
        ("application/xml", {}, "<a/>", b"<a/>"),
        # JSON values one after another are a list, or a text.
        (
            "application/x-ndjson",
            {"schema": {"type": "array", "items": ITEM}},
            [{"id": 1}, {"id": 2}],
            b'{"id":1}\n{"id":2}\n',
        ),
        ("application/jsonl", {"itemSchema": ITEM}, [{"id": 1}], b'{"id":1}\n'),
        ("application/x-ndjson", ref("Item"), '{"id":1}', b'{"id":1}\n'),
        ("application/x-ndjson", {"schema": {"type": "string"}}, [{"a": 1}], b'{"a":1}\n'),
        ("application/json-seq", {}, [1, "a"], b'\x1e1\n\x1e"a"\n'),
        # Texts are sent as they are, with a schema or without.
        ("text/plain", {}, "5 > 4", b"5 > 4"),
        ("text/csv", {"schema": {}}, "a,b", b"a,b"),
        ("text/plain", {"schema": {"type": "integer"}}, "5", b"5"),
        ("text/*", {}, "a", b"a"),
        ("message/rfc822", ref("Item"), "Subject: a", b"Subject: a"),
        ("application/x-www-form-urlencoded", {"schema": {"type": "string"}}, "a=1&b=%20", b"a=1&b=%20"),
        ("application/yaml", ref("Item"), "id: 5", b"id: 5"),
        ("application/yaml", ref("Item"), {"id": 5}, b'{"id":5}'),
        # Bytes are base64.
        ("application/octet-stream", {}, "AAEC", b"\x00\x01\x02"),
        ("application/octet-stream", {"schema": {"type": "object", "format": "file"}}, "AAEC", b"\x00\x01\x02"),
        ("application/x-unknown", {"schema": {"type": "file"}}, "AAEC", b"\x00\x01\x02"),
        ("image/png", {"schema": {"type": "string"}}, "AAEC", b"\x00\x01\x02"),
        ("*/*", {"schema": BYTES}, "AAEC", b"\x00\x01\x02"),
        ("application/octet-stream", ref("Item"), "AAEC", b"\x00\x01\x02"),
        ("application/octet-stream", ref("Item"), {"id": 5}, b'{"id":5}'),
        # What is no media type is taken for JSON.
        ("applicationjson; version=1", {"schema": {"type": "array"}}, [1], b"[1]"),
    ],
)
def test_a_body_is_given_by_its_schema_and_sent_with_its_content_type(
    media_type: str, media: Any, value: Any, sent: bytes
) -> None:
    operation = operation_of(media_type, media)
    schema = operation.definition["input_schema"]
    Draft202012Validator.check_schema(schema)

    Draft202012Validator(schema).validate({"body": value})
    outbound = request(operation, {"body": value})

    assert outbound.body == sent
    expected = {"*/*": "application/octet-stream", "text/*": "text/plain"}.get(media_type, media_type)
    assert dict(outbound.headers)["Content-Type"] == expected.replace("applicationjson; version=1", "application/json")


def test_the_argument_for_xml_shows_its_elements() -> None:
    [argument] = operation_of("text/xml", ref("Role")).definition["input_schema"]["properties"].values()

    assert argument == {"type": "string", "description": f"XML, such as {ROLE_XML}\nSent as text/xml."}


def test_an_xml_example_follows_combined_schemas_and_leaves_out_a_root_without_a_name() -> None:
    tags = {"allOf": [{"type": "array", "items": {"type": "object", "properties": {"Key": {"type": "string"}}}}, {}]}
    inline = {"type": "object", "properties": {"Tagging": {"allOf": [{"properties": {"Tag": tags}}]}}}

    [argument] = only(parsed({"/a": post(inline, "text/xml")})).definition["input_schema"]["properties"].values()

    assert argument["description"] == "XML, such as <Tagging><Tag><Key>string</Key></Tag></Tagging>\nSent as text/xml."


def test_an_xml_example_of_a_schema_that_contains_itself_ends() -> None:
    node = {"type": "object", "properties": {f"Child{n}": {"$ref": "#/components/schemas/Node"} for n in range(5)}}
    item = {"/a": post({"$ref": "#/components/schemas/Node"}, "text/xml")}

    [argument] = (
        only(parsed(item, components={"schemas": {"Node": node}})).definition["input_schema"]["properties"].values()
    )

    assert "…" in argument["description"]
    assert len(argument["description"]) < 4000


@pytest.mark.parametrize(
    ("schema", "arguments", "names"),
    [
        (BYTES, {"file": {"data": "AAEC"}}, [b'name="file"; filename="file"']),
        ({"type": "string", "format": "file"}, {"file": {"data": "AAEC"}}, [b'name="file"; filename="file"']),
        ({"type": "array", "items": BYTES}, {"file": [{"data": "AA=="}, {"data": "AA=="}]}, [b'name="file"'] * 2),
        (
            {"type": "object", "properties": {"f": {"type": "string", "format": "file"}}},
            {"f": {"data": "AA=="}},
            [b'"f"; filename'],
        ),
        (
            {"oneOf": [{"properties": {"f": BYTES}, "required": ["f"]}, {"properties": {"url": {"type": "string"}}}]},
            {"f": {"data": "AA=="}},
            [b'"f"; filename'],
        ),
        ({}, {"body": {"a": {"data": "AA==", "filename": "x"}, "b": "c"}}, [b'"a"; filename="x"', b'"b"\r\n\r\nc']),
    ],
)
def test_files_in_multipart_bodies_whose_schema_names_no_field(
    schema: Any, arguments: dict[str, Any], names: list[bytes]
) -> None:
    operation = only(parsed({"/a": post(schema, "multipart/form-data")}))
    Draft202012Validator(operation.definition["input_schema"]).validate(arguments)

    parts = (request(operation, arguments).body or b"").split(b"\r\n--")

    assert len(parts) == len(names) + 1
    assert all(name in part for name, part in zip(names, parts, strict=False))


def test_other_multipart_bodies_keep_their_media_type_and_messages_are_preferred_to_other_texts() -> None:
    related = only(parsed({"/a": post({"properties": {"a": {"type": "object"}}}, "multipart/related")}))
    assert dict(request(related, {"a": {}}).headers)["Content-Type"].startswith("multipart/related; boundary=")

    content = {kind: {"schema": {"type": "object"}} for kind in ("message/cpim", "message/rfc822")}
    mail = only(parsed({"/a": {"post": {"requestBody": {"content": content}, **OK}}}))
    assert mail.definition["config"]["body"]["media_type"] == "message/rfc822"
