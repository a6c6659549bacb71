"""An HTTP request as ASGI delivers it, read into values: headers, credential, address, body. Decides nothing."""

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs

from tools_app.auth.principal import Credential
from tools_app.auth.proxies import believed
from tools_app.models.config import config
from tools_app.protocol.errors import INVALID_REQUEST, RpcError
from tools_app.protocol.inbound import ROUTING_HEADERS
from tools_app.protocol.mirrored import PREFIX as PARAMETER_PREFIX

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

JSON_TYPES = ("application/json", "application/*", "*/*")
MOST_DIGITS = 15
WHITE_SPACE = b" \t"
STREAM_TYPES = ("text/event-stream", "text/*", "*/*")


class Disconnected(Exception):
    """The client went away before its request was complete."""


class Incoming:
    """One request. Header names are lower-case; of a repeated header the last value counts, but of `Mcp-Param-`."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope = scope
        self.receive = receive
        self.http_method: str = scope.get("method", "GET")
        self.headers: dict[str, str] = {
            # Not every server takes the white space around a value away (RFC 9110, §5.5).
            name.decode("latin-1"): value.strip(WHITE_SPACE).decode("latin-1")
            for name, value in scope["headers"]
        }
        if len(self.headers) != len(scope["headers"]):
            self._join_parameters()

    @property
    def tenant_slug(self) -> str | None:
        """The slug in the path, if it names a tenant."""
        slug: str | None = self._scope["url_route"]["slug"]
        return slug

    @property
    def scheme(self) -> str:
        """The scheme as the server saw it: http or https, of which `ws` and `wss` are other names."""
        scheme = str(self._scope.get("scheme", "http"))
        return {"ws": "http", "wss": "https"}.get(scheme, scheme)

    def repeated_routing_header(self) -> str | None:
        """A routing header that came more than once: readers of the first and of the last would disagree."""
        raw = self._scope["headers"]
        if len(raw) == len(self.headers):
            return None
        names = [name.decode("latin-1") for name, _ in raw]
        return next((name for name in ROUTING_HEADERS if names.count(name) > 1), None)

    def _join_parameters(self) -> None:
        """A parameter's header that came more than once is one of all its values (RFC 9110, §5.3)."""
        for name in [name for name in self.headers if name.startswith(PARAMETER_PREFIX)]:
            values = [
                value.strip(WHITE_SPACE) for other, value in self._scope["headers"] if other == name.encode("latin-1")
            ]
            self.headers[name] = b", ".join(values).decode("latin-1")

    @property
    def credential(self) -> Credential | None:
        """The key that the request carries: a bearer token, X-API-Key, or `?api_key=`, in this order."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return Credential(token.strip())
        if key := self.headers.get("x-api-key", "").strip():
            return Credential(key)
        key = self.parameter("api_key")
        return Credential(key, from_query=True) if key else None

    def parameter(self, name: str) -> str:
        """A parameter of the query, "" without it; of a repeated one the first value counts."""
        query = self._scope["query_string"]
        return parse_qs(query.decode("latin-1")).get(name, [""])[0] if query else ""

    @property
    def remote_address(self) -> str:
        """The caller's address, as far as the configured proxies vouch for it."""
        client = self._scope.get("client")
        address = str(client[0]) if client else ""
        return believed(address, self.headers.get("x-forwarded-for", ""))

    @property
    def accepts_json(self) -> bool:
        """Whether one JSON body may answer."""
        return _accepts(self.headers.get("accept"), JSON_TYPES)

    @property
    def accepts_stream(self) -> bool:
        """Whether an event stream may answer."""
        return _accepts(self.headers.get("accept"), STREAM_TYPES)

    def check_content_type(self) -> None:
        """Raise RpcError (415) for a body that says it is something else than JSON."""
        kind = self.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RpcError(INVALID_REQUEST, "Content-Type must be application/json.", status=415)

    async def body(self) -> bytes:
        """The whole body, chunked or not. Raises Disconnected, and RpcError (413) as soon as it is too large."""
        limit = config.MCPHUB_MAX_BODY_BYTES
        if _declared(self.headers) > limit:
            raise _too_large(limit)
        message = await self._next()
        body: bytes = message.get("body", b"")
        if not message.get("more_body"):
            return _within(body, limit)
        chunks, size = [body], len(body)
        while message.get("more_body"):
            message = await self._next()
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > limit:
                raise _too_large(limit)
        return b"".join(chunks)

    async def _next(self) -> Mapping[str, Any]:
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        return message

    async def disconnected(self) -> None:
        """Wait until the client is gone."""
        while (await self.receive())["type"] != "http.disconnect":
            pass


@lru_cache(maxsize=256)
def _accepts(accept: str | None, types: tuple[str, ...]) -> bool:
    return accept is None or any(kind in accept.lower() for kind in types)


def _declared(headers: Mapping[str, str]) -> int:
    length = headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() and len(length) <= MOST_DIGITS else 0


def _within(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise _too_large(limit)
    return body


def _too_large(limit: int) -> RpcError:
    return RpcError(INVALID_REQUEST, f"The body is larger than {limit} bytes.", status=413)
