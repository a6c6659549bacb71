"""Which Host and Origin a request may carry: parsed and compared exactly, against DNS rebinding."""

from functools import lru_cache
from urllib.parse import urlsplit

from django.http.request import split_domain_port, validate_host

from tools_app.models.config import config
from tools_app.protocol.errors import INVALID_REQUEST, RpcError
from tools_app.transport.incoming import Incoming

DEFAULT_PORTS = {"http": 80, "https": 443}
Origin = tuple[str, str, int]


def check(incoming: Incoming) -> None:
    """Raise RpcError for a Host that is not the hub's (421) or an Origin that may not call it (403)."""
    host = incoming.headers.get("host", "")
    if not _is_allowed_host(host, tuple(config.ALLOWED_HOSTS)):
        raise RpcError(INVALID_REQUEST, "This hub does not answer for that host.", status=421)
    origin = incoming.headers.get("origin")
    if origin is None:
        return
    if not _is_allowed_origin(origin, incoming.scheme, host, tuple(config.MCPHUB_ALLOWED_ORIGINS)):
        raise RpcError(INVALID_REQUEST, "Origin not allowed.", status=403)


@lru_cache(maxsize=256)
def _is_allowed_host(host: str, allowed: tuple[str, ...]) -> bool:
    domain, _ = split_domain_port(host)
    return bool(domain) and validate_host(domain, allowed)


@lru_cache(maxsize=256)
def _is_allowed_origin(origin: str, scheme: str, host: str, allowed: tuple[str, ...]) -> bool:
    """An origin is allowed if it is on the list, or if it is the hub's own: its Host has been checked by then."""
    parsed = parse_origin(origin)
    if parsed is None:
        return False
    own = parse_origin(f"{scheme}://{host}")
    return parsed == own or parsed in {parse_origin(entry) for entry in allowed}


def parse_origin(origin: str) -> Origin | None:
    """Scheme, host and port of an origin; None if it is not one (RFC 6454, §7)."""
    try:
        parts = urlsplit(origin)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    extra = parts.path or parts.query or parts.fragment or parts.username is not None
    if extra or port is None or not parts.hostname:
        return None
    return parts.scheme, parts.hostname, port
