"""The configuration and keys of issuers, as they publish them (OpenID Connect Discovery 1.0; RFC 7517).

They are read when they are needed and kept for a short time in memory, in a bounded number of bytes.
"""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from tools_app.core.bounded_cache import BoundedCache
from tools_app.core.http import documents
from tools_app.core.http.client import Reply
from tools_app.core.http.documents import DocumentError
from tools_app.core.process.runtime import Service
from tools_app.core.process.thread_loops import thread_loops
from tools_app.identity.oauth import redirects

WELL_KNOWN: Final = "/.well-known/openid-configuration"
MAX_BYTES: Final = 256 * 1024
MAX_AGE_SECONDS: Final = 600.0
# Keys are read again for an unknown key, at most so often, whether or not it succeeds.
KEYS_REFRESH_SECONDS: Final = 60.0
# A document that could not be read is not asked for again so long.
FAILURE_MAX_AGE_SECONDS: Final = 10.0
MAX_ENTRIES: Final = 500
MAX_CACHE_BYTES: Final = 8 * 1024 * 1024
Networks = tuple[str, ...]
CacheKey = tuple[str, Networks]


@dataclass(frozen=True)
class Configuration:
    """What an issuer says of itself."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    auth_methods: Sequence[str]
    # "" for an issuer that has none.
    userinfo_endpoint: str = ""


@dataclass(frozen=True)
class _Failure:
    at: float
    reason: str


class DocumentCache:
    """Documents by their URL and the networks that were allowed for them. Each is read by one thread at a time."""

    def __init__(self) -> None:
        self._documents: BoundedCache[CacheKey, tuple[float, dict[str, Any]]]
        self._documents = BoundedCache(MAX_ENTRIES, MAX_CACHE_BYTES)
        self._failures: BoundedCache[CacheKey, _Failure] = BoundedCache(MAX_ENTRIES, MAX_CACHE_BYTES)
        self._in_flight: dict[CacheKey, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def cached(self, url: str, allowed: Networks, max_age: float = MAX_AGE_SECONDS) -> dict[str, Any] | None:
        """Return a document that was read and is not older than this."""
        with self._lock:
            return self._cached((url, allowed), max_age)

    def failure(self, url: str, allowed: Networks, max_age: float = FAILURE_MAX_AGE_SECONDS) -> str:
        """Return why a document could not be read a moment ago; "" if it could, or was not asked for."""
        with self._lock:
            failure = self._failures.get((url, allowed))
        return failure.reason if failure is not None and time.monotonic() - failure.at < max_age else ""

    def read(self, url: str, allowed: Networks, max_age: float) -> dict[str, Any]:
        """Return a document that is not older than this. Raises DocumentError."""
        key = (url, allowed)
        with self._lock:
            cached = self._cached(key, max_age)
            if cached is not None:
                return cached
            future = self._in_flight.get(key)
            is_fetcher = future is None
            if future is None:
                future = self._in_flight[key] = Future()
        if not is_fetcher:
            return future.result()
        try:
            document = self._fetch(key)
        except BaseException as problem:
            self._discard_in_flight(key)
            future.set_exception(problem)
            raise
        self._discard_in_flight(key)
        future.set_result(document)
        return document

    def parsed(self, reply: Reply) -> dict[str, Any]:
        """Return the document of a reply. Raises DocumentError."""
        return documents.parsed(reply)

    def _fetch(self, key: CacheKey) -> dict[str, Any]:
        url, allowed = key
        try:
            reply = run(documents.fetch(url, MAX_BYTES, allowed=allowed))
            document = self.parsed(reply)
        except DocumentError as problem:
            with self._lock:
                self._failures.put(key, _Failure(time.monotonic(), str(problem)), len(url))
            raise
        with self._lock:
            self._failures.pop(key)
            self._documents.put(key, (time.monotonic(), document), len(reply.body))
        return document

    def _cached(self, key: CacheKey, max_age: float) -> dict[str, Any] | None:
        entry = self._documents.get(key)
        return entry[1] if entry is not None and time.monotonic() - entry[0] < max_age else None

    def _discard_in_flight(self, key: CacheKey) -> None:
        with self._lock:
            del self._in_flight[key]


cache = Service(DocumentCache)


def run(coroutine: Any) -> Any:
    """Run a request to an issuer in this thread."""
    return thread_loops().run(coroutine)


def read(issuer: str, allowed: Sequence[str]) -> Configuration:
    """Return the configuration of an issuer. Raises DocumentError."""
    document = _document(issuer, allowed)
    methods = document.get("token_endpoint_auth_methods_supported")
    return Configuration(
        issuer=issuer,
        authorization_endpoint=_endpoint(document, "authorization_endpoint"),
        token_endpoint=_endpoint(document, "token_endpoint"),
        jwks_uri=_endpoint(document, "jwks_uri"),
        auth_methods=methods if isinstance(methods, list) else ("client_secret_basic",),
        userinfo_endpoint=_endpoint(document, "userinfo_endpoint") if "userinfo_endpoint" in document else "",
    )


def keys(issuer: str, allowed: Sequence[str], *, refresh: bool = False) -> dict[str, Any]:
    """Return the key set of an issuer; `refresh`: a key was not in it. Raises DocumentError.

    An issuer of workloads, such as a Kubernetes cluster, has no endpoints but its keys.
    """
    max_age = KEYS_REFRESH_SECONDS if refresh else MAX_AGE_SECONDS
    return cache().read(_endpoint(_document(issuer, allowed), "jwks_uri"), tuple(allowed), max_age)


def _document(issuer: str, allowed: Sequence[str]) -> dict[str, Any]:
    """Return what an issuer publishes of itself. Raises DocumentError."""
    document = cache().read(issuer.rstrip("/") + WELL_KNOWN, tuple(allowed), MAX_AGE_SECONDS)
    if document.get("issuer") != issuer:
        raise DocumentError(f"Its configuration is of the issuer {str(document.get('issuer'))[:200]}. Enter that URL.")
    return document


def cached_keys(issuer: str, allowed: Sequence[str]) -> dict[str, Any] | None:
    """Return the key set of an issuer as far as it is in memory and fresh. Sends no request."""
    url = _keys_url(issuer, allowed)
    return cache().cached(url, tuple(allowed)) if url else None


def recent_failure(issuer: str, allowed: Sequence[str]) -> str:
    """Return why the keys of an issuer are not to be read now, because they could not be; "" if they may be."""
    configuration = cache().failure(issuer.rstrip("/") + WELL_KNOWN, tuple(allowed))
    url = _keys_url(issuer, allowed)
    return configuration or (cache().failure(url, tuple(allowed)) if url else "")


def may_refresh_keys(issuer: str, allowed: Sequence[str]) -> bool:
    """Whether the keys of an issuer may be read for an unknown key: it was not tried within KEYS_FRESH_SECONDS."""
    url, networks = _keys_url(issuer, allowed), tuple(allowed)
    if not url:
        return True
    return cache().cached(url, networks, KEYS_REFRESH_SECONDS) is None and not cache().failure(
        url, networks, KEYS_REFRESH_SECONDS
    )


def _keys_url(issuer: str, allowed: Sequence[str]) -> str:
    document = cache().cached(issuer.rstrip("/") + WELL_KNOWN, tuple(allowed))
    url = document.get("jwks_uri") if document is not None and document.get("issuer") == issuer else None
    return url if isinstance(url, str) else ""


def url_problem(url: str) -> str:
    """Return what is wrong with the URL of an issuer; "" if nothing is."""
    if not (redirects.is_https(url) or redirects.is_loopback(url)):
        return "Enter a URL that starts with https://."
    if "?" in url or "#" in url:
        return "The URL of an issuer has no query and no fragment."
    return ""


def _endpoint(document: dict[str, Any], name: str) -> str:
    url = document.get(name)
    if not isinstance(url, str) or url_problem(url.partition("?")[0]):
        raise DocumentError(f"Its configuration has no {name} that starts with https://.")
    return url
