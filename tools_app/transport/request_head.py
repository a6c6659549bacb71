"""The head of a request from ASGI: checks of it, and what its headers say.

A client sends the same head again and again: parsing and checking it takes a fifth of the time of a short request, so
the heads of the last requests are remembered.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs

from tools_app.identity.principal import Credential
from tools_app.protocol.errors import INVALID_REQUEST, RpcError
from tools_app.protocol.inbound import ROUTING_HEADERS, accepted, mismatch
from tools_app.protocol.mirrored import PREFIX as PARAMETER_PREFIX

Scope = MutableMapping[str, Any]
Raw = Sequence[tuple[bytes, bytes]]

MAX_HEADERS: Final = 100
MAX_HEADER_BYTES: Final = 32 * 1024
MAX_PATH_BYTES: Final = 4096
MAX_QUERY_BYTES: Final = 8192
# Two parsers of a request that repeats one of these may disagree (RFC 9112, §3.2 and §6.3).
SINGLE: Final = frozenset({b"host", b"content-length", b"transfer-encoding", b"authorization", b"content-type"})
ACCEPT: Final = "accept"
FORWARDED_FOR: Final = "x-forwarded-for"
# Headers whose repetition is one list (RFC 9110, §5.3), like those that begin with `Mcp-Param-`.
LISTS: Final = frozenset({ACCEPT, FORWARDED_FOR})
BLANKS: Final = " \t"
# The key in a scope of its head.
HEAD: Final = "mcphub.head"
JSON: Final = "application/json"
# Heads that are remembered, and the size of the largest. All are forgotten once in a while: they hold clients' keys.
MAX_HEADS: Final = 256
MAX_REMEMBERED_HEAD_BYTES: Final = 4 * 1024
REMEMBERED_SECONDS: Final = 60.0


class Fault(NamedTuple):
    """Why a request is rejected."""

    status: int
    message: str


class RequestHead:
    """What the headers, the path and the query of a request say.

    `headers` are by lower-case name: the values of a repeated list are joined; of other repeated headers, the last one
    is used. `fault` is why the request is rejected, if it is.
    """

    def __init__(self, raw: Raw, path: str, query: bytes) -> None:
        self._raw = raw
        self._query = query
        self.headers: Mapping[str, str] = _headers(raw)
        self.fault = self._fault(path)
        self.accepted = accepted(self.headers.get(ACCEPT))
        kind = self.headers.get("content-type", JSON).partition(";")[0].strip().lower()
        self._is_json = kind == JSON
        self._repeated_header = self._find_repeated()
        self._credential: Credential | None = None
        self._has_credential: bool | None = None

    def check_routing_headers(self) -> None:
        """Raise RpcError for a repeated routing header: parsers that use the first or the last value disagree."""
        if self._repeated_header is not None:
            raise mismatch(self._repeated_header, "repeated", "it once")

    def check_content_type(self) -> None:
        """Raise RpcError (415) for a Content-Type other than JSON."""
        if not self._is_json:
            raise RpcError(INVALID_REQUEST, "Content-Type must be application/json.", status=415)

    def credential(self, slug: str | None) -> Credential | None:
        """Return the request's key: a bearer token, X-API-Key, or `?api_key=`, in this order.

        `slug` is that of the tenant in the path, if there is one.
        """
        if self._has_credential is None:
            self._credential = self._find_credential(slug or "")
            self._has_credential = self._credential is not None
        return self._credential

    def _find_credential(self, slug: str) -> Credential | None:
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return Credential(token.strip(), tenant_slug=slug)
        if key := self.headers.get("x-api-key", "").strip():
            return Credential(key, tenant_slug=slug)
        key = query_parameter(self._query, "api_key")
        return Credential(key, from_query=True) if key else None

    def _find_repeated(self) -> str | None:
        if len(self.headers) == len(self._raw):
            return None
        names = [name.decode("latin-1") for name, _ in self._raw]
        return next((name for name in ROUTING_HEADERS if names.count(name) > 1), None)

    def _fault(self, path: str) -> Fault | None:
        raw = self._raw
        if len(raw) > MAX_HEADERS:
            return Fault(431, f"The request has more than {MAX_HEADERS} headers.")
        if sum(map(len, chain.from_iterable(raw))) > MAX_HEADER_BYTES:
            return Fault(431, f"The headers of the request have more than {MAX_HEADER_BYTES} bytes.")
        if len(self.headers) != len(raw):
            counts = Counter(name for name, _ in raw)
            twice = next((name for name in counts if name in SINGLE and counts[name] > 1), None)
            if twice is not None:
                return Fault(400, f"The header {twice.decode().title()} stands more than once in the request.")
        if "content-length" in self.headers and "transfer-encoding" in self.headers:
            return Fault(400, "A request has either Content-Length or Transfer-Encoding.")
        return _target_fault(path, self._query)


def _target_fault(path: str, query: bytes) -> Fault | None:
    if len(path) > MAX_PATH_BYTES:
        return Fault(414, f"The path has more than {MAX_PATH_BYTES} bytes.")
    if len(query) > MAX_QUERY_BYTES:
        return Fault(414, f"The query has more than {MAX_QUERY_BYTES} bytes.")
    if "\0" in path or b"%00" in query or b"\0" in query:
        return Fault(400, "The address holds the character U+0000.")
    return None


class _RememberedHeads:
    """The heads of the last requests of one event loop."""

    def __init__(self, running_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.get_running_loop) -> None:
        self._running_loop = running_loop
        self._heads: dict[Any, RequestHead] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self, raw: Raw, path: str, query: bytes) -> RequestHead:
        key = (path, query, *raw)
        head = self._heads.get(key)
        if head is None:
            head = RequestHead(raw, path, query)
            size = len(path) + len(query) + sum(map(len, chain.from_iterable(raw)))
            if head.fault is None and size <= MAX_REMEMBERED_HEAD_BYTES:
                self._remember(key, head)
        return head

    def _remember(self, key: Any, head: RequestHead) -> None:
        try:
            loop = self._running_loop()
        except RuntimeError:
            # Nothing would forget it.
            return
        if loop is not self._loop or len(self._heads) >= MAX_HEADS:
            self._heads.clear()
        if not self._heads:
            self._loop = loop
            loop.call_later(REMEMBERED_SECONDS, self._heads.clear)
        self._heads[key] = head


_remembered = _RememberedHeads()


def head_of(scope: Scope) -> RequestHead:
    """Return the head of a request, which is kept in its scope."""
    head: RequestHead | None = scope.get(HEAD)
    if head is None:
        head = scope[HEAD] = _remembered.get(scope["headers"], scope.get("path", ""), scope.get("query_string", b""))
    return head


def query_parameter(query: bytes, name: str) -> str:
    """Return a parameter of a query, or "" if missing; the first value if repeated."""
    return parse_qs(query.decode("latin-1")).get(name, [""])[0] if query else ""


def _headers(raw: Raw) -> dict[str, str]:
    # On the hot path: all of them are decoded at once, which costs half as much as one after the other.
    texts = b"\0".join(chain.from_iterable(raw)).decode("latin-1").split("\0")
    if len(texts) > 2 * len(raw):
        texts = [text.decode("latin-1") for text in chain.from_iterable(raw)]
    # Not every server strips the whitespace around a value (RFC 9110, §5.5).
    headers = dict(zip(texts[::2], [value.strip(BLANKS) for value in texts[1::2]], strict=False))
    if len(headers) != len(raw):
        for name in [name for name in headers if name in LISTS or name.startswith(PARAMETER_PREFIX)]:
            values = [value for repeated, value in raw if repeated.decode("latin-1") == name]
            headers[name] = ", ".join(value.decode("latin-1").strip(BLANKS) for value in values)
    return headers
