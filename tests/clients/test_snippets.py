"""Connection snippets, run against the embedded hub: programs are executed, files are read as their clients do.

Those that need npm are in `tests/services`.
"""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from typing import Any

import pytest

from tests.wire.client import RawClient
from tools_app.server.embedded import EmbeddedHub
from tools_app.tenants.snippets import calls, clients
from tools_app.tenants.snippets.calls import SnippetRequest

LIMIT_SECONDS = 120.0
VERSIONS = ["2026-07-28", "2025-11-25"]


@pytest.fixture
def url(hub: EmbeddedHub, offer: Callable[..., Any]) -> str:
    offer("echo")
    return clients.endpoint(hub.url, "acme")


def snippet_request(version: str) -> SnippetRequest:
    return SnippetRequest("tools/call", {"name": "echo", "arguments": {"message": 'it\'s "ü" $HOME'}}, version)


def run(*command: str, stdin: str = "") -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("bash")), reason="there is no curl here")
@pytest.mark.parametrize("version", VERSIONS)
def test_curl(url: str, key: str, version: str) -> None:
    output = run("bash", stdin=calls.curl(url, key, snippet_request(version)))
    assert json.loads(output)["result"]["content"][0]["text"] == 'hello it\'s "ü" $HOME'


@pytest.mark.parametrize("version", [VERSIONS[0], pytest.param(VERSIONS[1], marks=pytest.mark.slow)])
def test_python(url: str, key: str, version: str) -> None:
    output = run(sys.executable, "-", stdin=calls.python(url, key, snippet_request(version)))
    assert 'hello it\\\'s "ü" $HOME' in output


def test_python_lists_the_tools(url: str, key: str) -> None:
    assert run(sys.executable, "-", stdin=calls.python(url, key, SnippetRequest())).split() == ["echo"]


@pytest.mark.parametrize("name", ["claude-code-project", "cursor", "vscode", "codex", "claude-desktop"])
def test_files_lead_to_the_endpoint(url: str, key: str, name: str) -> None:
    text = next(snippet.text for snippet in clients.for_key("acme", url, key) if snippet.id == name)
    where, credential = found_in(name, text, {"MCPHUB_API_KEY": key, f"input:{clients.INPUT}": key})
    base, path = where.split("/t/")
    client = RawClient(base, None, f"/t/{path}")
    with client.http:
        headers = {"Authorization": credential, "Accept": "application/json"}
        response = client.modern("tools/list", headers=headers)
        assert [tool["name"] for tool in response.json()["result"]["tools"]] == ["echo"]


def found_in(name: str, text: str, variables: dict[str, str]) -> tuple[str, str]:
    """The URL and the Authorization header in a client's file."""
    if name == "codex":
        server = tomllib.loads(text)["mcp_servers"]["acme"]
        return server["url"], f"Bearer {variables[server['bearer_token_env_var']]}"
    file = json.loads(text)
    server = file.get("mcpServers", file.get("servers"))["acme"]
    if name == "claude-desktop":
        header = server["args"][server["args"].index("--header") + 1]
        return server["args"][2], expanded(header, server["env"]).removeprefix("Authorization:")
    return server["url"], expanded(server["headers"]["Authorization"], variables)


def expanded(text: str, variables: dict[str, str]) -> str:
    return re.sub(r"\$\{([^}]+)\}", lambda name: variables[name[1]], text)
