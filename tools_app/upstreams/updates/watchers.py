"""Who wants to hear of which resources of upstreams, in this process. On the loop of the connections."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass

from tools_app.catalog.kinds.upstream.runner import Endpoint

UrisByEndpoint = Mapping[Endpoint, frozenset[str]]
UpdateListener = Callable[[frozenset[str]], None]


@dataclass(frozen=True)
class _Watcher:
    uris_by_endpoint: UrisByEndpoint
    notify: UpdateListener


class Watchers:
    """The URIs that each watcher wants, by endpoint."""

    def __init__(self) -> None:
        self._by_owner: dict[Hashable, _Watcher] = {}

    def replace(self, owner: Hashable, uris_by_endpoint: UrisByEndpoint, notify: UpdateListener) -> Iterable[Endpoint]:
        """Set what `owner` wants, and how it is told; returns the endpoints whose URIs may have changed."""
        previous = self._by_owner.pop(owner, None)
        if uris_by_endpoint:
            self._by_owner[owner] = _Watcher(uris_by_endpoint, notify)
        previous_uris = previous.uris_by_endpoint if previous else {}
        return [
            endpoint
            for endpoint in {*previous_uris, *uris_by_endpoint}
            if previous_uris.get(endpoint) != uris_by_endpoint.get(endpoint)
        ]

    def uris(self, endpoint: Endpoint) -> frozenset[str]:
        """Return the URIs that anybody wants of an endpoint."""
        return frozenset().union(
            *(watcher.uris_by_endpoint.get(endpoint, frozenset()) for watcher in self._by_owner.values())
        )

    def notify(self, endpoint: Endpoint, uris: frozenset[str]) -> None:
        """Tell each watcher of the updated resources that it wants."""
        for watcher in list(self._by_owner.values()):
            if updated := uris & watcher.uris_by_endpoint.get(endpoint, frozenset()):
                watcher.notify(updated)
