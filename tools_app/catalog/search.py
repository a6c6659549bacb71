"""Search for tools by words: an index of each catalog in memory, ranked by BM25.

A tool is found by its name, title, description, argument names, and the aliases that an admin gave it. The statistics
of a ranking are those of the tools that the caller may use, so that no score tells anything of the others.
"""

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import islice
from threading import Lock
from typing import Final, NamedTuple
from uuid import UUID

from tools_app.catalog.compiled import Catalog, CompiledTool
from tools_app.core import ranking
from tools_app.core.bounded_cache import BoundedCache
from tools_app.core.process.fair_threads import FairThreads
from tools_app.core.process.runtime import Service

MAX_QUERY_LENGTH: Final = 500
MAX_RESULTS: Final = 20
# Of a query; further ones are ignored, as are those of a tool beyond these characters and arguments.
MAX_TERMS: Final = 16
# Different words of a tool that are indexed: first those of its name, its title and its aliases.
MAX_TOOL_TERMS: Final = 300
MAX_INDEXED_CHARACTERS: Final = 4_000
MAX_INDEXED_ARGUMENTS: Final = 200
MAX_TERM_LENGTH: Final = 40
# Terms that begin with a word of a query that no tool has.
MAX_COMPLETIONS: Final = 20
MIN_COMPLETED: Final = 3

# How much a term counts by where it stands.
NAME_WEIGHT: Final = 4.0
TITLE_WEIGHT: Final = 3.0
TEXT_WEIGHT: Final = 1.0

# Indexes of this process. One that was evicted is built again by the next search.
MAX_INDEXES: Final = 1_000
MAX_INDEX_BYTES: Final = 64 * 1024 * 1024
POSTING_BYTES: Final = 8
TERM_BYTES: Final = 400
TOOL_BYTES: Final = 200
# Of an index, so that it always fits. The tools share the postings: with more tools, fewer words of each are indexed.
MAX_POSTINGS: Final = 250_000
MAX_VOCABULARY: Final = 25_000
# From this number of postings on, a search runs in a thread.
MANY_POSTINGS: Final = 5_000
# The threads that build indexes and search large ones, for all tenants.
THREADS: Final = 2

_BETWEEN_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD: Final = re.compile(r"[^\W_]+")


class Hit(NamedTuple):
    """A tool that a search found, and its score, which is comparable only within one search."""

    name: str
    score: float


class SearchIndex:
    """The index of one version of a catalog. Immutable once it is built, so that threads may share it."""

    def __init__(self, version: bytes, tools: Mapping[str, CompiledTool]) -> None:
        self.version = version
        self._names = list(islice(tools, MAX_POSTINGS))
        self._lengths = array("f")
        self._postings: dict[str, tuple[array[int], array[float]]] = {}
        self.postings = 0
        most = min(MAX_TOOL_TERMS, MAX_POSTINGS // max(1, len(self._names)))
        for position, name in enumerate(self._names):
            terms = _terms_of(tools[name], most)
            self._lengths.append(sum(terms.values()))
            for term, weight in terms.items():
                self._add(term, position, weight)
        self._vocabulary = sorted(self._postings)

    def _add(self, term: str, position: int, weight: float) -> None:
        if term not in self._postings:
            if len(self._postings) >= MAX_VOCABULARY:
                return
            self._postings[term] = (array("I"), array("f"))
        positions, weights = self._postings[term]
        positions.append(position)
        weights.append(weight)
        self.postings += 1

    @property
    def size(self) -> int:
        """Its size in bytes, about."""
        of_terms = POSTING_BYTES * self.postings + TERM_BYTES * len(self._postings)
        return of_terms + TOOL_BYTES * len(self._names) + len(self.version)

    def search(self, query: str, visible: AbstractSet[str]) -> list[Hit]:
        """Return the `visible` tools that match any word of a query, the best first."""
        seen = bytearray(name in visible for name in self._names)
        count = sum(seen)
        if not count:
            return []
        average = sum(length for length, is_seen in zip(self._lengths, seen, strict=True) if is_seen) / count or 1.0
        scores: dict[int, float] = {}
        # Terms of hidden tools only, each looked at once.
        hidden: set[str] = set()
        for term in list(dict.fromkeys(_words(query[:MAX_QUERY_LENGTH])))[:MAX_TERMS]:
            weights = self._matches(term, seen, hidden)
            for position, score in ranking.scores(weights, self._lengths, count, average):
                scores[position] = scores.get(position, 0.0) + score
        ranked = sorted(scores.items(), key=lambda entry: (-entry[1], self._names[entry[0]]))
        return [Hit(self._names[position], score) for position, score in ranked]

    def _matches(self, term: str, seen: bytearray, hidden: set[str]) -> dict[int, float]:
        """Return the weights of a term by tool; if no tool that is seen has it, those of the terms that it begins."""
        found = self._of_term(term, seen)
        if found or len(term) < MIN_COMPLETED:
            return found
        completions = self._completions(term, seen, hidden)
        for more in islice(completions, MAX_COMPLETIONS):
            found |= {position: max(weight, found.get(position, 0.0)) for position, weight in more.items()}
        return found

    def _completions(self, term: str, seen: bytearray, hidden: set[str]) -> Iterator[dict[int, float]]:
        """Yield the weights of each term that begins with this one and that a tool has which is seen."""
        for position in range(bisect_left(self._vocabulary, term), len(self._vocabulary)):
            known = self._vocabulary[position]
            if not known.startswith(term):
                return
            if known in hidden:
                continue
            if found := self._of_term(known, seen):
                yield found
            else:
                hidden.add(known)

    def _of_term(self, term: str, seen: bytearray) -> dict[int, float]:
        if term not in self._postings:
            return {}
        return {position: weight for position, weight in zip(*self._postings[term], strict=True) if seen[position]}


def _terms_of(tool: CompiledTool, most: int) -> dict[str, float]:
    """Return how much each term counts for a tool, of the first `most`."""
    definition = tool.definition
    terms: dict[str, float] = {}
    properties = (definition.input_schema or {}).get("properties")
    arguments = list(properties)[:MAX_INDEXED_ARGUMENTS] if isinstance(properties, Mapping) else []
    for text, weight in (
        (definition.name, NAME_WEIGHT),
        (definition.title or "", TITLE_WEIGHT),
        ("\n".join(tool.aliases), NAME_WEIGHT),
        (definition.description or "", TEXT_WEIGHT),
        ("\n".join(map(str, arguments)), TEXT_WEIGHT),
    ):
        for word in _words(text[:MAX_INDEXED_CHARACTERS]):
            if word in terms or len(terms) < most:
                terms[word] = terms.get(word, 0.0) + weight
    return terms


def _words(text: str) -> Iterator[str]:
    """Yield the words of a text or a name, `listOpenIssues` and `list_open_issues` alike, in their singular."""
    for word in _WORD.findall(_BETWEEN_WORDS.sub(" ", text)):
        yield ranking.singular(word.casefold())[:MAX_TERM_LENGTH]


class Indexes:
    """The indexes of this process, and the threads that build and search them: a tenant uses one of them at most."""

    def __init__(self) -> None:
        self.threads = FairThreads("tool-search", THREADS)
        self._built: BoundedCache[UUID, SearchIndex] = BoundedCache(MAX_INDEXES, MAX_INDEX_BYTES)
        # Held to look up and to store only.
        self._lock = Lock()

    async def index_of(self, found: Catalog) -> SearchIndex:
        """Return the index of a catalog. Searches of the same version wait for one build."""
        known = self._known(found)
        return known if known is not None else await self.threads.run(found.tenant_id, partial(self._build, found))

    def stop(self) -> None:
        """Begin no further build and no search in a thread."""
        self.threads.stop()

    def _known(self, found: Catalog) -> SearchIndex | None:
        with self._lock:
            known = self._built.get(found.tenant_id)
        return known if known is not None and known.version == found.version else None

    def _build(self, found: Catalog) -> SearchIndex:
        # A search that waited for the thread of its tenant finds what the one before it has built.
        index = self._known(found)
        if index is None:
            index = SearchIndex(found.version, found.tools)
            with self._lock:
                self._built.put(found.tenant_id, index, index.size)
        return index


_indexes = Service(Indexes, Indexes.stop)


async def search(found: Catalog, query: str, visible: AbstractSet[str]) -> list[Hit]:
    """Search a catalog; its index is built by the first search. Large indexes do not keep the event loop busy."""
    indexes = _indexes()
    index = await indexes.index_of(found)
    if index.postings < MANY_POSTINGS:
        return index.search(query, visible)
    return await indexes.threads.run(found.tenant_id, partial(index.search, query, visible))
