"""Connection snippets: each is valid in its language, and uses the endpoint with the key."""

import ast
import base64
import json
import shlex
import tomllib
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tools_app.tenants import keys
from tools_app.tenants.snippets import calls, clients
from tools_app.tenants.snippets.calls import SnippetRequest

URL = "https://hub.example/t/acme/mcp"
KEY = "mcphub_" + "k-_9" * 10
BEARER = {"Authorization": f"Bearer {KEY}"}
AWKWARD = {"text": 'it\'s "quoted" $HOME `id` \\ ü\n\u2028', "deep": [{"yes": True, "none": None, "n": -1.5e3}]}


def of(name: str, key: str = KEY, url: str = URL) -> str:
    return next(snippet.text for snippet in clients.for_key("acme", url, key) if snippet.id == name)


def test_every_snippet_has_the_key_or_says_that_it_has_not() -> None:
    for snippet in clients.for_key("acme", URL, KEY):
        assert (KEY in snippet.text) is snippet.has_key
    for snippet in clients.for_key("acme", URL):
        assert (clients.PLACEHOLDER in snippet.text) is snippet.has_key


def test_a_page_may_fill_the_key_in_by_plain_replacement() -> None:
    for empty, full in zip(clients.for_key("acme", URL), clients.for_key("acme", URL, KEY), strict=True):
        assert empty.text.replace(clients.PLACEHOLDER, KEY) == full.text


def test_keys_that_the_hub_makes_are_pasteable_and_others_are_told_apart() -> None:
    assert clients.is_pasteable(keys.new_key())
    for bad in ("", "a b", "a'b", 'a"b', "a\nb", "a\\b", "$a", "ä", "a\n"):
        assert not clients.is_pasteable(bad)


def test_claude_code_is_told_by_one_command() -> None:
    words = shlex.split(of("claude-code"))
    assert words[:5] == ["claude", "mcp", "add", "--transport", "http"]
    assert words[5:] == ["acme", URL, "--header", f"Authorization: Bearer {KEY}"]


@pytest.mark.parametrize("name", ["claude-code-project", "cursor"])
def test_clients_that_read_mcp_servers(name: str) -> None:
    server = json.loads(of(name))["mcpServers"]["acme"]
    assert server["url"] == URL
    assert server["headers"] == ({"Authorization": "Bearer ${MCPHUB_API_KEY}"} if "project" in name else BEARER)


def test_cursor_has_a_link_too() -> None:
    link = urlsplit(clients.cursor_link("acme", URL, KEY))
    query = parse_qs(link.query)
    assert (link.scheme, link.netloc, link.path) == ("cursor", "anysphere.cursor-deeplink", "/mcp/install")
    assert query["name"] == ["acme"]
    config = json.loads(base64.b64decode(query["config"][0]))
    assert config == json.loads(of("cursor"))["mcpServers"]["acme"] == {"url": URL, "headers": BEARER}


@pytest.mark.parametrize(
    ("url", "insecure"), [(URL, False), ("http://localhost:8000/t/a/mcp", False), ("http://hub.lan/t/a/mcp", True)]
)
def test_claude_desktop_goes_by_way_of_mcp_remote(url: str, insecure: bool) -> None:
    server = json.loads(of("claude-desktop", url=url))["mcpServers"]["acme"]
    assert server["command"] == "npx"
    assert server["args"][:3] == ["-y", "mcp-remote", url]
    # Some clients split arguments at spaces, so such a value is in the environment.
    assert not [argument for argument in server["args"] if " " in argument]
    assert server["env"] == {"AUTHORIZATION": f"Bearer {KEY}"}
    assert ("--allow-http" in server["args"]) is insecure


def test_vs_code_asks_for_the_key() -> None:
    file = json.loads(of("vscode"))
    [prompt] = file["inputs"]
    assert (prompt["type"], prompt["password"]) == ("promptString", True)
    server = file["servers"]["acme"]
    assert (server["type"], server["url"]) == ("http", URL)
    assert server["headers"] == {"Authorization": f"Bearer ${{input:{prompt['id']}}}"}


def test_codex_takes_the_key_from_the_environment() -> None:
    server = tomllib.loads(of("codex"))["mcp_servers"]["acme"]
    assert server == {"url": URL, "bearer_token_env_var": "MCPHUB_API_KEY"}
    assert shlex.split(of("codex-key")) == ["export", f"MCPHUB_API_KEY={KEY}"]


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25", "2024-11-05"])
def test_awkward_arguments_arrive_whole_by_curl_and_python(version: str) -> None:
    request = SnippetRequest("tools/call", {"name": "it's", "arguments": AWKWARD}, version)
    words = shlex.split(calls.curl(URL, KEY, request).replace("$(", " ").replace("\\\n", " "))
    bodies = [json.loads(words[at + 1]) for at, word in enumerate(words) if word == "-d" and words[at + 1] != "\\r"]
    [body] = [body for body in bodies if body["method"] == "tools/call"]
    assert (body["params"]["name"], body["params"]["arguments"]) == ("it's", AWKWARD)
    [call] = calls_in(calls.python(URL, KEY, request), "call_tool")
    assert [ast.literal_eval(argument) for argument in call.args] == ["it's", AWKWARD]


def calls_in(program: str, name: str) -> list[Any]:
    """The calls of this method in a Python program, which has to be valid."""
    nodes = ast.walk(ast.parse(program))
    return [node for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == name]


def test_each_kind_of_request_has_its_call_in_each_language() -> None:
    read = SnippetRequest("resources/read", {"uri": "docs://ü"})
    assert 'read_resource("docs://\\u00fc")' in calls.python(URL, KEY, read)
    assert 'readResource({"uri": "docs://ü"})' in calls.typescript(URL, KEY, read)
    assert "Mcp-Name: =?base64?" in calls.curl(URL, KEY, read)
    get = SnippetRequest("prompts/get", {"name": "greet", "arguments": {"who": "Ann"}})
    assert 'get_prompt("greet", {"who": "Ann"})' in calls.python(URL, KEY, get)
    assert 'getPrompt({"name": "greet", "arguments": {"who": "Ann"}})' in calls.typescript(URL, KEY, get)
