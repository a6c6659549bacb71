"""Lists, a page at a time (pagination): each page is rendered once for each version of a catalog."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

from django.core import signing

from tools_app.auth.principal import matches
from tools_app.execution import catalog
from tools_app.execution.catalog import Catalog
from tools_app.methods.exchange import Exchange
from tools_app.methods.results import cacheable
from tools_app.models.config import config
from tools_app.protocol.errors import INVALID_PARAMS, RpcError

RENDERED_PAGES = 1024

Describe = Callable[[Any, str], dict[str, Any]]


class Listing(NamedTuple):
    """A list of a catalog: the method that asks for it, its field in the answer, its entries, how each is told."""

    method: str
    field: str
    entries: Callable[[Catalog], Mapping[str, Any]]
    describe: Describe


async def page(listing: Listing, exchange: Exchange) -> bytes:
    """The page that a request asks for. Raises RpcError for a cursor that the hub did not give for this list."""
    after = _opened_cursor(listing.method, exchange.params.get("cursor"))
    found = await catalog.ring.get(exchange.principal.tenant_id)
    if found is None:
        return cacheable({listing.field: []}, exchange.era)
    return _page(_Rendering(listing, found, exchange, config.MCPHUB_PAGE_SIZE), after)


class _Rendering:
    """What a page depends on. Equal renderings give equal bytes, so each is made once."""

    def __init__(self, listing: Listing, source: Catalog, exchange: Exchange, size: int) -> None:
        version, patterns = exchange.version, exchange.principal.patterns
        self.listing = listing
        self.source = source
        self.version = version
        self.era = exchange.era
        self.size = size
        self.patterns = patterns
        self._key = (listing.method, source.tenant_id, source.version, version, size, patterns)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Rendering) and self._key == other._key


@lru_cache(maxsize=RENDERED_PAGES)
def _page(rendering: _Rendering, after: str) -> bytes:
    listing, patterns = rendering.listing, rendering.patterns
    entries = listing.entries(rendering.source)
    following = [name for name in entries if name > after and (patterns is None or matches(name, patterns))]
    shown = following[: rendering.size]
    result: dict[str, Any] = {
        listing.field: [listing.describe(entries[name], rendering.version) for name in shown],
    }
    if len(following) > len(shown):
        result["nextCursor"] = signing.dumps(shown[-1], salt=listing.method)
    return cacheable(result, rendering.era)


def _opened_cursor(method: str, cursor: object) -> str:
    """The name after which the page begins. A cursor is signed: it says where to go on, and nothing else."""
    if cursor is None:
        return ""
    try:
        return str(signing.loads(cursor, salt=method)) if isinstance(cursor, str) else _refuse_cursor()
    except signing.BadSignature:
        _refuse_cursor()


def _refuse_cursor() -> NoReturn:
    raise RpcError(INVALID_PARAMS, "params.cursor is not one that this hub gave.")
