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
from tools_app.protocol.versions import Era

RENDERED_PAGES = 1024

Describe = Callable[[Any, str], dict[str, Any]]


class Listing(NamedTuple):
    """A list: the method that asks for it, its field in the answer, how an entry is told, and a catalog's entries."""

    method: str
    field: str
    describe: Describe
    entries: Callable[[Catalog], Mapping[str, Any]] = lambda _: {}


class View(NamedTuple):
    """Who looks at a list: the revision, the size of a page, and the patterns of what the caller gets."""

    version: str
    size: int
    patterns: tuple[str, ...] | None


async def page(listing: Listing, exchange: Exchange) -> bytes:
    """The page that a request asks for. Raises RpcError for a cursor that the hub did not give for this list."""
    after = _opened_cursor(listing.method, exchange.params.get("cursor"))
    found = await catalog.ring.get(exchange.principal.tenant_id)
    if found is None:
        return cacheable({listing.field: []}, exchange.era)
    return _page(_Rendering(listing, found, exchange.era, _view(exchange)), after)


class _Rendering:
    """What a page depends on. Equal renderings give equal bytes, so each is made once."""

    def __init__(self, listing: Listing, source: Catalog, era: Era, view: View) -> None:
        self.listing = listing
        self.source = source
        self.era = era
        self.view = view
        self._key = (listing.method, source.tenant_id, source.version, view)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Rendering) and self._key == other._key


@lru_cache(maxsize=RENDERED_PAGES)
def _page(rendering: _Rendering, after: str) -> bytes:
    listing = rendering.listing
    return cacheable(_shown(listing, listing.entries(rendering.source), rendering.view, after), rendering.era)


def page_of(listing: Listing, entries: Mapping[str, Any], exchange: Exchange) -> bytes:
    """A page of entries that no catalog keeps. Raises RpcError for a cursor that is not of this list."""
    after = _opened_cursor(listing.method, exchange.params.get("cursor"))
    return cacheable(_shown(listing, entries, _view(exchange), after), exchange.era)


def _view(exchange: Exchange) -> View:
    return View(exchange.version, config.MCPHUB_PAGE_SIZE, exchange.principal.patterns)


def _shown(listing: Listing, entries: Mapping[str, Any], view: View, after: str) -> dict[str, Any]:
    """The entries after a name that the caller gets, at most a page, and where the next page begins."""
    patterns = view.patterns
    following = [name for name in entries if name > after and (patterns is None or matches(name, patterns))]
    shown = following[: view.size]
    result: dict[str, Any] = {listing.field: [listing.describe(entries[name], view.version) for name in shown]}
    if len(following) > len(shown):
        result["nextCursor"] = signing.dumps(shown[-1], salt=listing.method)
    return result


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
