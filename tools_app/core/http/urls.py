"""URLs of outgoing requests, parsed so strictly that two parsers cannot disagree about them.

A parsed URL is sent unchanged: nothing downstream parses or normalizes it again.
"""

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Literal
from urllib.parse import unquote, urljoin

from tools_app.core.urls import DEFAULT_PORTS

_URL = re.compile(
    r"(?P<scheme>https?)://"
    r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))"
    r"(?::(?P<port>[0-9]{1,5})?)?"
    r"(?P<path>/[^?#]*)?"
    r"(?:\?(?P<query>[^#]*))?"
    r"(?:#.*)?",
    re.IGNORECASE,
)
_PRINTABLE = re.compile(r"[!-\[\]-~]+")  # visible ASCII without the backslash, which some parsers treat as a slash
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_MAX_NAME = 253
_LAST_PORT = 65535
_MAX_ENCODINGS = 5


class InvalidUrl(ValueError):
    """The text is not an accepted URL. The message gives the reason, without repeating the URL."""


@dataclass(frozen=True)
class Url:
    """An http or https URL. `host` is lower case, an IPv6 address without brackets; `path` starts with `/`."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    path: str = "/"
    query: str = ""

    @property
    def origin(self) -> tuple[str, str, int]:
        """The scheme, host and port (RFC 6454)."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """The host and port as in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def target(self) -> str:
        """The path and query as in the request line."""
        return f"{self.path}?{self.query}" if self.query else self.path

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"

    def joined(self, reference: str) -> "Url":
        """Resolve `reference`, found in a response of this URL. Raises InvalidUrl."""
        _check_characters(reference)
        try:
            return parse_url(urljoin(str(self), reference))
        except InvalidUrl:
            raise
        except ValueError as problem:
            raise InvalidUrl("it is malformed") from problem


def parse_url(text: str) -> Url:
    """Parse an absolute URL; its fragment is dropped. Raises InvalidUrl."""
    _check_characters(text)
    match = _URL.fullmatch(text)
    if match is None:
        raise InvalidUrl("enter a URL that starts with http:// or https://, without a user name")
    scheme: Literal["http", "https"] = "https" if match["scheme"].lower() == "https" else "http"
    try:
        host = str(IPv6Address(match["v6"])) if match["v6"] else _name(match["name"].lower())
    except AddressValueError as problem:
        message = "the IPv6 address is malformed" if match["v6"] else "the IPv4 address must be in dotted decimal form"
        raise InvalidUrl(message) from problem
    port = int(match["port"]) if match["port"] else DEFAULT_PORTS[scheme]
    if not 0 < port <= _LAST_PORT:
        raise InvalidUrl(f"the port must be between 1 and {_LAST_PORT}")
    return Url(scheme, host, port, match["path"] or "/", match["query"] or "")


def _check_characters(text: str) -> None:
    if not _PRINTABLE.fullmatch(text):
        raise InvalidUrl("only visible ASCII characters are allowed; use the xn-- form for other host names")


def _name(name: str) -> str:
    """Return a host name, or an IPv4 address in canonical form: `127.1`, `0x7f.1` and `2130706433` are refused."""
    name = name.removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return str(IPv4Address(name))
    if len(name) > _MAX_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidUrl("the host name is malformed")
    return name


def stays_under(url: Url, base: Url) -> bool:
    """Whether `url` has the origin of `base` and a path below the path of `base`, however a server decodes it."""
    return (
        url.origin == base.origin
        and not has_parent_segments(url.path)
        and _folder(url.path).startswith(_folder(base.path))
    )


def has_parent_segments(path: str) -> bool:
    """Whether `path` contains `.` or `..` for a server that decodes or normalizes it once more than the hub."""
    # Also `..;x`, which servlet containers read as `..`.
    parts = re.split(r"[/\\]", fully_decoded(path))
    return any(part.partition(";")[0].strip() in {".", ".."} for part in parts)


def fully_decoded(path: str) -> str:
    """Return `path` without percent-encoding, however often it was encoded."""
    for _ in range(_MAX_ENCODINGS):
        decoded = unquote(path)
        if decoded == path:
            break
        path = decoded
    return path


def _folder(path: str) -> str:
    return path if path.endswith("/") else f"{path}/"
