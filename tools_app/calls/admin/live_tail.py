"""The live tail: calls as they arrive. It shows facts only, which all members may see of their tenants.

A record is written when its call ends, with an id created when the call started. A client therefore sends the running
calls it knows and receives their outcome; calls that started and ended since its last poll are found among the newest
ids. Each query reads a bounded number of rows from the end of an index, never the whole log.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.contrib.admin import AdminSite
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.views.decorators.http import require_GET

from tools_app.calls.admin.columns import OUTCOME_COLOURS, duration_text, moment_text, name_of
from tools_app.core.ids import least_id
from tools_app.core.relations import related
from tools_app.models import ApiKey, Call, CallStatus, Outcome, RunningCall, Tenant, Tool
from tools_app.tenants import permissions
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.links import key_name
from tools_app.web.admin.scoping import MAX_CHOICES

MAX_FILTER: Final = 500
FAILURES: Final = frozenset(Outcome) - {Outcome.OK, Outcome.INPUT_REQUIRED, Outcome.CANCELLED}
MAX_SHOWN: Final = 200
# Number of the newest calls that are checked against a filter.
MAX_LOOKED: Final = 1_000
MAX_RUNNING: Final = 100
# How long before the last poll an unknown call may have started.
LOOK_BACK: Final = timedelta(seconds=15)
# Maximum delay of a record on its way to the database, and clock skew between two hosts.
LAG: Final = timedelta(seconds=3)
# A client whose last poll is older starts over.
MAX_AWAY: Final = timedelta(seconds=60)
ANONYMOUS: Final = "anonymous"
MAX_CURSOR: Final = 13
# Only the columns that are shown or compared: loading a thousand complete rows is slow.
FACTS: Final = (
    "tool_name",
    "method",
    "client_name",
    "client_version",
    "remote_address",
    "started_at",
    "tenant__name",
    "api_key__name",
    "api_key__prefix",
)
SETTLED: Final = ("outcome", "duration_us", "repeated")
RUNNING: Final = ("status",)


@dataclass(frozen=True)
class LiveFilter:
    """The filter of a live tail. `tenants` are the accessible tenants; None includes calls without a tenant."""

    tenants: frozenset[UUID] | None
    tool: str = ""
    key: str = ""
    outcome: str = ""
    client: str = ""

    @property
    def tenant(self) -> UUID | None:
        """The only tenant of the filter, if there is one."""
        return next(iter(self.tenants)) if self.tenants is not None and len(self.tenants) == 1 else None

    def fits(self, call: Call | RunningCall) -> bool:
        """Return whether a call matches. A running call has no outcome yet and matches every outcome filter."""
        return (
            (self.tenants is None or call.tenant_id in self.tenants)
            and (not self.tool or call.tool_name == self.tool)
            and (not self.key or self.key == _key_of(call))
            and (not self.client or self.client.lower() in call.client_name.lower())
            and (not self.outcome or isinstance(call, RunningCall) or call.outcome == self.outcome)
        )


@dataclass(frozen=True)
class Changes:
    """The result of a poll. `over` are known calls that have ended, matching or not. `is_partial`: there may be more
    matching calls than were read.
    """

    settled: list[Call]
    running: list[RunningCall]
    over: list[UUID]
    is_partial: bool


def changes_since(chosen: LiveFilter, since: datetime | None, known: Mapping[UUID, str]) -> Changes:
    """Return calls that are new since `since`, or the newest, and the outcome of `known` calls (call id to status)."""
    # Running calls are read first: a call that ends in between is found among the finished ones.
    running = _newest_running(chosen, known)
    ended = list(_scoped(Call, chosen).filter(pk__in=list(known)[:MAX_RUNNING]))
    found, is_partial = _newest(chosen) if since is None else _since(chosen, since)
    settled = {call.pk: call for call in (*found, *ended) if chosen.fits(call)}
    newest = sorted(settled.values(), key=lambda call: call.pk, reverse=True)
    return Changes(newest[:MAX_SHOWN], running, [call.pk for call in ended], is_partial)


def recent_since(moment: datetime | None) -> datetime | None:
    """Return the time of the last poll, or None if it is too long ago to report all changes since."""
    return moment if moment and abs(timezone.now() - moment) <= MAX_AWAY else None


def _newest_running(chosen: LiveFilter, known: Mapping[UUID, str]) -> list[RunningCall]:
    """Return the newest running calls, without known calls whose status is unchanged."""
    rows = _scoped(RunningCall, chosen)[:MAX_LOOKED]
    fitting = [row for row in rows if chosen.fits(row)][:MAX_RUNNING]
    return [row for row in fitting if known.get(row.pk) != row.status]


def _newest(chosen: LiveFilter) -> tuple[list[Call], bool]:
    rows = _scoped(Call, chosen)
    if chosen.tenant and chosen.tool:
        # An index covers exactly these filters, so matches of any age are found.
        rows = rows.filter(tool_name=chosen.tool)
    elif chosen.tenant and chosen.outcome not in ("", Outcome.OK):
        # The second condition is that of the partial index: SQLite does not conclude it from the first.
        rows = rows.filter(outcome=chosen.outcome).exclude(outcome=Outcome.OK)
    found = list(rows[:MAX_LOOKED])
    return found, len(found) == MAX_LOOKED and sum(map(chosen.fits, found)) < MAX_SHOWN


def _since(chosen: LiveFilter, since: datetime) -> tuple[list[Call], bool]:
    rows = _scoped(Call, chosen).filter(finished_at__gte=since - LAG)
    began = since - LOOK_BACK
    rows = rows.filter(started_at__gte=began) if chosen.tenant else rows.filter(id__gte=least_id(began))
    found = list(rows[:MAX_LOOKED])
    return found, len(found) == MAX_LOOKED


def _scoped(model: Any, chosen: LiveFilter) -> "QuerySet[Any]":
    """Return the rows newest first, ordered to use an index: one begins with the tenant, and ids increase with time."""
    state_fields = SETTLED if model is Call else RUNNING
    rows: QuerySet[Any] = model.objects.select_related("tenant", "api_key").only(*FACTS, *state_fields)
    return rows.filter(tenant=chosen.tenant).order_by("-started_at") if chosen.tenant else rows.order_by("-id")


def _key_of(call: Call | RunningCall) -> str:
    if call.api_key_id is None:
        return ANONYMOUS if call.tenant_id else ""
    return str(call.api_key_id)


def known_rows(text: str) -> dict[UUID, str]:
    """Parse a comma-separated list of known running calls in the format of `row_mark`. Invalid entries are skipped."""
    return dict(_known(text.split(",")[:MAX_RUNNING]))


def row_mark(call: RunningCall) -> str:
    """Return a compact token of a running call and its status."""
    return f"{call.status[0]}{call.pk.hex}"


def _known(marks: Iterable[str]) -> Iterable[tuple[UUID, str]]:
    statuses = {status.value[0]: status.value for status in CallStatus}
    for mark in marks:
        try:
            yield UUID(mark[1:]), statuses[mark[0]]
        except (ValueError, KeyError, IndexError):
            continue


def cursor_of(moment: datetime) -> str:
    """Return a time as the cursor that the client sends back."""
    return str((moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))


def moment_of(cursor: str) -> datetime | None:
    """Return the time of a cursor, or None if it is invalid."""
    if not cursor.isdecimal() or len(cursor) > MAX_CURSOR:
        return None
    return datetime.fromtimestamp(int(cursor) / 1000, UTC)


def urls(site: AdminSite) -> list[URLPattern]:
    """Return the URL patterns of the page and its JSON endpoints."""
    return [
        path("live/", site.admin_view(_page(site)), name="live_tail"),
        path("live/calls/", site.admin_view(require_GET(poll)), name="live_tail_calls"),
    ]


def _page(site: AdminSite) -> Callable[[HttpRequest], HttpResponse]:
    @require_GET
    def page(request: HttpRequest) -> HttpResponse:
        seen = permissions.tenants_seen_by(request.user).order_by("name")
        tools = permissions.rows_seen_by(request.user, Tool.objects.order_by("name"))
        filter_of(request)
        context = {
            **site.each_context(request),
            "title": "Live",
            "is_fullwidth": "1",
            "tenants": list(seen[:MAX_CHOICES]) if tenant_permissions_of(request).sees_several_tenants else [],
            "tools": list(tools.values_list("name", flat=True).distinct()[:MAX_CHOICES]),
            "keys": permissions.rows_seen_by(request.user, ApiKey.objects.order_by("name"))[:MAX_CHOICES],
            "outcomes": Outcome.choices,
            "chosen": request.GET,
            "anonymous": ANONYMOUS,
            "most_shown": MAX_SHOWN,
        }
        return TemplateResponse(request, "calls/live_tail.html", context)

    return page


def poll(request: HttpRequest) -> JsonResponse:
    """Return changes since the last poll: `after` is the previous cursor, `known` are the calls known as running."""
    now = timezone.now()
    since = recent_since(moment_of(request.GET.get("after", "")))
    known = known_rows(request.GET.get("known", ""))
    changes = changes_since(filter_of(request), since, known)
    body = {
        "cursor": cursor_of(now),
        "reset": since is None,
        "today": f"{timezone.localtime(now):%Y-%m-%d} ",
        "partial": changes.is_partial,
        "over": [str(call_id) for call_id in changes.over],
        "calls": [*map(_settled, changes.settled), *map(_running, changes.running)],
    }
    return JsonResponse(body, headers={"Cache-Control": "no-store"})


def filter_of(request: HttpRequest) -> LiveFilter:
    """Return the requested filter. Raises Http404 alike for a missing tenant and for one the user cannot access."""
    texts = {name: request.GET.get(name, "")[:MAX_FILTER] for name in ("tool", "key", "outcome", "client")}
    return LiveFilter(_tenants(request), **texts)


def _tenants(request: HttpRequest) -> frozenset[UUID] | None:
    permitted = tenant_permissions_of(request)
    tenant_id = request.GET.get("tenant", "")
    if not tenant_id:
        return None if permitted.is_superuser else permitted.readable
    try:
        tenant = UUID(tenant_id)
    except ValueError:
        raise Http404("Tenant not found.") from None
    if not permitted.sees(tenant) or not Tenant.objects.filter(pk=tenant).exists():
        raise Http404("Tenant not found.")
    return frozenset({tenant})


def _settled(call: Call) -> dict[str, Any]:
    outcome = Outcome(call.outcome)
    return {
        **_facts(call, "tools_app_call"),
        "state": call.outcome,
        "says": outcome.label if call.repeated == 1 else f"{outcome.label} x {call.repeated}",
        "colour": OUTCOME_COLOURS[outcome],
        "took": duration_text(call.duration_us),
        "bad": outcome in FAILURES,
        "mark": "",
    }


def _running(call: RunningCall) -> dict[str, Any]:
    return {
        **_facts(call, "tools_app_runningcall"),
        "state": call.status,
        "says": call.get_status_display(),
        "colour": "primary",
        "took": "",
        "bad": False,
        "mark": row_mark(call),
    }


def _facts(call: Call | RunningCall, page: str) -> dict[str, Any]:
    tenant = related(call, "tenant")
    return {
        "id": str(call.pk),
        "at": moment_text(call.started_at),
        "name": name_of(call),
        "tenant": tenant.name if tenant else "-",
        "key": key_name(call),
        "client": f"{call.client_name} {call.client_version}".strip() or call.remote_address or "-",
        "url": reverse(f"admin:{page}_change", args=[call.pk]),
    }
