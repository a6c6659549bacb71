"""What the pages of calls have in common, settled or running.

What is shown was sent by clients, so it is escaped, and what a record points to may be gone by now.
"""

from datetime import datetime
from typing import Any, cast

import orjson
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.safestring import SafeString

from tools_app.admin.decorators import column
from tools_app.admin.links import key_link, key_name, link
from tools_app.admin.reach import reach_of
from tools_app.admin.scoped import RecordAdmin, narrow
from tools_app.models import Prompt, Resource
from tools_app.models.reading import related

MOST_COUNTED = 10_000
SECOND = 1_000_000


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than a person pages: counting a whole audit log takes longer than reading a page of it."""

    @cached_property
    def count(self) -> int:
        """The number of rows, or `MOST_COUNTED` if there are more."""
        rows = cast("QuerySet[Any]", self.object_list)
        return rows.order_by()[:MOST_COUNTED].count()


class CallFactsAdmin(RecordAdmin):
    """What calls have in common, settled or running."""

    list_select_related = ("tenant", "api_key")
    search_fields: tuple[str, ...] = ("tool_name", "request_id", "client_name", "=trace_id")
    show_full_result_count = False
    paginator = BoundedPaginator

    def get_ordering(self, request: HttpRequest) -> list[str]:
        """Newest first, by the index at hand: one begins with the tenant, and ids grow with time."""
        return ["-id"] if reach_of(request).everything else ["-started_at"]

    @column("time", ordering="started_at")
    def started(self, call: Any) -> str:
        return moment_text(call.started_at)

    @column("name", ordering="tool_name")
    def called(self, call: Any) -> str:
        return call.tool_name or call.method or "-"

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
        """The tool, resource or prompt as it is now."""
        return link(offer_of(call), call.tool_id)


def indented(text: str) -> str:
    """JSON text, indented; a text that was cut off and is no JSON any more stays as it is."""
    try:
        return orjson.dumps(orjson.loads(text), option=orjson.OPT_INDENT_2).decode()
    except ValueError:
        return text


def offer_of(call: Any) -> Model | None:
    """What was asked for, as it is now. A resource that a template stands for has no row of its own."""
    match call.method:
        case "resources/read":
            return Resource.objects.filter(tenant=call.tenant_id, uri=call.tool_name).only("uri").first()
        case "prompts/get":
            return Prompt.objects.filter(tenant=call.tenant_id, name=call.tool_name).first()
        case _:
            tool: Model | None = related(call, "tool")
            return tool


def moment_text(moment: datetime) -> str:
    """A moment to the millisecond, in the zone that is active."""
    local = timezone.localtime(moment)
    return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03d}"


def duration_text(microseconds: int) -> str:
    """A duration in the unit that suits it."""
    if microseconds < SECOND:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds / SECOND:.1f} s"
