"""Which parameters of a tool may travel in headers: the protocol's rules, and no secrets (tools, §x-mcp-header)."""

from collections.abc import Mapping
from typing import Any

from tools_app.audit.redaction import is_secret
from tools_app.protocol.mirrored import PREFIX, BadMirror, mirrored


def check(schema: Mapping[str, Any]) -> None:
    """Raise BadMirror for a mark that the specification forbids, or on what is named like a secret."""
    for one in mirrored(schema):
        for name in (*one.path, one.header.removeprefix(PREFIX)):
            if is_secret(name):
                place = tuple(step for name in one.path for step in ("properties", name))
                raise BadMirror(place, f"'{name}' looks like a secret, and headers are read and logged on their way.")
