"""What a person pastes into a client to connect it with a key."""

import json
import shlex


def endpoint(base: str, slug: str) -> str:
    """The URL of a tenant's endpoint; `base` is the hub's own, such as `https://hub.example`."""
    return f"{base.rstrip('/')}/t/{slug}/mcp"


def claude_command(name: str, url: str, key: str) -> str:
    """A shell command that adds the endpoint to Claude Code as `name`."""
    return shlex.join(
        ["claude", "mcp", "add", "--transport", "http", name, url, "--header", f"Authorization: Bearer {key}"]
    )


def client_json(name: str, url: str, key: str) -> str:
    """The `mcpServers` entry that most clients read from their configuration file."""
    server = {"type": "http", "url": url, "headers": {"Authorization": f"Bearer {key}"}}
    return json.dumps({"mcpServers": {name: server}}, indent=2)
