"""A limit on the connections of one client address to a process."""

import resource
from collections import Counter
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final

MAX_CONNECTIONS: Final = 2000
# The interval of recounts while an address is at its limit: after this time, or after a fraction of the limit was
# accepted since the last recount. A recount reads all open connections; that many new ones cost much more.
RECOUNT_SECONDS: Final = 1.0
RECOUNT_FRACTION: Final = 16


class AddressLimit:
    """The number of connections of each address.

    `open_addresses` lists the addresses of open connections, and `key` maps an address to the key that is counted. Only
    accepted connections are reported; closed ones are found by recounting the open ones.
    """

    def __init__(
        self,
        open_addresses: Callable[[], Iterable[str]],
        key: Callable[[str], str],
        max_per_address: int | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._open_addresses = open_addresses
        self._key = key
        self._max_connections = max_connections() if max_per_address is None else max_per_address
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._counted_at = clock()
        self._accepted = 0

    def admits(self, address: str) -> bool:
        """Whether one more connection of this address is allowed; it is counted if so."""
        key = self._key(address)
        if self._counts[key] >= self._max_connections and self._is_recount_due():
            self.recount()
        if self._counts[key] >= self._max_connections:
            return False
        self._counts[key] += 1
        self._accepted += 1
        return True

    def _is_recount_due(self) -> bool:
        accepted = self._accepted * RECOUNT_FRACTION >= self._max_connections
        return accepted or self._clock() - self._counted_at >= RECOUNT_SECONDS

    def recount(self) -> None:
        """Recount the open connections."""
        self._counts = Counter(map(self._key, self._open_addresses()))
        self._counted_at = self._clock()
        self._accepted = 0


def max_connections() -> int:
    """Return the limit of this process: at most half of its maximum number of open files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, files // 2)
