"""Queries of the live tail: running calls, and calls that finished since the last poll.

A record is written when its call ends, with an id created when the call started. A client therefore sends the running
calls it knows and receives their outcome; calls that started and ended since its last poll are found among the newest
ids. Each query reads a bounded number of rows from the end of an index, never the whole log.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone

from tools_app.core.ids import least_id
from tools_app.models import Call, CallStatus, Outcome, RunningCall

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
class Wanted:
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
class News:
    """The result of a poll. `over` are known calls that have ended, matching or not. `is_partial`: there may be more
    matching calls than were read.
    """

    settled: list[Call]
    running: list[RunningCall]
    over: list[UUID]
    is_partial: bool


def news(wanted: Wanted, since: datetime | None, known: Mapping[UUID, str]) -> News:
    """Return calls that are new since `since`, or the newest, and the outcome of `known` calls (call id to status)."""
    # Running calls are read first: a call that ends in between is found among the finished ones.
    running = _running(wanted, known)
    ended = list(_scoped(Call, wanted).filter(pk__in=list(known)[:MAX_RUNNING]))
    found, is_partial = _newest(wanted) if since is None else _since(wanted, since)
    settled = {call.pk: call for call in (*found, *ended) if wanted.fits(call)}
    newest = sorted(settled.values(), key=lambda call: call.pk, reverse=True)
    return News(newest[:MAX_SHOWN], running, [call.pk for call in ended], is_partial)


def recent_since(moment: datetime | None) -> datetime | None:
    """Return the time of the last poll, or None if it is too long ago to report all changes since."""
    return moment if moment and abs(timezone.now() - moment) <= MAX_AWAY else None


def _running(wanted: Wanted, known: Mapping[UUID, str]) -> list[RunningCall]:
    """Return the newest running calls, without known calls whose status is unchanged."""
    rows = _scoped(RunningCall, wanted)[:MAX_LOOKED]
    fitting = [row for row in rows if wanted.fits(row)][:MAX_RUNNING]
    return [row for row in fitting if known.get(row.pk) != row.status]


def _newest(wanted: Wanted) -> tuple[list[Call], bool]:
    rows = _scoped(Call, wanted)
    if wanted.tenant and wanted.tool:
        # An index covers exactly these filters, so matches of any age are found.
        rows = rows.filter(tool_name=wanted.tool)
    elif wanted.tenant and wanted.outcome not in ("", Outcome.OK):
        # The second condition is that of the partial index: SQLite does not conclude it from the first.
        rows = rows.filter(outcome=wanted.outcome).exclude(outcome=Outcome.OK)
    found = list(rows[:MAX_LOOKED])
    return found, len(found) == MAX_LOOKED and sum(map(wanted.fits, found)) < MAX_SHOWN


def _since(wanted: Wanted, since: datetime) -> tuple[list[Call], bool]:
    rows = _scoped(Call, wanted).filter(finished_at__gte=since - LAG)
    began = since - LOOK_BACK
    rows = rows.filter(started_at__gte=began) if wanted.tenant else rows.filter(id__gte=least_id(began))
    found = list(rows[:MAX_LOOKED])
    return found, len(found) == MAX_LOOKED


def _scoped(model: Any, wanted: Wanted) -> "QuerySet[Any]":
    """Return the rows newest first, ordered to use an index: one begins with the tenant, and ids increase with time."""
    state_fields = SETTLED if model is Call else RUNNING
    rows: QuerySet[Any] = model.objects.select_related("tenant", "api_key").only(*FACTS, *state_fields)
    return rows.filter(tenant=wanted.tenant).order_by("-started_at") if wanted.tenant else rows.order_by("-id")


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
