"""Configuration snippets that connect a client with a key. Pure functions of name, URL and key.

A key is inserted without quoting: `is_pasteable` checks that it is one word of valid bearer token characters.
"""

import base64
import json
import re
import shlex
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from tools_app.tenants.snippets import calls
from tools_app.tenants.snippets.calls import SnippetRequest

# The placeholder for the key.
PLACEHOLDER: Final = "YOUR_KEY"
VARIABLE: Final = "MCPHUB_API_KEY"
INPUT: Final = "mcphub-key"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HERE = ("localhost", "127.0.0.1", "::1")


class Snippet(msgspec.Struct, frozen=True):
    """One text to paste: for which client, and where. `has_key`: it contains the key."""

    id: str
    title: str
    where: str
    text: str
    note: str = ""
    has_key: bool = True


def endpoint(base: str, slug: str) -> str:
    """Return the URL of a tenant's endpoint; `base` is the hub's URL, such as `https://hub.example`."""
    return f"{base.rstrip('/')}/t/{slug}/mcp"


def is_pasteable(key: str) -> bool:
    """Whether a key needs no quoting anywhere (RFC 6750, §2.1). Generated keys never need it."""
    return bool(_TOKEN.fullmatch(key))


def for_key(name: str, url: str, key: str = PLACEHOLDER) -> list[Snippet]:
    """Return all snippets that connect a client to `url` with `key`; `name` is what the client calls the hub."""
    return [
        Snippet("claude-code", "Claude Code", "Run in a terminal.", claude_command(name, url, key)),
        Snippet(
            "claude-code-project",
            "Claude Code, for a project",
            f".mcp.json in the project. Each person sets {VARIABLE} to a key of their own.",
            client_json(name, url, f"${{{VARIABLE}}}"),
            has_key=False,
        ),
        Snippet(
            "claude-desktop",
            "Claude Desktop",
            "claude_desktop_config.json: Settings, Developer, Edit Config. Restart Claude Desktop.",
            claude_desktop(name, url, key),
            "Claude Desktop starts programs from this file and takes no URL in it; its custom connectors log in by"
            " OAuth and take no key. So mcp-remote (from npm; needs Node.js) stands between.",
        ),
        Snippet("cursor", "Cursor", "~/.cursor/mcp.json, or .cursor/mcp.json in a project.", cursor(name, url, key)),
        Snippet(
            "vscode",
            "VS Code",
            ".vscode/mcp.json, or the command “MCP: Open User Configuration”.",
            vscode(name, url),
            "VS Code asks for the key once and keeps it in its secret storage: it does not stand in the file.",
            has_key=False,
        ),
        Snippet(
            "codex",
            "Codex",
            f"~/.codex/config.toml. Set {VARIABLE} to the key in the environment that Codex starts in.",
            codex(name, url),
            "Codex takes a bearer token from the environment, not from the file.",
            has_key=False,
        ),
        Snippet("codex-key", "Codex: the key", "The shell's profile.", f"export {VARIABLE}={shlex.quote(key)}"),
        Snippet("inspector", "MCP Inspector", "Run in a terminal; needs Node.js 22.", inspector(url, key)),
        Snippet("curl", "curl", "Run in a terminal: lists the tools.", calls.curl(url, key, SnippetRequest())),
        Snippet("python", "Python", "pip install 'mcp>=2'", calls.python(url, key, SnippetRequest())),
        Snippet(
            "typescript",
            "TypeScript",
            "npm install @modelcontextprotocol/client",
            calls.typescript(url, key, SnippetRequest()),
        ),
    ]


def claude_command(name: str, url: str, key: str) -> str:
    """Return a shell command that adds the endpoint to Claude Code as `name`."""
    return shlex.join(
        ["claude", "mcp", "add", "--transport", "http", name, url, "--header", f"Authorization: Bearer {key}"]
    )


def client_json(name: str, url: str, key: str) -> str:
    """Return the `mcpServers` entry that most clients read from their configuration file."""
    return _pretty({"mcpServers": {name: {"type": "http", **_server(url, key)}}})


def claude_desktop(name: str, url: str, key: str) -> str:
    """Return the entry of Claude Desktop, using mcp-remote. A header with a blank in it comes from the environment."""
    arguments = ["-y", "mcp-remote", url, "--transport", "http-only", "--header", "Authorization:${AUTHORIZATION}"]
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in _HERE:
        arguments.append("--allow-http")
    server = {"command": "npx", "args": arguments, "env": {"AUTHORIZATION": f"Bearer {key}"}}
    return _pretty({"mcpServers": {name: server}})


def cursor(name: str, url: str, key: str) -> str:
    """Return the entry of Cursor's mcp.json."""
    return _pretty({"mcpServers": {name: _server(url, key)}})


def cursor_link(name: str, url: str, key: str) -> str:
    """Return a link with which Cursor offers to add the endpoint."""
    config = base64.b64encode(json.dumps(_server(url, key)).encode()).decode()
    return f"cursor://anysphere.cursor-deeplink/mcp/install?name={quote(name)}&config={quote(config, safe='')}"


def vscode(name: str, url: str) -> str:
    """Return VS Code's mcp.json, which lets it ask for the key."""
    prompt = {"type": "promptString", "id": INPUT, "description": f"API key of {name}", "password": True}
    server = {"type": "http", **_server(url, f"${{input:{INPUT}}}")}
    return _pretty({"inputs": [prompt], "servers": {name: server}})


def codex(name: str, url: str) -> str:
    """Return the table of Codex's config.toml. JSON strings are valid TOML strings."""
    table = name if _BARE.fullmatch(name) else json.dumps(name)
    return f"[mcp_servers.{table}]\nurl = {json.dumps(url)}\nbearer_token_env_var = {json.dumps(VARIABLE)}"


def inspector(url: str, key: str) -> str:
    """Return a shell command that lists the tools with the Inspector."""
    command = ["npx", "-y", "@modelcontextprotocol/inspector", "--cli", url, "--transport", "http"]
    return shlex.join([*command, "--header", f"Authorization: Bearer {key}", "--method", "tools/list"])


def _server(url: str, key: str) -> dict[str, Any]:
    return {"url": url, "headers": {"Authorization": f"Bearer {key}"}}


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
