"""The addresses that the hub may connect to, and connections to a host.

An address that is not clearly public is refused, unless an admin allowed its network. IPv6 addresses that embed an IPv4
address (mapped, compatible, 6to4, NAT64, Teredo, ISATAP) are always refused: their destination depends on routers
outside of the hub.

The check is below HTTP and TLS, so that no layer above can bypass it: every connection of a request or of a redirect is
checked here. A host's addresses are resolved once, all are checked, and only those are dialed. The name is never
resolved a second time, so that a DNS answer that changes between check and use (rebinding) has no effect; TLS still
verifies the name.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from tools_app.catalog.http.errors import AddressBlocked, ConnectError, ConnectTimeout, NameNotResolved
from tools_app.core.runtime import Service

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


def block_reason(address: Address, allowed: Iterable[Network]) -> str:
    """Return why the hub refuses `address`, unless it lies in an `allowed` network; "" if it is accepted."""
    if any(address in network for network in allowed):
        return ""
    for network, meaning in _REFUSED:
        if address in network:
            return f"{address} is {meaning} ({network})"
    if _embeds_isatap(address):
        return f"{address} is ISATAP"
    return "" if _is_public(address) else f"{address} is not globally routable"


def _embeds_isatap(address: Address) -> bool:
    """Whether the interface identifier is `[02]00:5efe:<IPv4>` (RFC 5214, section 6.1)."""
    return address.version == 6 and (int(address) >> 32) & 0xFFFF_FFFF & ~_UNIVERSAL_BIT == _ISATAP  # noqa: PLR2004


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return address.is_global and not address.is_multicast


Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

MAX_ATTEMPTS = 4
DEFAULT_CONNECT_SECONDS = 10.0
NAME_THREADS = 32


# Event loops have few threads for names, or share them with other work: servers of names that do not answer keep one
# for many seconds.
_name_threads = Service(lambda: ThreadPoolExecutor(NAME_THREADS, thread_name_prefix="names"))


async def system_addresses(host: str, port: int) -> Sequence[str]:
    """Resolve `host` with the operating system, best address first. Raises NameNotResolved."""
    resolve = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = await asyncio.get_running_loop().run_in_executor(_name_threads(), resolve)
    except (OSError, UnicodeError) as problem:
        raise NameNotResolved(f"{host}: {problem}") from problem
    return [str(entry[4][0]) for entry in found]


class CheckedDialer:
    """Opens connections: to public addresses, and those in `allowed`."""

    def __init__(self, allowed: Sequence[Network], resolve: Resolver = system_addresses) -> None:
        self._allowed = allowed
        self._resolve = resolve

    async def connect_tcp(self, host: str, port: int, seconds: float = DEFAULT_CONNECT_SECONDS) -> socket.socket:
        """Return a socket that is connected to `host`.

        Raises NameNotResolved, AddressBlocked, ConnectError and ConnectTimeout.
        """
        try:
            async with asyncio.timeout(seconds):
                return await self._first(await self.addresses(host, port), port, seconds)
        except TimeoutError as problem:
            raise ConnectTimeout(f"{host}:{port}") from problem

    async def addresses(self, host: str, port: int) -> list[Address]:
        """Return the addresses of `host`, all of them checked. Raises NameNotResolved and AddressBlocked."""
        found = list(dict.fromkeys(ip_address(text) for text in await self._texts(host, port)))
        if not found:
            raise NameNotResolved(host)
        for address in found:
            if why := block_reason(address, self._allowed):
                raise AddressBlocked(f"{host}: {why}")
        return found

    async def _texts(self, host: str, port: int) -> Sequence[str]:
        try:
            return [str(ip_address(host))]
        except ValueError:
            return await self._resolve(host, port)

    async def _first(self, addresses: Sequence[Address], port: int, seconds: float) -> socket.socket:
        """Return the first connection that succeeds; each attempt has an equal share of the time."""
        attempts = addresses[:MAX_ATTEMPTS]
        for address in attempts[:-1]:
            try:
                return await _dialed(address, port, seconds / len(attempts))
            except ConnectError:
                continue
        return await _dialed(attempts[-1], port, seconds)


async def _dialed(address: Address, port: int, seconds: float) -> socket.socket:
    """Return a socket that is connected to `address`. Raises ConnectError and ConnectTimeout."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004
    # With its protocol, without which event loops do not turn off the delay of small packets.
    dialing = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        dialing.setblocking(False)
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().sock_connect(dialing, (str(address), port))
    except BaseException as problem:
        dialing.close()
        if isinstance(problem, TimeoutError):
            raise ConnectTimeout(f"{address}:{port}") from problem
        if isinstance(problem, OSError):
            raise ConnectError(str(problem)) from problem
        raise
    return dialing
