"""The list of the audit log: search form, results with pagination, and actions on the search."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.widgets import BASE_INPUT_CLASSES

from tools_app.audit.search.pages import Page, counted, page_of
from tools_app.audit.search.query import BadQuery, CallQuery
from tools_app.audit.search.scope import scope_of
from tools_app.calls.admin.columns import CallFactsAdmin, moment_text
from tools_app.calls.admin.filter_form import GROUPS, LABELS, PERIODS, TOOLS_LIST, Offered, entries, offered_to
from tools_app.calls.admin.summaries import summaries
from tools_app.models import Call, ExportFormat, Outcome, SavedFilter
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.decorators import column

WORDS: Final = {
    "text": "contains “{}”",
    "tenant": "tenant {}",
    "tool": "name {}",
    "method": "method {}",
    "outcome": "{}",
    "key": "key {}",
    "client": "client {}",
    "address": "address {}",
    "period": "{}",
    "since": "from {}",
    "until": "to {}",
    "duration_min": "duration at least {} ms",
    "duration_max": "duration at most {} ms",
    "size_min": "at least {} bytes",
    "size_max": "at most {} bytes",
    "session": "session {}",
    "trace": "trace {}",
    "request": "request {}",
}


@dataclass(frozen=True)
class Chip:
    """One filter as text; `without` is the query string of the search without it."""

    text: str
    without: str


def chips(query: CallQuery, offered: Offered) -> list[Chip]:
    """Return the filters of a search."""
    names = {"tenant": dict(offered.tenants), "key": dict(offered.keys), "period": PERIODS}
    found = []
    for name, texts in query.to_params().items():
        for text in texts:
            shown, value = names.get(name, {}).get(text, text), getattr(query, name, None)
            if name == "outcome":
                shown = str(Outcome(shown).label)
            elif isinstance(value, datetime):
                shown = moment_text(value)
            found.append(Chip(WORDS[name].format(shown), query.without(name, text).to_string()))
    return found


MAX_SAVED: Final = 50
# The columns before that of the summary: time and name.
SUMMARY_AFTER: Final = 2
PAGING: Final = ("after", "before")
MAX_COUNTED: Final = 10_000


@dataclass(frozen=True)
class Answer:
    """The result of a search: a page, or errors."""

    query: CallQuery | None
    page: Page | None
    errors: Mapping[str, str]


def context_of(admin: CallFactsAdmin, request: HttpRequest) -> dict[str, Any]:
    """Return the context of the list's template."""
    answer = _answer(request)
    offered = offered_to(request.user, tenant_permissions_of(request).roles)
    query = answer.query
    text = query.to_string() if query else ""
    audits = tenant_permissions_of(request).is_superuser or bool(tenant_permissions_of(request).audited)
    fields = entries(request.GET, query, answer.errors, offered)
    # There is nothing to choose from with one tenant.
    hidden = {"tenant"} if len(offered.tenants) <= 1 else set()
    return {
        "found": answer.page,
        "table": _table(admin, request, answer) if answer.page else None,
        "errors": answer.errors,
        "problems": [(LABELS.get(name, name), advice) for name, advice in answer.errors.items()],
        "text_entry": fields["text"] if audits else None,
        "groups": {title: [fields[name] for name in names if name not in hidden] for title, names in GROUPS.items()},
        "is_open": any(name != "text" for name in answer.errors),
        "tools": offered.tools,
        "tools_list": TOOLS_LIST,
        "chips": chips(query, offered) if query else [],
        "query_string": text,
        "saved": list(SavedFilter.objects.filter(person=request.user.pk)[:MAX_SAVED]),
        "formats": ExportFormat.choices,
        "audits": audits,
        "searched": f"{answer.page.searched:,}" if answer.page else "",
        "input_classes": " ".join(BASE_INPUT_CLASSES),
        "pages": _pages(request, text, answer.page),
    }


def count_text(request: HttpRequest) -> str:
    """Return how many calls match a search, as far as MAX_COUNTED calls tell; "" where counting would take long."""
    query = CallQuery.from_params(request.GET)
    if query.text:
        return ""
    scope = scope_of(query, request.user, tenant_permissions_of(request).roles)
    found = counted(query, scope, MAX_COUNTED)
    if found is None or not (found.found or found.is_complete):
        return ""
    calls = "call" if found.found == 1 else "calls"
    if found.is_complete:
        return f"{found.found:,} {calls}."
    return f"{found.found:,}+ calls." if found.found == MAX_COUNTED else f"At least {found.found:,} {calls}."


def _answer(request: HttpRequest) -> Answer:
    query = None
    try:
        query = CallQuery.from_params(request.GET)
        scope = scope_of(query, request.user, tenant_permissions_of(request).roles)
        return Answer(
            query, page_of(query, scope, after=request.GET.get("after"), before=request.GET.get("before")), {}
        )
    except BadQuery as problem:
        return Answer(query, None, problem.errors)


def _table(admin: CallFactsAdmin, request: HttpRequest, answer: Answer) -> dict[str, Any]:
    assert answer.page is not None
    calls, permitted = answer.page.calls, tenant_permissions_of(request)
    lines = summaries(calls, permitted.audits, answer.query.text if answer.query else "")
    columns = [getattr(admin, name) for name in admin.get_list_display(request)]
    if permitted.is_superuser or permitted.audited:
        columns.insert(SUMMARY_AFTER, column("arguments and result")(lambda call: lines[call.pk]))
    headers = [column.short_description for column in columns]
    return {"headers": headers, "rows": [_row(call, columns) for call in calls]}


def _row(call: Call, columns: list[Any]) -> list[SafeString | str]:
    first, *others = columns
    address = reverse("admin:tools_app_call_change", args=[call.pk])
    link = '<a href="{}" data-call="{}" class="text-link whitespace-nowrap">{}</a>'
    return [format_html(link, address, call.pk, first(call))] + [column(call) for column in others]


def _pages(request: HttpRequest, text: str, page: Page | None) -> dict[str, str]:
    """Return the query strings of the adjacent pages, empty where there is none."""
    if page is None:
        return {}
    start = f"{text}&" if text else ""
    return {
        "newest": f"?{text}" if any(request.GET.get(name) for name in PAGING) else "",
        "newer": f"?{start}before={page.previous}" if page.previous else "",
        "older": f"?{start}after={page.next}" if page.next else "",
    }
