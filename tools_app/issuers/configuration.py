"""The configuration and keys of issuers, as they publish them (OpenID Connect Discovery 1.0; RFC 7517).

They are read when they are needed and kept for a short time in memory, in a bounded number of bytes.
"""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from tools_app.access.oauth import redirects
from tools_app.catalog.http import documents
from tools_app.catalog.http.client import Reply
from tools_app.catalog.http.documents import Unreadable
from tools_app.core.bounded_cache import BoundedCache
from tools_app.core.runtime import Service
from tools_app.core.thread_loops import thread_loops

WELL_KNOWN: Final = "/.well-known/openid-configuration"
MAX_BYTES: Final = 256 * 1024
FRESH_SECONDS: Final = 600.0
# Keys are read again for an unknown key, at most so often, whether or not it succeeds.
KEYS_FRESH_SECONDS: Final = 60.0
# A document that could not be read is not asked for again so long.
FAILED_SECONDS: Final = 10.0
MAX_ENTRIES: Final = 500
MAX_CACHE_BYTES: Final = 8 * 1024 * 1024
Allowed = tuple[str, ...]
Place = tuple[str, Allowed]


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
        self._documents: BoundedCache[Place, tuple[float, dict[str, Any]]]
        self._documents = BoundedCache(MAX_ENTRIES, MAX_CACHE_BYTES)
        self._failures: BoundedCache[Place, _Failure] = BoundedCache(MAX_ENTRIES, MAX_CACHE_BYTES)
        self._reading: dict[Place, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def known(self, url: str, allowed: Allowed, fresh_seconds: float = FRESH_SECONDS) -> dict[str, Any] | None:
        """Return a document that was read and is not older than this."""
        with self._lock:
            return self._known((url, allowed), fresh_seconds)

    def failure(self, url: str, allowed: Allowed, within: float = FAILED_SECONDS) -> str:
        """Return why a document could not be read a moment ago; "" if it could, or was not asked for."""
        with self._lock:
            found = self._failures.get((url, allowed))
        return found.reason if found is not None and time.monotonic() - found.at < within else ""

    def read(self, url: str, allowed: Allowed, fresh_seconds: float) -> dict[str, Any]:
        """Return a document that is not older than this. Raises Unreadable."""
        place = (url, allowed)
        with self._lock:
            known = self._known(place, fresh_seconds)
            if known is not None:
                return known
            reading = self._reading.get(place)
            is_first = reading is None
            if reading is None:
                reading = self._reading[place] = Future()
        if not is_first:
            return reading.result()
        try:
            document = self._fetched(place)
        except BaseException as problem:
            self._end(place)
            reading.set_exception(problem)
            raise
        self._end(place)
        reading.set_result(document)
        return document

    def parsed(self, reply: Reply) -> dict[str, Any]:
        """Return the document of a reply. Raises Unreadable."""
        return documents.parsed(reply)

    def _fetched(self, place: Place) -> dict[str, Any]:
        url, allowed = place
        try:
            reply = run(documents.fetch(url, MAX_BYTES, allowed=allowed))
            document = self.parsed(reply)
        except Unreadable as problem:
            with self._lock:
                self._failures.put(place, _Failure(time.monotonic(), str(problem)), len(url))
            raise
        with self._lock:
            self._failures.pop(place)
            self._documents.put(place, (time.monotonic(), document), len(reply.body))
        return document

    def _known(self, place: Place, fresh_seconds: float) -> dict[str, Any] | None:
        found = self._documents.get(place)
        return found[1] if found is not None and time.monotonic() - found[0] < fresh_seconds else None

    def _end(self, place: Place) -> None:
        with self._lock:
            del self._reading[place]


cache = Service(DocumentCache)


def run(coroutine: Any) -> Any:
    """Run a request to an issuer in this thread."""
    return thread_loops().run(coroutine)


def read(issuer: str, allowed: Sequence[str]) -> Configuration:
    """Return the configuration of an issuer. Raises Unreadable."""
    document = cache().read(issuer.rstrip("/") + WELL_KNOWN, tuple(allowed), FRESH_SECONDS)
    if document.get("issuer") != issuer:
        raise Unreadable(f"Its configuration is of the issuer {str(document.get('issuer'))[:200]}. Enter that URL.")
    methods = document.get("token_endpoint_auth_methods_supported")
    return Configuration(
        issuer=issuer,
        authorization_endpoint=_endpoint(document, "authorization_endpoint"),
        token_endpoint=_endpoint(document, "token_endpoint"),
        jwks_uri=_endpoint(document, "jwks_uri"),
        auth_methods=methods if isinstance(methods, list) else ("client_secret_basic",),
        userinfo_endpoint=_endpoint(document, "userinfo_endpoint") if "userinfo_endpoint" in document else "",
    )


def keys(issuer: str, allowed: Sequence[str], *, again: bool = False) -> dict[str, Any]:
    """Return the key set of an issuer; `again`: a key was not in it. Raises Unreadable.

    An issuer of workloads, such as a Kubernetes cluster, has no endpoints but its keys.
    """
    document = cache().read(issuer.rstrip("/") + WELL_KNOWN, tuple(allowed), FRESH_SECONDS)
    if document.get("issuer") != issuer:
        raise Unreadable("Its configuration is of another issuer.")
    fresh = KEYS_FRESH_SECONDS if again else FRESH_SECONDS
    return cache().read(_endpoint(document, "jwks_uri"), tuple(allowed), fresh)


def known_keys(issuer: str, allowed: Sequence[str]) -> dict[str, Any] | None:
    """Return the key set of an issuer as far as it is in memory and fresh. Sends no request."""
    url = _keys_url(issuer, allowed)
    return cache().known(url, tuple(allowed)) if url else None


def reason_not_to_read(issuer: str, allowed: Sequence[str]) -> str:
    """Return why the keys of an issuer are not to be read now, because they could not be; "" if they may be."""
    configuration = cache().failure(issuer.rstrip("/") + WELL_KNOWN, tuple(allowed))
    url = _keys_url(issuer, allowed)
    return configuration or (cache().failure(url, tuple(allowed)) if url else "")


def may_look_again(issuer: str, allowed: Sequence[str]) -> bool:
    """Whether the keys of an issuer may be read for an unknown key: it was not tried within KEYS_FRESH_SECONDS."""
    url, networks = _keys_url(issuer, allowed), tuple(allowed)
    if not url:
        return True
    return cache().known(url, networks, KEYS_FRESH_SECONDS) is None and not cache().failure(
        url, networks, KEYS_FRESH_SECONDS
    )


def _keys_url(issuer: str, allowed: Sequence[str]) -> str:
    document = cache().known(issuer.rstrip("/") + WELL_KNOWN, tuple(allowed))
    url = document.get("jwks_uri") if document is not None and document.get("issuer") == issuer else None
    return url if isinstance(url, str) else ""


def problem_of(url: str) -> str:
    """Return what is wrong with the URL of an issuer; "" if nothing is."""
    if not (redirects.is_https(url) or redirects.is_loopback(url)):
        return "Enter a URL that starts with https://."
    if "?" in url or "#" in url:
        return "The URL of an issuer has no query and no fragment."
    return ""


def _endpoint(document: dict[str, Any], name: str) -> str:
    url = document.get(name)
    if not isinstance(url, str) or problem_of(url.partition("?")[0]):
        raise Unreadable(f"Its configuration has no {name} that starts with https://.")
    return url
