"""Names of tools that the hub needs for its own: those of the tools that search and call the others."""

from typing import Final
from uuid import UUID

from tools_app.models import ApiKey, Presentation, Tenant, Tool

FIND: Final = "find_tools"
DESCRIBE: Final = "describe_tool"
CALL: Final = "call_tool"
RESERVED: Final = frozenset({FIND, DESCRIBE, CALL})


def reserved_fault(tenant: Tenant, name: str, tool_id: UUID | None = None) -> str:
    """Return why a tool of the tenant cannot have this name; "" if it can, or if the tool `tool_id` has it already.

    A tenant that lists its tools in full to every key may use the names. Once its tools may be searched, a tool of such
    a name is hidden behind that of the hub, and reachable by `call_tool` only.
    """
    if name not in RESERVED or name not in reserved_names(tenant):
        return ""
    if tool_id is not None and Tool.objects.filter(pk=tool_id, tenant=tenant, name=name).exists():
        return ""
    return f"{name} is the name of a tool of the hub itself, because tools of this tenant may be searched."


def reserved_names(tenant: Tenant) -> frozenset[str]:
    """Return the names that no new tool of the tenant can have."""
    searched = (Presentation.SEARCH, Presentation.AUTO)
    is_searched = tenant.presentation in searched
    if is_searched or ApiKey.objects.filter(tenant=tenant, presentation__in=searched).exists():
        return RESERVED
    return frozenset()
