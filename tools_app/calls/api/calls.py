"""The audit log: settled calls and denials, read-only, for superusers too; and the calls that run now."""

from typing import Any

from django.core.validators import RegexValidator
from drf_spectacular.helpers import forced_singular_serializer
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.audit.recorder import entries
from tools_app.audit.search import pages
from tools_app.audit.search.query import MAX_NUMBER, PARAMETERS, BadQuery, CallQuery
from tools_app.calls.background import delivery
from tools_app.calls.models import Texts
from tools_app.catalog.revisions import source_of
from tools_app.core.packing import UnpackError
from tools_app.core.relations import first_within, related
from tools_app.models import Call, CallEvent, CallPayload, CallStatus, Outcome, RunningCall
from tools_app.tenants.models import MAX_SLUG_LENGTH
from tools_app.web.api.fields import UUID_TEXT, Choice, Id, Text, WholeParameter
from tools_app.web.api.paging import MAX_PAGE_BYTES, MOST, ListQuery, Query, next_address, within_page_bytes
from tools_app.web.api.serializers import Row, TenantOfRecord
from tools_app.web.api.views import HasMembership
from tools_app.web.api.viewsets import IsTenantAdmin, ListMixin, Retrieved, ScopedView, TenantQuery

# Columns that have another name here.
NAMES = {"tenant_id": "tenant", "api_key_id": "key", "session_id": "session", "tool_id": "tool", "person_id": "person"}
FACTS = tuple(NAMES.get(column, column) for column in entries.Facts._fields)
EVENTS = 200
SHOWN_CAUSE = 1000
KEY = rf"^(?:anonymous|{UUID_TEXT})$"
ONE_OUTCOME = f"(?:{'|'.join(Outcome.values)})"
OUTCOMES = f"^{ONE_OUTCOME}(?:,{ONE_OUTCOME}){{0,20}}$"
NOT_FOR_OPERATORS = "Null for operators."


class Facts(Row):
    """The common facts of settled and running calls."""

    tenant = TenantOfRecord(help_text="Slug of the tenant; null if there is none or it was deleted.")
    key = serializers.UUIDField(
        source="api_key_id", read_only=True, allow_null=True, help_text="Null for anonymous calls."
    )
    session = serializers.UUIDField(source="session_id", read_only=True, allow_null=True)
    tool = serializers.UUIDField(source="tool_id", read_only=True, allow_null=True)
    person = serializers.CharField(
        source="person_name",
        read_only=True,
        allow_null=True,
        help_text="Username of the person for whom the caller acted; null if a key acted for itself.",
    )

    def audits(self, call: Any) -> bool:
        """Whether the person may read the arguments and results."""
        return self.tenant_permissions.audits(call.tenant_id)


class CallRow(Facts):
    """A settled call or denial: who, what, when, and how it ended."""

    cause = serializers.SerializerMethodField(
        help_text=f"Cause of the failure; lists have its first {SHOWN_CAUSE} characters, then …. {NOT_FOR_OPERATORS}"
    )

    class Meta:
        model = Call
        fields: tuple[str, ...] = tuple(NAMES.get(column, column) for column in entries.HASHED)
        read_only_fields: tuple[str, ...] = fields

    def get_cause(self, call: Call) -> str | None:
        """Return the cause, truncated; null without the permission, because it may reveal arguments."""
        if not self.audits(call):
            return None
        return call.cause if len(call.cause) <= SHOWN_CAUSE else f"{call.cause[:SHOWN_CAUSE]}…"


class EventRow(Row):
    """An event that a call sent before its result."""

    data = serializers.SerializerMethodField(help_text=f"JSON text. {NOT_FOR_OPERATORS}")

    class Meta:
        model = CallEvent
        fields = ("sequence", "at", "kind", "data")
        read_only_fields = fields

    def get_data(self, event: CallEvent) -> str | None:
        """Return the event's data."""
        return event.data if self.context["audits"] else None


class WholeCallRow(CallRow):
    """A call with its arguments, events and result."""

    arguments = serializers.SerializerMethodField(help_text=f"JSON text, redacted and truncated. {NOT_FOR_OPERATORS}")
    result = serializers.SerializerMethodField(help_text=f"JSON text, redacted and truncated. {NOT_FOR_OPERATORS}")
    events = serializers.SerializerMethodField(
        help_text=f"The first {EVENTS}, or fewer if they are large. `/calls/ID/events/` has all of them."
    )

    source = serializers.SerializerMethodField(
        help_text="Where the tool came from, in the revision that ran. Empty without a tool, or if it was deleted."
    )

    class Meta(CallRow.Meta):
        fields = (*CallRow.Meta.fields, "source", "arguments", "result", "events")
        read_only_fields: tuple[str, ...] = fields

    def get_source(self, call: Call) -> str:
        """Return the source of the tool."""
        return source_of(call)

    def get_arguments(self, call: Call) -> str | None:
        """Return the arguments."""
        return _texts(call).arguments if self.audits(call) else None

    def get_result(self, call: Call) -> str | None:
        """Return the result."""
        return _texts(call).result if self.audits(call) else None

    def get_cause(self, call: Call) -> str | None:
        """Return the full cause."""
        return call.cause if self.audits(call) else None

    @extend_schema_field(EventRow(many=True))
    def get_events(self, call: Call) -> Any:
        """Return the events."""
        return events_of(call, 0, EVENTS, audits=self.audits(call))


class CallsQuery(ListQuery):
    """The search filters, as in the admin's list."""

    cursor = Text(required=False, max_length=100, help_text="Cursor of the page, from `next` or `previous`.")
    tenant = Text(required=False, max_length=MAX_SLUG_LENGTH, help_text="Slug or ID of the tenant.")
    tool = Text(required=False, max_length=500, help_text="Tool, prompt or resource; `*` matches anything: `search_*`.")
    key = Text(
        required=False,
        max_length=36,
        validators=[RegexValidator(KEY, "Must be an ID or anonymous.")],
        help_text="ID of an API key, or `anonymous`.",
    )
    client = Text(required=False, max_length=200, help_text="Part of the client's name.")
    session = Id(required=False, help_text="ID of a session.")
    method = Text(required=False, max_length=100, help_text="`tools/call`, `resources/read`, `prompts/get`, ...")
    outcome = Text(
        required=False,
        max_length=400,
        validators=[RegexValidator(OUTCOMES, "Must be outcomes, separated by commas.")],
        help_text=f"{', '.join(Outcome.values)}: one or more, separated by commas.",
    )
    since = Text(required=False, max_length=40, help_text="Started at or after this ISO 8601 date or time.")
    until = Text(required=False, max_length=40, help_text="Started at or before this date or time.")
    period = Text(
        required=False,
        max_length=7,
        validators=[RegexValidator(r"^[0-9]{1,6}[mhd]$", "Must be a number with m, h or d, such as 90m, 24h or 7d.")],
        help_text="Started within this period: `90m`, `24h`, `7d`.",
    )
    duration_min = WholeParameter(required=False, min_value=0, max_value=MAX_NUMBER, help_text="Milliseconds.")
    duration_max = WholeParameter(required=False, min_value=0, max_value=MAX_NUMBER, help_text="Milliseconds.")
    size_min = WholeParameter(
        required=False, min_value=0, max_value=MAX_NUMBER, help_text="Size of arguments and result in bytes."
    )
    size_max = WholeParameter(
        required=False, min_value=0, max_value=MAX_NUMBER, help_text="Size of arguments and result in bytes."
    )
    trace = Text(
        required=False,
        max_length=32,
        validators=[RegexValidator(r"^[0-9A-Fa-f]{32}$", "Must be the 32 hex digits of a trace ID.")],
        help_text="ID of a trace, in hex.",
    )
    request = Text(required=False, max_length=200, help_text="JSON-RPC ID of the request, as JSON.")
    address = Text(required=False, max_length=100, help_text="Client address; `*` matches anything: `10.1.*`.")
    text = Text(required=False, max_length=500, help_text="Text in arguments, result or cause. Not for operators.")


class CallPage(serializers.Serializer):
    """A page of calls."""

    next = serializers.URLField(allow_null=True, help_text="Older calls; null where there are none.")
    previous = serializers.URLField(allow_null=True, help_text="Newer calls; null on the first page.")
    complete = serializers.BooleanField(
        help_text="False: the search reached its time limit. `next` continues from `searched_back_to`."
    )
    searched_back_to = serializers.DateTimeField(allow_null=True)
    results = CallRow(many=True)


class EventsQuery(Query):
    """Parameters of a list of events."""

    limit = WholeParameter(required=False, default=EVENTS, min_value=1, max_value=MOST, help_text="Events per page.")
    after = WholeParameter(
        required=False, default=0, min_value=0, max_value=2**31 - 1, help_text="Only events after this sequence number."
    )


class Calls(Retrieved, ScopedView):
    """The calls of tenants and how they ended. Denials without a tenant are for superusers."""

    queryset = Call.objects.select_related("tenant", "person").order_by("-started_at")
    serializer_class = WholeCallRow
    query_class = CallsQuery

    @extend_schema(
        operation_id="calls_list",
        responses=forced_singular_serializer(CallPage),  # type: ignore[no-untyped-call]
        filters=False,
    )
    def list(self, request: Request, *_args: Any, **_options: Any) -> Response:
        """List calls, newest first. `cursor` comes from `next` or `previous` of another page of the same search."""
        page_query = self.query_class.validated(request)
        cursor = page_query.get("cursor", "")
        # A cursor includes its direction, so that no other parameter is needed.
        way, mark = ("before", cursor[1:]) if cursor.startswith(BACK) else ("after", cursor)
        try:
            query = query_of(request)
            found = pages.page(query, request.user, size=page_query["limit"], **{way: mark or None})
        except BadQuery as problem:
            raise serializers.ValidationError(_named(problem)) from problem
        answer = {
            "next": next_address(request, found.next),
            "previous": next_address(request, f"{BACK}{found.previous}" if found.previous else None),
            "complete": found.complete,
            "searched_back_to": found.searched_back_to,
            "results": found.calls,
        }
        return Response(CallPage(answer, context=self.get_serializer_context()).data)

    @extend_schema(
        operation_id="calls_events_list",
        summary="List a call's events",
        parameters=[EventsQuery],
        responses=EventRow(many=True),
        filters=False,
    )
    @action(detail=True, serializer_class=EventRow, pagination_class=None)
    def events(self, request: Request, pk: str) -> Response:
        """List the events of a call before its result, in order. `after`: only events after the last one that you have.

        A page ends earlier if its events are large; the last page is empty.
        """
        query, call = EventsQuery.validated(request), self.get_object()
        return Response(
            events_of(call, query["after"], query["limit"], audits=self.tenant_permissions.audits(call.tenant_id))
        )


BACK = "~"


def query_of(request: Request) -> CallQuery:
    """Return the search that the parameters of a request describe. Raises BadQuery."""
    params = request.query_params
    return CallQuery.from_params({name: params[name] for name in PARAMETERS if name in params})


def events_of(call: Any, after: int, most: int, *, audits: bool) -> Any:
    """Return the next events of a call after a sequence number."""
    events = CallEvent.objects.filter(call_id=call.pk, sequence__gt=after).order_by("sequence")
    if not audits:
        events = events.defer("data")
    rows, _ = first_within(events, most, MAX_PAGE_BYTES)
    serializer = EventRow(context={"audits": audits})
    return within_page_bytes(serializer.to_representation(row) for row in rows)


def _named(problem: BadQuery) -> dict[str, list[str]]:
    """Return the errors by the API's parameter names."""
    return {("cursor" if name in {"after", "before"} else name): [text] for name, text in problem.errors.items()}


def _texts(call: Call) -> Texts:
    payload: CallPayload | None = related(call, "payload")
    try:
        return payload.texts() if payload else Texts("", "")
    except UnpackError:
        return Texts("", "")


class RunningCallRow(Facts):
    """A call that has not ended."""

    arguments = serializers.SerializerMethodField(help_text=f"JSON text, redacted and truncated. {NOT_FOR_OPERATORS}")

    class Meta:
        model = RunningCall
        fields = (*FACTS, "status", "background", "timeout_seconds", "cancel_requested", "run_at", "owner", "arguments")
        read_only_fields = fields

    def get_arguments(self, call: RunningCall) -> str | None:
        """Return the arguments."""
        return call.arguments if self.audits(call) else None


class RunningQuery(TenantQuery):
    """Filter by tenant, status, tool and key."""

    status = Choice(CallStatus.choices, required=False, help_text="Status of the call.")
    tool = Text(source="tool_name", required=False, max_length=500, help_text="Name of the tool.")
    key = Id(source="api_key_id", required=False, help_text="ID of an API key.")


class RunningCalls(ListMixin, Retrieved, ScopedView):
    """Calls that have not ended. A tenant's admin may cancel them."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = RunningCall.objects.select_related("tenant", "person").defer("sealed_arguments")
    serializer_class = RunningCallRow
    query_class = RunningQuery
    plural, singular = "running calls", "running call"

    @extend_schema(
        operation_id="running_calls_cancel",
        summary="Cancel running call",
        request=None,
        responses={202: RunningCallRow},
    )
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """Ask the process that runs the call to stop; a call that does not stop is ended within seconds."""
        call = self.get_object()
        delivery.cancel_by_person(call)
        call.cancel_requested = True
        return Response(self.get_serializer(call).data, status=202)
