"""Code snippets of one request to an endpoint: for curl, and for the official SDKs of Python and TypeScript.

Pure functions of the request. External values (names, arguments) are quoted by the rules of each language.
"""

import json
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from tools_app.protocol import inbound
from tools_app.protocol.versions import LATEST_MODERN, is_modern

CLIENT = {"name": "my-client", "version": "1"}
BOTH_TYPES = "application/json, text/event-stream"


class SnippetRequest(msgspec.Struct, frozen=True):
    """A request: its method and parameters, the revision, and `mirrored`, the headers that repeat arguments."""

    method: str = "tools/list"
    params: dict[str, Any] = {}
    version: str = LATEST_MODERN
    mirrored: dict[str, str] = {}


def curl(url: str, key: str, request: SnippetRequest) -> str:
    """Return shell commands: one in the modern era; a session, the request and its end in the handshake era."""
    return _modern_curl(url, key, request) if is_modern(request.version) else _handshake_curl(url, key, request)


def python(url: str, key: str, request: SnippetRequest) -> str:
    """Return a program for version 2 of the `mcp` package."""
    mode = "" if is_modern(request.version) else ', mode="legacy"'
    return f"""\
import asyncio

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

URL = {_python(url)}
HEADERS = {{"Authorization": {_python(f"Bearer {key}")}}}


async def main() -> None:
    async with (
        httpx2.AsyncClient(headers=HEADERS, timeout=60) as http,
        Client(streamable_http_client(URL, http_client=http){mode}) as client,
    ):
        {_python_call(request)}


asyncio.run(main())
"""


def typescript(url: str, key: str, request: SnippetRequest) -> str:
    """Return a program for version 2 of the package @modelcontextprotocol/client."""
    mode = "auto" if is_modern(request.version) else "legacy"
    names = {"tools/call": "callTool", "resources/read": "readResource", "prompts/get": "getPrompt"}
    call = "for (const tool of (await client.listTools()).tools) console.log(tool.name);"
    if name := names.get(request.method):
        call = f"console.log(JSON.stringify(await client.{name}({_json(request.params)}), null, 2));"
    return f"""\
import {{ Client, StreamableHTTPClientTransport }} from "@modelcontextprotocol/client";

const client = new Client({_json(CLIENT)}, {{ versionNegotiation: {{ mode: {_json(mode)} }} }});
const transport = new StreamableHTTPClientTransport(new URL({_json(url)}), {{
  requestInit: {{ headers: {{ Authorization: {_json(f"Bearer {key}")} }} }},
}});

await client.connect(transport);
{call}
await client.close();
"""


# --- curl -----------------------------------------------------------------------------------------------------------


def _modern_curl(url: str, key: str, request: SnippetRequest) -> str:
    meta = {
        inbound.VERSION_META: request.version,
        inbound.CLIENT_META: CLIENT,
        inbound.CAPABILITIES_META: {},
    }
    headers = {"MCP-Protocol-Version": request.version, "Mcp-Method": request.method}
    named_by = inbound.NAMED_BY.get(request.method)
    if named_by:
        headers["Mcp-Name"] = inbound.encoded(str(request.params.get(named_by, "")))
    body = _rpc(request.method, {**request.params, "_meta": meta})
    return _posting(url, key, {**headers, **request.mirrored}, body)


def _handshake_curl(url: str, key: str, request: SnippetRequest) -> str:
    opening = {"protocolVersion": request.version, "capabilities": {}, "clientInfo": CLIENT}
    opened = _posting(url, key, {}, _rpc("initialize", opening), "-sS -D - -o /dev/null")
    session = '-H "Mcp-Session-Id: $session"'
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    return "\n".join(
        [
            f"session=$({opened} \\",
            "  | tr -d '\\r' | sed -n 's/^[Mm][Cc][Pp]-[Ss]ession-[Ii][Dd]: //p')",
            _posting(url, key, {}, initialized, f"-sS {session}"),
            _posting(url, key, {}, _rpc(request.method, request.params), f"-sS {session}"),
            f"curl -sS -X DELETE {shlex.quote(url)} {session} \\\n  -H {shlex.quote(f'Authorization: Bearer {key}')}",
        ]
    )


def _posting(url: str, key: str, headers: Mapping[str, str], body: Mapping[str, Any], switches: str = "-sS") -> str:
    fields = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "Accept": BOTH_TYPES,
        **headers,
    }
    lines = [f"curl {switches} {shlex.quote(url)}"]
    lines += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in fields.items()]
    lines.append(f"-d {shlex.quote(_json(body))}")
    return " \\\n  ".join(lines)


def _rpc(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": dict(params)}


# --- The SDKs -------------------------------------------------------------------------------------------------------


def _python_call(request: SnippetRequest) -> str:
    params = request.params
    match request.method:
        case "tools/call":
            call = f"client.call_tool({_python(params.get('name'))}, {_python(params.get('arguments', {}))})"
        case "resources/read":
            call = f"client.read_resource({_python(params.get('uri'))})"
        case "prompts/get":
            call = f"client.get_prompt({_python(params.get('name'))}, {_python(params.get('arguments', {}))})"
        case _:
            return "for tool in (await client.list_tools()).tools:\n            print(tool.name)"
    return f"print(await {call})"


def _json(value: Any) -> str:
    """Return JSON, which is also valid JavaScript."""
    return json.dumps(value, ensure_ascii=False)


def _python(value: Any) -> str:
    """Return a JSON value as a Python literal: strings in double quotes, as in the rest of the program."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=True)
    if isinstance(value, list):
        return f"[{', '.join(map(_python, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_python(name)}: {_python(inner)}" for name, inner in value.items()) + "}"
    return repr(value)
