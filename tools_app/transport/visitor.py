"""Whoever sends a request, over HTTP or WebSocket: let in or not, and noted when turned away."""

import logging

from tools_app.audit import denials
from tools_app.audit.denials import Denial
from tools_app.audit.recorder import RecorderGone
from tools_app.auth.principal import Credential, Principal, anybody, authenticate
from tools_app.protocol.errors import INVALID_REQUEST, NOT_PERMITTED, RpcError
from tools_app.transport.incoming import Incoming

log = logging.getLogger(__name__)

OUTSIDE = "This API key may not be used from this address."
RECORDED_DENIALS = frozenset({401, 403, 404, 421, 429})


def stopping() -> RpcError:
    """The refusal of a hub that stops."""
    return RpcError(INVALID_REQUEST, "The hub is stopping.", status=503, retry_after=1)


class Visitor:
    """The sender of one request, and what has been learnt of it so far."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming
        self.credential: Credential | None = None
        self.principal: Principal | None = None

    async def admit(self, *, draining: bool) -> None:
        """Find out who it is. Raises RpcError for a hub that stops, for nobody, and for a stranger to the path."""
        if draining:
            raise stopping()
        self.credential = self._incoming.credential
        self.principal = await self.who()
        if self.principal is None:
            raise RpcError(NOT_PERMITTED, "A valid API key is needed.", status=401)
        if not self.principal.may_call_from(self._incoming.remote_address):
            raise RpcError(NOT_PERMITTED, OUTSIDE, {"scope": "networks"}, status=403)
        if self._incoming.tenant_slug not in (None, self.principal.tenant_slug):
            raise RpcError(INVALID_REQUEST, "Not found.", status=404)

    @property
    def known(self) -> Principal:
        """Who it is, once `admit` found out."""
        assert self.principal is not None
        return self.principal

    async def who(self) -> Principal | None:
        """The principal of the request's key; anybody, where a public tenant's own address is called without one."""
        if self.credential is not None:
            return await authenticate(self.credential)
        slug = self._incoming.tenant_slug
        return await anybody(slug, self._incoming.remote_address) if slug else None

    async def still(self) -> Principal | None:
        """Who it is by now; None once the key may not be used from here any more."""
        principal = await self.who()
        if principal is None or not principal.may_call_from(self._incoming.remote_address):
            return None
        return principal

    def note(self, status: int, cause: str, method: str) -> None:
        """Record that it was turned away, if the status says so."""
        if status not in RECORDED_DENIALS:
            return
        denial = Denial(
            http_status=status,
            cause=cause,
            remote_address=self._incoming.remote_address,
            tenant_id=self.principal.tenant_id if self.principal else None,
            key_id=self.principal.key_id if self.principal else None,
            method=method,
        )
        try:
            denials.note(denial)
        except RecorderGone:
            log.warning("A denial (%d) could not be recorded", status)
