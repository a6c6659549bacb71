"""The scopes of access tokens: which methods and names a client may use, besides what its connection permits.

Beside the hub's own scopes, a tenant names some: see `identity.oauth.tenant_scopes`.
"""

from collections.abc import Iterable
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


def granted(requested: str | None, named: Iterable[str] = ()) -> str:
    """Return the scopes of a request that the hub or the tenant (`named`) knows.

    Those of the hub if it names none (RFC 6749, section 3.3).
    """
    return narrowed(" ".join((*SCOPES, *named)), requested) or " ".join(SCOPES)


def narrowed(scope: str, requested: str | None) -> str:
    """Return those of `scope` that are requested."""
    wanted = set((requested or "").split())
    return " ".join(one for one in scope.split() if one in wanted)


def covers(allowed: str, wanted: str) -> bool:
    """Whether allowed scopes contain all wanted ones."""
    return set(allowed.split()) >= set(wanted.split())
