"""URLs that strangers and tenants write, as far as they can be read. What the hub sends requests to is parsed more
strictly, in `core.http.urls`.
"""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

DEFAULT_PORTS: Final = {"http": 80, "https": 443}
LOCALHOST: Final = "localhost"
# Of IPv4 addresses in other forms than four decimal numbers, such as 127.1 and 0x7f000001.
_NUMERIC: Final = frozenset("0123456789abcdefx.")


class UrlParts(NamedTuple):
    """The parts of a URL. The host is in lower case and without brackets, the port that of the scheme by default."""

    scheme: str
    netloc: str
    host: str
    port: int | None
    path: str
    query: str
    fragment: str
    has_user: bool

    @property
    def origin(self) -> tuple[str, str, int | None]:
        """The scheme, host and port (RFC 6454)."""
        return self.scheme, self.host, self.port


def split_url(url: str) -> UrlParts | None:
    """Return the parts of a URL; None if it cannot be read, such as `https://[::1`."""
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
        host = parts.hostname or ""
    except ValueError:
        return None
    has_user = parts.username is not None
    return UrlParts(parts.scheme, parts.netloc, host, port, parts.path, parts.query, parts.fragment, has_user)


def netloc_of(url: str) -> str:
    """Return the host of a URL with its port, as it is written; "" if it cannot be read."""
    parts = split_url(url)
    return parts.netloc if parts else ""


def is_loopback_host(host: str) -> bool:
    """Whether a host is the computer of the user who opens it, in every form that browsers understand."""
    name = host.lower().strip("[]").rstrip(".")
    if name == LOCALHOST or name.endswith(f".{LOCALHOST}"):
        return True
    address: IPv4Address | IPv6Address
    try:
        address = ip_address(name)
    except ValueError:
        if not name or not _NUMERIC.issuperset(name):
            return False
        try:
            address = IPv4Address(socket.inet_aton(name))
        except OSError:
            return False
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    return address.is_loopback or address.is_unspecified
