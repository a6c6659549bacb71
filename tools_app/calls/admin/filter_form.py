"""The search form of the audit log: one field per search parameter, filled with the current search.

The choices of its fields are a user's tenants, keys and tools, read in one query.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django import forms
from django.db.models import CharField, F, QuerySet, Value
from django.db.models.functions import Cast, Concat
from django.http import QueryDict
from django.utils import timezone
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from tools_app.audit.search.query import ALIASES, ANONYMOUS, CallQuery
from tools_app.calls.admin.filters import METHODS
from tools_app.models import ApiKey, Outcome, Tenant, Tool
from tools_app.tenants import permissions
from tools_app.tenants.permissions import TenantRole
from tools_app.web.admin.scoping import MAX_CHOICES

MAX_ROWS: Final = 5 * MAX_CHOICES

Choices = list[tuple[str, str]]


@dataclass(frozen=True)
class Offered:
    """Choices as pairs of an id or name and its label."""

    tenants: Choices
    keys: Choices
    tools: Choices


def offered_to(person: permissions.Person, roles: Iterable[TenantRole]) -> Offered:
    """Return the choices of `person`. `roles` are the user's tenant roles, unless the user is a superuser."""
    rows = _of_tenants(person, ApiKey.objects.all(), "key", Concat("name", Value(" ("), "prefix", Value("…)")))
    rows = rows.union(_of_tenants(person, Tool.objects.all(), "tool", F("name")))
    if permissions.is_superuser(person):
        rows = rows.union(_values(Tenant.objects.all(), "tenant", F("name")))
    found: dict[str, Choices] = {"key": [(ANONYMOUS, "Anonymous")], "tool": [], "tenant": []}
    for kind, id, name in rows.order_by("offered", "shown")[:MAX_ROWS]:
        found[kind].append((name, name) if kind == "tool" else (str(UUID(id)), name))
    tools = list(dict.fromkeys(found["tool"]))
    tenants = found["tenant"] + [(str(tenant.id), tenant.name) for tenant in roles]
    return Offered(tenants[:MAX_CHOICES], found["key"][:MAX_CHOICES], tools[:MAX_CHOICES])


def _of_tenants(person: permissions.Person, rows: "QuerySet[Any]", kind: str, shown: Any) -> "QuerySet[Any, Any]":
    return _values(permissions.rows_seen_by(person, rows), kind, shown)


def _values(rows: "QuerySet[Any]", kind: str, shown: Any) -> "QuerySet[Any, Any]":
    text = CharField()
    named = rows.order_by().annotate(offered=Value(kind, text), row_id=Cast("pk", text), shown=Cast(shown, text))
    found: QuerySet[Any, Any] = named.values_list("offered", "row_id", "shown")
    return found


PERIODS: Final = {"1h": "Last hour", "24h": "Last 24 hours", "7d": "Last 7 days", "30d": "Last 30 days"}
LABELS: Final = {
    "text": "Text in arguments, results and causes",
    "tenant": "Tenant",
    "tool": "Name",
    "method": "Method",
    "outcome": "Outcome",
    "key": "Key",
    "client": "Client",
    "address": "Address",
    "period": "Period",
    "since": "From",
    "until": "To",
    "duration_min": "Minimum duration (ms)",
    "duration_max": "Maximum duration (ms)",
    "size_min": "Minimum size (bytes)",
    "size_max": "Maximum size (bytes)",
    "session": "Session",
    "trace": "Trace",
    "request": "Request ID",
}
HINTS: Final = {
    "text": "Search arguments, results and causes",
    "tool": "search_*",
    "client": "part of its name",
    "address": "10.1.*",
    "session": "its ID",
    "trace": "32 hex digits",
}
GROUPS: Final = {
    "What": ("tool", "method", "outcome"),
    "Who": ("tenant", "key", "client", "address"),
    "When": ("period", "since", "until"),
    "Duration and size": ("duration_min", "duration_max", "size_min", "size_max"),
    "Identifiers": ("session", "trace", "request"),
}
NUMBERS: Final = ("duration_min", "duration_max", "size_min", "size_max")
MOMENTS: Final = ("since", "until")
NOT_OK: Final = ",".join(value for value in Outcome.values if value != Outcome.OK)
TOOLS_LIST: Final = "tools-offered"


@dataclass(frozen=True)
class Entry:
    """A form field with its error message."""

    field: Any
    error: str


def entries(given: QueryDict, query: CallQuery | None, errors: Mapping[str, str], offered: Offered) -> dict[str, Entry]:
    """Return the fields by name, filled with the input; `query` is the parsed search, if valid."""
    fields = {name: _field(name, _shown(name, given, query), offered) for name in LABELS}
    form = forms.Form(auto_id="find_%s", use_required_attribute=False)
    form.fields.update(fields)
    return {name: Entry(form[name], errors.get(name, "")) for name in fields}


def _shown(name: str, given: QueryDict, query: CallQuery | None) -> str:
    """Return the value of a field: a time in the viewer's time zone, anything else as entered."""
    if query and name in MOMENTS and getattr(query, name):
        return timezone.localtime(getattr(query, name)).replace(microsecond=0, tzinfo=None).isoformat()
    texts = [
        text
        for one in (name, *(alias for alias, meant in ALIASES.items() if meant == name))
        for text in given.getlist(one)
    ]
    return ",".join(filter(None, texts))


def _field(name: str, shown: str, offered: Offered) -> forms.Field:
    choices = _choices(name, offered)
    attrs = {"placeholder": HINTS.get(name, "")}
    if choices is not None:
        return forms.CharField(label=LABELS[name], initial=shown, widget=_select(choices, shown))
    if name in NUMBERS:
        return forms.CharField(
            label=LABELS[name], initial=shown, widget=UnfoldAdminIntegerFieldWidget(attrs={"min": 0})
        )
    widget = UnfoldAdminTextInputWidget(attrs=attrs)
    if name in MOMENTS:
        widget = UnfoldAdminTextInputWidget(attrs={"step": 1})
        widget.input_type = "datetime-local" if not shown or _is_moment(shown) else "text"
    if name == "tool":
        widget.attrs["list"] = TOOLS_LIST
    return forms.CharField(label=LABELS[name], initial=shown, widget=widget)


def _is_moment(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is None
    except ValueError:
        return False


def _choices(name: str, offered: Offered) -> Choices | None:
    match name:
        case "tenant":
            return offered.tenants
        case "key":
            return offered.keys
        case "method":
            return [(method, method) for method in METHODS]
        case "outcome":
            return [(NOT_OK, "All except OK"), *((str(value), str(label)) for value, label in Outcome.choices)]
        case "period":
            return list(PERIODS.items())
        case _:
            return None


def _select(choices: Choices, shown: str) -> Any:
    """Return a select widget with these choices, any, and the current value if it is not among them."""
    values = {value for value, _ in choices}
    other = [(shown, "Several" if "," in shown else shown)] if shown and shown not in values else []
    return UnfoldAdminSelectWidget(choices=[("", "Any"), *choices, *other])
