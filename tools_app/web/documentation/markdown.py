"""Markdown of the documentation: its headings with anchors, its text by section, and its HTML.

Headings get the anchors that they have on GitHub, so that one link works in both places. HTML in a page is left out.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from tools_app.web.documentation.diagrams import DiagramError, steps

# A page is embedded into one that has a heading of the first level.
_LEVEL_SHIFT: Final = 1
_NOT_IN_ANCHORS = re.compile(r"[^\w\- ]")
_SENTENCE = re.compile(r"(?P<text>.+?)[.:](?: |\Z)")
_ABSOLUTE = re.compile(r"https?://")

Resolve = Callable[[str], str | None]


@dataclass(frozen=True)
class Heading:
    """A heading of a page; the level of the title is 1."""

    level: int
    text: str
    anchor: str


@dataclass(frozen=True)
class Block:
    """The plain text below a heading, up to the next one. Above the first heading there is none."""

    heading: Heading | None
    text: str


def parse(source: str) -> Sequence[Token]:
    """Return the tokens of a page, whose headings have their anchor as `id`."""
    tokens = _parser.parse(source)
    taken: Counter[str] = Counter()
    for token, content in pairwise(tokens):
        if token.type == "heading_open":
            anchor = _NOT_IN_ANCHORS.sub("", _plain(content).lower()).strip().replace(" ", "-")
            token.attrSet("id", f"{anchor}-{taken[anchor]}" if taken[anchor] else anchor)
            taken[anchor] += 1
    return tokens


def headings(tokens: Sequence[Token]) -> Iterator[Heading]:
    """Yield the headings of a page in order."""
    for token, content in pairwise(tokens):
        if token.type == "heading_open":
            yield Heading(int(token.tag[1:]), _plain(content), str(token.attrGet("id")))


def blocks(tokens: Sequence[Token]) -> Iterator[Block]:
    """Yield the plain text of a page by heading."""
    following = headings(tokens)
    heading: Heading | None = None
    lines: list[str] = []
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "heading_open":
            yield Block(heading, "\n".join(lines).strip())
            heading, lines = next(following), []
        elif token.type in {"fence", "code_block"}:
            lines.append(token.content)
        elif token.type == "inline" and not (before and before.type == "heading_open"):
            lines.append(_plain(token))
    yield Block(heading, "\n".join(lines).strip())


def lead(tokens: Sequence[Token]) -> str:
    """Return the first sentence of a page, if a paragraph follows its title."""
    kinds = [token.type for token in tokens[:4]]
    if kinds != ["heading_open", "inline", "heading_close", "paragraph_open"]:
        return ""
    paragraph = _plain(tokens[4])
    sentence = _SENTENCE.match(paragraph)
    return f"{sentence['text'] if sentence else paragraph}."


def render(tokens: Sequence[Token], resolve: Resolve) -> str:
    """Return the HTML of a page. `resolve` gives the address of a relative link; without one, its text remains."""
    for token in tokens:
        if token.children:
            token.children = list(_linked(token.children, resolve))
    return str(_parser.renderer.render(tokens, _parser.options, {}))


def _linked(children: Sequence[Token], resolve: Resolve) -> Iterator[Token]:
    dropped = False
    for child in children:
        if child.type == "link_open":
            href = str(child.attrGet("href"))
            address = href if _ABSOLUTE.match(href) else resolve(href)
            dropped = address is None
            child.attrSet("href", address or "")
        elif child.type == "link_close" and dropped:
            dropped = False
            continue
        if not (child.type == "link_open" and dropped):
            yield child


def _plain(inline: Token) -> str:
    """Return the text of an inline token without its markup."""
    return "".join(
        " " if child.type in {"softbreak", "hardbreak"} else child.content
        for child in inline.children or ()
        if child.type != "html_inline"
    )


class PageRenderer(RendererHTML):
    """Renders code with a button to copy it, diagrams, headings with links to them, and tables that scroll."""

    def fence(self, tokens: Sequence[Token], idx: int, *_rest: Any) -> str:
        """Return a code block, or a diagram as a list."""
        token = tokens[idx]
        if token.info.strip() == "mermaid":
            try:
                return f'<div class="doc-steps">{steps(token.content)}</div>\n'
            except DiagramError:
                pass
        name = f"code-{idx}"
        # tabindex: a keyboard must be able to scroll it.
        return (
            f'<div class="doc-code"><pre tabindex="0"><code id="{name}">{escape(token.content)}</code></pre>'
            f'<button type="button" data-copy="{name}">Copy</button></div>\n'
        )

    def code_block(self, tokens: Sequence[Token], idx: int, *rest: Any) -> str:
        """Return a code block."""
        return self.fence(tokens, idx, *rest)

    def heading_open(self, tokens: Sequence[Token], idx: int, *_rest: Any) -> str:
        """Return the start of a heading with its anchor."""
        token = tokens[idx]
        return f'<h{int(token.tag[1:]) + _LEVEL_SHIFT} id="{escape(str(token.attrGet("id")))}">'

    def heading_close(self, tokens: Sequence[Token], idx: int, *_rest: Any) -> str:
        """Return the end of a heading, with a link to it below the title."""
        opening, content = tokens[idx - 2 : idx]
        level = int(opening.tag[1:])
        link = ""
        if level > 1:
            link = (
                f' <a class="doc-anchor" href="#{escape(str(opening.attrGet("id")))}"'
                f' aria-label="Link to {escape(_plain(content))}">#</a>'
            )
        return f"{link}</h{level + _LEVEL_SHIFT}>\n"

    def table_open(self, *_rendered: Any) -> str:
        """Return the start of a table."""
        return '<div class="doc-table" tabindex="0" role="region" aria-label="Table"><table>\n'

    def table_close(self, *_rendered: Any) -> str:
        """Return the end of a table."""
        return "</table></div>\n"

    def html_block(self, *_rendered: Any) -> str:
        """Leave HTML out."""
        return ""

    def html_inline(self, *_rendered: Any) -> str:
        """Leave HTML out."""
        return ""


_parser = MarkdownIt("commonmark", renderer_cls=PageRenderer).enable("table")
