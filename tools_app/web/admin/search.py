"""The search of the admin (Ctrl-K): pages, rows of the catalog, keys, tenants and people by name, records by
id, and sections of the documentation.

It finds what the lists show: the rows come from the admin of each model, so its permissions apply. Nothing is cached,
because a permission that was withdrawn must take effect at once.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.admin import AdminSite
from django.core.paginator import Paginator
from django.db.models import Model, Q
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.dataclasses import SearchResult

from tools_app.models import (
    AlertDestination,
    AlertRule,
    ApiKey,
    ApiSource,
    Call,
    ClientPolicy,
    Connection,
    Invitation,
    Issuer,
    Membership,
    OAuthClient,
    Prompt,
    Resource,
    RunningCall,
    Secret,
    ServiceClient,
    Session,
    SignInEvent,
    Tenant,
    TenantScope,
    Tool,
    Toolset,
    Upstream,
)
from tools_app.web.documentation import pages as documentation
from tools_app.web.documentation.search import index

MIN_LENGTH: Final = 2
MAX_LENGTH: Final = 100
# The results of one kind. The list of the kind has the others.
MAX_OF_KIND: Final = 5
# Few, and after everything else: people look for their records first.
MAX_SECTIONS: Final = 3
TRACE_DIGITS: Final = 32

Group = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """A model that is searched by the beginning or a part of these fields. `label` is the field that a result shows."""

    model: type[Model]
    icon: str
    fields: tuple[str, ...]
    related: tuple[str, ...] = ("tenant",)


NAMED: Final = (
    Kind(Tool, "build", ("name", "title")),
    Kind(Toolset, "checklist", ("name",)),
    Kind(ApiSource, "hub", ("name", "url")),
    Kind(Upstream, "dns", ("name", "prefix")),
    Kind(ApiKey, "key", ("name", "prefix")),
    Kind(Connection, "cable", ("client__name", "person__username"), ("tenant", "client", "person")),
    Kind(ClientPolicy, "policy", ("host",)),
    Kind(Issuer, "badge", ("name", "issuer")),
    Kind(TenantScope, "key_vertical", ("name",)),
    Kind(OAuthClient, "apps", ("name", "client_id"), ()),
    Kind(ServiceClient, "smart_toy", ("name", "connection__client__client_id")),
    Kind(Tenant, "domain", ("name", "slug"), ()),
    Kind(Membership, "group", ("user__username", "user__email"), ("tenant", "user")),
    Kind(Invitation, "mail", ("email",)),
    Kind(Resource, "description", ("name", "uri")),
    Kind(Prompt, "chat", ("name", "title")),
    Kind(Secret, "lock", ("name",)),
    Kind(AlertRule, "notifications", ("name",)),
    Kind(AlertDestination, "outgoing_mail", ("name",)),
)
# Found by their id only: there may be millions, and their lists have a search of their own.
RECORDS: Final = (
    Kind(Call, "receipt_long", ()),
    Kind(RunningCall, "pending", ()),
    Kind(Session, "link", ()),
    Kind(SignInEvent, "login", ()),
)


def answer(site: AdminSite, request: HttpRequest, pages: Iterable[Group]) -> HttpResponse:
    """Return the results as a fragment of HTML for unfold's search. `pages` are the groups of the sidebar."""
    text = request.GET.get("s", "").strip()[:MAX_LENGTH]
    if len(text) < MIN_LENGTH:
        return HttpResponse()
    began = monotonic()
    results = list(find(site, request, text, pages))
    name = "command_results" if "extended" in request.GET else "search_results"
    context = {
        "results": results,
        "page_obj": Paginator(results, max(1, len(results))),
        "page_counter": 0,
        "execution_time": monotonic() - began,
    }
    return TemplateResponse(request, f"unfold/helpers/{name}.html", context, headers={"HX-Trigger": "search"})


def find(site: AdminSite, request: HttpRequest, text: str, pages: Iterable[Group]) -> Iterator[SearchResult]:
    """Yield what a user may see of this name or id: pages first, then rows by kind, then documentation."""
    for group in pages:
        for item in group["items"]:
            if text.lower() in item["title"].lower():
                yield SearchResult(item["title"], group["title"] or "Page", item["link"], item["icon"])
    try:
        id = UUID(text)
    except ValueError:
        for kind in NAMED:
            contains = ((f"{field}__icontains", text) for field in kind.fields)
            yield from _rows(site, request, kind, Q(*contains, _connector=Q.OR))
        for hit in index().suggest(text, MAX_SECTIONS):
            url = f"{reverse('docs-page', args=[documentation.slug_of(hit.path)])}#{hit.anchor}"
            described = "Documentation" if hit.section == hit.title else f"Documentation: {hit.title}"
            yield SearchResult(hit.section, described, url, "menu_book")
        return
    for kind in (*RECORDS, *NAMED):
        yield from _rows(site, request, kind, Q(pk=id))
    # A trace has no page of its own: its calls are a search, which needs no query here.
    if len(text) == TRACE_DIGITS:
        url = f"{reverse('admin:tools_app_call_changelist')}?{urlencode({'trace': text.lower()})}"
        yield SearchResult(f"Calls of the trace {text.lower()}", "Search", url, "receipt_long")


def _rows(site: AdminSite, request: HttpRequest, kind: Kind, wanted: Q) -> Iterator[SearchResult]:
    """Yield rows of the model's own admin, which knows what this user may see."""
    admin = site.get_model_admin(kind.model)
    if not admin.has_view_permission(request):
        return
    meta = kind.model._meta
    rows = admin.get_queryset(request).filter(wanted).select_related(*kind.related).order_by()
    for row in rows[:MAX_OF_KIND]:
        tenant = getattr(row, "tenant", None)
        described = f"{meta.verbose_name} of {tenant}" if tenant else str(meta.verbose_name)
        url = reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[row.pk])
        # A member is found by the person, whose text the membership repeats with its tenant.
        yield SearchResult(str(row.user if isinstance(row, Membership) else row), described, url, kind.icon)
