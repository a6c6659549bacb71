"""Redirect URIs: which ones a client may register, and which request matches a registered one."""

import re
from typing import Final

from tools_app.core.urls import UrlParts, split_url
from tools_app.identity.models.oauth import MAX_URI

MAX_URIS: Final = 20
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
# What RFC 6749 permits in error descriptions, and no character that needs quoting in a header or page.
_PLAIN: Final = re.compile(r"[!#-;=?-\[\]_a-zA-Z~]+")
_HOST: Final = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*")
# Schemes that browsers and operating systems open themselves, some of which run what follows. Others are those of
# applications, which choose them freely.
_REFUSED_SCHEME: Final = re.compile(
    "about|blob|brave|content|data|facetime|feed|file|filesystem|ftps?|gopher|help|intent|irc|jar|ldaps?|magnet|mailto|"
    "mhtml|news|nfs|nntp|opera|resource|rtsp|search|sftp|shell|sips?|smb|sms|snews|ssh|tel|telnet|vivaldi|vnc|wss?|"
    "wyciwyg|(?:chrome|devtools|edge|moz|ms-|safari|search-|view-|webkit).*"
)


def problem_of(uri: object) -> str:
    """Return what is wrong with a redirect URI; "" if a client may register it (RFC 6749, section 3.1.2)."""
    if not isinstance(uri, str) or not uri or len(uri) > MAX_URI:
        return f"A redirect URI is a text of at most {MAX_URI} characters."
    parts = _split(uri)
    if parts is None or "#" in uri:
        return "A redirect URI is an absolute URI without a fragment, a user name or unusual characters."
    if parts.scheme == "http":
        return "" if parts.host in LOOPBACK else "A redirect URI with http:// must be on this computer (localhost)."
    # With javascript, vbscript and their kind.
    is_refused = "script" in parts.scheme or _REFUSED_SCHEME.fullmatch(parts.scheme)
    return "A redirect URI cannot have this scheme." if is_refused else ""


def matches(uri: str, registered: list[str]) -> bool:
    """Whether a request may be answered at `uri`: exactly one of the registered, on loopback with any port.

    RFC 8252, section 7.3: native applications listen on a port that the system chooses.
    """

    def differs_in_port(known: str) -> bool:
        one, other = _split(uri), _split(known)
        if one is None or other is None or not is_loopback(known):
            return False
        return (one.scheme, one.host, one.path, one.query) == (other.scheme, other.host, other.path, other.query)

    return not problem_of(uri) and (uri in registered or any(map(differs_in_port, registered)))


def is_loopback(uri: str) -> bool:
    """Whether a redirect URI leads to the person's own computer."""
    parts = _split(uri)
    return parts is not None and parts.scheme == "http" and parts.host in LOOPBACK


def is_https(uri: str) -> bool:
    """Whether a redirect URI leads to a website, which TLS authenticates."""
    parts = _split(uri)
    return parts is not None and parts.scheme == "https"


def destination_of(uri: str) -> str:
    """Return where a redirect URI leads, to be shown to a person: its host, or its scheme for an application."""
    parts = _split(uri)
    if parts is None:
        return ""
    return parts.netloc if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def source_of(uri: str) -> str:
    """Return the source expression of a redirect URI for a content security policy."""
    parts = _split(uri)
    if parts is None:
        return ""
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def _split(uri: str) -> UrlParts | None:
    parts = split_url(uri) if _PLAIN.fullmatch(uri) else None
    if parts is None:
        return None
    is_web = parts.scheme in ("http", "https")
    if not _SCHEME.fullmatch(parts.scheme) or (is_web and not _HOST.fullmatch(parts.netloc)):
        return None
    return parts
