"""A minimal client of the modern era, for tests of the records of its calls."""

from collections.abc import Mapping
from typing import Any

import httpx

META = {
    "progressToken": "shown",
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def call_tool(
    hub: str, key: str, tool: str, arguments: Mapping[str, Any], slug: str = "", client: str = "laptop"
) -> httpx.Response:
    """Call a tool; return the response."""
    meta = {**META, "io.modelcontextprotocol/clientInfo": {"name": client, "version": "1"}}
    headers = {
        "Authorization": f"Bearer {key}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    params = {"name": tool, "arguments": dict(arguments), "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    url = f"{hub}/t/{slug}/mcp" if slug else f"{hub}/mcp"
    return httpx.post(url, json=body, headers=headers, timeout=30, trust_env=False)
