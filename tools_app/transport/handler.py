"""The base handler of MCP requests over HTTP: Host and Origin checks, authentication, scheduling, errors and denials.

Each step may reject the request by raising RpcError, which `_refuse` turns into the response.
"""

import logging
from collections.abc import Hashable
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from typing import ClassVar

from django.db import DatabaseError
from django.http.request import split_domain_port, validate_host

from tools_app.audit.recorder import denials
from tools_app.audit.recorder.denials import Denial
from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.calls import limits
from tools_app.core import hub_path, request_memory, request_origin
from tools_app.core.config import config
from tools_app.core.urls import split_url
from tools_app.identity.issuers import direct
from tools_app.identity.oauth import resources, scopes
from tools_app.identity.oauth.scopes import CALL, SCOPES
from tools_app.identity.principal import (
    Credential,
    Principal,
    anonymous_principal,
    authenticate,
    authenticate_uncached,
    ended_key,
    is_known,
    rate_limit_key,
)
from tools_app.methods import permissions
from tools_app.protocol.errors import INVALID_REQUEST, NOT_PERMITTED, RpcError
from tools_app.protocol.jsonrpc import Message, Request
from tools_app.transport.dispatch import as_rpc_error
from tools_app.transport.request import AsgiRequest, Disconnected, Send, query_parameter
from tools_app.transport.responses import Header, Reply, refusal, send_reply
from tools_app.transport.state import WebState
from tools_app.transport.stranger_queue import STRANGERS

Origin = tuple[str, str, int]


def check_host_and_origin(http_request: AsgiRequest) -> None:
    """Raise RpcError for a Host that is not allowed (421) or an Origin that is not allowed (403)."""
    host = http_request.headers.get("host", "")
    if not _is_allowed_host(host, tuple(config.ALLOWED_HOSTS)):
        raise RpcError(INVALID_REQUEST, "This hub does not answer for that host.", status=421)
    origin = http_request.headers.get("origin")
    allowed = tuple(config.MCPHUB_ALLOWED_ORIGINS)
    if origin is not None and not _is_allowed_origin(origin, http_request.scheme, host, allowed):
        raise RpcError(INVALID_REQUEST, "Origin not allowed.", status=403)
    request_origin.origin_received.set((http_request.scheme, host))


@lru_cache(maxsize=256)
def _is_allowed_host(host: str, allowed: tuple[str, ...]) -> bool:
    domain, _ = split_domain_port(host)
    return bool(domain) and validate_host(domain, allowed)


@lru_cache(maxsize=256)
def _is_allowed_origin(origin: str, scheme: str, host: str, allowed: tuple[str, ...]) -> bool:
    """Return whether an origin is listed or is the hub's own, by its Host, which was checked before."""
    parsed = parse_origin(origin)
    if parsed is None:
        return False
    hub_origin = parse_origin(f"{scheme}://{host}")
    return parsed == hub_origin or parsed in {parse_origin(entry) for entry in allowed}


def parse_origin(origin: str) -> Origin | None:
    """Return the scheme, host and port of an origin; None if it is invalid (RFC 6454, §7)."""
    parts = split_url(origin)
    if parts is None or parts.path or parts.query or parts.fragment or parts.has_user:
        return None
    if parts.port is None or not parts.host:
        return None
    return parts.scheme, parts.host, parts.port


log = logging.getLogger(__name__)

ADDRESS_NOT_ALLOWED = "This API key may not be used from this address."
RECORDED_DENIALS = frozenset({401, 403, 404, 421, 429})


def stopping() -> RpcError:
    """Return the error of a hub that is stopping (503)."""
    return RpcError(INVALID_REQUEST, "The hub is stopping.", status=503, retry_after=1)


class InsufficientScope(RpcError):
    """The access token of a request does not permit its method (RFC 6750, §3.1)."""

    def __init__(self, method: str) -> None:
        message = f"The access token does not permit {method}: it needs the scope {CALL}. Sign in again to allow it."
        super().__init__(NOT_PERMITTED, message, {"scope": CALL, "method": method}, status=403)


class RequestAuthenticator:
    """The authentication state of one request.

    `credential` is its key: a bearer token, X-API-Key, or `?api_key=`, in this order; None without one.
    """

    def __init__(self, http_request: AsgiRequest) -> None:
        self._http_request = http_request
        self.principal: Principal | None = None
        self.credential: Credential | None = None
        scheme, _, token = http_request.headers.get("authorization", "").partition(" ")
        key = token.strip() if scheme.lower() == "bearer" else ""
        key = key or http_request.headers.get("x-api-key", "").strip()
        if key:
            self.credential = Credential(key, tenant_slug=http_request.tenant_slug or "")
        elif key := query_parameter(http_request.head.query, "api_key"):
            self.credential = Credential(key, from_query=True)

    async def authenticate(self, *, draining: bool) -> None:
        """Set `principal`. Raises RpcError: stopping (503), or an invalid key (401), address (403) or path (404)."""
        if draining:
            raise stopping()
        if self.credential is None:
            self.principal = await self.resolve()
        else:
            self.principal = await authenticate(self.credential)
            if self.principal is None and self.credential.is_signed:
                self.principal = await self._accept_signed(self.credential)
        if self.principal is None:
            raise RpcError(NOT_PERMITTED, "A valid API key is needed.", status=401)
        if self.principal.networks and not self.principal.permits_address(self._http_request.remote_address):
            raise RpcError(NOT_PERMITTED, ADDRESS_NOT_ALLOWED, {"scope": "networks"}, status=403)
        if self._http_request.tenant_slug not in (None, self.principal.tenant_slug):
            if self.principal.scopes is not None:
                # A token for another resource: the client is to sign in for this one.
                raise RpcError(NOT_PERMITTED, "The access token is for another tenant.", status=401)
            raise RpcError(INVALID_REQUEST, "Not found.", status=404)

    @property
    def rate_limit_key(self) -> str:
        """The key that unauthenticated requests are scheduled by: the client's address."""
        return rate_limit_key(self._http_request.remote_address)

    @property
    def authenticated_principal(self) -> Principal:
        """The principal, after `authenticate` succeeded."""
        assert self.principal is not None
        return self.principal

    async def resolve(self) -> Principal | None:
        """Return the principal of the request's key; without a key, the anonymous one of a public tenant's path."""
        if self.credential is not None:
            return await authenticate(self.credential)
        slug = self._http_request.tenant_slug
        return await anonymous_principal(slug, self._http_request.remote_address) if slug else None

    async def revalidate(self) -> Principal | None:
        """Return the current principal, or None if the key may no longer be used from this address."""
        principal = await self.resolve()
        if principal is None or not principal.permits_address(self._http_request.remote_address):
            return None
        return principal

    @property
    def identity(self) -> Hashable:
        """What `resolve` depends on."""
        if self.credential is not None:
            return self.credential.digest, self.credential.from_query
        return self._http_request.tenant_slug, self._http_request.remote_address

    async def _accept_signed(self, credential: Credential) -> Principal | None:
        """Return the principal of a token that an issuer signed, which is verified now. Raises RpcError (401, 503)."""
        http_request = self._http_request
        if credential.from_query:
            return None
        address, slug = http_request.remote_address, http_request.tenant_slug
        try:
            await direct.accept(credential.key, origin=http_request.origin, slug=slug, address=address)
        except direct.TooManyTokens:
            message = "Too many tokens are being verified. Try again."
            raise RpcError(INVALID_REQUEST, message, status=503, retry_after=1) from None
        except direct.TokenRejected as problem:
            if not str(problem):
                return None
            raise RpcError(NOT_PERMITTED, f"The access token is not valid. {problem}", status=401) from None
        return await authenticate_uncached(credential)

    def record_denial(self, status: int, cause: str, method: str) -> None:
        """Record a denial, if the status is one of RECORDED_DENIALS. That of an ended key belongs to its tenant."""
        if status not in RECORDED_DENIALS:
            return
        principal = self.principal
        if principal is None and self.credential is not None and (ended := ended_key(self.credential)):
            # Told to the tenant's auditors; the client learns only that it has no valid key.
            principal, cause = ended
        denial = Denial(
            http_status=status,
            cause=cause,
            remote_address=self._http_request.remote_address,
            tenant_id=principal.tenant_id if principal else None,
            key_id=principal.key_id if principal else None,
            method=method,
        )
        try:
            denials.note(denial)
        except RecorderUnavailable:
            log.warning("A denial (%d) could not be recorded", status)


class RequestHandler:
    """One HTTP request. Subclasses define the `verbs` that they answer, and `answer`."""

    verbs: ClassVar[tuple[str, ...]]
    transport: ClassVar[str]

    def __init__(self, http_request: AsgiRequest, send: Send, web: WebState) -> None:
        self.http_request = http_request
        self.web = web
        self.authenticator = RequestAuthenticator(http_request)
        # Set before `answer` is called.
        self.principal: Principal
        self.request: Request | None = None
        self.modern = False
        self.cors: tuple[Header, ...] = ()
        self._send = send
        self._had_slot = False

    async def run(self) -> None:
        """Handle the request: authenticate it, wait for its tenant's turn, and answer. A disconnect is ignored."""
        self.web.busy += 1
        self.web.requests[self.transport] += 1
        authenticator, headers = self.authenticator, self.http_request.headers
        try:
            if is_known(authenticator.credential, self.http_request.tenant_slug):
                await self._check_and_authenticate()
            else:
                self._had_slot = True
                await self.web.scheduler.run(STRANGERS, self._check_and_authenticate, authenticator.rate_limit_key)
            if authenticator.principal is None:
                return
            self.principal = authenticator.principal
            if self.principal.allowed.requests:
                await limits.take_requests(self.principal)
            if hub_path.HEADER in headers:
                hub_path.enter(headers[hub_path.HEADER])
            self._had_slot = True
            await request_memory.run_in_turn(self.web.scheduler, self.principal.tenant_id, self.answer)
        except Disconnected:
            pass
        except Exception as problem:  # noqa: BLE001 - nothing may leave the endpoint but JSON-RPC
            await self._refuse(as_rpc_error(problem))
        finally:
            self.web.busy -= 1

    async def answer(self) -> None:
        """Answer a request that passed all checks. Raises RpcError and Disconnected."""
        raise NotImplementedError

    async def _check_and_authenticate(self) -> None:
        """Check and authenticate a request. Raises RpcError. CORS preflight requests are answered here."""
        check_host_and_origin(self.http_request)
        if "origin" in self.http_request.headers:
            self.cors = _cors_headers(self.http_request, self._allowed())
        if self.http_request.http_method == "OPTIONS":
            await self.send_reply(Reply(None, 204, (self._allow(),)))
            return
        if self.http_request.http_method not in self.verbs:
            verbs = " or ".join(filter(None, (", ".join(self.verbs[:-1]), self.verbs[-1])))
            raise RpcError(INVALID_REQUEST, f"Use {verbs}.", status=405)
        if hub_path.HEADER in self.http_request.headers:
            # Before the key: an admin who adds the hub to itself is told so, instead of being asked to sign in.
            try:
                hub_path.check(self.http_request.headers[hub_path.HEADER])
            except hub_path.LoopDetected as problem:
                raise RpcError(INVALID_REQUEST, str(problem), status=508) from problem
        # Requests that arrive while the hub drains are answered: their clients could not know yet.
        await self.authenticator.authenticate(draining=self.web.given_up.is_set())

    async def _wait_for_slot(self) -> None:
        """Wait for a slot if the request is rejected before it had one, so that rejections do not delay others."""
        if self._had_slot:
            return
        principal = self.authenticator.principal
        with suppress(RpcError):
            if principal is None:
                await self.web.scheduler.run(STRANGERS, _nothing, self.authenticator.rate_limit_key)
            else:
                await self.web.scheduler.run(principal.tenant_id, _nothing)

    def _check_not_stopping(self) -> None:
        """Raise RpcError while the hub drains, for work that outlasts its request."""
        if self.web.draining:
            raise stopping()

    async def send_reply(self, reply: Reply) -> None:
        """Answer with one body, even if the request's body was not read."""
        await send_reply(self.http_request, self._send, reply, self.cors)

    async def _refuse(self, error: RpcError) -> None:
        """Record a denial and send the error."""
        await self._wait_for_slot()
        reply = refusal(error, self.request.id if self.request else None, modern=self.modern)
        method = self.request.method if self.request else self.http_request.http_method
        self.authenticator.record_denial(reply.status, error.message, method)
        headers = (*reply.headers, *await self._status_headers(reply.status, error))
        await self.send_reply(Reply(reply.message, reply.status, headers))

    async def check_scope(self, message: Message) -> None:
        """Raise InsufficientScope for a method that needs a wider scope than the access token has."""
        if isinstance(message, Request):
            item = permissions.item_of(message.method, message.params)
            if await permissions.lacks_scope(self.principal, message.method, item):
                raise InsufficientScope(message.method)

    async def _status_headers(self, status: int, error: RpcError) -> tuple[Header, ...]:
        """Return the headers that HTTP requires with a status."""
        if status == HTTPStatus.UNAUTHORIZED:
            return await self._challenge("invalid_token" if self.authenticator.credential else "")
        if isinstance(error, InsufficientScope):
            return await self._challenge("insufficient_scope")
        return (self._allow(),) if status == HTTPStatus.METHOD_NOT_ALLOWED else ()

    async def _challenge(self, error: str) -> tuple[Header, ...]:
        principal = self.authenticator.principal
        slug = self.http_request.tenant_slug or (principal.tenant_slug if principal else None)
        try:
            scope = await scopes.challenged(slug)
        except DatabaseError:
            # Where to sign in is told all the same.
            scope = " ".join(SCOPES)
        return _challenge(self.http_request, error, scope)

    def _allow(self) -> Header:
        return b"allow", self._allowed().encode()

    def _allowed(self) -> str:
        return ", ".join((*self.verbs, "OPTIONS"))


async def _nothing() -> None:
    """Empty work of a rejected request."""


def _challenge(http_request: AsgiRequest, error: str, scope: str) -> tuple[Header, ...]:
    """Return the WWW-Authenticate header: where to sign in, and for which scopes (RFC 6750, §3; RFC 9728, §5.1)."""
    value = f'Bearer realm="mcphub", scope="{scope}"'
    if resources.ENDPOINT.fullmatch(http_request.path):
        value += f', resource_metadata="{resources.metadata_url(http_request.origin, http_request.path)}"'
    if error:
        value += f', error="{error}"'
    return ((b"www-authenticate", value.encode("latin-1")),)


def _cors_headers(http_request: AsgiRequest, allowed: str) -> tuple[Header, ...]:
    """Return the CORS headers that let a page of an allowed origin read the response."""
    headers = [
        (b"access-control-allow-origin", http_request.headers["origin"].encode("latin-1")),
        (b"access-control-expose-headers", b"Mcp-Session-Id, WWW-Authenticate, Retry-After"),
        (b"vary", b"Origin"),
    ]
    if http_request.http_method == "OPTIONS":
        wanted = http_request.headers.get("access-control-request-headers", "")
        headers += [
            (b"access-control-allow-methods", allowed.encode()),
            (b"access-control-allow-headers", wanted.encode("latin-1")),
            (b"access-control-max-age", b"600"),
        ]
    return tuple(headers)
