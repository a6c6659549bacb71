"""The documentation at `/docs/`: a start page with search, and one page for each file.

Users of the admin may read it, in every role. Other visitors are redirected to the login: a hub on the internet does
not tell strangers which software it runs, and their requests cost no more than the login page.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.contrib.admin import AdminSite
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import mark_safe
from django.views.decorators.http import require_safe

from tools_app.web.admin.site import Group, link
from tools_app.web.documentation import pages, search
from tools_app.web.documentation.pages import Page
from tools_app.web.documentation.search import Hit

MAX_RESULTS: Final = 30


@dataclass(frozen=True)
class Result:
    """A section that was found. `pieces` are its text, each with whether it matches."""

    hit: Hit
    url: str
    pieces: Sequence[tuple[str, bool]]


def urls(site: AdminSite) -> list[URLPattern]:
    """Return the URL patterns of the documentation, for `/docs/`."""
    return [
        path("", site.admin_view(require_safe(_start(site))), name="docs"),
        path("<slug:slug>/", site.admin_view(require_safe(_page(site))), name="docs-page"),
    ]


def _start(site: AdminSite) -> Any:
    def start(request: HttpRequest) -> HttpResponse:
        query = request.GET.get("q", "").replace("\0", "").strip()[: search.MAX_QUERY_LENGTH]
        index = search.index()
        results = []
        for hit in index.search(query)[:MAX_RESULTS]:
            url = f"{reverse('docs-page', args=[pages.slug_of(hit.path)])}#{hit.anchor}"
            results.append(Result(hit, url, index.marked(hit.snippet, query)))
        context = {
            **_frame(site, request),
            "query": query,
            "results": results,
            "groups": list(pages.groups()),
        }
        return TemplateResponse(request, "web/documentation/start.html", context)

    return start


def _page(site: AdminSite) -> Any:
    def page(request: HttpRequest, slug: str) -> HttpResponse:
        found = pages.page(slug)
        if found is None:
            raise Http404
        # The files are part of the hub, and HTML in them is left out.
        html = mark_safe(found.html)  # noqa: S308
        context = {**_frame(site, request, found), "page": found, "html": html}
        return TemplateResponse(request, "web/documentation/page.html", context)

    return page


def _frame(site: AdminSite, request: HttpRequest, page: Page | None = None) -> dict[str, Any]:
    """Return the context of the admin's layout, with the documentation in its sidebar."""
    return {
        **site.each_context(request),
        "title": page.title if page else "Documentation",
        "sidebar_navigation": list(_sidebar(page)),
        "max_query_length": search.MAX_QUERY_LENGTH,
    }


def _sidebar(page: Page | None) -> Iterator[Group]:
    """Yield the groups of the sidebar."""
    yield {
        "title": "",
        "items": [
            link("Back to the admin", "admin:index", "arrow_back"),
            link("Documentation", "docs", "menu_book", active=page is None),
            link("API browser", "api-docs", "api"),
        ],
    }
    for title, found in pages.groups():
        items = [link(each.title, "docs-page", "", each.slug, active=each == page) for each in found]
        yield {"title": title, "items": items}
