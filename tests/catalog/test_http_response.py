import base64
import json
from typing import Any

import pytest

from tools_app.catalog.kinds.http.response import to_result
from tools_app.catalog.tool_api.results import ToolResult
from tools_app.core.http.client import Reply
from tools_app.core.telemetry.secret_names import Scrubber

ANY_OBJECT = {"type": "object"}
WITH_RESULT = {"type": "object", "properties": {"result": {}}}


def result_of(
    body: bytes, content_type: str = "", status: int = 200, schema: dict[str, Any] | None = None, secret: str = ""
) -> ToolResult:
    headers = {"content-type": content_type} if content_type else {}
    return to_result(Reply(status, headers, body), schema, Scrubber([secret]))


def text_of(result: ToolResult) -> str:
    return str(result.content[0]["text"])


@pytest.mark.shows("tools.structure-as-text")
@pytest.mark.parametrize("content_type", ["application/json", "application/problem+json; charset=utf-8", "text/json"])
def test_json_becomes_text_and_structured_content_only_under_an_output_schema(content_type: str) -> None:
    body = b'{"name": "J\\u00fcrgen", "big": 12345678901234567}'

    assert text_of(result_of(body, content_type)) == '{"name":"Jürgen","big":12345678901234567}'
    assert result_of(body, content_type).structured is None
    assert result_of(body, content_type, schema=ANY_OBJECT).structured == json.loads(body)


@pytest.mark.parametrize(
    ("body", "value"), [(b"[1, 2]", [1, 2]), (b"3", 3), (b"null", None), (b'"x"', "x"), (b"1" * 30, int("1" * 30))]
)
def test_json_that_is_no_object_goes_under_result_if_the_schema_has_that(body: bytes, value: Any) -> None:
    assert result_of(body, "application/json", schema=WITH_RESULT).structured == {"result": value}
    assert result_of(body, "application/json", schema=ANY_OBJECT).structured is None
    assert text_of(result_of(body, "application/json", schema=WITH_RESULT)) == json.dumps(value).replace(" ", "")


def test_an_object_is_not_wrapped_even_if_the_schema_has_result() -> None:
    assert result_of(b'{"a": 1}', "application/json", schema=WITH_RESULT).structured == {"a": 1}


@pytest.mark.parametrize(
    "body", [b"{broken", b"[" * 100_000, b"[" * 500 + b"]" * 500, b"NaN", b'{"a": "\\ud800"}', b"1" * 400],
    ids=["broken", "bomb", "deep", "nan", "surrogate", "beyond any float"],
)  # fmt: skip
def test_json_that_cannot_be_passed_on_as_such_stays_text(body: bytes) -> None:
    result = result_of(body, "application/json", schema=WITH_RESULT)

    assert text_of(result) == body.decode()
    assert result.structured is None


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        (b"hello", "text/plain", "hello"),
        (b"<p>", "text/html; charset=utf-8", "<p>"),
        (b"<a/>", "application/atom+xml", "<a/>"),
        ("é".encode("latin-1"), 'text/plain; charset="ISO-8859-1"', "é"),
        ("é".encode(), "text/plain; charset=zlib", "é"),
        ("é".encode(), "text/plain; charset=punycode", "é"),
        ("é".encode(), "text/plain; charset=iso-8859-99", "é"),
        ("\ufeffx".encode(), "text/csv", "x"),
        (b"\xff", "text/plain", "\ufffd"),
        (b"hello", "", "hello"),
        (b"hello", "no type", "hello"),
    ],
)
def test_text_is_decoded_as_declared_or_else_as_utf_8(body: bytes, content_type: str, text: str) -> None:
    assert text_of(result_of(body, content_type)) == text


@pytest.mark.parametrize(("content_type", "kind"), [("image/png", "image"), ("Audio/WAV; x=y", "audio")])
def test_images_and_sounds_become_their_own_content(content_type: str, kind: str) -> None:
    block = result_of(b"\x00\x01", content_type).content[0]

    assert block["type"] == kind
    assert base64.b64decode(block["data"]) == b"\x00\x01"
    assert block["mimeType"] == content_type.lower().partition(";")[0]


@pytest.mark.parametrize("content_type", ["application/pdf", "application/octet-stream"])
def test_other_content_is_described(content_type: str) -> None:
    assert text_of(result_of(b"x\x00y", content_type)) == (
        f"The service answered with 3 bytes of {content_type}, which is not a supported content type."
    )


def test_bytes_without_a_type_are_described() -> None:
    assert "3 bytes of an unknown type" in text_of(result_of(b"x\x00y"))


def test_an_empty_answer_says_so_with_its_status() -> None:
    result = result_of(b"", status=204)

    assert text_of(result) == "(empty response, HTTP 204)"
    assert not result.is_error


@pytest.mark.parametrize(
    ("status", "body", "content_type", "text"),
    [
        (404, b"no such user", "text/plain", "HTTP 404 from the service: no such user"),
        (422, b'{"a": 1}', "application/json", 'HTTP 422 from the service: {"a":1}'),
        (500, b"", "", "HTTP 500 from the service: (empty response)"),
        (503, b"\x00", "image/png", "HTTP 503 from the service: 1 bytes of image/png"),
        (101, b"", "", "HTTP 101 from the service: (empty response)"),
    ],
)
def test_a_status_that_is_no_success_is_an_error_with_what_the_service_said(
    status: int, body: bytes, content_type: str, text: str
) -> None:
    result = result_of(body, content_type, status, schema=ANY_OBJECT)

    assert text_of(result) == text
    assert result.is_error
    assert result.structured is None


def test_an_error_repeats_at_most_two_thousand_characters() -> None:
    assert text_of(result_of(b"x" * 5000, "text/plain", 500)) == f"HTTP 500 from the service: {'x' * 2000}…"


def test_a_secret_across_the_end_of_the_excerpt_leaves_no_half_behind() -> None:
    body = b"x" * 1990 + b"secret-value" + b"x" * 100

    assert "secret" not in text_of(result_of(body, "text/plain", 500, secret="secret-value"))


@pytest.mark.shows("tools.outputs")
@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"your key is s3cr/et!", "text/plain"),
        (b'{"s3cr/et": ["Bearer s3cr/et"]}', "application/json"),
        (rb'{"key": "s3cr\/et"}', "application/json"),
        (rb'{"key": "\u00733cr/et"}', "application/json"),
        (rb'{"key": "\u00733cr\/et", "number": %b}' % (b"9" * 30), "application/json"),
        (rb'{"key": "\u00733cr\/\u0065t", "number": NaN}', "application/json"),
        (rb'{"key": "s3\u0063r/et", "text": "\ud800"}', "application/problem+json"),
        (rb'{"key": "{\"key\": \"s3cr\\\/\\u0065t\"}"}', "text/plain"),
        (b"s3cr&#x2F;et s%33cr%2fe%74", "text/html"),
        (b"/?key=s3cr%2Fet", "text/html"),
        (b"\x00s3cr/et", "image/png"),
    ],
)
@pytest.mark.parametrize("status", [200, 401])
def test_a_secret_that_the_service_repeats_does_not_come_back(body: bytes, content_type: str, status: int) -> None:
    result = result_of(body, content_type, status, schema=ANY_OBJECT, secret="s3cr/et")
    shown = json.dumps(result.content) + json.dumps(result.structured, default=str) + result.cause
    data = base64.b64decode(result.content[0].get("data", ""))

    assert not any(trace in shown for trace in ("3cr", "cr/", r"\\/", "et ", "e%74"))
    assert b"s3cr" not in data
