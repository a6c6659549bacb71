"""The addresses that the hub may connect to.

An address that is not clearly public is refused, unless an admin allowed its network. IPv6 addresses that embed an IPv4
address (mapped, compatible, 6to4, NAT64, Teredo, ISATAP) are always refused: their destination depends on routers
outside of the hub.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# The IANA special-purpose address registries, and remains of old allocations.
_REFUSED_V4 = {
    "0.0.0.0/8": "this network",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared by a carrier's customers",
    "127.0.0.0/8": "loopback",
    "168.63.129.16/32": "a cloud's metadata service on a public address",
    "169.254.0.0/16": "link-local, where clouds keep their metadata service",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "protocol assignments",
    "192.0.2.0/24": "documentation",
    "192.88.99.0/24": "6to4 relays",
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "benchmarks",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
}
_REFUSED_V6 = {
    "::/128": "unspecified",
    "::1/128": "loopback",
    "::/96": "IPv4-compatible",
    "::ffff:0:0/96": "IPv4-mapped",
    "64:ff9b::/96": "NAT64",
    "64:ff9b:1::/48": "NAT64",
    "2001::/32": "Teredo",
    "2001::/23": "protocol assignments",
    "2001:db8::/32": "documentation",
    "2002::/16": "6to4",
    "3ffe::/16": "a retired test network",
    "3fff::/20": "documentation",
    "fc00::/7": "private",
    "fe80::/10": "link-local",
    "fec0::/10": "site-local",
    "ff00::/8": "multicast",
}
_REFUSED = tuple((ip_network(network), meaning) for network, meaning in (_REFUSED_V4 | _REFUSED_V6).items())
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_ISATAP = 0x0000_5EFE
_UNIVERSAL_BIT = 0x0200_0000


def parse_networks(networks: Iterable[str]) -> tuple[Network, ...]:
    """Parse a list of networks in CIDR notation. Raises ValueError for an invalid one."""
    return tuple(ip_network(network) for network in networks)


# What the operator of the hub names may be in any network.
ANYWHERE = parse_networks(["0.0.0.0/0", "::/0"])


def block_reason(address: Address, allowed: Iterable[Network]) -> str:
    """Return why the hub refuses `address`, unless it lies in an `allowed` network; "" if it is accepted."""
    if any(address in network for network in allowed):
        return ""
    for network, meaning in _REFUSED:
        if address in network:
            return f"{address} is {meaning} ({network})"
    is_v6 = isinstance(address, IPv6Address)
    # The interface identifier is `[02]00:5efe:<IPv4>` (RFC 5214, section 6.1).
    if is_v6 and (int(address) >> 32) & 0xFFFF_FFFF & ~_UNIVERSAL_BIT == _ISATAP:
        return f"{address} is ISATAP"
    is_public = address.is_global and not address.is_multicast and (not is_v6 or address in _GLOBAL_UNICAST)
    return "" if is_public else f"{address} is not globally routable"
