"""What is new among calls: those that run, and those that ended since somebody looked.

A record is written when its call ends, under an id that was made when it began. So whoever looks sends along the calls
that it saw running, and is told how they ended; what began and ended since its last look is found among the newest
ids. Every query reads the end of an index and a bounded number of rows: never the log.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone

from tools_app.models import Call, CallStatus, Outcome, RunningCall
from tools_app.models.ids import least_id

MOST_SHOWN: Final = 200
# How many of the newest calls are looked through for those that a filter wants.
MOST_LOOKED: Final = 1_000
MOST_RUNNING: Final = 100
# How much earlier than the last look a call may have begun that nobody saw running.
LOOK_BACK: Final = timedelta(seconds=15)
# How long a record may be on its way into the database, and how far the clocks of two hosts may be apart.
LAG: Final = timedelta(seconds=3)
# Whoever looked so long ago begins anew.
LONGEST_AWAY: Final = timedelta(seconds=60)
ANONYMOUS: Final = "anonymous"
LONGEST_CURSOR: Final = 13
# The columns that are shown or compared: a thousand whole rows take long to build.
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
    """Which calls somebody wants to see. `tenants` are all that may be seen, None for every tenant and for none."""

    tenants: frozenset[UUID] | None
    tool: str = ""
    key: str = ""
    outcome: str = ""
    client: str = ""

    @property
    def tenant(self) -> UUID | None:
        """The one tenant that it is about."""
        return next(iter(self.tenants)) if self.tenants is not None and len(self.tenants) == 1 else None

    def fits(self, call: Call | RunningCall) -> bool:
        """Whether a call is wanted. One that runs has no outcome yet: whoever wants one will want it at its end."""
        return (
            (self.tenants is None or call.tenant_id in self.tenants)
            and (not self.tool or call.tool_name == self.tool)
            and (not self.key or self.key == _key_of(call))
            and (not self.client or self.client.lower() in call.client_name.lower())
            and (not self.outcome or isinstance(call, RunningCall) or call.outcome == self.outcome)
        )


@dataclass(frozen=True)
class News:
    """What is new. `over` are known calls that have ended, whether wanted or not. `is_partial`: there may be more that
    fits than was looked at.
    """

    settled: list[Call]
    running: list[RunningCall]
    over: list[UUID]
    is_partial: bool


def news(wanted: Wanted, since: datetime | None, known: Mapping[UUID, str]) -> News:
    """Calls that are new since `since`, or the newest, and what became of the `known` ones, given by their status."""
    # Those that run are read first: one that ends in between is found among the settled.
    running = _running(wanted, known)
    ended = list(_scoped(Call, wanted).filter(pk__in=list(known)[:MOST_RUNNING]))
    found, is_partial = _newest(wanted) if since is None else _since(wanted, since)
    settled = {call.pk: call for call in (*found, *ended) if wanted.fits(call)}
    newest = sorted(settled.values(), key=lambda call: call.pk, reverse=True)
    return News(newest[:MOST_SHOWN], running, [call.pk for call in ended], is_partial)


def lately(moment: datetime | None) -> datetime | None:
    """When somebody looked last; None if that is too long ago to tell all that happened since."""
    return moment if moment and abs(timezone.now() - moment) <= LONGEST_AWAY else None


def _running(wanted: Wanted, known: Mapping[UUID, str]) -> list[RunningCall]:
    """The newest calls that run, without those of which nothing changed."""
    rows = _scoped(RunningCall, wanted)[:MOST_LOOKED]
    fitting = [row for row in rows if wanted.fits(row)][:MOST_RUNNING]
    return [row for row in fitting if known.get(row.pk) != row.status]


def _newest(wanted: Wanted) -> tuple[list[Call], bool]:
    rows = _scoped(Call, wanted)
    if wanted.tenant and wanted.tool:
        # An index has just these: they are found however long ago they were.
        rows = rows.filter(tool_name=wanted.tool)
    elif wanted.tenant and wanted.outcome not in ("", Outcome.OK):
        rows = rows.filter(outcome=wanted.outcome)
    found = list(rows[:MOST_LOOKED])
    return found, len(found) == MOST_LOOKED and sum(map(wanted.fits, found)) < MOST_SHOWN


def _since(wanted: Wanted, since: datetime) -> tuple[list[Call], bool]:
    rows = _scoped(Call, wanted).filter(finished_at__gte=since - LAG)
    began = since - LOOK_BACK
    rows = rows.filter(started_at__gte=began) if wanted.tenant else rows.filter(id__gte=least_id(began))
    found = list(rows[:MOST_LOOKED])
    return found, len(found) == MOST_LOOKED


def _scoped(model: Any, wanted: Wanted) -> "QuerySet[Any]":
    """Newest first, by the index at hand: one begins with the tenant, and ids grow with time."""
    own = SETTLED if model is Call else RUNNING
    rows: QuerySet[Any] = model.objects.select_related("tenant", "api_key").only(*FACTS, *own)
    return rows.filter(tenant=wanted.tenant).order_by("-started_at") if wanted.tenant else rows.order_by("-id")


def _key_of(call: Call | RunningCall) -> str:
    if call.api_key_id is None:
        return ANONYMOUS if call.tenant_id else ""
    return str(call.api_key_id)


def known_of(text: str) -> dict[UUID, str]:
    """Calls that somebody saw running, as `mark_of` wrote them, with commas between. What is no mark is left out."""
    return dict(_known(text.split(",")[:MOST_RUNNING]))


def mark_of(call: RunningCall) -> str:
    """A call that runs and its status, in few characters."""
    return f"{call.status[0]}{call.pk.hex}"


def _known(marks: Iterable[str]) -> Iterable[tuple[UUID, str]]:
    statuses = {status.value[0]: status.value for status in CallStatus}
    for mark in marks:
        try:
            yield UUID(mark[1:]), statuses[mark[0]]
        except (ValueError, KeyError, IndexError):
            continue


def cursor_of(moment: datetime) -> str:
    """A moment as whoever looks sends it back."""
    return str((moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))


def moment_of(cursor: str) -> datetime | None:
    """The moment of a cursor; None for what is none."""
    if not cursor.isdecimal() or len(cursor) > LONGEST_CURSOR:
        return None
    return datetime.fromtimestamp(int(cursor) / 1000, UTC)
