"""One HTTP request of the protocol, whichever its transport: guards, key, answer, and every refusal in one place.

Each step may refuse by raising RpcError, and `_refuse` turns that into the answer.
"""

from http import HTTPStatus
from typing import ClassVar

from tools_app.auth.principal import Credential, Principal
from tools_app.execution import limiting
from tools_app.protocol.errors import INVALID_REQUEST, RpcError
from tools_app.protocol.jsonrpc import Request
from tools_app.transport import guards
from tools_app.transport.answering import as_rpc_error
from tools_app.transport.incoming import Disconnected, Incoming, Send
from tools_app.transport.responses import Header, Reply, refusal, send_reply
from tools_app.transport.state import WebState
from tools_app.transport.visitor import Visitor, stopping


class Turn:
    """One HTTP request and what has been learnt of it so far. Subclasses say what `verbs` they answer, and how."""

    verbs: ClassVar[tuple[str, ...]]
    transport: ClassVar[str]

    def __init__(self, incoming: Incoming, send: Send, web: WebState) -> None:
        self.incoming = incoming
        self.web = web
        self.visitor = Visitor(incoming)
        self.request: Request | None = None
        self.modern = False
        self.cors: tuple[Header, ...] = ()
        self._send = send

    async def run(self) -> None:
        """The whole of it. A client that leaves in the middle is nobody's concern."""
        self.web.busy += 1
        self.web.requests[self.transport] += 1
        try:
            await self._serve()
        except Disconnected:
            pass
        except Exception as problem:  # noqa: BLE001 - nothing may leave the endpoint but JSON-RPC
            await self._refuse(as_rpc_error(problem))
        finally:
            self.web.busy -= 1

    async def answer(self) -> None:
        """Answer a request that passed the guards. Raises RpcError and Disconnected."""
        raise NotImplementedError

    async def _serve(self) -> None:
        guards.check(self.incoming)
        if "origin" in self.incoming.headers:
            self.cors = _cors_headers(self.incoming, self._allowed())
        if self.incoming.http_method == "OPTIONS":
            await self.send_reply(Reply(None, 204, (self._allow(),)))
            return
        self._check_verb()
        # What has come while the hub stops is answered: it was on its way when its client could not know yet.
        await self.visitor.admit(draining=self.web.given_up.is_set())
        if self.principal.allowed.requests:
            await limiting.take_requests(self.principal)
        await self.web.turnstile.through(self.principal.tenant_id, self.answer)

    def _check_verb(self) -> None:
        if self.incoming.http_method not in self.verbs:
            raise RpcError(INVALID_REQUEST, f"Use {_or(self.verbs)}.", status=405)

    def _check_not_stopping(self) -> None:
        """Raise RpcError where nothing can begin any more that takes longer than its request."""
        if self.web.draining:
            raise stopping()

    @property
    def principal(self) -> Principal:
        """Who is asking; known when `answer` is called."""
        return self.visitor.known

    async def send_reply(self, reply: Reply) -> None:
        """Answer with one body."""
        await send_reply(self._send, reply, self.cors)

    async def _refuse(self, error: RpcError) -> None:
        """Record a denial and answer it."""
        reply = refusal(error, self.request.id if self.request else None, modern=self.modern)
        method = self.request.method if self.request else self.incoming.http_method
        self.visitor.note(reply.status, error.message, method)
        headers = (*reply.headers, *self._explaining(reply.status))
        await self.send_reply(Reply(reply.message, reply.status, headers))

    def _explaining(self, status: int) -> tuple[Header, ...]:
        """The headers that HTTP wants beside a status."""
        if status == HTTPStatus.UNAUTHORIZED:
            return _challenge(self.visitor.credential)
        return (self._allow(),) if status == HTTPStatus.METHOD_NOT_ALLOWED else ()

    def _allow(self) -> Header:
        return b"allow", self._allowed().encode()

    def _allowed(self) -> str:
        return ", ".join((*self.verbs, "OPTIONS"))


def _or(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def _challenge(credential: Credential | None) -> tuple[Header, ...]:
    """What a client without a good key is told (RFC 6750, §3)."""
    value = 'Bearer realm="mcphub"' + (', error="invalid_token"' if credential else "")
    return ((b"www-authenticate", value.encode()),)


def _cors_headers(incoming: Incoming, allowed: str) -> tuple[Header, ...]:
    """What a browser needs to see before it lets a page of an allowed origin read the answer."""
    headers = [
        (b"access-control-allow-origin", incoming.headers["origin"].encode("latin-1")),
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
