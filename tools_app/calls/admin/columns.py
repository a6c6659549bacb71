"""What lists and pages of finished and running calls share: columns, facts, links and formats."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast
from urllib.parse import urlencode

import orjson
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.safestring import SafeString

from tools_app.core.relations import related
from tools_app.models import Outcome, Prompt, Resource
from tools_app.protocol import exact_json
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.decorators import column
from tools_app.web.admin.links import key_link, key_name, link
from tools_app.web.admin.scoping import RecordAdmin, narrow

MAX_COUNTED = 10_000
VERBS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SECOND = 1_000_000

OUTCOME_COLOURS = {
    Outcome.OK: "success",
    Outcome.TOOL_ERROR: "danger",
    Outcome.REJECTED: "warning",
    Outcome.DENIED: "danger",
    Outcome.CANCELLED: "info",
    Outcome.TIMEOUT: "warning",
    Outcome.NOT_STARTED: "warning",
    Outcome.LOST: "danger",
    Outcome.INTERRUPTED: "warning",
    Outcome.INPUT_REQUIRED: "primary",
}


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """A paginator with a bounded count: counting a whole audit log takes longer than reading a page of it."""

    @cached_property
    def count(self) -> int:
        """The number of rows, or `MAX_COUNTED` if there are more."""
        rows = cast("QuerySet[Any]", self.object_list)
        return rows.order_by()[:MAX_COUNTED].count()


class CallFactsAdmin(RecordAdmin):
    """Base admin of finished and running calls."""

    list_select_related = ("tenant", "api_key")
    search_fields: tuple[str, ...] = ("tool_name", "request_id", "client_name", "=trace_id")
    show_full_result_count = False
    paginator = BoundedPaginator

    def get_ordering(self, request: HttpRequest) -> list[str]:
        """Return newest first, ordered to use an index: one begins with the tenant, and ids increase with time."""
        return ["-id"] if tenant_permissions_of(request).is_superuser else ["-started_at"]

    @column("time", ordering="started_at")
    def started(self, call: Any) -> str:
        return moment_text(call.started_at)

    @column("name", ordering="tool_name")
    def called(self, call: Any) -> str:
        return name_of(call)

    @column("name", ordering="tool_name")
    def called_in_short(self, call: Any) -> SafeString:
        return narrow(self.called(call))

    @column("client", ordering="client_name")
    def client(self, call: Any) -> str:
        return f"{call.client_name} {call.client_version}".strip() or call.remote_address or "-"

    @column("tenant")
    def tenant_link(self, call: Any) -> str:
        return link(related(call, "tenant"), call.tenant_id)

    @column("key")
    def key(self, call: Any) -> str:
        return key_name(call)

    @column("key")
    def key_link(self, call: Any) -> str:
        return key_link(call)

    @column("session")
    def session_link(self, call: Any) -> str:
        return link(related(call, "session"), call.session_id)

    @column("definition")
    def offer_link(self, call: Any) -> str:
        """Return a link to the current tool, resource or prompt."""
        return link(offer_of(call), call.tool_id)


def name_of(call: Any) -> str:
    """Return the name or method. A denial before the message was read has only the verb of its request."""
    return call.tool_name or ("Request" if call.method in VERBS else call.method) or "-"


def title_of(call: Any) -> str:
    """Return the title of a call's page."""
    name = name_of(call)
    return f"Call of {name}" if call.tool_name else name


def indented(text: str) -> str:
    """Return indented JSON. Text that was truncated and is no longer valid JSON is returned unchanged."""
    try:
        return exact_json.dumps(exact_json.loads(text), option=orjson.OPT_INDENT_2).decode()
    except ValueError:
        return text


def offer_of(call: Any) -> Model | None:
    """Return the current object that was called. A resource read through a template has no row."""
    match call.method:
        case "resources/read":
            return Resource.objects.filter(tenant=call.tenant_id, uri=call.tool_name).only("uri").first()
        case "prompts/get":
            return Prompt.objects.filter(tenant=call.tenant_id, name=call.tool_name).first()
        case _:
            tool: Model | None = related(call, "tool")
            return tool


def moment_text(moment: datetime) -> str:
    """Format a time to the millisecond, in the active time zone."""
    local = timezone.localtime(moment)
    return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03d}"


def duration_text(microseconds: int) -> str:
    """Format a duration in a suitable unit."""
    if microseconds < SECOND:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds / SECOND:.1f} s"


@dataclass(frozen=True)
class Fact:
    """A labelled fact of a call. `copy`: shown with a copy button."""

    label: str
    value: SafeString | str
    copy: bool = False


@dataclass(frozen=True)
class Link:
    """A link to related calls or to the evidence page."""

    label: str
    url: str


def facts_about(admin: CallFactsAdmin, call: Any) -> list[Fact]:
    """Return the facts of a call that are known from its start."""
    return [
        Fact("Tenant", admin.tenant_link(call)),
        Fact("Key", admin.key_link(call)),
        *([Fact("Acted for", call.person_name)] if call.person_name else []),
        Fact("Session", admin.session_link(call)),
        Fact("Client", admin.client(call)),
        Fact("Remote address", call.remote_address or "-"),
        Fact("Method", call.method or "-"),
        Fact("Definition", admin.offer_link(call)),
        Fact("Protocol version", call.protocol_version or "-"),
        Fact("Ran", "in a worker" if call.background else "in the web process"),
        Fact("Call ID", str(call.pk), copy=True),
        Fact("Request ID", call.request_id or "-", copy=bool(call.request_id)),
        Fact("Trace ID", call.trace_id or "-", copy=bool(call.trace_id)),
    ]


def links_of(call: Any) -> list[Link]:
    """Return the links from a call to related objects."""
    links = []
    if call.session_id:
        links.append(_calls("Calls of the same session", session=call.session_id))
    if call.trace_id:
        links.append(_calls("Calls of the same trace", trace=call.trace_id))
    if call.tool_name:
        links.append(_calls(f"Calls of {call.tool_name}", tool=call.tool_name))
    if call.tenant_id:
        links.append(Link("Evidence for this tenant", _address("evidence", tenant=call.tenant_id)))
    return links


def _calls(label: str, **query: Any) -> Link:
    return Link(label, _address("tools_app_call_changelist", **query))


def _address(page: str, **query: Any) -> str:
    return f"{reverse(f'admin:{page}')}?{urlencode(query)}"
