"""Which methods a key may use: what it may not is refused by name, and recorded as a denial.

What a key may not see by its name or URI is no matter of this: it looks like what does not exist, see `may_use`.
"""

from collections.abc import Mapping
from typing import Any, Final

from tools_app.audit import denials
from tools_app.audit.denials import Denial
from tools_app.auth.principal import Principal
from tools_app.execution.results import without
from tools_app.methods.exchange import Exchange
from tools_app.protocol.errors import NOT_PERMITTED, RpcError
from tools_app.protocol.versions import Era

FORBIDDEN = 403

# What a key's methods may name, in any revision; the rest is open to all, see `principal.ALWAYS`.
METHODS: Final = (
    "completion/complete",
    "prompts/get",
    "prompts/list",
    "resources/directory/read",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "skills/get",
    "skills/list",
    "subscriptions/listen",
    "tasks/cancel",
    "tasks/get",
    "tasks/list",
    "tasks/result",
    "tasks/update",
    "tools/call",
    "tools/list",
)

# A capability is declared to whoever may use one of its methods.
_ASKED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "tools": ("tools/list", "tools/call"),
    "resources": ("resources/list", "resources/templates/list", "resources/read"),
    "prompts": ("prompts/list", "prompts/get"),
    "completions": ("completion/complete",),
    "tasks": ("tasks/get",),
    "io.modelcontextprotocol/tasks": ("tasks/get",),
    "io.modelcontextprotocol/skills": ("skills/list", "skills/get"),
}
# And a part of one to whoever may use this method; in the modern era all changes are told by one.
_PARTS: Final[Mapping[tuple[str, str], str]] = {
    ("tools", "listChanged"): "tools/list",
    ("prompts", "listChanged"): "prompts/list",
    ("resources", "listChanged"): "resources/list",
    ("resources", "subscribe"): "resources/subscribe",
    ("tasks", "list"): "tasks/list",
    ("tasks", "cancel"): "tasks/cancel",
    ("io.modelcontextprotocol/skills", "directoryRead"): "resources/directory/read",
}
_TOLD_BY_LISTENING: Final = {"listChanged", "subscribe"}


def check(exchange: Exchange) -> None:
    """Raise RpcError -32003, noted as a denial, for a method that the caller's key does not open."""
    principal, method = exchange.principal, exchange.request.method
    if principal.may_ask(method):
        return
    refusal = RpcError(
        NOT_PERMITTED,
        f"This API key may not use {method}. An admin of its tenant can add that to the key's methods.",
        {"scope": "methods", "method": method},
    )
    denials.note(
        Denial(
            http_status=FORBIDDEN,
            cause=refusal.message,
            remote_address=exchange.client.remote_address,
            tenant_id=principal.tenant_id,
            key_id=principal.key_id,
            rpc_error=refusal.code,
            method=method,
            tool_name=_named(exchange),
        )
    )
    raise refusal


def declared(capabilities: Mapping[str, Any], principal: Principal, era: Era) -> Mapping[str, Any]:
    """What of the hub's capabilities this caller may use."""
    if principal.methods is None:
        return capabilities
    told = {name: _parts(name, capability, principal, era) for name, capability in capabilities.items()}
    extensions = {
        name: _parts(name, settings, principal, era)
        for name, settings in told.pop("extensions", {}).items()
        if _is_usable(name, principal)
    }
    usable = {name: capability for name, capability in told.items() if _is_usable(name, principal)}
    return usable | ({"extensions": extensions} if extensions else {})


def _is_usable(capability: str, principal: Principal) -> bool:
    methods = _ASKED_BY.get(capability)
    return methods is None or any(map(principal.may_ask, methods))


def _parts(name: str, capability: Mapping[str, Any], principal: Principal, era: Era) -> dict[str, Any]:
    def method(part: str) -> str | None:
        return "subscriptions/listen" if era is Era.MODERN and part in _TOLD_BY_LISTENING else _PARTS.get((name, part))

    wanted = {part: method(part) for part in capability}
    return without(capability, *(part for part, asked in wanted.items() if asked and not principal.may_ask(asked)))


def _named(exchange: Exchange) -> str:
    """What the request was about, if it says so."""
    named = exchange.params.get("name", exchange.params.get("uri", ""))
    return named if isinstance(named, str) else ""
