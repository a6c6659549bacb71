"""How calls went in a period, read from their figures: a few aggregates, however many calls there were."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet, Sum

from tools_app.audit import figures_kept
from tools_app.audit.figures import CALLS, CLASSES, DENIALS, ERRORS, NIL, NUMBER_COLUMNS, TOOK_US, Numbers, period_of
from tools_app.models import CallFigures, Tenant
from tools_app.models.figures import DURATION_BOUNDS_US

MOST_ROWS: Final = 10
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
SUMS: Final = {f"sum_{name}": Sum(name) for name in NUMBER_COLUMNS}


@dataclass(frozen=True)
class Period:
    """A stretch of time up to now, in so many points."""

    name: str
    title: str
    step: timedelta
    count: int

    @property
    def length(self) -> timedelta:
        """How long it is."""
        return self.step * self.count

    def points(self, now: datetime, zone: tzinfo = UTC) -> list[datetime]:
        """Where its points begin, in UTC. Days begin in the zone, shorter ones where the periods of figures do."""
        backwards = [self.step * back for back in reversed(range(self.count))]
        if self.step < DAY:
            last = period_of(now, int(self.step.total_seconds()))
            return [last - back for back in backwards]
        midnight = now.astimezone(zone).replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0)
        return [(midnight - back).replace(tzinfo=zone).astimezone(UTC) for back in backwards]


PERIODS: Final = {
    period.name: period
    for period in (
        Period("1h", "Last hour", timedelta(minutes=5), 12),
        Period("24h", "Last 24 hours", HOUR, 24),
        Period("7d", "Last 7 days", timedelta(hours=6), 28),
        Period("30d", "Last 30 days", DAY, 30),
    )
}


class Went:
    """How some calls went: sums of their figures."""

    def __init__(self, numbers: Sequence[int] | None = None) -> None:
        self._numbers: Numbers = [0] * len(NUMBER_COLUMNS)
        if numbers is not None:
            self.add(numbers)

    def add(self, numbers: Iterable[Any]) -> None:
        """Add the numbers of a row, in the order of NUMBER_COLUMNS."""
        self._numbers = [held + int(more or 0) for held, more in zip(self._numbers, numbers, strict=True)]

    @property
    def calls(self) -> int:
        """All that were let in."""
        return self._numbers[CALLS]

    @property
    def errors(self) -> int:
        """Those of them that did not end well."""
        return self._numbers[ERRORS]

    @property
    def denials(self) -> int:
        """Requests that were turned away."""
        return self._numbers[DENIALS]

    @property
    def well(self) -> int:
        """Calls without those that did not end well."""
        return max(0, self.calls - self.errors)

    @property
    def error_rate(self) -> float | None:
        """The share of errors among calls, None without any."""
        return self.errors / self.calls if self.calls else None

    @property
    def mean_us(self) -> float | None:
        """How long a call took on average, None without any."""
        return self._numbers[TOOK_US] / self.calls if self.calls else None

    @property
    def p50_us(self) -> float | None:
        """How long it took at most to answer half of the calls, in microseconds."""
        return percentile(self._numbers[CLASSES:], 0.5)

    @property
    def p95_us(self) -> float | None:
        """The same of 95 of 100."""
        return percentile(self._numbers[CLASSES:], 0.95)


def percentile(counts: Sequence[int], share: float) -> float | None:
    """What `share` of the durations do not pass, in microseconds, interpolated within its class; None without any.

    Of the last class, which has no upper bound, nothing more is known than where it begins.
    """
    left: float = sum(counts) * share
    if not left:
        return None
    lower = 0
    for count, upper in zip(counts, DURATION_BOUNDS_US, strict=False):
        if count >= left:
            return float(lower + (upper - lower) * left / count)
        left -= count
        lower = upper
    return float(lower)


@dataclass(frozen=True)
class Point:
    """What began in one part of a period."""

    begins_at: datetime
    went: Went


@dataclass(frozen=True)
class Row:
    """What was called by one name or with one key; `name` is its text, empty or nil for all without one."""

    name: str
    went: Went


@dataclass(frozen=True)
class Asked:
    """What calls an overview is about: `tenants` are those within reach, None for all; the rest narrows it down."""

    period: Period
    tenants: Iterable[UUID] | QuerySet[Tenant] | None
    tool_name: str | None = None
    api_key_id: UUID | None = None
    client_name: str | None = None


@dataclass(frozen=True)
class Overview:
    """How the calls of a period went; `before`: those of the period of the same length before it."""

    period: Period
    points: list[Point]
    total: Went
    before: Went
    tools: list[Row]
    keys: list[Row]
    clients: list[Row]

    @property
    def is_empty(self) -> bool:
        """Whether nothing was asked of the hub, in the period before neither."""
        return not any((self.total.calls, self.total.denials, self.before.calls, self.before.denials))


def overview(asked: Asked, now: datetime, zone: tzinfo = UTC) -> Overview:
    """Read how calls went, with four queries."""
    begins = asked.period.points(now, zone)
    points = [Point(begin, Went()) for begin in begins]
    total, before = Went(), Went()
    # As much of the period before as has passed of this one.
    before_end = now - (begins[-1] - begins[0]) - asked.period.step
    for begins_at, *numbers in _by(_rows(asked, begins[0] - asked.period.length, now), "begins_at"):
        if begins_at >= begins[0]:
            points[bisect_right(begins, begins_at) - 1].went.add(numbers)
            total.add(numbers)
        elif begins_at < before_end:
            before.add(numbers)
    tools, keys, clients = (
        _most(_rows(asked, begins[0], now), column) for column in ("tool_name", "api_key_id", "client_name")
    )
    return Overview(asked.period, points, total, before, tools, keys, clients)


def _rows(asked: Asked, begin: datetime, now: datetime) -> "QuerySet[CallFigures]":
    # A process whose clock is a little ahead counts, too.
    rows = figures_kept.within(begin, now + HOUR)
    if asked.tenants is not None:
        rows = rows.filter(tenant_id__in=_ids(asked.tenants))
    for column in ("tool_name", "api_key_id", "client_name"):
        wanted = getattr(asked, column)
        if wanted is not None:
            rows = rows.filter(**{column: wanted})
    return rows


def _ids(tenants: "Iterable[UUID] | QuerySet[Tenant]") -> Any:
    return tenants.order_by().values("pk") if isinstance(tenants, QuerySet) else list(tenants)


def _by(rows: "QuerySet[CallFigures]", column: str) -> Any:
    """A row of sums for each value of a column, which comes first."""
    return rows.order_by().values(column).annotate(**SUMS).values_list(column, *SUMS)


def _most(rows: "QuerySet[CallFigures]", column: str) -> list[Row]:
    """The names with most calls."""
    found = _by(rows, column).order_by("-sum_calls", "-sum_denials", column)[:MOST_ROWS]
    return [Row("" if name == NIL else str(name), Went(numbers)) for name, *numbers in found]
