"""The tools that a caller sees: those that its key and its toolset permit, in full or by search."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tools_app.access.principal import Principal
from tools_app.catalog.compiled import PRESENTED_KINDS, Catalog, CompiledTool
from tools_app.catalog.toolsets import Resolver, toolset_list
from tools_app.core.bounded_cache import BoundedCache
from tools_app.models import TOOLS_CALL, Presentation

MAX_VIEWS: Final = 1024
MAX_VIEW_BYTES: Final = 32 * 1024 * 1024
# A name and its entry in a set.
ENTRY_BYTES: Final = 200


class View(NamedTuple):
    """The names of the tools that a caller may use, and about how many tokens a list of them costs.

    A search finds only those that are `searchable`: the scopes of an access token may permit calls of fewer. It holds
    no tools: views of earlier versions must not keep these catalogs in memory.
    """

    names: frozenset[str]
    tokens: int
    searchable: frozenset[str]


class Contents(NamedTuple):
    """Tools by name, and about how many tokens a list of them costs."""

    tools: Mapping[str, CompiledTool]
    tokens: int


_views: BoundedCache[tuple[object, ...], View] = BoundedCache(MAX_VIEWS, MAX_VIEW_BYTES)


def view_of(found: Catalog, principal: Principal) -> View:
    """Return the tools of a catalog that a caller may use. Computed once for each version and set of permissions."""
    has_person = principal.person_id is not None
    depends: tuple[object, ...] = (principal.patterns, principal.grants, principal.toolset, has_person)
    key = (found.tenant_id, found.version, depends)
    view = _views.get(key)
    if view is None:
        view = _view(found, principal)
        entries = len(view.names) + (len(view.searchable) if view.searchable is not view.names else 0)
        _views.put(key, view, len(found.version) + ENTRY_BYTES * (1 + entries))
    return view


def _view(found: Catalog, principal: Principal) -> View:
    tools = {name: tool for name, tool in found.tools.items() if permits_call(found, principal, name)}
    names = frozenset(tools)
    searchable = names
    if principal.grants is not None:
        searchable = frozenset(name for name in names if not principal.lacks_scope(TOOLS_CALL, name))
    return View(names, sum(tool.tokens for tool in tools.values()), searchable)


def contents_of(found: Catalog, entries: Iterable[str]) -> Contents:
    """Return the tools of a catalog that belong to a set of names and patterns."""
    names = Resolver(found.tools).resolve(entries).names
    tools = {name: tool for name, tool in found.tools.items() if name in names}
    return Contents(tools, sum(tool.tokens for tool in tools.values()))


def permits_call(found: Catalog | None, principal: Principal, name: str) -> bool:
    """Whether the caller may use the tool of this name, as far as its key, its toolset and its person decide it."""
    if not principal.permits_name(name):
        return False
    if principal.toolset is not None and (found is None or not found.in_toolset(principal.toolset, name)):
        return False
    tool = found.tools.get(name) if found is not None else None
    return principal.person_id is not None or tool is None or not tool.needs_person


def is_searched(found: Catalog, principal: Principal) -> bool:
    """Whether the caller gets the search tools in place of a full list."""
    wanted = principal.presentation or found.presentation
    if wanted == Presentation.AUTO:
        return view_of(found, principal).tokens > found.search_above_tokens
    return wanted == Presentation.SEARCH


def affects_tools(changed: str, principal: Principal) -> bool:
    """Whether a changed list of a catalog's digests, besides those of the protocol, changes the caller's tools."""
    if changed == PRESENTED_KINDS:
        return principal.presentation != Presentation.FULL
    return principal.toolset is not None and changed == toolset_list(principal.toolset)
