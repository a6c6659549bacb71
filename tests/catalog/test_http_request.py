import json
from typing import Any

import pytest

from tools_app.catalog.kinds.http.request import build_request
from tools_app.catalog.kinds.http.runner import parse_config
from tools_app.catalog.kinds.templates import Values
from tools_app.catalog.tool_api.results import ToolError
from tools_app.core.http.client import Outbound


def build(arguments: dict[str, Any], secrets: dict[str, str] | None = None, **config: Any) -> Outbound:
    return build_request(
        parse_config({"base_url": "https://api.example.com/v1", **config}), Values(arguments, secrets or {})
    )


def header(request: Outbound, name: str) -> str | None:
    return {known.lower(): value for known, value in request.headers}.get(name.lower())


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("plain", "plain"),
        ("a/b", "a%2Fb"),
        ("a?b=c", "a%3Fb%3Dc"),
        ("a#b", "a%23b"),
        ("50%", "50%25"),
        ("a%2Fb", "a%252Fb"),
        ("a b+c", "a%20b%2Bc"),
        ("a;b,c:d@e", "a%3Bb%2Cc%3Ad%40e"),
        ("a\\b", "a%5Cb"),
        ("ü€", "%C3%BC%E2%82%AC"),
        ("//evil.example/x", "%2F%2Fevil.example%2Fx"),
        ("@evil.example", "%40evil.example"),
        ("v1.2", "v1.2"),
        (7, "7"),
        (1.5, "1.5"),
        (True, "true"),
        (["a", 1], "%5B%22a%22%2C1%5D"),
    ],
)
def test_a_path_value_is_one_segment_whatever_is_in_it(value: Any, encoded: str) -> None:
    """CVE-2026-32871: path parameters inserted unencoded into a URL."""
    request = build({"id": value}, path="users/{id}/posts")

    assert str(request.url) == f"https://api.example.com/v1/users/{encoded}/posts"


@pytest.mark.parametrize(
    "value",
    ["", ".", "..", "../admin", "a/../../admin", "a/..", "%2e%2e", "%2E%2E%2Fadmin", "%252e%252e", "..\\admin", "..;",
     "..;/admin", " .. ", "a\x00b", "a\r\nb", None],
)  # fmt: skip
def test_a_path_value_that_some_server_would_climb_on_is_refused(value: Any) -> None:
    with pytest.raises(ToolError, match="'id'"):
        build({"id": value}, path="users/{id}")


@pytest.mark.parametrize(("a", "b"), [(".", "."), ("", ".."), ("%2e", "%2e"), ("..", "")])
def test_values_that_climb_only_together_are_refused(a: str, b: str) -> None:
    with pytest.raises(ToolError):
        build({"a": a, "b": b}, path="users/{a}{b}/x")


def test_values_beside_literal_dots_cannot_complete_a_climb() -> None:
    with pytest.raises(ToolError):
        build({"a": "%2e"}, path="users/.{a}/x")


def test_a_value_that_climbs_only_with_the_escapes_around_it_is_refused() -> None:
    with pytest.raises(ToolError, match="lead out"):
        build({"a": "%2"}, path="{a}e%2e/x")


@pytest.mark.parametrize(
    ("base", "path", "expected"),
    [
        ("https://api.example.com", "", "/"),
        ("https://api.example.com/v1", "", "/v1"),
        ("https://api.example.com/v1/", "", "/v1/"),
        ("https://api.example.com/v1", "x", "/v1/x"),
        ("https://api.example.com/v1/", "/x/", "/v1/x/"),
        ("https://api.example.com/a%20b", "c d/é%21", "/a%20b/c%20d/%C3%A9%21"),
        ("https://api.example.com", "{{x}}:y", "/%7Bx%7D:y"),
    ],
)
def test_the_path_goes_below_the_base(base: str, path: str, expected: str) -> None:
    request = build_request(parse_config({"base_url": base, "path": path}), Values({}, {}))

    assert request.url.target == expected


def test_query_values_are_encoded_and_keep_to_their_parameter() -> None:
    arguments = {"q": "a&b=c#d e+f/ü", "n": 2, "deep": {"x": [1]}, "yes": True, "no": False}

    request = build(arguments, query={**{name: f"{{{name}}}" for name in arguments}, "a b&": "é"})

    assert request.url.query == (
        "q=a%26b%3Dc%23d%20e%2Bf%2F%C3%BC&n=2&deep=%7B%22x%22%3A%5B1%5D%7D&yes=true&no=false&a%20b%26=%C3%A9"
    )


def test_a_list_repeats_its_query_parameter_and_is_json_inside_a_longer_text() -> None:
    request = build({"tags": ["a", True, 3]}, query={"tag": "{tags}", "all": "tags:{tags}"})

    assert request.url.query == "tag=a&tag=true&tag=3&all=tags%3A%5B%22a%22%2Ctrue%2C3%5D"


def test_what_lacks_an_optional_argument_is_left_out_of_query_and_headers() -> None:
    request = build({"given": "x", "null": None},
                    query={"a": "{given}", "b": "{missing}", "c": "{given}-{missing}", "d": "{null}", "e": "fixed"},
                    headers={"X-A": "{given}", "X-B": "b {missing}"})  # fmt: skip

    assert request.url.query == "a=x&e=fixed"
    assert header(request, "X-A") == "x"
    assert header(request, "X-B") is None


def test_secrets_go_into_headers_query_and_body() -> None:
    request = build({}, {"TOKEN": 's"1/+'}, method="POST", query={"key": "{secret:TOKEN}"},
                    headers={"Authorization": "Bearer {secret:TOKEN}"},
                    body_mode="template", body={"key": "{secret:TOKEN}"})  # fmt: skip

    assert request.url.query == "key=s%221%2F%2B"
    assert header(request, "Authorization") == 'Bearer s"1/+'
    assert json.loads(request.body or b"") == {"key": 's"1/+'}


def test_a_secret_that_is_gone_is_named() -> None:
    with pytest.raises(ToolError, match="'TOKEN'"):
        build({}, {}, headers={"Authorization": "{secret:TOKEN}"})


def test_an_argument_that_looks_like_a_template_stays_text() -> None:
    request = build({"q": "{secret:TOKEN}"}, {"TOKEN": "hidden"}, query={"q": "{q}"}, headers={"X-Q": "{q}"})

    assert request.url.query == "q=%7Bsecret%3ATOKEN%7D"
    assert header(request, "X-Q") == "{secret:TOKEN}"


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\x00b", "a\x1bb", "a\x7fb", "€"])
def test_a_header_value_that_no_header_can_carry_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(ToolError, match="X-A") as refusal:
        build({"a": value}, headers={"X-A": "{a}"})

    assert value not in str(refusal.value)


def test_a_secret_with_a_line_break_is_refused_and_not_repeated() -> None:
    with pytest.raises(ToolError, match="Authorization") as refusal:
        build({}, {"TOKEN": "hidden\nvalue"}, headers={"Authorization": "{secret:TOKEN}"})

    assert "hidden" not in str(refusal.value)


def test_configured_headers_replace_the_usual_ones() -> None:
    request = build({}, headers={"accept": "text/csv", "User-Agent": "acme"})

    assert (header(request, "Accept"), header(request, "User-Agent")) == ("text/csv", "acme")
    assert len([name for name, _ in request.headers if name.lower() == "accept"]) == 1


def test_the_body_of_the_mode_arguments_holds_those_that_are_used_nowhere_else() -> None:
    request = build({"id": 1, "q": "x", "h": "y", "title": "T", "tags": [1], "none": None}, method="PUT",
                    path="{id}", query={"q": "{q}"}, headers={"X-H": "{h}"}, body_mode="arguments")  # fmt: skip

    assert json.loads(request.body or b"") == {"title": "T", "tags": [1], "none": None}
    assert header(request, "Content-Type") == "application/json"


def test_a_body_template_keeps_the_types_of_whole_values() -> None:
    request = build({"n": 3, "deep": {"x": [True, None]}, "null": None, "name": 'a"b'}, method="POST",
                    body_mode="template",
                    body={"n": "{n}", "text": "n={n}", "deep": ["{deep}", {"y": "{name}"}], "null": "{null}",
                          "fixed": [1, None, "{{x}}"], "{n}": "key"})  # fmt: skip

    assert json.loads(request.body or b"") == {
        "n": 3, "text": "n=3", "deep": [{"x": [True, None]}, {"y": 'a"b'}], "null": None, "fixed": [1, None, "{x}"],
        "{n}": "key",
    }  # fmt: skip


def test_a_body_template_leaves_out_what_lacks_its_argument() -> None:
    request = build({"a": 1}, method="POST", body_mode="template",
                    body={"a": "{a}", "b": "{b}", "c": "c {b}", "d": ["{a}", "{b}"], "e": {"f": "{b}"}})  # fmt: skip

    assert json.loads(request.body or b"") == {"a": 1, "d": [1], "e": {}}


def test_a_body_that_is_all_one_absent_argument_is_no_body() -> None:
    assert build({}, method="POST", body_mode="template", body="{payload}").body is None


def test_a_get_request_has_no_body_and_no_content_type() -> None:
    request = build({"a": 1})

    assert request.body is None
    assert header(request, "Content-Type") is None


@pytest.mark.parametrize("place", ["path", "query", "headers", "body"])
def test_an_argument_that_is_no_valid_unicode_is_refused(place: str) -> None:
    templates: dict[str, Any] = {
        "path": {"path": "{a}"},
        "query": {"query": {"a": "{a}"}},
        "headers": {"headers": {"X-A": "{a}"}},
        "body": {"method": "POST", "body_mode": "template", "body": "{a}"},
    }
    with pytest.raises(ToolError):
        build({"a": "\ud800"}, **templates[place])


def test_an_argument_that_stands_in_many_places_cannot_fill_the_memory() -> None:
    body = ["{a}" * 1000] * 100
    with pytest.raises(ToolError, match="repeat its arguments in more than 4194304 characters"):
        build({"a": "x" * 1_000_000}, method="POST", body_mode="template", body=body)
    assert len(build({"a": "x" * 10}, method="POST", body_mode="template", body=body).body or b"") > 1_000_000
    assert build({"a": "x" * 5_000_000}, method="POST", body_mode="template", body={"a": "{a}"}).body
