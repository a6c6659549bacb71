"""Saved searches of the audit log. Each user sees only their own."""

from typing import Any, Final

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_POST

from tools_app.audit.search.query import BadQuery, CallQuery
from tools_app.calls.admin.change_list import MAX_SAVED
from tools_app.models import SavedFilter

MAX_QUERY: Final = 4000
MAX_NAME: Final = 100


def urls(site: AdminSite) -> list[URLPattern]:
    """Return the URL patterns to which the list of calls posts."""
    return [
        path("filters/", site.admin_view(require_POST(save)), name="filter_save"),
        path("filters/<uuid:id>/rename/", site.admin_view(require_POST(rename)), name="filter_rename"),
        path("filters/<uuid:id>/delete/", site.admin_view(require_POST(delete)), name="filter_delete"),
    ]


def save(request: HttpRequest) -> HttpResponse:
    """Save a search under a name, replacing the user's search of the same name."""
    query = posted_query(request)
    name = _name(request)
    if query is None or not name:
        messages.error(request, "The search was not saved. Enter a name.")
    elif _has_room(request, name):
        SavedFilter.objects.update_or_create(
            person_id=request.user.pk, name=name, defaults={"query": query.to_string()}
        )
        messages.success(request, f"The search was saved as “{name}”.")
    else:
        messages.error(request, f"You already have {MAX_SAVED} saved searches. Delete one first.")
    return back_to_list(query)


def rename(request: HttpRequest, id: Any) -> HttpResponse:
    """Rename a saved search."""
    saved, name = _filter_of(request, id), _name(request)
    others = SavedFilter.objects.filter(person=request.user.pk, name=name).exclude(pk=saved.pk)
    if not name or others.exists():
        messages.error(request, "The search was not renamed. Enter a name that you have not used yet.")
    else:
        SavedFilter.objects.filter(pk=saved.pk).update(name=name)
        messages.success(request, f"“{saved.name}” was renamed to “{name}”.")
    return redirect(f"{_list()}?{saved.query}")


def delete(request: HttpRequest, id: Any) -> HttpResponse:
    """Delete a saved search."""
    saved = _filter_of(request, id)
    saved.delete()
    messages.success(request, f"“{saved.name}” was deleted.")
    return redirect(_list())


def posted_query(request: HttpRequest) -> CallQuery | None:
    """Return the search in the form's `query` field, or None if it is invalid."""
    text = request.POST.get("query", "")
    try:
        return CallQuery.from_params(QueryDict(text)) if len(text) <= MAX_QUERY else None
    except BadQuery:
        return None


def _name(request: HttpRequest) -> str:
    name = request.POST.get("name", "").strip()
    return name if len(name) <= MAX_NAME and name.isprintable() else ""


def _has_room(request: HttpRequest, name: str) -> bool:
    rows = SavedFilter.objects.filter(person=request.user.pk)
    return rows.filter(name=name).exists() or rows.count() < MAX_SAVED


def _filter_of(request: HttpRequest, id: Any) -> SavedFilter:
    saved = SavedFilter.objects.filter(pk=id, person=request.user.pk).first()
    if saved is None:
        raise Http404("Saved search not found.")
    return saved


def back_to_list(query: CallQuery | None) -> HttpResponse:
    """Redirect to the list of calls with this search."""
    return redirect(f"{_list()}?{query.to_string() if query else ''}")


def _list() -> str:
    return reverse("admin:tools_app_call_changelist")
