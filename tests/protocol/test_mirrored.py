"""Parameters mirrored in headers: declarations in schemas, and comparison with headers."""

from typing import Any

import pytest

from tools_app.protocol.mirrored import InvalidMirror, Mirrored, check, mirrored

REGION = {"type": "string", "x-mcp-header": "Region"}


def objects(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ({}, ()),
        (objects(), ()),
        (objects(a={"type": "string"}), ()),
        (objects(a=REGION), (Mirrored(("a",), "mcp-param-region"),)),
        (objects(a=objects(b=objects(c=REGION))), (Mirrored(("a", "b", "c"), "mcp-param-region"),)),
        (
            objects(a=REGION, n={"type": "integer", "x-mcp-header": "N"}, b={"type": "boolean", "x-mcp-header": "!#$"}),
            (Mirrored(("a",), "mcp-param-region"), Mirrored(("n",), "mcp-param-n"), Mirrored(("b",), "mcp-param-!#$")),
        ),
        ({"properties": {"x-mcp-header": {"type": "string"}}}, ()),
        (objects(**{"x-mcp-header": REGION}), (Mirrored(("x-mcp-header",), "mcp-param-region"),)),
        (objects(properties=objects(items=REGION)), (Mirrored(("properties", "items"), "mcp-param-region"),)),
        (objects(a={"const": {"x-mcp-header": "data"}}), ()),
        (objects(a={"enum": [{"x-mcp-header": "data"}], "default": {"x-mcp-header": 5}}), ()),
        (objects(a={"examples": [{"x-mcp-header": ""}]}), ()),
        ({"$defs": {"x-mcp-header": {"type": "string"}}}, ()),
        ({"properties": ["x-mcp-header"]}, ()),
    ],
)
def test_marks_are_found_where_properties_lead(schema: dict[str, Any], found: tuple[Mirrored, ...]) -> None:
    assert mirrored(schema) == found


@pytest.mark.shows("streamable-http.parameter-annotations")
@pytest.mark.parametrize(
    "name",
    ["", " ", "two words", "a:b", "a\r\nb", "a\tb", "grün", "a/b", "(a)", "a,b", '"a"', None, 5, True, ["a"], {}],
)
def test_a_name_that_no_header_can_have_is_refused(name: Any) -> None:
    with pytest.raises(InvalidMirror, match="header's name") as refused:
        mirrored(objects(a=objects(b={"type": "string", "x-mcp-header": name})))
    assert refused.value.path == ("properties", "a", "properties", "b")


@pytest.mark.shows("streamable-http.parameter-annotations")
@pytest.mark.parametrize("kind", ["number", "object", "array", "null", ["string", "null"], ["integer"], None, 5])
def test_a_type_that_no_header_can_hold_is_refused(kind: Any) -> None:
    with pytest.raises(InvalidMirror, match="string, integer, boolean"):
        mirrored(objects(a={"type": kind, "x-mcp-header": "A"}))
    with pytest.raises(InvalidMirror, match="string, integer, boolean"):
        mirrored(objects(a={"x-mcp-header": "A"}))


@pytest.mark.shows("streamable-http.parameter-annotations")
@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (REGION, ()),
        (objects(a={"type": "array", "items": REGION}), ("properties", "a", "items")),
        (objects(a={"type": "array", "prefixItems": [REGION]}), ("properties", "a", "prefixItems", "0")),
        (objects(a={"anyOf": [{"type": "null"}, REGION]}), ("properties", "a", "anyOf", "1")),
        ({"oneOf": [objects(a=REGION)]}, ("oneOf", "0", "properties", "a")),
        ({"allOf": [objects(a=REGION)]}, ("allOf", "0", "properties", "a")),
        (objects(a={"not": REGION}), ("properties", "a", "not")),
        ({"if": objects(a=REGION)}, ("if", "properties", "a")),
        ({"then": objects(a=REGION)}, ("then", "properties", "a")),
        ({"else": objects(a=REGION)}, ("else", "properties", "a")),
        ({"$defs": {"r": REGION}}, ("$defs", "r")),
        ({"definitions": {"r": REGION}}, ("definitions", "r")),
        ({"patternProperties": {"^a": REGION}}, ("patternProperties", "^a")),
        ({"additionalProperties": REGION}, ("additionalProperties",)),
        ({"dependentSchemas": {"a": objects(b=REGION)}}, ("dependentSchemas", "a", "properties", "b")),
        (
            objects(a={"type": "array", "contains": objects(b=REGION)}),
            ("properties", "a", "contains", "properties", "b"),
        ),
    ],
)
def test_a_mark_that_not_only_properties_lead_to_is_refused(schema: dict[str, Any], path: tuple[str, ...]) -> None:
    with pytest.raises(InvalidMirror, match="properties alone") as refused:
        mirrored(schema)
    assert refused.value.path == path


@pytest.mark.shows("streamable-http.parameter-annotations")
@pytest.mark.parametrize("other", ["Region", "region", "REGION"])
def test_two_parameters_never_share_a_header(other: str) -> None:
    with pytest.raises(InvalidMirror, match="twice"):
        mirrored(objects(a=REGION, b=objects(c={"type": "integer", "x-mcp-header": other})))


PARAMETERS = (Mirrored(("a",), "mcp-param-a"), Mirrored(("b", "c"), "mcp-param-c"))


@pytest.mark.parametrize(
    ("headers", "arguments", "agree"),
    [
        ({}, {}, True),
        ({}, {"a": None, "b": None}, True),
        ({}, {"b": {}}, True),
        ({}, {"b": "no object"}, True),
        ({"mcp-param-a": "x"}, {"a": "x"}, True),
        ({"mcp-param-a": "x", "mcp-param-c": "y"}, {"a": "x", "b": {"c": "y"}}, True),
        ({"mcp-param-a": "true"}, {"a": True}, True),
        ({"mcp-param-a": "1"}, {"a": 1}, True),
        ({"mcp-param-a": "1.000"}, {"a": 1}, True),
        ({"mcp-param-a": "-9007199254740991"}, {"a": -(2**53) + 1}, True),
        ({"mcp-param-a": "=?base64?eA==?="}, {"a": "x"}, True),
        ({"mcp-param-a": "a\tb"}, {"a": "a\tb"}, True),
        ({"mcp-param-z": "ignored"}, {}, True),
        ({"mcp-param-a": "x"}, {}, False),
        ({"mcp-param-a": "null"}, {"a": None}, False),
        ({}, {"a": "x"}, False),
        ({}, {"a": False}, False),
        ({}, {"a": 0}, False),
        ({}, {"a": ""}, False),
        ({"mcp-param-a": "1"}, {"a": True}, False),
        ({"mcp-param-a": "true"}, {"a": "True"}, False),
        ({"mcp-param-a": "1.5"}, {"a": 1.5}, False),
        ({"mcp-param-a": "1e0"}, {"a": 1}, False),
        ({"mcp-param-a": "\u0661"}, {"a": 1}, False),
        ({"mcp-param-a": "9007199254740993"}, {"a": 2**53}, False),
        ({"mcp-param-a": "1" * 400}, {"a": 1}, False),
        ({"mcp-param-a": "=?base64?eA=?="}, {"a": "x"}, False),
        ({"mcp-param-a": "=?base64?/w==?="}, {"a": "ÿ"}, False),
        ({"mcp-param-a": "ÿ"}, {"a": "ÿ"}, False),
        ({"mcp-param-a": "a\x7f"}, {"a": "a\x7f"}, False),
    ],
)
def test_headers_agree_with_arguments_or_are_a_mismatch(
    headers: dict[str, str], arguments: dict[str, Any], agree: bool
) -> None:
    problem = check(PARAMETERS, headers, arguments)
    assert (problem is None) is agree
    if problem is not None:
        assert (problem.code, problem.http_status(modern=True)) == (-32020, 400)
        assert problem.message.startswith("Header mismatch: Mcp-Param-A ")
