"""Pagination of lists: each page is rendered once for each version of a catalog."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from django.core import signing

from tools_app.calls.request import RequestContext, cacheable_result
from tools_app.catalog import compiled
from tools_app.catalog.compiled import Catalog
from tools_app.core.bounded_cache import BoundedCache
from tools_app.core.validators import ItemKind
from tools_app.identity.principal import Principal
from tools_app.protocol.errors import INVALID_PARAMS, RpcError

PAGE_SIZE = 100
# The number of cached pages and their total size in bytes: the size of a page depends on its tenant.
RENDERED_PAGES = 1024
MAX_RENDERED_BYTES = 64 * 1024 * 1024

Describe = Callable[[Any, str], dict[str, Any]]


class ListKind(NamedTuple):
    """A list: the method that returns it, its field in the result, the form of an entry, and a catalog's entries."""

    method: str
    field: str
    describe: Describe
    entries: Callable[[Catalog, Principal], Mapping[str, Any]] = lambda _catalog, _principal: {}


class ListView(NamedTuple):
    """What a page depends on besides the catalog: the revision, the page size, and what the caller may see.

    `presentation` is how its key lists tools.
    """

    version: str
    size: int
    permissions: tuple[object, ...]
    presentation: str


async def page(listing: ListKind, context: RequestContext) -> bytes:
    """Return the requested page. Raises RpcError for a cursor that the hub did not issue for this list."""
    after = _opened_cursor(listing.method, context.params.get("cursor"))
    found = await compiled.cache.get(context.principal.tenant_id)
    if found is None:
        return cacheable_result({listing.field: []}, context.era)
    # The cache key covers everything that a page depends on: equal keys give equal bytes.
    view = _view(context)
    key = (listing.method, found.tenant_id, found.version, view, after)
    rendered = _rendered.get(key)
    if rendered is None:
        rendered = cacheable_result(
            _visible(listing, listing.entries(found, context.principal), view, after), context.era
        )
        # The version of a catalog is the row of its tenant.
        _rendered.put(key, rendered, len(rendered) + len(found.version) + len(after))
    return rendered


_rendered: BoundedCache[tuple[object, ...], bytes] = BoundedCache(RENDERED_PAGES, MAX_RENDERED_BYTES)


def page_of_entries(listing: ListKind, entries: Mapping[str, Any], context: RequestContext) -> bytes:
    """Return a page of entries that the caller may see, and that are not part of a catalog.

    Raises RpcError for a cursor of another list.
    """
    after = _opened_cursor(listing.method, context.params.get("cursor"))
    return cacheable_result(_visible(listing, entries, _view(context), after), context.era)


def permitted(
    entries: Mapping[str, Any], found: Catalog, principal: Principal, kind: ItemKind, method: str
) -> Mapping[str, Any]:
    """Return the entries of a list (`method`) that the caller may see, by name or URI."""
    return {name: entry for name, entry in entries.items() if principal.may(kind, method, name, found)}


def _view(context: RequestContext) -> ListView:
    principal = context.principal
    return ListView(context.version, PAGE_SIZE, principal.permissions, principal.presentation)


def _visible(listing: ListKind, entries: Mapping[str, Any], view: ListView, after: str) -> dict[str, Any]:
    """Return one page of the entries after a name, and the cursor of the next page."""
    following = [name for name in entries if name > after]
    shown = following[: view.size]
    result: dict[str, Any] = {listing.field: [listing.describe(entries[name], view.version) for name in shown]}
    if len(following) > len(shown):
        result["nextCursor"] = signing.dumps(shown[-1], salt=listing.method)
    return result


def _opened_cursor(method: str, cursor: object) -> str:
    """Return the name after which the page begins. A cursor is signed and contains only that name."""
    if cursor is None:
        return ""
    try:
        return str(signing.loads(cursor, salt=method)) if isinstance(cursor, str) else _refuse_cursor()
    except signing.BadSignature:
        _refuse_cursor()


def _refuse_cursor() -> NoReturn:
    raise RpcError(INVALID_PARAMS, "params.cursor is not one that this hub gave.")
