"""The tools that a caller sees: those that its key and its toolset permit, in full or by search."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tools_app.catalog.compiled import PRESENTED_KINDS, Catalog, CompiledTool
from tools_app.catalog.toolsets import Resolver, toolset_list
from tools_app.core.bounded_cache import BoundedCache
from tools_app.identity.principal import Principal
from tools_app.models import TOOLS_CALL, Presentation

MAX_VIEWS: Final = 1024
MAX_VIEW_BYTES: Final = 32 * 1024 * 1024
TOOLS_LIST: Final = "tools/list"
# A name and its entry in a set.
ENTRY_BYTES: Final = 200


class View(NamedTuple):
    """The names of the tools that a caller may list, and about how many tokens a list of them costs.

    A search finds those that the caller may call (`searchable`). It holds no tools: views of earlier versions must not
    keep these catalogs in memory.
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
    key = (found.tenant_id, found.version, principal.permissions)
    view = _views.get(key)
    if view is None:
        names = frozenset(name for name in found.tools if principal.may("tool", TOOLS_LIST, name, found))
        searchable = frozenset(name for name in found.tools if principal.may("tool", TOOLS_CALL, name, found))
        # Also of those that the caller may call without listing them: that decides whether it may call them by search.
        view = View(names, sum(found.tools[name].tokens for name in names | searchable), searchable)
        _views.put(key, view, len(found.version) + ENTRY_BYTES * (1 + len(view.names) + len(view.searchable)))
    return view


def contents_of(found: Catalog, entries: Iterable[str]) -> Contents:
    """Return the tools of a catalog that belong to a set of names and patterns."""
    names = Resolver(found.tools).resolve(entries).names
    tools = {name: tool for name, tool in found.tools.items() if name in names}
    return Contents(tools, sum(tool.tokens for tool in tools.values()))


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
