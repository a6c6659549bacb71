"""The configuration and keys of issuers, as they publish them (OpenID Connect Discovery 1.0; RFC 7517).

They are read when they are needed and kept for a short time in memory, in a bounded number of bytes.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tools_app.access.oauth import redirects
from tools_app.catalog.http import documents
from tools_app.catalog.http.documents import Unreadable
from tools_app.core.bounded_cache import BoundedCache
from tools_app.core.runtime import Service
from tools_app.core.thread_loops import thread_loops

WELL_KNOWN: Final = "/.well-known/openid-configuration"
MAX_BYTES: Final = 256 * 1024
FRESH_SECONDS: Final = 600.0
# Keys are read again for an unknown key ID, at most so often.
KEYS_FRESH_SECONDS: Final = 60.0
MAX_ENTRIES: Final = 500
MAX_CACHE_BYTES: Final = 8 * 1024 * 1024
Allowed = tuple[str, ...]


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


class DocumentCache:
    """Documents by their URL and the networks that were allowed for them."""

    def __init__(self) -> None:
        self._documents: BoundedCache[tuple[str, Allowed], tuple[float, dict[str, Any]]]
        self._documents = BoundedCache(MAX_ENTRIES, MAX_CACHE_BYTES)
        self._lock = threading.Lock()

    def read(self, url: str, allowed: Allowed, fresh_seconds: float) -> dict[str, Any]:
        """Return a document that is not older than this. Raises Unreadable."""
        with self._lock:
            known = self._documents.get((url, allowed))
        if known is not None and time.monotonic() - known[0] < fresh_seconds:
            return known[1]
        reply = run(documents.fetch(url, MAX_BYTES, allowed=allowed))
        document = documents.parsed(reply)
        with self._lock:
            self._documents.put((url, allowed), (time.monotonic(), document), len(reply.body))
        return document


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
