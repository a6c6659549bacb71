"""The audit log as a list: what a search finds, page by page, with its form, and what can be done with it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.widgets import BASE_INPUT_CLASSES

from tools_app.admin.call_chips import chips
from tools_app.admin.call_choices import Offered, offered_to
from tools_app.admin.call_facts import CallFactsAdmin
from tools_app.admin.call_form import GROUPS, LABELS, TOOLS_LIST, Entry, entries
from tools_app.admin.reach import reach_of
from tools_app.audit.search.pages import Page, page_of
from tools_app.audit.search.query import BadQuery, CallQuery
from tools_app.audit.search.scope import scope_of
from tools_app.models import Call, ExportFormat, SavedFilter

MOST_SAVED: Final = 50
PAGING: Final = ("after", "before")


@dataclass(frozen=True)
class Answer:
    """What a search came to: a page, or what is wrong with it."""

    query: CallQuery | None
    page: Page | None
    errors: Mapping[str, str]


def context_of(admin: CallFactsAdmin, request: HttpRequest) -> dict[str, Any]:
    """What the list's template shows."""
    answer = _answer(request)
    offered = offered_to(request.user, reach_of(request).seats)
    query = answer.query
    text = query.to_string() if query else ""
    audits = reach_of(request).everything or bool(reach_of(request).audited)
    fields = entries(request.GET, query, answer.errors, offered)
    return {
        "found": answer.page,
        "table": _table(admin, request, answer.page) if answer.page else None,
        "errors": answer.errors,
        "problems": [(LABELS.get(name, name), advice) for name, advice in answer.errors.items()],
        "text_entry": fields["text"] if audits else None,
        "groups": _groups(fields, offered),
        "is_open": any(name != "text" for name in answer.errors),
        "tools": offered.tools,
        "tools_list": TOOLS_LIST,
        "chips": chips(query, offered) if query else [],
        "query_string": text,
        "saved": list(SavedFilter.objects.filter(person=request.user.pk)[:MOST_SAVED]),
        "formats": ExportFormat.choices,
        "audits": audits,
        "searched": f"{answer.page.searched:,}" if answer.page else "",
        "input_classes": " ".join(BASE_INPUT_CLASSES),
        "pages": _pages(request, text, answer.page),
    }


def _answer(request: HttpRequest) -> Answer:
    query = None
    try:
        query = CallQuery.from_params(request.GET)
        scope = scope_of(query, request.user, reach_of(request).seats)
        return Answer(
            query, page_of(query, scope, after=request.GET.get("after"), before=request.GET.get("before")), {}
        )
    except BadQuery as problem:
        return Answer(query, None, problem.errors)


def _groups(fields: Mapping[str, Entry], offered: Offered) -> dict[str, list[Entry]]:
    """The fields as the page groups them. Nobody chooses among one tenant."""
    hidden = {"tenant"} if len(offered.tenants) <= 1 else set()
    return {title: [fields[name] for name in names if name not in hidden] for title, names in GROUPS.items()}


def _table(admin: CallFactsAdmin, request: HttpRequest, page: Page) -> dict[str, Any]:
    columns = [getattr(admin, name) for name in admin.get_list_display(request)]
    headers = [column.short_description for column in columns]
    return {"headers": headers, "rows": [_row(call, columns) for call in page.calls]}


def _row(call: Call, columns: list[Any]) -> list[SafeString | str]:
    first, *others = columns
    address = reverse("admin:tools_app_call_change", args=[call.pk])
    return [format_html('<a href="{}" class="text-link whitespace-nowrap">{}</a>', address, first(call))] + [
        column(call) for column in others
    ]


def _pages(request: HttpRequest, text: str, page: Page | None) -> dict[str, str]:
    """Where the neighbouring pages are: as query strings, empty where there is none."""
    if page is None:
        return {}
    start = f"{text}&" if text else ""
    return {
        "newest": f"?{text}" if any(request.GET.get(name) for name in PAGING) else "",
        "newer": f"?{start}before={page.previous}" if page.previous else "",
        "older": f"?{start}after={page.next}" if page.next else "",
    }
