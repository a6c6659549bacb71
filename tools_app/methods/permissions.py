"""Method permissions of API keys: a method that a key may not use is refused by name and recorded as a denial.

Tools, resources and prompts that a key may not use look as if they do not exist; see `Principal.may`.
"""

from collections.abc import Mapping
from typing import Any, Final

from tools_app.audit.recorder import denials
from tools_app.audit.recorder.denials import Denial
from tools_app.calls.request import RequestContext
from tools_app.catalog import compiled
from tools_app.catalog.shaping import part_of
from tools_app.catalog.tool_api.results import without
from tools_app.catalog.validation.reserved import CALL, RESERVED
from tools_app.core.validators import ItemKind
from tools_app.identity.principal import Principal
from tools_app.models import TOOLS_CALL
from tools_app.protocol.errors import NOT_PERMITTED, RpcError
from tools_app.protocol.versions import Era

FORBIDDEN = 403
READ: Final = "resources/read"
Item = tuple[ItemKind, str]

# A capability is declared to callers that may use at least one of these methods.
_METHOD_OF_CAPABILITY: Final[Mapping[str, tuple[str, ...]]] = {
    "tools": ("tools/list", "tools/call"),
    "resources": ("resources/list", "resources/templates/list", "resources/read"),
    "prompts": ("prompts/list", "prompts/get"),
    "completions": ("completion/complete",),
    "tasks": ("tasks/get",),
    "io.modelcontextprotocol/tasks": ("tasks/get",),
    "io.modelcontextprotocol/skills": ("skills/list", "skills/get"),
}
# A part of a capability is declared to callers that may use this method. In the modern era, `subscriptions/listen`
# reports all changes.
_PARTS: Final[Mapping[tuple[str, str], str]] = {
    ("tools", "listChanged"): "tools/list",
    ("prompts", "listChanged"): "prompts/list",
    ("resources", "listChanged"): "resources/list",
    ("resources", "subscribe"): "resources/subscribe",
    ("tasks", "list"): "tasks/list",
    ("tasks", "cancel"): "tasks/cancel",
    ("io.modelcontextprotocol/skills", "directoryRead"): "resources/directory/read",
}
# What a request of these methods names. A directory of a skill is no item.
_KIND_OF_METHOD: Final[Mapping[str, ItemKind]] = {
    TOOLS_CALL: "tool",
    "prompts/get": "prompt",
    READ: "resource",
    "resources/subscribe": "resource",
    "resources/unsubscribe": "resource",
    "skills/get": "resource",
}
_SENT_ON_STREAMS: Final = {"listChanged", "subscribe"}


async def check(context: RequestContext) -> None:
    """Raise RpcError -32003, and record a denial, for a method that the caller's key does not permit."""
    await check_for(context, context.request.method, item_of(context.request.method, context.params))


async def check_for(context: RequestContext, method: str, item: Item | None) -> None:
    """Raise RpcError -32003, and record a denial, if the caller's key does not permit a method for this item."""
    principal = context.principal
    needs_scope = await lacks_scope(principal, method, item)
    if principal.permits_method(method) and not needs_scope:
        return
    advice = (
        "Sign in again to allow it." if needs_scope else "An admin of its tenant can add that to the key's methods."
    )
    refusal = RpcError(
        NOT_PERMITTED,
        f"This {'access token' if needs_scope else 'API key'} may not use {method}. {advice}",
        {"scope": "methods", "method": method},
    )
    denials.note(
        Denial(
            http_status=FORBIDDEN,
            cause=refusal.message,
            remote_address=context.client.remote_address,
            tenant_id=principal.tenant_id,
            key_id=principal.key_id,
            rpc_error=refusal.code,
            method=method,
            tool_name=item[1] if item else "",
        )
    )
    raise refusal


def permitted_capabilities(capabilities: Mapping[str, Any], principal: Principal, era: Era) -> Mapping[str, Any]:
    """Return the hub's capabilities that this caller may use."""
    if principal.methods is None and principal.grants is None:
        return capabilities
    permitted = {name: _parts(name, capability, principal, era) for name, capability in capabilities.items()}
    extensions = {
        name: _parts(name, settings, principal, era)
        for name, settings in permitted.pop("extensions", {}).items()
        if _is_usable(name, principal)
    }
    usable = {name: capability for name, capability in permitted.items() if _is_usable(name, principal)}
    return usable | ({"extensions": extensions} if extensions else {})


def _is_usable(capability: str, principal: Principal) -> bool:
    methods = _METHOD_OF_CAPABILITY.get(capability)
    return methods is None or any(map(principal.permits_method, methods))


def _parts(name: str, capability: Mapping[str, Any], principal: Principal, era: Era) -> dict[str, Any]:
    def method(part: str) -> str | None:
        return "subscriptions/listen" if era is Era.MODERN and part in _SENT_ON_STREAMS else _PARTS.get((name, part))

    wanted = {part: method(part) for part in capability}
    return without(
        capability, *(part for part, required in wanted.items() if required and not principal.permits_method(required))
    )


async def lacks_scope(principal: Principal, method: str, item: Item | None) -> bool:
    """Whether the caller's access token has too narrow a scope for a method, with this item if it has one.

    A resource of a template may also be named as the template, as it is where it is listed.
    """
    if not principal.lacks_scope(method, item):
        return False
    if item is None or item[0] != "resource":
        return True
    found = await compiled.cache.get(principal.tenant_id)
    named = found.find_resource(item[1]) if found is not None else None
    return named is None or principal.lacks_scope(method, ("resource", named[0].name))


def item_of(method: str, params: Mapping[str, Any]) -> Item | None:
    """Return the kind and the name, or URI, of the item that a request refers to, if it has one.

    A call by `call_tool` refers to its target, and one of another tool that searches to none: scopes do not name them.
    What a tenant's own tool of such a name may be called by is checked again when it is called.
    """
    kind = _KIND_OF_METHOD.get(method)
    named = params.get("uri" if kind == "resource" else "name")
    if kind == "tool" and isinstance(named, str) and named in RESERVED:
        arguments = params.get("arguments")
        named = arguments.get("name") if named == CALL and isinstance(arguments, dict) else None
    if kind is None or not isinstance(named, str) or (method == READ and part_of(named) is not None):
        return None  # who may read a part of a result depends on its call
    return kind, named
