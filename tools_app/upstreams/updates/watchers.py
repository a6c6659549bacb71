"""Who wants to hear of which resources of upstreams, in this process. On the loop of the connections."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass

from tools_app.catalog.kinds.upstream import Endpoint

Wanted = Mapping[Endpoint, frozenset[str]]
Tell = Callable[[frozenset[str]], None]


@dataclass(frozen=True)
class _Watcher:
    wanted: Wanted
    tell: Tell


class Watchers:
    """The URIs that each watcher wants, by endpoint."""

    def __init__(self) -> None:
        self._by_owner: dict[Hashable, _Watcher] = {}

    def replace(self, owner: Hashable, wanted: Wanted, tell: Tell) -> Iterable[Endpoint]:
        """Set what `owner` wants, and how it is told; returns the endpoints whose URIs may have changed."""
        before = self._by_owner.pop(owner, None)
        if wanted:
            self._by_owner[owner] = _Watcher(wanted, tell)
        former = before.wanted if before else {}
        return [one for one in {*former, *wanted} if former.get(one) != wanted.get(one)]

    def uris(self, endpoint: Endpoint) -> frozenset[str]:
        """Return the URIs that anybody wants of an endpoint."""
        return frozenset().union(*(one.wanted.get(endpoint, frozenset()) for one in self._by_owner.values()))

    def tell(self, endpoint: Endpoint, uris: frozenset[str]) -> None:
        """Tell each watcher of the updated resources that it wants."""
        for watcher in list(self._by_owner.values()):
            if told := uris & watcher.wanted.get(endpoint, frozenset()):
                watcher.tell(told)
