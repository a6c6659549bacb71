"""The hub's own documentation: README.md and docs/*.md in `BASE_DIR`, as pages with a title, headings and HTML.

The files belong to the installed version, so each is read once. Restart the hub after editing one.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from django.conf import settings

from tools_app.web.documentation import markdown
from tools_app.web.documentation.markdown import Heading

README: Final = "README.md"
FOLDER: Final = "docs"
# The order of the sidebar. A page is named like its file.
GROUPS: Final[Mapping[str, Sequence[str]]] = {
    "": ("introduction",),
    "Clients": ("sign-in", "single-sign-on", "directory", "connecting", "transports", "protocol"),
    "Tools": (
        "writing-tools",
        "http-tools",
        "openapi",
        "upstreams",
        "django",
        "toolsets",
        "asking-clients",
        "resources-and-prompts",
        "skills",
    ),
    "Administration": ("dashboard", "playground", "keys", "people", "limits", "configuration-files", "api"),
    "Audit log": ("audit", "retention", "alerts"),
    "Operations": ("settings", "running-scaled", "deployment", "observability", "reliability", "security"),
    "Internals": ("architecture", "performance"),
}
INTRODUCTION: Final = "introduction"


@dataclass(frozen=True)
class Page:
    """One file. `path` is relative to `BASE_DIR`, `slug` the name in the page's address."""

    slug: str
    path: str
    source: str

    @cached_property
    def headings(self) -> Sequence[Heading]:
        """Return the headings in order, the title first."""
        return list(markdown.headings(markdown.parse(self.source)))

    @cached_property
    def html(self) -> str:
        """Return the page as HTML, for an address one level below that of all pages."""
        return markdown.render(markdown.parse(self.source), self.resolve)

    @property
    def title(self) -> str:
        """Return the first heading; that of the README, the name of the product, does not say what the page is."""
        if self.slug == INTRODUCTION:
            return "Introduction"
        return self.headings[0].text if self.headings else self.path

    @property
    def sections(self) -> Sequence[Heading]:
        """Return the headings below the title."""
        return self.headings[1:]

    @cached_property
    def summary(self) -> str:
        """Return the first sentence, or nothing."""
        return markdown.lead(markdown.parse(self.source))

    def heading(self, anchor: str) -> Heading | None:
        """Return the heading with this anchor."""
        return next((heading for heading in self.headings if heading.anchor == anchor), None)

    def resolve(self, href: str) -> str | None:
        """Return the address of a relative link: another page, a heading of this one, or None for other files."""
        file, sharp, anchor = href.partition("#")
        if not file:
            return href
        found = page(slug_of(posixpath.normpath(posixpath.join(posixpath.dirname(self.path), file))))
        return f"../{found.slug}/{sharp}{anchor}" if found else None


def slug_of(path: str) -> str:
    """Return the name of the page of a file, or an empty one."""
    if path == README:
        return INTRODUCTION
    folder, name = posixpath.split(path)
    return name.removesuffix(".md") if folder == FOLDER and name.endswith(".md") else ""


@cache
def pages() -> Mapping[str, Page]:
    """Return every page by its slug, in the order of the groups. Empty if no documentation is installed."""
    root = Path(settings.BASE_DIR)
    files = [root / README, *sorted((root / FOLDER).glob("*.md"))]
    found = {
        slug_of(path): Page(slug_of(path), path, file.read_text(encoding="utf-8"))
        for file in files
        if file.is_file()
        for path in [file.relative_to(root).as_posix()]
    }
    known = [slug for slugs in GROUPS.values() for slug in slugs]
    order = [slug for slug in known if slug in found] + [slug for slug in found if slug not in known]
    return {slug: found[slug] for slug in order}


def page(slug: str) -> Page | None:
    """Return a page by its slug."""
    return pages().get(slug)


def groups() -> Iterator[tuple[str, Sequence[Page]]]:
    """Yield the pages by topic."""
    for title, slugs in GROUPS.items():
        yield title, [found for slug in slugs if (found := page(slug))]
