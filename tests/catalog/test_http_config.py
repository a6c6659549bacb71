from typing import Any

import pytest

from tools_app.catalog.kinds.http.runner import ConfigProblem, parse_config, placeholders, secret_names

BASE = {"base_url": "https://api.example.com/v1"}
POST = {**BASE, "method": "POST"}


def test_a_base_url_is_all_that_a_tool_needs() -> None:
    config = parse_config(BASE)

    assert (config.method, config.path, config.body_mode) == ("GET", "", "none")
    assert config.max_response_bytes == 1024 * 1024
    assert not config.follow_redirects


def test_a_whole_configuration_tells_its_arguments_and_secrets() -> None:
    config = parse_config({
        **POST,
        "path": "users/{id}/posts",
        "query": {"limit": "{limit}", "sort": "-{key}", "fixed": "yes"},
        "headers": {"Authorization": "Bearer {secret:API_TOKEN}", "X-Trace": "{trace}"},
        "body_mode": "template",
        "body": {"title": "{title}", "tags": ["{tag}", "all"], "literal": "{{no}}", "key": "{secret:OTHER}", "n": 1},
    })  # fmt: skip

    assert placeholders(config) == {"id", "limit", "key", "trace", "title", "tag"}
    assert secret_names(config) == {"API_TOKEN", "OTHER"}


@pytest.mark.parametrize(
    ("field", "raw"),
    [
        ("colour", {**BASE, "colour": "red"}),
        ("method", {**BASE, "method": "TRACE"}),
        ("base_url", {}),
        ("base_url", {"base_url": 7}),
        ("base_url", {"base_url": "ftp://api.example.com"}),
        ("base_url", {"base_url": "https://api.example.com?x=y"}),
        ("base_url", {"base_url": "https://api.example.com#x"}),
        ("base_url", {"base_url": "https://api.example.com/{version}"}),
        ("base_url", {"base_url": "https://api.example.com/v1/.."}),
        ("base_url", {"base_url": "https://api.example.com/%2e%2e/"}),
        ("base_url", {"base_url": "https://api.example.com/%"}),
        ("path", {**BASE, "path": "a?b=c"}),
        ("path", {**BASE, "path": "a\\b"}),
        ("path", {**BASE, "path": "a\r\nb"}),
        ("path", {**BASE, "path": "100%"}),
        ("path", {**BASE, "path": "../a"}),
        ("path", {**BASE, "path": "a/%2e%2e/b"}),
        ("path", {**BASE, "path": "a//b"}),
        ("path", {**BASE, "path": "{id"}),
        ("path", {**BASE, "path": "{}"}),
        ("path", {**BASE, "path": "{a b}"}),
        ("path", {**BASE, "path": "{secret:TOKEN}"}),
        ("query", {**BASE, "query": {"a": 1}}),
        ("query", {**BASE, "query": {"": "a"}}),
        ("query", {**BASE, "query": {"a": "{b"}}),
        ("query", {**BASE, "query": ["a"]}),
        ("headers", {**BASE, "headers": {"Host": "evil"}}),
        ("headers", {**BASE, "headers": {"content-length": "5"}}),
        ("headers", {**BASE, "headers": {"Transfer-Encoding": "chunked"}}),
        ("headers", {**BASE, "headers": {"Connection": "keep-alive"}}),
        ("headers", {**BASE, "headers": {"Proxy-Authorization": "x"}}),
        ("headers", {**BASE, "headers": {"Accept-Encoding": "br"}}),
        ("headers", {**BASE, "headers": {"X Y": "a"}}),
        ("headers", {**BASE, "headers": {"": "a"}}),
        ("headers", {**BASE, "headers": {"X\r\nY": "a"}}),
        ("headers", {**BASE, "headers": {"X-A": "a", "x-a": "b"}}),
        ("headers", {**BASE, "headers": {"X-A": "a\r\nX-B: b"}}),
        ("headers", {**BASE, "headers": {"X-A": "a\x00"}}),
        ("headers", {**BASE, "headers": {"X-A": "€"}}),
        ("headers", {**BASE, "headers": {"X-A": "{secret:}"}}),
        ("body_mode", {**BASE, "body_mode": "arguments"}),
        ("body_mode", {**BASE, "method": "HEAD", "body_mode": "template", "body": {}}),
        ("body_mode", {**POST, "body_mode": "form"}),
        ("body", {**POST, "body_mode": "arguments", "body": {"a": "b"}}),
        ("body", {**POST, "body_mode": "template"}),
        ("body", {**POST, "body_mode": "template", "body": {"a": ["{b"]}}),
        ("max_response_bytes", {**BASE, "max_response_bytes": 0}),
        ("max_response_bytes", {**BASE, "max_response_bytes": 10**9}),
        ("follow_redirects", {**BASE, "follow_redirects": "yes"}),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_with_the_name_of_its_field(
    field: str, raw: dict[str, Any]
) -> None:
    with pytest.raises(ConfigProblem) as refusal:
        parse_config(raw)

    assert refusal.value.field == field
    assert refusal.value.message
    assert field in str(refusal.value)


def test_a_body_without_an_end_is_refused_and_nothing_breaks() -> None:
    body: Any = "{x}"
    for _ in range(5000):
        body = [body]

    with pytest.raises(ConfigProblem, match="nested"):
        parse_config({**POST, "body_mode": "template", "body": body})


def test_the_message_about_a_brace_says_how_to_write_one() -> None:
    with pytest.raises(ConfigProblem, match=r"character 6 .* two braces"):
        parse_config({**BASE, "query": {"q": "field{"}})
