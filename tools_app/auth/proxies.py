"""Whom to believe about a caller's address: the proxies that the operator set up, and nobody else."""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network

from django.http import HttpRequest

from tools_app.models.config import config

MOST_LETTERS = 45
# How much of an IPv6 address is its network's part.
NETWORK_BITS = 64


def address_of(request: HttpRequest) -> str:
    """The address of whoever opens a page."""
    return believed(str(request.META.get("REMOTE_ADDR", "")), request.headers.get("X-Forwarded-For", ""))


@lru_cache(maxsize=1024)
def counted_as(address: str) -> str:
    """As whom to count a caller: one host of IPv6 has a network of 2^64 addresses to itself, which is one caller."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    return str(parsed.ipv4_mapped or ip_network((parsed.packed, NETWORK_BITS), strict=False))


def believed(address: str, forwarded_for: str) -> str:
    """The caller's address, as far as the configured proxies vouch for it.

    `address` is the other end of the connection, `forwarded_for` the value of X-Forwarded-For ("" without one).
    """
    if not config.MCPHUB_TRUSTED_PROXIES:
        return address
    hops = [hop.strip() for hop in forwarded_for.split(",") if hop.strip()]
    return hops[-min(config.MCPHUB_TRUSTED_PROXIES, len(hops))][:MOST_LETTERS] if hops else address
