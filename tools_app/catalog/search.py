"""Search for tools by words: an index of each catalog in memory, ranked by BM25.

A tool is found by its name, title, description, argument names, and the aliases that an admin gave it. The statistics
of a ranking are those of the tools that the caller may use, so that no score tells anything of the others.
"""

import asyncio
import math
import re
from array import array
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from threading import Lock
from typing import Final, NamedTuple
from uuid import UUID

from tools_app.catalog.compiled import Catalog, CompiledTool
from tools_app.core.bounded_cache import BoundedCache

MAX_QUERY_LENGTH: Final = 500
MAX_RESULTS: Final = 20
# Of a query; further ones are ignored, as are those of a tool beyond these characters and arguments.
MAX_TERMS: Final = 16
MAX_INDEXED_CHARACTERS: Final = 4_000
MAX_INDEXED_ARGUMENTS: Final = 200
MAX_TERM_LENGTH: Final = 40
# Terms that begin with a word of a query that no tool has.
MAX_COMPLETIONS: Final = 20
MIN_COMPLETED: Final = 3
# Short words such as "gas" and "dns" have no plural that is recognized.
LONGEST_UNCHANGED: Final = 3

# The usual constants of BM25, and how much a term counts by where it stands.
SATURATION: Final = 1.2
LENGTH_WEIGHT: Final = 0.75
NAME_WEIGHT: Final = 4.0
TITLE_WEIGHT: Final = 3.0
TEXT_WEIGHT: Final = 1.0

# Indexes of this process. One that was evicted is built again by the next search.
MAX_INDEXES: Final = 1_000
MAX_INDEX_BYTES: Final = 64 * 1024 * 1024
POSTING_BYTES: Final = 8
TERM_BYTES: Final = 400
# From this number of tools on, a search runs in a thread.
MANY_TOOLS: Final = 500

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
        self._names = list(tools)
        self._lengths = array("f")
        self._postings: dict[str, tuple[array[int], array[float]]] = {}
        for position, tool in enumerate(tools.values()):
            terms = _terms_of(tool)
            self._lengths.append(sum(terms.values()))
            for term, weight in terms.items():
                positions, weights = self._postings.setdefault(term, (array("H"), array("f")))
                positions.append(position)
                weights.append(weight)

    @property
    def size(self) -> int:
        """Its size in bytes, about."""
        postings = sum(len(positions) for positions, _ in self._postings.values())
        return POSTING_BYTES * postings + TERM_BYTES * len(self._postings) + len(self.version)

    def search(self, query: str, visible: AbstractSet[str]) -> list[Hit]:
        """Return the `visible` tools that match any word of a query, the best first."""
        seen = bytearray(name in visible for name in self._names)
        count = sum(seen)
        if not count:
            return []
        average = sum(length for length, is_seen in zip(self._lengths, seen, strict=True) if is_seen) / count or 1.0
        scores: dict[int, float] = {}
        for term in list(dict.fromkeys(_words(query[:MAX_QUERY_LENGTH])))[:MAX_TERMS]:
            for position, score in self._scored(term, seen, count, average):
                scores[position] = scores.get(position, 0.0) + score
        ranked = sorted(scores.items(), key=lambda entry: (-entry[1], self._names[entry[0]]))
        return [Hit(self._names[position], score) for position, score in ranked]

    def _scored(self, term: str, seen: bytearray, count: int, average: float) -> Iterator[tuple[int, float]]:
        found = self._matches(term, seen)
        rarity = math.log(1 + (count - len(found) + 0.5) / (len(found) + 0.5))
        for position, weight in found.items():
            length = 1 - LENGTH_WEIGHT + LENGTH_WEIGHT * self._lengths[position] / average
            yield position, rarity * weight * (SATURATION + 1) / (weight + SATURATION * length)

    def _matches(self, term: str, seen: bytearray) -> dict[int, float]:
        """Return the weights of a term by tool; if no tool that is seen has it, those of the terms that it begins."""
        found = self._of_term(term, seen)
        if found or len(term) < MIN_COMPLETED:
            return found
        completed = 0
        for known in self._postings:
            if completed < MAX_COMPLETIONS and known.startswith(term) and (more := self._of_term(known, seen)):
                completed += 1
                found |= {position: max(weight, found.get(position, 0.0)) for position, weight in more.items()}
        return found

    def _of_term(self, term: str, seen: bytearray) -> dict[int, float]:
        if term not in self._postings:
            return {}
        return {position: weight for position, weight in zip(*self._postings[term], strict=True) if seen[position]}


def _terms_of(tool: CompiledTool) -> dict[str, float]:
    """Return how much each term counts for a tool."""
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
            terms[word] = terms.get(word, 0.0) + weight
    return terms


def _words(text: str) -> Iterator[str]:
    """Yield the words of a text or a name, `listOpenIssues` and `list_open_issues` alike, in their singular."""
    for word in _WORD.findall(_BETWEEN_WORDS.sub(" ", text)):
        yield _singular(word.casefold())[:MAX_TERM_LENGTH]


def _singular(word: str) -> str:
    if len(word) <= LONGEST_UNCHANGED or word.endswith("ss"):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") else word.removesuffix("s")


_indexes: BoundedCache[UUID, SearchIndex] = BoundedCache(MAX_INDEXES, MAX_INDEX_BYTES)
_lock = Lock()


async def search(found: Catalog, query: str, visible: AbstractSet[str]) -> list[Hit]:
    """Search a catalog; its index is built by the first search. Large catalogs do not keep the event loop busy."""
    known = _indexes.get(found.tenant_id)
    if known is None or known.version != found.version:
        known = await asyncio.to_thread(_built, found)
    if len(found.tools) < MANY_TOOLS:
        return known.search(query, visible)
    return await asyncio.to_thread(known.search, query, visible)


def _built(found: Catalog) -> SearchIndex:
    with _lock:
        known = _indexes.get(found.tenant_id)
        if known is None or known.version != found.version:
            known = SearchIndex(found.version, found.tools)
            _indexes.put(found.tenant_id, known, known.size)
        return known
