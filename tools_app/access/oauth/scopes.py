"""The scopes of access tokens: which methods a client may use, besides what its connection permits."""

from collections.abc import Collection, Iterable
from typing import Final

READ: Final = "mcp:read"
CALL: Final = "mcp:call"
# A request for refresh tokens, which every client gets anyway. Only the authorization server's metadata names it.
OFFLINE: Final = "offline_access"
# In a challenge, all of them: many clients cannot ask for more later.
SCOPES: Final = (READ, CALL)
MEANING: Final = {READ: "See its catalog, read resources and use prompts", CALL: "Call tools"}

# What READ permits. CALL permits everything.
READ_METHODS: Final = (
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
    "tools/list",
)


def granted(requested: str | None) -> str:
    """Return the scopes of a request that the hub knows, all of them if it names none (RFC 6749, section 3.3)."""
    asked = set((requested or "").split())
    return " ".join(scope for scope in SCOPES if scope in asked) or " ".join(SCOPES)


def covers(allowed: str, wanted: str) -> bool:
    """Whether allowed scopes contain all wanted ones."""
    return set(allowed.split()) >= set(wanted.split())


def permits(scopes: Collection[str], method: str, always: Iterable[str]) -> bool:
    """Whether a token with these scopes may use a method; `always` are the methods that need no scope."""
    return CALL in scopes or method in READ_METHODS or method in always
