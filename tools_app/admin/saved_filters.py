"""Searches of the audit log that a person keeps under names. Each person has its own, and sees no others."""

from typing import Any, Final

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_POST

from tools_app.admin.call_list import MOST_SAVED
from tools_app.audit.search.query import BadQuery, CallQuery
from tools_app.models import SavedFilter

LONGEST_QUERY: Final = 4000
LONGEST_NAME: Final = 100


def urls(site: AdminSite) -> list[URLPattern]:
    """The addresses to which the list of calls posts."""
    return [
        path("filters/", site.admin_view(require_POST(save)), name="filter_save"),
        path("filters/<uuid:id>/rename/", site.admin_view(require_POST(rename)), name="filter_rename"),
        path("filters/<uuid:id>/delete/", site.admin_view(require_POST(delete)), name="filter_delete"),
    ]


def save(request: HttpRequest) -> HttpResponse:
    """Keep a search under a name; one that the person has under this name is replaced."""
    query = posted_query(request)
    name = _name(request)
    if query is None or not name:
        messages.error(request, "The search was not kept: give it a name.")
    elif _has_room(request, name):
        SavedFilter.objects.update_or_create(
            person_id=request.user.pk, name=name, defaults={"query": query.to_string()}
        )
        messages.success(request, f"The search is kept as “{name}”.")
    else:
        messages.error(request, f"You have {MOST_SAVED} searches already: delete one first.")
    return back_to_list(query)


def rename(request: HttpRequest, id: Any) -> HttpResponse:
    """Give a search another name."""
    saved, name = _own(request, id), _name(request)
    others = SavedFilter.objects.filter(person=request.user.pk, name=name).exclude(pk=saved.pk)
    if not name or others.exists():
        messages.error(request, "It keeps its name: write one that you have not used yet.")
    else:
        SavedFilter.objects.filter(pk=saved.pk).update(name=name)
        messages.success(request, f"“{saved.name}” is now “{name}”.")
    return redirect(f"{_list()}?{saved.query}")


def delete(request: HttpRequest, id: Any) -> HttpResponse:
    """Forget a search."""
    saved = _own(request, id)
    saved.delete()
    messages.success(request, f"“{saved.name}” is deleted.")
    return redirect(_list())


def posted_query(request: HttpRequest) -> CallQuery | None:
    """The search that a form carries along in `query`; None if that is none."""
    text = request.POST.get("query", "")
    try:
        return CallQuery.from_params(QueryDict(text)) if len(text) <= LONGEST_QUERY else None
    except BadQuery:
        return None


def _name(request: HttpRequest) -> str:
    name = request.POST.get("name", "").strip()
    return name if len(name) <= LONGEST_NAME and name.isprintable() else ""


def _has_room(request: HttpRequest, name: str) -> bool:
    own = SavedFilter.objects.filter(person=request.user.pk)
    return own.filter(name=name).exists() or own.count() < MOST_SAVED


def _own(request: HttpRequest, id: Any) -> SavedFilter:
    saved = SavedFilter.objects.filter(pk=id, person=request.user.pk).first()
    if saved is None:
        raise Http404("There is no such search.")
    return saved


def back_to_list(query: CallQuery | None) -> HttpResponse:
    """To the list of calls, with what was searched for."""
    return redirect(f"{_list()}?{query.to_string() if query else ''}")


def _list() -> str:
    return reverse("admin:tools_app_call_changelist")
