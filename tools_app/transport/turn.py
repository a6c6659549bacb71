"""One HTTP request of the protocol, whichever its transport: guards, key, answer, and every refusal in one place.

Each step may refuse by raising RpcError, and `_refuse` turns that into the answer.
"""

import logging
from http import HTTPStatus
from typing import ClassVar

from tools_app.audit import denials
from tools_app.audit.denials import Denial
from tools_app.audit.recorder import RecorderGone
from tools_app.auth.principal import Credential, Principal, anybody, authenticate
from tools_app.models.config import config
from tools_app.protocol.errors import INVALID_REQUEST, NOT_PERMITTED, RpcError
from tools_app.protocol.jsonrpc import Request
from tools_app.transport import guards
from tools_app.transport.answering import as_rpc_error
from tools_app.transport.incoming import Disconnected, Incoming, Send, TooLarge
from tools_app.transport.responses import Header, Reply, refusal, send_reply
from tools_app.transport.state import WebState

log = logging.getLogger(__name__)

RECORDED_DENIALS = frozenset({401, 403, 404, 421, 429})


class Turn:
    """One HTTP request and what has been learnt of it so far. Subclasses say what `verbs` they answer, and how."""

    verbs: ClassVar[tuple[str, ...]]

    def __init__(self, incoming: Incoming, send: Send, web: WebState) -> None:
        self.incoming = incoming
        self.web = web
        self.credential: Credential | None = None
        self.request: Request | None = None
        self.modern = False
        self.cors: tuple[Header, ...] = ()
        self._send = send
        self._principal: Principal | None = None

    async def run(self) -> None:
        """The whole of it. A client that leaves in the middle is nobody's concern."""
        self.web.busy += 1
        try:
            await self._serve()
        except Disconnected:
            pass
        finally:
            self.web.busy -= 1

    async def answer(self) -> None:
        """Answer a request that passed the guards. Raises RpcError, TooLarge and Disconnected."""
        raise NotImplementedError

    async def _serve(self) -> None:
        try:
            guards.check(self.incoming)
            self.cors = _cors_headers(self.incoming, self._allowed())
            if self.incoming.http_method == "OPTIONS":
                await self.send_reply(Reply(None, 204, (self._allow(),)))
                return
            self._check_verb()
            self._refuse_when_stopping()
            await self._authenticate()
            await self.answer()
        except TooLarge:
            await self._refuse(RpcError(INVALID_REQUEST, _too_large(), status=413))
        except Disconnected:
            raise
        except Exception as problem:  # noqa: BLE001 - nothing may leave the endpoint but JSON-RPC
            await self._refuse(as_rpc_error(problem))

    def _check_verb(self) -> None:
        if self.incoming.http_method not in self.verbs:
            raise RpcError(INVALID_REQUEST, f"Use {_or(self.verbs)}.", status=405)

    def _refuse_when_stopping(self) -> None:
        if self.web.draining:
            raise RpcError(INVALID_REQUEST, "The hub is stopping.", status=503, retry_after=1)

    async def _authenticate(self) -> None:
        self.credential = self.incoming.credential
        principal = await self.who()
        if principal is None:
            raise RpcError(NOT_PERMITTED, "A valid API key is needed.", status=401)
        self._principal = principal
        if self.incoming.tenant_slug not in (None, principal.tenant_slug):
            raise RpcError(INVALID_REQUEST, "Not found.", status=404)

    async def who(self) -> Principal | None:
        """The principal of the request's key; anybody, where a public tenant's own address is called without one."""
        if self.credential is not None:
            return await authenticate(self.credential)
        slug = self.incoming.tenant_slug
        return await anybody(slug, self.incoming.remote_address) if slug else None

    @property
    def principal(self) -> Principal:
        """Who is asking; known when `answer` is called."""
        assert self._principal is not None
        return self._principal

    async def send_reply(self, reply: Reply) -> None:
        """Answer with one body."""
        await send_reply(self._send, reply, self.cors)

    async def _refuse(self, error: RpcError) -> None:
        """Record a denial and answer it."""
        reply = refusal(error, self.request.id if self.request else None, modern=self.modern)
        if reply.status in RECORDED_DENIALS:
            self._note(reply.status, error)
        headers = (*reply.headers, *self._explaining(reply.status))
        await self.send_reply(Reply(reply.message, reply.status, headers))

    def _explaining(self, status: int) -> tuple[Header, ...]:
        """The headers that HTTP wants beside a status."""
        if status == HTTPStatus.UNAUTHORIZED:
            return _challenge(self.credential)
        return (self._allow(),) if status == HTTPStatus.METHOD_NOT_ALLOWED else ()

    def _allow(self) -> Header:
        return b"allow", self._allowed().encode()

    def _allowed(self) -> str:
        return ", ".join((*self.verbs, "OPTIONS"))

    def _note(self, status: int, error: RpcError) -> None:
        principal = self._principal
        denial = Denial(
            http_status=status,
            cause=error.message,
            remote_address=self.incoming.remote_address,
            tenant_id=principal.tenant_id if principal else None,
            key_id=principal.key_id if principal else None,
            method=self.request.method if self.request else self.incoming.http_method,
        )
        try:
            denials.note(denial)
        except RecorderGone:
            log.warning("A denial (%d) could not be recorded", status)


def _or(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def _too_large() -> str:
    return f"The body is larger than {config.MCPHUB_MAX_BODY_BYTES} bytes."


def _challenge(credential: Credential | None) -> tuple[Header, ...]:
    """What a client without a good key is told (RFC 6750, §3)."""
    value = 'Bearer realm="mcphub"' + (', error="invalid_token"' if credential else "")
    return ((b"www-authenticate", value.encode()),)


def _cors_headers(incoming: Incoming, allowed: str) -> tuple[Header, ...]:
    """What a browser needs to see before it lets a page of an allowed origin read the answer."""
    origin = incoming.headers.get("origin")
    if origin is None:
        return ()
    headers = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"Mcp-Session-Id, WWW-Authenticate, Retry-After"),
        (b"vary", b"Origin"),
    ]
    if incoming.http_method == "OPTIONS":
        wanted = incoming.headers.get("access-control-request-headers", "")
        headers += [
            (b"access-control-allow-methods", allowed.encode()),
            (b"access-control-allow-headers", wanted.encode("latin-1")),
            (b"access-control-max-age", b"600"),
        ]
    return tuple(headers)
