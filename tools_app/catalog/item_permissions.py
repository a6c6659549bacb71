"""What a caller may do with a tool, a prompt or a resource: one rule for lists, searches, calls and notifications."""

from tools_app.access.principal import Principal
from tools_app.catalog.compiled import Catalog
from tools_app.models.validators import ItemKind


def may(found: Catalog | None, principal: Principal, kind: ItemKind, method: str, name: str) -> bool:
    """Whether the caller may use this method of MCP with the item of this kind and name.

    Its key, its scopes, its toolset and its person decide that. The name of a resource is its URI, or its template
    where a template has it; that of a skill is the URI of its SKILL.md. The item need not exist.
    """
    if not principal.permits_item(kind, method, name):
        return False
    if kind != "tool":
        return True
    if principal.toolset is not None and (found is None or not found.in_toolset(principal.toolset, name)):
        return False
    if principal.person_id is not None or found is None:
        return True
    tool = found.tools.get(name)
    return tool is None or not tool.needs_person


def may_use_uri(found: Catalog | None, principal: Principal, method: str, uri: str) -> bool:
    """Whether there is a resource with this URI, of its own or by a template, with which the caller may do this."""
    named = found.find_resource(uri) if found is not None else None
    return named is not None and may(found, principal, "resource", method, named[0].name)
