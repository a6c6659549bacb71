"""Full-text search over the hub's own documentation: README.md and docs/*.md in `BASE_DIR`.

A small in-memory index ranked by BM25, where a word in a heading has more weight than one in the text.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.conf import settings

SNIPPET_CHARACTERS = 240

# Weights of a word in the page's title, the section's heading and the text.
_TITLE_WEIGHT, _HEADING_WEIGHT, _TEXT_WEIGHT = 2, 4, 1
# The usual constants of BM25: the saturation of repeated words, and the penalty on long sections.
_SATURATION, _LENGTH_PENALTY = 1.2, 0.75

_WORD = re.compile(r"[a-z0-9]+")
_HEADING = re.compile(r"#{1,6}\s+(?P<text>.+?)\s*#*\s*\Z")
_FENCE = re.compile(r"\s*(```|~~~)")


@dataclass(frozen=True)
class Section:
    """The text below one heading of a page; `title` is the page's first heading."""

    path: str
    title: str
    heading: str
    text: str


@dataclass(frozen=True)
class Hit:
    """One matching section."""

    title: str
    section: str
    snippet: str
    path: str


class Index:
    """An index of sections for search."""

    def __init__(self, sections: Iterable[Section]) -> None:
        self._sections = list(sections)
        self._bags = [_bag(section) for section in self._sections]
        self._sizes = [bag.total() for bag in self._bags]
        self._mean_size = sum(self._sizes) / max(len(self._sizes), 1)
        self._holders = Counter(word for bag in self._bags for word in bag)

    def search(self, query: str) -> list[Hit]:
        """Return every section that holds a word of `query`, best match first."""
        words = set(_words(query))
        scores = [self._score(position, words) for position in range(len(self._sections))]
        found = [position for position, score in enumerate(scores) if score > 0]
        found.sort(key=lambda position: -scores[position])
        return [_hit(self._sections[position], words) for position in found]

    def _score(self, position: int, words: set[str]) -> float:
        bag = self._bags[position]
        size = 1 - _LENGTH_PENALTY + _LENGTH_PENALTY * self._sizes[position] / self._mean_size
        return sum(
            self._rarity(word) * bag[word] * (_SATURATION + 1) / (bag[word] + _SATURATION * size)
            for word in words
            if word in bag
        )

    def _rarity(self, word: str) -> float:
        holders = self._holders[word]
        return math.log(1 + (len(self._sections) - holders + 0.5) / (holders + 0.5))


@cache
def index() -> Index:
    """Return the index of the hub's documentation, built on first use. Empty if no documentation is installed."""
    return Index(section for page in _pages(Path(settings.BASE_DIR)) for section in page)


def sections(path: str, source: str) -> Iterator[Section]:
    """Split a Markdown page at its headings; the text above the first heading is listed under the page's path."""
    blocks: list[tuple[str, list[str]]] = [(path, [])]
    for heading, line in _lines(source):
        if heading is None:
            blocks[-1][1].append(line)
        else:
            blocks.append((heading, []))
    title = blocks[1][0] if len(blocks) > 1 else path
    for heading, lines in blocks:
        if text := "\n".join(lines).strip():
            yield Section(path, title, heading, text)


def _pages(root: Path) -> Iterator[Iterator[Section]]:
    for page in (root / "README.md", *sorted((root / "docs").glob("*.md"))):
        if page.is_file():
            yield sections(page.relative_to(root).as_posix(), page.read_text(encoding="utf-8"))


def _lines(source: str) -> Iterator[tuple[str | None, str]]:
    """Yield each line, with its heading if it is one; a comment in a code block is not a heading."""
    in_code = False
    for line in source.splitlines():
        if _FENCE.match(line):
            in_code = not in_code
        found = None if in_code else _HEADING.match(line)
        yield (found["text"] if found else None), line


def _bag(section: Section) -> Counter[str]:
    bag: Counter[str] = Counter()
    weighted = ((section.title, _TITLE_WEIGHT), (section.heading, _HEADING_WEIGHT), (section.text, _TEXT_WEIGHT))
    for text, weight in weighted:
        for word in _words(text):
            bag[word] += weight
    return bag


def _words(text: str) -> list[str]:
    return [_stem(word) for word in _WORD.findall(text.lower())]


def _stem(word: str) -> str:
    """Reduce a plural to its singular."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word  # noqa: PLR2004


def _hit(section: Section, words: set[str]) -> Hit:
    return Hit(section.title, section.heading, _snippet(section.text, words), section.path)


def _snippet(text: str, words: set[str]) -> str:
    """Return the text around its first match, cut between words."""
    flat = " ".join(text.split())
    matches = (match.start() for match in _WORD.finditer(flat.lower()) if _stem(match.group()) in words)
    start = max(next(matches, 0) - SNIPPET_CHARACTERS // 4, 0)
    start = flat.rfind(" ", 0, start) + 1
    if len(flat) - start <= SNIPPET_CHARACTERS:
        return ("…" if start else "") + flat[start:]
    end = flat.rfind(" ", start, start + SNIPPET_CHARACTERS)
    return ("…" if start else "") + flat[start : end if end > start else start + SNIPPET_CHARACTERS] + "…"
