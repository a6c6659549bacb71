"""The audit log: settled calls and denials. Nobody changes them, superusers included."""

from typing import Any

from django.core.validators import RegexValidator
from drf_spectacular.helpers import forced_singular_serializer
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.api.v1.fields import Id, Text, WholeParameter
from tools_app.api.v1.paging import MOST, ListQuery, Query, next_address
from tools_app.api.v1.rows import Row, TenantOfRecord
from tools_app.api.v1.scoped import Retrieved, ScopedView
from tools_app.audit.search import pages
from tools_app.audit.search.query import MOST_NUMBER, PARAMETERS, BadQuery, CallQuery
from tools_app.models import Call, CallEvent, CallPayload, Outcome
from tools_app.models.calls import Texts
from tools_app.models.packing import NotPacked
from tools_app.models.reading import related

FACTS = (
    "id",
    "tenant",
    "key",
    "session",
    "tool",
    "tool_name",
    "tool_revision",
    "method",
    "request_id",
    "protocol_version",
    "client_name",
    "client_version",
    "remote_address",
    "trace_id",
    "started_at",
)
EVENTS = 200
KEY = r"^(?:anonymous|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$"
ONE_OUTCOME = f"(?:{'|'.join(Outcome.values)})"
OUTCOMES = f"^{ONE_OUTCOME}(?:,{ONE_OUTCOME}){{0,20}}$"
NOT_FOR_OPERATORS = "Null for operators, who see facts only."


class Facts(Row):
    """What calls have in common, settled or running."""

    tenant = TenantOfRecord(help_text="The slug of its tenant; null for none, or one that is gone.")
    key = serializers.UUIDField(source="api_key_id", read_only=True, allow_null=True, help_text="Null: anonymous.")
    session = serializers.UUIDField(source="session_id", read_only=True, allow_null=True)
    tool = serializers.UUIDField(source="tool_id", read_only=True, allow_null=True)

    def audits(self, call: Any) -> bool:
        """Whether the person may read what was sent and answered."""
        return self.reach.audits(call.tenant_id)


class CallRow(Facts):
    """One settled call or denial: who, what, when, and how it ended."""

    cause = serializers.SerializerMethodField(help_text=f"What went wrong. {NOT_FOR_OPERATORS}")

    class Meta:
        model = Call
        fields: tuple[str, ...] = (
            *FACTS,
            "finished_at",
            "duration_us",
            "waited_us",
            "recorded_us",
            "outcome",
            "http_status",
            "rpc_error",
            "is_error",
            "cause",
            "background",
            "arguments_size",
            "result_size",
            "event_count",
            "repeated",
            "writer",
        )
        read_only_fields: tuple[str, ...] = fields

    def get_cause(self, call: Call) -> str | None:
        """Why, which may tell of what was sent."""
        return call.cause if self.audits(call) else None


class EventRow(Row):
    """What a call said before its result."""

    data = serializers.SerializerMethodField(help_text=f"JSON text. {NOT_FOR_OPERATORS}")

    class Meta:
        model = CallEvent
        fields = ("sequence", "at", "kind", "data")
        read_only_fields = fields

    def get_data(self, event: CallEvent) -> str | None:
        """What was said."""
        return event.data if self.context["audits"] else None


class WholeCallRow(CallRow):
    """A call with what was sent, said and answered."""

    arguments = serializers.SerializerMethodField(
        help_text=f"JSON text, redacted, and cut off where it is long. {NOT_FOR_OPERATORS}"
    )
    result = serializers.SerializerMethodField(help_text=f"The same. {NOT_FOR_OPERATORS}")
    events = serializers.SerializerMethodField(help_text=f"The first {EVENTS}.")

    class Meta(CallRow.Meta):
        fields = (*CallRow.Meta.fields, "arguments", "result", "events")
        read_only_fields: tuple[str, ...] = fields

    def get_arguments(self, call: Call) -> str | None:
        """What was sent."""
        return _texts(call).arguments if self.audits(call) else None

    def get_result(self, call: Call) -> str | None:
        """What was answered."""
        return _texts(call).result if self.audits(call) else None

    @extend_schema_field(EventRow(many=True))
    def get_events(self, call: Call) -> Any:
        """What was said in between."""
        return events_of(call, 0, EVENTS, audits=self.audits(call))


class CallsQuery(ListQuery):
    """What is looked for, as in the admin's list."""

    cursor = Text(required=False, max_length=100, help_text="Where the page begins: `next` or `previous` has it.")
    tenant = Text(required=False, max_length=63, help_text="The slug or the id of its tenant.")
    tool = Text(required=False, max_length=500, help_text="Tool, prompt or resource; `*` is anything: `search_*`.")
    key = Text(
        required=False,
        validators=[RegexValidator(KEY, "Write an id, or anonymous.")],
        help_text="The id of an API key, or `anonymous`.",
    )
    client = Text(required=False, max_length=200, help_text="A text that stands in its client's name.")
    session = Id(required=False, help_text="The id of a session.")
    method = Text(required=False, max_length=100, help_text="`tools/call`, `resources/read`, `prompts/get`, ...")
    outcome = Text(
        required=False,
        validators=[RegexValidator(OUTCOMES, "Write outcomes, with commas between.")],
        help_text=f"{', '.join(Outcome.values)}: one, or several with commas between.",
    )
    since = Text(required=False, max_length=40, help_text="Started then or later: ISO 8601, a day or a moment.")
    until = Text(required=False, max_length=40, help_text="Started then or earlier.")
    period = Text(
        required=False,
        validators=[RegexValidator(r"^[0-9]{1,6}[mhd]$", "Write a number with m, h or d, such as 90m, 24h or 7d.")],
        help_text="Started so long ago at most: `90m`, `24h`, `7d`.",
    )
    duration_min = WholeParameter(required=False, min_value=0, max_value=MOST_NUMBER, help_text="Milliseconds.")
    duration_max = WholeParameter(required=False, min_value=0, max_value=MOST_NUMBER, help_text="Milliseconds.")
    size_min = WholeParameter(
        required=False, min_value=0, max_value=MOST_NUMBER, help_text="Bytes of arguments and result together."
    )
    size_max = WholeParameter(
        required=False, min_value=0, max_value=MOST_NUMBER, help_text="Bytes of arguments and result together."
    )
    trace = Text(
        required=False,
        validators=[RegexValidator(r"^[0-9A-Fa-f]{32}$", "Write the 32 hex digits of a trace.")],
        help_text="The id of a trace, in hex.",
    )
    request = Text(required=False, max_length=200, help_text="The JSON-RPC id of the request, as JSON.")
    address = Text(required=False, max_length=100, help_text="Where it came from; `*` is anything: `10.1.*`.")
    text = Text(
        required=False, max_length=500, help_text="A text that stands in arguments, result or cause. Not for operators."
    )


class CallPage(serializers.Serializer):
    """A page of calls."""

    next = serializers.URLField(allow_null=True, help_text="Older calls; null where there are none.")
    previous = serializers.URLField(allow_null=True, help_text="Newer calls; null on the first page.")
    complete = serializers.BooleanField(
        help_text="False: the search took too long. `next` goes on from `searched_back_to`, and may still find calls."
    )
    searched_back_to = serializers.DateTimeField(allow_null=True)
    results = CallRow(many=True)


class EventsQuery(Query):
    """Which events."""

    limit = WholeParameter(required=False, default=EVENTS, min_value=1, max_value=MOST, help_text="Events of a page.")
    after = WholeParameter(
        required=False, default=0, min_value=0, max_value=2**31 - 1, help_text="After this sequence."
    )


class Calls(Retrieved, ScopedView):
    """The calls of tenants and how they ended. Denials that belong to no tenant are for superusers."""

    queryset = Call.objects.select_related("tenant").order_by("-started_at")
    serializer_class = WholeCallRow
    query_class = CallsQuery

    @extend_schema(
        operation_id="calls_list",
        responses=forced_singular_serializer(CallPage),  # type: ignore[no-untyped-call]
        filters=False,
    )
    def list(self, request: Request, *_args: Any, **_options: Any) -> Response:
        """Calls, newest first. `cursor` comes from `next` or `previous` of another page of the same search."""
        asked = self.query_class.asked(request)
        cursor = asked.get("cursor", "")
        # A cursor tells its own direction, so that an address needs no other parameter.
        way, mark = ("before", cursor[1:]) if cursor.startswith(BACK) else ("after", cursor)
        try:
            query = query_of(request)
            found = pages.page(query, request.user, size=asked["limit"], **{way: mark or None})
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
        """What the call said before its result, in its order. Those after the last one that you have: `after`."""
        said, call = EventsQuery.asked(request), self.get_object()
        return Response(events_of(call, said["after"], said["limit"], audits=self.reach.audits(call.tenant_id)))


BACK = "~"


def query_of(request: Request) -> CallQuery:
    """The search that the parameters of a request describe. Raises BadQuery."""
    params = request.query_params
    return CallQuery.from_params({name: params[name] for name in PARAMETERS if name in params})


def events_of(call: Any, after: int, most: int, *, audits: bool) -> Any:
    """The next events of a call after a sequence."""
    rows = CallEvent.objects.filter(call_id=call.pk, sequence__gt=after).order_by("sequence")[:most]
    return EventRow(rows, many=True, context={"audits": audits}).data


def _named(problem: BadQuery) -> dict[str, list[str]]:
    """The faults by the names that the parameters have here."""
    return {("cursor" if name in {"after", "before"} else name): [text] for name, text in problem.errors.items()}


def _texts(call: Call) -> Texts:
    payload: CallPayload | None = related(call, "payload")
    try:
        return payload.texts() if payload else Texts("", "")
    except NotPacked:
        return Texts("", "")
