"""Pasted cURL commands and URLs, as drafts of HTTP tools."""

from typing import Any

import pytest

from tools_app.catalog.kinds.http.config import parse_config
from tools_app.catalog.kinds.http.curl import MAX_PASTE_LENGTH, InvalidPaste
from tools_app.catalog.kinds.http.draft import Draft, draft_of

URL = "https://api.example.com/v1/users"


def config_of(draft: Draft) -> Any:
    names = ("method", "base_url", "path", "query", "headers", "body_mode", "body", "follow_redirects")
    return parse_config({name: draft.fields[name] for name in names})


@pytest.mark.parametrize(
    ("pasted", "expected"),
    [
        (URL, {"method": "GET", "base_url": "https://api.example.com", "path": "v1/users", "name": "get_users"}),
        (f"DELETE {URL}/{{id}}", {"method": "DELETE", "path": "v1/users/{id}"}),
        (f"curl {URL}/:id/posts", {"path": "v1/users/{id}/posts", "name": "get_users_posts"}),
        (f"curl '{URL}/<user_id>?q=a%20b&page={{page}}'", {"query": {"q": "a b", "page": "{page}"}}),
        (f'curl "{URL}/$USER_ID/${{PART}}"', {"path": "v1/users/{USER_ID}/{PART}"}),
        (f"curl -X PUT {URL}", {"method": "PUT"}),
        (f"$ curl -sSLXPATCH {URL}", {"method": "PATCH", "follow_redirects": True}),
        (f"curl --request=PUT --url {URL}", {"method": "PUT", "path": "v1/users"}),
        (f"curl -I {URL}", {"method": "HEAD"}),
        (f"curl \\\n  -H 'Accept: text/plain' \\\r\n  {URL}", {"headers": {"Accept": "text/plain"}}),
        (f"curl {URL} -H 'X-A: {{a}} and }}{{'", {"headers": {"X-A": "{a} and }}{{"}}),
        (f"curl {URL} -A me -e https://x.example", {"headers": {"User-Agent": "me", "Referer": "https://x.example"}}),
        (f"curl -G {URL} -d a=1 --data-urlencode 'b=x y'", {"method": "GET", "query": {"a": "1", "b": "x y"}}),
        (
            f"""curl {URL} --json '{{"name": "{{name}}", "n": 1}}'""",
            {"method": "POST", "body_mode": "template", "body": {"name": "{name}", "n": 1}, "headers": {}},
        ),
        (f"""curl {URL} -d $'{{"a":"it\\'s \\u00e9"}}'""", {"body": {"a": "it's é"}}),
        (f"""curl {URL} -d "{{\\"a\\": \\"$NAME\\", \\"b\\": {{N}}}}" """, {"body": {"a": "{NAME}", "b": "{N}"}}),
        (f"""curl {URL} -d '{{"a": "{{}}"}}'""", {"body": {"a": "{{}}"}}),
        (f"curl {URL} -d a=1 -d b=2", {"method": "POST", "body": {"a": "1", "b": "2"}}),
        (f"curl {URL} --max-time 5", {"timeout_seconds": 5.0}),
    ],
)
def test_a_command_becomes_the_fields_of_a_valid_tool(pasted: str, expected: dict[str, Any]) -> None:
    draft = draft_of(pasted)
    assert {name: draft.fields[name] for name in expected} == expected
    config_of(draft)


@pytest.mark.parametrize(
    ("pasted", "place", "value", "stored"),
    [
        ("-H 'Authorization: Bearer abc123'", ("headers", "Authorization"), "Bearer {secret:EXAMPLE_TOKEN}", "abc123"),
        ("-H 'X-API-Key: abc123'", ("headers", "X-API-Key"), "{secret:EXAMPLE_API_KEY}", "abc123"),
        ("-H 'X-API-Key: $KEY'", ("headers", "X-API-Key"), "{secret:EXAMPLE_API_KEY}", "$KEY"),
        ('-H "X-API-Key: $KEY"', ("headers", "X-API-Key"), "{secret:EXAMPLE_API_KEY}", ""),
        ("-H 'X-API-Key: YOUR_API_KEY'", ("headers", "X-API-Key"), "{secret:EXAMPLE_API_KEY}", ""),
        ("-u ann:pass", ("headers", "Authorization"), "Basic {secret:EXAMPLE_TOKEN}", "YW5uOnBhc3M="),
        ("-b 'sid=abc123'", ("headers", "Cookie"), "{secret:EXAMPLE_COOKIE}", "sid=abc123"),
        ("-G -d api_key=abc123", ("query", "api_key"), "{secret:EXAMPLE_API_KEY}", "abc123"),
        ('--json \'{"password": "abc123"}\'', ("body", "password"), "{secret:EXAMPLE_PASSWORD}", "abc123"),
    ],
)
def test_a_credential_is_set_apart_and_never_part_of_the_definition(
    pasted: str, place: tuple[str, str], value: str, stored: str
) -> None:
    draft = draft_of(f"curl {URL} {pasted}")
    assert draft.fields[place[0]][place[1]] == value
    assert [one.value for one in draft.credentials] == [stored]
    assert "abc123" not in str(draft)
    config_of(draft)


def test_credentials_in_a_url_are_set_apart() -> None:
    draft = draft_of("https://ann:pass@api.example.com/v1")
    assert draft.fields["base_url"] == "https://api.example.com"
    assert [one.value for one in draft.credentials] == ["YW5uOnBhc3M="]


@pytest.mark.parametrize(
    ("pasted", "note"),
    [
        (f"curl {URL} --frobnicate", "--frobnicate is left out: this option is unknown."),
        (f"curl --proxy http://p.example {URL}", "--proxy is left out: HTTP tools have no such setting."),
        (f"curl -k {URL}", "-k is left out: certificates are always verified."),
        (f"curl {URL} https://b.example", "The command has several URLs. The first one is used."),
        (f"curl {URL} | jq .", "Only the first command is used."),
        (f"curl {URL} -d @file.json", "--data @file is left out: the hub cannot read the file. Enter the body."),
        (f"curl {URL} -d a=1", "The body is a form. HTTP tools send JSON: check that the service accepts it."),
        (f"curl {URL} -X OPTIONS", "The method OPTIONS is not supported."),
        (f"curl {URL} -X GET --json '{{}}'", "The body is left out: GET requests have no body."),
        (
            f"curl {URL} -H 'Host: x' -H 'sec-ch-ua: y' -H 'Referer: z'",
            "Left out, because the hub or a browser sets them: Host, sec-ch-ua, Referer.",
        ),
        ("curl api.example.com", "The URL has no scheme; https:// is assumed."),
    ],
)
def test_what_a_tool_cannot_express_is_said_in_a_note(pasted: str, note: str) -> None:
    draft = draft_of(pasted)
    assert any(one.startswith(note) for one in draft.notes), draft.notes
    config_of(draft)


@pytest.mark.parametrize(
    ("pasted", "message"),
    [
        ("", "Paste a cURL command or a URL."),
        ("wget https://example.com", "starts with curl"),
        ("curl -s", "has no URL"),
        ("curl -X", "-X has no value"),
        (f"curl '{URL}", "at character 6 is not closed"),
        ("curl ftp://example.com/a", "must start with http"),
        ("curl $BASE/users", "host of the URL is a variable"),
        (f'curl ^"{URL}^"', "cURL (bash)"),
        ("curl " + "x" * MAX_PASTE_LENGTH, "The limit is"),
        ("curl " + "a " * 3000, "more than 2000 words"),
    ],
)
def test_what_is_no_request_is_refused_with_what_to_do(pasted: str, message: str) -> None:
    with pytest.raises(InvalidPaste) as refused:
        draft_of(pasted)
    assert message in str(refused.value)


def test_constants_are_offered_as_arguments() -> None:
    draft = draft_of(f'curl \'{URL}?limit=10&q={{q}}\' --json \'{{"name": "Ann", "deep": {{"a": 1}}}}\'')
    assert [(one.where, one.name, one.value) for one in draft.values] == [
        ("query", "limit", "10"),
        ("body", "name", "Ann"),
    ]
