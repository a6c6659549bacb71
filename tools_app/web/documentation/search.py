"""Full-text search over the hub's own documentation.

A small in-memory index ranked by BM25, where a word in a heading has more weight than one in the text.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from tools_app.core import ranking
from tools_app.web.documentation import markdown
from tools_app.web.documentation.pages import pages

SNIPPET_CHARACTERS: Final = 240
# Of a query in the admin, in characters.
MAX_QUERY_LENGTH: Final = 200

# Weights of a word in the page's title, the section's heading and the text.
_TITLE_WEIGHT, _HEADING_WEIGHT, _TEXT_WEIGHT = 2, 4, 1
# The shortest beginning of a word that stands for the whole word.
_MIN_PREFIX: Final = 3

_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True)
class Section:
    """The text below one heading of a page; `title` is the page's first heading."""

    path: str
    title: str
    heading: str
    text: str
    anchor: str = ""


@dataclass(frozen=True)
class Hit:
    """One matching section."""

    title: str
    section: str
    snippet: str
    path: str
    anchor: str


class Index:
    """An index of sections for search."""

    def __init__(self, sections: Iterable[Section]) -> None:
        self._sections = list(sections)
        self._postings: dict[str, dict[int, float]] = {}
        self._lengths: list[float] = []
        for position, section in enumerate(self._sections):
            weights: Counter[str] = Counter()
            weighted = (section.title, _TITLE_WEIGHT), (section.heading, _HEADING_WEIGHT), (section.text, _TEXT_WEIGHT)
            for text, weight in weighted:
                for word in _words(text):
                    weights[word] += weight
            self._lengths.append(weights.total())
            for word, total in weights.items():
                self._postings.setdefault(word, {})[position] = total
        self._average = sum(self._lengths) / max(len(self._lengths), 1)

    def search(self, query: str, *, every_word: bool = False) -> list[Hit]:
        """Return each section that holds a word of `query`, or every word, best match first."""
        groups = [self._expanded(word) for word in set(_words(query))]
        words = set[str]().union(*groups)
        scores: dict[int, float] = {}
        for word in sorted(words & self._postings.keys()):
            for position, score in ranking.scores(
                self._postings[word], self._lengths, len(self._sections), self._average
            ):
                scores[position] = scores.get(position, 0.0) + score
        if every_word:
            for group in groups:
                holders = set[int]().union(*(self._postings.get(word, ()) for word in group))
                scores = {position: score for position, score in scores.items() if position in holders}
        found = sorted(scores, key=lambda position: (-scores[position], position))
        return [_hit(self._sections[position], words) for position in found]

    def suggest(self, text: str, most: int) -> list[Hit]:
        """Return a few sections for the beginning of a query: those whose heading holds it, then by every word."""
        part = text.lower()
        named = [section for section in self._sections if part in section.heading.lower()]
        # The beginning of a heading first, and of those the shortest.
        named.sort(key=lambda section: (not section.heading.lower().startswith(part), len(section.heading)))
        hits = [_hit(section, set()) for section in named]
        placed = {(hit.path, hit.anchor) for hit in hits}
        hits += [hit for hit in self.search(text, every_word=True) if (hit.path, hit.anchor) not in placed]
        return hits[:most]

    def marked(self, text: str, query: str) -> list[tuple[str, bool]]:
        """Return `text` in pieces, each with whether it is a word of `query`."""
        words = set[str]().union(*(self._expanded(word) for word in set(_words(query))))
        pieces: list[tuple[str, bool]] = []
        end = 0
        for match in _WORD.finditer(text.lower()):
            if ranking.singular(match.group()) in words:
                pieces += [(text[end : match.start()], False), (text[match.start() : match.end()], True)]
                end = match.end()
        return [(piece, is_match) for piece, is_match in [*pieces, (text[end:], False)] if piece]

    def _expanded(self, word: str) -> set[str]:
        """Return the word, or if no section holds it, the words that begin with it."""
        if word in self._postings or len(word) < _MIN_PREFIX:
            return {word}
        return {known for known in self._postings if known.startswith(word)}


@cache
def index() -> Index:
    """Return the index of the hub's documentation, built on first use. Empty if no documentation is installed."""
    return Index(section for page in pages().values() for section in sections(page.path, page.source))


def sections(path: str, source: str) -> Iterator[Section]:
    """Split a Markdown page at its headings; the text above the first heading is listed under the page's path."""
    tokens = markdown.parse(source)
    title = next((heading.text for heading in markdown.headings(tokens)), path)
    for block in markdown.blocks(tokens):
        if block.text:
            heading = block.heading
            yield Section(path, title, heading.text if heading else path, block.text, heading.anchor if heading else "")


def _words(text: str) -> list[str]:
    return [ranking.singular(word) for word in _WORD.findall(text.lower())]


def _hit(section: Section, words: set[str]) -> Hit:
    return Hit(section.title, section.heading, _snippet(section.text, words), section.path, section.anchor)


def _snippet(text: str, words: set[str]) -> str:
    """Return the text around its first match, cut between words."""
    flat = " ".join(text.split())
    matches = (match.start() for match in _WORD.finditer(flat.lower()) if ranking.singular(match.group()) in words)
    start = max(next(matches, 0) - SNIPPET_CHARACTERS // 4, 0)
    start = flat.rfind(" ", 0, start) + 1
    if len(flat) - start <= SNIPPET_CHARACTERS:
        return ("…" if start else "") + flat[start:]
    end = flat.rfind(" ", start, start + SNIPPET_CHARACTERS)
    return ("…" if start else "") + flat[start : end if end > start else start + SNIPPET_CHARACTERS] + "…"
