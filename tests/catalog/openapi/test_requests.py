"""Requests of operations, verified with openapi-core and the same document."""

from collections.abc import Iterable
from decimal import Decimal
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest
from openapi_core import OpenAPI
from openapi_core.datatypes import RequestParameters
from werkzeug.datastructures import Headers, ImmutableMultiDict

from tests.catalog.openapi.documents import BASE, OK, document, get, only, parsed, post, request
from tools_app.catalog.kinds.openapi.request import Credential
from tools_app.catalog.tool_api.results import ToolError
from tools_app.core.http.client import Outbound


class Sent:
    """A request with the interface that openapi-core expects."""

    def __init__(self, outbound: Outbound) -> None:
        headers = Headers(outbound.headers)
        cookies = (pair.partition("=") for pair in headers.get("Cookie", "").split("; ") if pair)
        self.parameters = RequestParameters(
            query=ImmutableMultiDict(parse_qsl(outbound.url.query, keep_blank_values=True)),
            header=headers,
            cookie=ImmutableMultiDict([(unquote(name), unquote(value)) for name, _, value in cookies]),
        )
        self.host_url = "https://api.example.com"
        self.path = outbound.url.path
        self.method = outbound.method.lower()
        self.body = outbound.body
        self.content_type = headers.get("Content-Type", "")


def read_back(paths: dict[str, Any], arguments: dict[str, Any], version: str = "3.0.3") -> Any:
    """The parameters that openapi-core reads from the request for these arguments."""
    outbound = request(only(parsed(paths, version)), arguments)
    oracle = OpenAPI.from_dict(document(paths, version))
    found = oracle.unmarshal_request(Sent(outbound))  # type: ignore[arg-type]
    assert not list(found.errors), found.errors
    return found


def of(place: str, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"in": place, "name": "x", "required": place == "path", "schema": schema, **more}


TEXTS = {"type": "array", "items": {"type": "string"}}
NUMBERS = {"type": "array", "items": {"type": "integer"}}
POINT = {"type": "object", "properties": {"r": {"type": "integer"}, "g": {"type": "string"}}}


@pytest.mark.parametrize("explode", [True, False])
@pytest.mark.parametrize(
    ("schema", "value"),
    [({"type": "string"}, "blue"), ({"type": "integer"}, 5), (NUMBERS, [3, 4, 5]), (POINT, {"r": 1, "g": "two"})],
)
def test_path_parameters(schema: Any, value: Any, explode: bool) -> None:
    item = get(of("path", schema, explode=explode))

    assert read_back({"/a/{x}": item}, {"x": value}).parameters.path == {"x": value}


# The table of examples in the specification (§Style Examples), which openapi-core cannot read from a path.
@pytest.mark.parametrize(
    ("style", "explode", "text", "items", "pairs"),
    [
        ("matrix", False, ";color=blue", ";color=blue,black,brown", ";color=R,100,G,200,B,150"),
        ("matrix", True, ";color=blue", ";color=blue;color=black;color=brown", ";R=100;G=200;B=150"),
        ("label", False, ".blue", ".blue,black,brown", ".R,100,G,200,B,150"),
        ("label", True, ".blue", ".blue.black.brown", ".R=100.G=200.B=150"),
        ("simple", False, "blue", "blue,black,brown", "R,100,G,200,B,150"),
        ("simple", True, "blue", "blue,black,brown", "R=100,G=200,B=150"),
    ],
)
def test_styles_of_a_path(style: str, explode: bool, text: str, items: str, pairs: str) -> None:
    parameter = {"in": "path", "name": "color", "required": True, "style": style, "explode": explode}
    operation = only(parsed({"/a/{color}": get(parameter)}))
    values = ("blue", ["blue", "black", "brown"], {"R": 100, "G": 200, "B": 150})

    paths = [request(operation, {"color": value}).url.path.removeprefix("/v1/a/") for value in values]

    assert paths == [text, items, pairs]


@pytest.mark.parametrize(
    ("schema", "style", "explode", "value"),
    [
        ({"type": "string"}, "form", True, "a&b=c d/é?#+%"),
        ({"type": "boolean"}, "form", True, True),
        ({"type": "number"}, "form", False, 1.5),
        (NUMBERS, "form", True, [1, 2]),
        (NUMBERS, "form", False, [1, 2]),
        (TEXTS, "pipeDelimited", False, ["a", "b"]),
        (POINT, "form", False, {"r": 1, "g": "two"}),
        (POINT, "deepObject", True, {"r": 1, "g": "two"}),
    ],
)
def test_query_parameters(schema: Any, style: str, explode: bool, value: Any) -> None:
    item = get(of("query", schema, style=style, explode=explode))

    assert read_back({"/a": item}, {"x": value}).parameters.query == {"x": value}


def test_a_list_can_be_delimited_by_spaces() -> None:
    operation = only(parsed({"/a": get(of("query", TEXTS, style="spaceDelimited", explode=False))}))

    assert request(operation, {"x": ["a", "b c"]}).url.query == "x=a%20b%20c"


@pytest.mark.parametrize(
    ("schema", "value"), [({"type": "string"}, "a b"), (NUMBERS, [1, 2]), (POINT, {"r": 1, "g": "two"})]
)
@pytest.mark.parametrize("explode", [True, False])
def test_header_parameters(schema: Any, value: Any, explode: bool) -> None:
    item = get(of("header", schema, explode=explode))

    assert read_back({"/a": item}, {"x": value}).parameters.header == {"x": value}


@pytest.mark.parametrize(("schema", "value"), [({"type": "string"}, "a=b; c,d"), (NUMBERS, [1, 2])])
def test_cookie_parameters(schema: Any, value: Any) -> None:
    item = get(of("cookie", schema, explode=False))

    assert read_back({"/a": item}, {"x": value}).parameters.cookie == {"x": value}


def test_a_parameter_with_content_is_json() -> None:
    parameter = {"in": "query", "name": "x", "content": {"application/json": {"schema": POINT}}}

    assert read_back({"/a": get(parameter)}, {"x": {"r": 1, "g": "&"}}).parameters.query == {"x": {"r": 1, "g": "&"}}


@pytest.mark.parametrize(("media_type", "sent"), [("text/xml", "%3Ca%2F%3E"), ("application/json", "%22%3Ca%2F%3E%22")])
def test_a_parameter_with_content_that_is_no_json_is_a_text(media_type: str, sent: str) -> None:
    parameter = {"in": "query", "name": "x", "content": {media_type: {"schema": {"type": "string"}}}}

    assert request(only(parsed({"/a": get(parameter)})), {"x": "<a/>"}).url.query == f"x={sent}"


BODY = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "count": {"type": "integer"}, "tags": TEXTS},
    "required": ["name"],
}


@pytest.mark.parametrize(
    "media_type", ["application/json", "application/vnd.api+json", "application/x-www-form-urlencoded"]
)
def test_bodies(media_type: str) -> None:
    body = {"name": "a&b=é", "count": 3, "tags": ["x", "y"]}
    if media_type.endswith("+json"):
        outbound = request(only(parsed({"/a": post(BODY, media_type)})), body)
        assert ("Content-Type", media_type) in outbound.headers
        return

    read = read_back({"/a": post(BODY, media_type)}, body).body

    assert read == body


def test_a_deep_object_in_a_form_is_written_with_encoded_brackets() -> None:
    schema = {"type": "object", "properties": {"card": {"type": "object"}, "items": {"type": "array"}}}
    encoding = {"card": {"style": "deepObject", "explode": True}, "items": {"style": "deepObject", "explode": True}}
    operation = only(parsed({"/a": post(schema, "application/x-www-form-urlencoded", encoding=encoding)}))

    outbound = request(operation, {"card": {"no": "4242", "exp": {"year": 30}}, "items": [{"price": "p&1"}]})

    assert outbound.body == b"card%5Bno%5D=4242&card%5Bexp%5D%5Byear%5D=30&items%5B0%5D%5Bprice%5D=p%261"


def parts_of(outbound: Outbound) -> list[tuple[dict[str, Any], bytes]]:
    content_type = dict(outbound.headers)["Content-Type"]
    message = BytesParser(policy=HTTP).parsebytes(
        f"Content-Type: {content_type}\r\n\r\n".encode() + (outbound.body or b"")
    )
    parts: Iterable[Any] = message.iter_parts()  # type: ignore[attr-defined]
    return [
        (dict(part["Content-Disposition"].params) | {"type": part.get_content_type()}, part.get_payload(decode=True))
        for part in parts
    ]


def test_files_are_base64_in_arguments_and_bytes_in_multipart_bodies() -> None:
    schema = {
        "type": "object",
        "properties": {
            "file": {"type": "string", "format": "binary"},
            "more": {"type": "array", "items": {"type": "string", "format": "binary"}},
            "about": {"type": "object", "properties": {"a": {}}},
            "purpose": {"type": "string"},
        },
        "required": ["file"],
    }
    operation = only(parsed({"/a": post(schema, "multipart/form-data")}))
    file = {"data": "AAEC", "filename": 'a"\r\nX: y.mp3', "media_type": "audio/mpeg"}

    parts = parts_of(
        request(operation, {"file": file, "more": [{"data": "AQ=="}], "about": {"a": 1}, "purpose": "p\r\n--"})
    )

    assert parts == [
        ({"name": "file", "filename": "a%22%0D%0AX: y.mp3", "type": "audio/mpeg"}, b"\x00\x01\x02"),
        ({"name": "more", "filename": "more", "type": "application/octet-stream"}, b"\x01"),
        ({"name": "about", "type": "application/json"}, b'{"a":1}'),
        ({"name": "purpose", "type": "text/plain"}, b"p\r\n--"),
    ]


def test_a_binary_body_is_base64_in_its_argument() -> None:
    operation = only(parsed({"/a": post({"type": "string", "format": "binary"}, "application/octet-stream")}))

    assert request(operation, {"body": "AAEC"}).body == b"\x00\x01\x02"
    with pytest.raises(ToolError, match="base64"):
        request(operation, {"body": "not base64!"})


def test_a_body_that_is_not_required_is_left_out_without_its_arguments() -> None:
    item = post({"type": "object", "properties": {"a": {}}})
    item["post"]["requestBody"]["required"] = False

    assert request(only(parsed({"/a": item})), {}).body is None


@pytest.mark.parametrize("value", ["..", ".", "a/../b", "%2e%2e", "..%2fb", "", "a\r\nb", "..;x", "%252e%252e%252fb"])
def test_a_path_argument_cannot_leave_its_segment(value: str) -> None:
    operation = only(parsed({"/a/{x}/b": get(of("path", {"type": "string"}))}))

    with pytest.raises(ToolError):
        request(operation, {"x": value})


@pytest.mark.parametrize(
    ("value", "path"), [("a/b", "a%2Fb"), ("a?b#c", "a%3Fb%23c"), ("a;b=c", "a%3Bb%3Dc"), ("é", "%C3%A9")]
)
def test_a_path_argument_is_percent_encoded(value: str, path: str) -> None:
    operation = only(parsed({"/a/{x}/b": get(of("path", {"type": "string"}))}))

    assert request(operation, {"x": value}).url.path == f"/v1/a/{path}/b"


def test_a_header_argument_cannot_add_a_header() -> None:
    operation = only(parsed({"/a": get(of("header", {"type": "string"}))}))

    with pytest.raises(ToolError):
        request(operation, {"x": "a\r\nHost: b"})


@pytest.mark.parametrize(
    ("credential", "expected"),
    [
        (Credential("header", "X-Key", "s"), ("X-Key", "s")),
        (Credential("bearer", "Authorization", "s"), ("Authorization", "Bearer s")),
        (Credential("basic", "Authorization", "ann:s"), ("Authorization", "Basic YW5uOnM=")),
        (Credential("cookie", "sid", "s;t"), ("Cookie", "sid=s%3Bt")),
    ],
)
def test_credentials_are_sent_where_their_scheme_says(credential: Credential, expected: tuple[str, str]) -> None:
    assert expected in request(only(parsed({"/a": get()})), {}, credential).headers


def test_a_credential_in_the_query_follows_the_parameters() -> None:
    operation = only(parsed({"/a": get(of("query", {"type": "string"}))}))

    assert str(request(operation, {"x": "1"}, Credential("query", "key", "a&b")).url) == f"{BASE}/a?x=1&key=a%26b"


def test_an_argument_cannot_replace_a_credential() -> None:
    operation = only(parsed({"/a": get({"in": "header", "name": "X-Key"})}))

    headers = request(operation, {"X-Key": "mine"}, Credential("header", "X-Key", "s")).headers

    assert [value for name, value in headers if name == "X-Key"] == ["s"]


@pytest.mark.parametrize(
    ("place", "value", "sent"),
    [
        ("query", "a/b?c&d#e[f]+", "?x=a/b?c%26d%23e%5Bf%5D%2B"),
        ("path", "a/b;c=d?e#f[g]", "/a/b;c=d%3Fe%23f%5Bg%5D"),
    ],
)
def test_reserved_characters_stay_where_the_document_and_the_url_allow_them(place: str, value: str, sent: str) -> None:
    path = "/{x}" if place == "path" else ""
    operation = only(parsed({path or "/": get(of(place, {"type": "string"}, allowReserved=True))}, "3.2.0"))

    assert str(request(operation, {"x": value}).url).removeprefix(BASE).replace("/?", "?") == sent


def test_brackets_are_percent_encoded_in_every_part_of_a_url() -> None:
    parameters = [of(place, {}, name=name) for place, name in (("query", "q[]"), ("query", "p"), ("path", "id"))]
    deep = of("query", {"type": "object"}, name="f", style="deepObject", explode=True)
    operation = only(parsed({"/a[0]/{id}": get(*parameters, deep)}))
    arguments = {"q": "[1]", "p": ["[", "]"], "id": "[a]", "f": {"x[y]": 1, "z": [{"w": 2}]}}

    url = str(request(operation, arguments).url)

    assert "[" not in url
    assert "]" not in url
    assert "&f%5Bx%5By%5D%5D=1&f%5Bz%5D%5B0%5D%5Bw%5D=2" in url


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (5.0, "5"),
        (-0.0, "0"),
        (0.5, "0.5"),
        (1e-7, "0.0000001"),
        (1e16, "10000000000000000"),
        (123456789012345678901234567890, "123456789012345678901234567890"),
        # What the hub reads of the client's JSON where neither 64 bits nor a float hold a number.
        (Decimal(12345678901234567890123), "12345678901234567890123"),
        (Decimal("-0.12345678901234567890"), "-0.12345678901234567890"),
        (True, "true"),
    ],
)
def test_a_number_is_written_in_decimal_digits_in_urls_headers_and_forms(value: float, sent: str) -> None:
    names = {"path": "p", "query": "q", "header": "h", "cookie": "c"}
    item = {
        **post({"properties": {"f": {"type": "number"}}}, "application/x-www-form-urlencoded"),
        "parameters": [of(place, {"type": "number"}, name=name) for place, name in names.items()],
    }

    outbound = request(only(parsed({"/a/{p}": item})), dict.fromkeys([*names.values(), "f"], value))

    headers = dict(outbound.headers)
    assert (outbound.url.path, outbound.url.query) == (f"/v1/a/{sent}", f"q={sent}")
    assert (headers["h"], headers["Cookie"], outbound.body) == (sent, f"c={sent}", f"f={sent}".encode())


@pytest.mark.parametrize("number", [123456789012345678901234567890, Decimal("0.12345678901234567890")])
def test_a_long_number_is_the_same_in_a_json_body(number: int | Decimal) -> None:
    body = request(only(parsed({"/a": post({"properties": {"n": {}}})})), {"n": number}).body
    assert body == f'{{"n":{number}}}'.encode()


def test_the_whole_query_can_be_one_argument() -> None:
    content = {"application/x-www-form-urlencoded": {"schema": {"type": "object"}}}
    operation = only(
        parsed({"/a": {"get": {"parameters": [{"in": "querystring", "name": "q", "content": content}], **OK}}}, "3.2.0")
    )

    assert request(operation, {"q": {"a": "1 2", "b": [1, 2]}}).url.query == "a=1%202&b=1&b=2"


def test_a_query_in_a_path_is_sent_unless_it_is_a_parameter() -> None:
    operation = only(parsed({"/a?op=list&v={v}&x=1&all": get(of("query", {"type": "string"}))}))

    assert str(request(operation, {"x": "2"}).url) == f"{BASE}/a?op=list&all=&x=2"
