"""Connecting to a host: its addresses are looked up once, all are checked, and exactly those are dialed.

The check sits below HTTP and TLS, so that nothing above can go around it: every connection of a request or of a
redirect passes here. The name is never looked up a second time, so that an answer of the DNS that changes between
check and use (rebinding) has no effect; TLS still verifies the name.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import ip_address

import httpcore

from tools_app.execution.outgoing.addresses import Address, Network, refusal
from tools_app.execution.outgoing.failures import AddressRefused, Unresolved

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

MOST_ATTEMPTS = 4
DEFAULT_CONNECT_SECONDS = 10.0


async def system_addresses(host: str, port: int) -> Sequence[str]:
    """The addresses that the operating system knows for `host`, best first. Raises Unresolved."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        raise Unresolved(f"{host}: {problem}") from problem
    return [str(entry[4][0]) for entry in found]


class CheckedDialer(httpcore.AsyncNetworkBackend):
    """Dials for one request: public addresses, and those in `allowed`."""

    def __init__(self, allowed: Sequence[Network], resolve: Resolver = system_addresses) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._sockets = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's interface, like the next two
        local_address: str | None = None,  # noqa: ARG002
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> httpcore.AsyncNetworkStream:
        """Connect to `host`. Raises Unresolved, AddressRefused, httpcore.ConnectError and .ConnectTimeout."""
        seconds = timeout or DEFAULT_CONNECT_SECONDS
        try:
            async with asyncio.timeout(seconds):
                return await self._first(await self.addresses(host, port), port, seconds)
        except TimeoutError as problem:
            raise httpcore.ConnectTimeout(f"{host}:{port}") from problem

    async def addresses(self, host: str, port: int) -> list[Address]:
        """The addresses of `host`, every one of them checked. Raises Unresolved and AddressRefused."""
        found = list(dict.fromkeys(ip_address(text) for text in await self._texts(host, port)))
        if not found:
            raise Unresolved(host)
        for address in found:
            if why := refusal(address, self._allowed):
                raise AddressRefused(f"{host}: {why}")
        return found

    async def _texts(self, host: str, port: int) -> Sequence[str]:
        try:
            return [str(ip_address(host))]
        except ValueError:
            return await self._resolve(host, port)

    async def _first(self, addresses: Sequence[Address], port: int, seconds: float) -> httpcore.AsyncNetworkStream:
        """The first that answers, each given an equal share of the time."""
        attempts = addresses[:MOST_ATTEMPTS]
        for address in attempts[:-1]:
            try:
                return await self._dial(address, port, seconds / len(attempts))
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await self._dial(attempts[-1], port, seconds)

    async def _dial(self, address: Address, port: int, seconds: float) -> httpcore.AsyncNetworkStream:
        return await self._sockets.connect_tcp(str(address), port, timeout=seconds)
