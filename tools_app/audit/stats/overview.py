"""Overviews of the calls of a period, read from their figures: a few aggregates, however many calls there were."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet, Sum

from tools_app.audit.models import DURATION_BOUNDS_US
from tools_app.audit.stats import storage
from tools_app.audit.stats.counters import (
    CALLS,
    CLASSES,
    DENIALS,
    ERRORS,
    NIL,
    NUMBER_COLUMNS,
    TOOK_US,
    Numbers,
    period_of,
)
from tools_app.models import CallFigures, Tenant

MAX_ROWS: Final = 10
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
SUMS: Final = {f"sum_{name}": Sum(name) for name in NUMBER_COLUMNS}


@dataclass(frozen=True)
class Period:
    """A period up to now, divided into points."""

    name: str
    title: str
    step: timedelta
    count: int

    @property
    def length(self) -> timedelta:
        """The length of the period."""
        return self.step * self.count

    def points(self, now: datetime, zone: tzinfo = UTC) -> list[datetime]:
        """Return the starts of its points in UTC. Days start in `zone`, shorter steps with the periods of figures."""
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


class CallStatistics:
    """The sums of the figures of some calls."""

    def __init__(self, numbers: Sequence[int] | None = None) -> None:
        self._numbers: Numbers = [0] * len(NUMBER_COLUMNS)
        if numbers is not None:
            self.add(numbers)

    def add(self, numbers: Iterable[Any]) -> None:
        """Add the numbers of a row, in the order of NUMBER_COLUMNS."""
        self._numbers = [held + int(more or 0) for held, more in zip(self._numbers, numbers, strict=True)]

    @property
    def calls(self) -> int:
        """The number of calls that were admitted."""
        return self._numbers[CALLS]

    @property
    def errors(self) -> int:
        """The number of calls that failed."""
        return self._numbers[ERRORS]

    @property
    def denials(self) -> int:
        """The number of denied requests."""
        return self._numbers[DENIALS]

    @property
    def succeeded(self) -> int:
        """The number of calls that did not fail."""
        return max(0, self.calls - self.errors)

    @property
    def error_rate(self) -> float | None:
        """The share of errors among calls; None without calls."""
        return self.errors / self.calls if self.calls else None

    @property
    def mean_us(self) -> float | None:
        """The mean duration of a call in microseconds; None without calls."""
        return self._numbers[TOOK_US] / self.calls if self.calls else None

    @property
    def p50_us(self) -> float | None:
        """The median duration in microseconds."""
        return percentile(self._numbers[CLASSES:], 0.5)

    @property
    def p95_us(self) -> float | None:
        """The 95th percentile of the duration in microseconds."""
        return percentile(self._numbers[CLASSES:], 0.95)


def percentile(counts: Sequence[int], share: float) -> float | None:
    """Return a percentile of durations in microseconds, interpolated within its class; None without durations.

    For the last class, which has no upper bound, it is the lower bound.
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
    """The calls that started in one part of a period."""

    begins_at: datetime
    statistics: CallStatistics


@dataclass(frozen=True)
class Row:
    """The calls with one name or key; `name` is empty for all without one."""

    name: str
    statistics: CallStatistics


@dataclass(frozen=True)
class OverviewQuery:
    """The filter of an overview: `tenants` are those in scope, None for all; the rest narrows it down."""

    period: Period
    tenants: Iterable[UUID] | QuerySet[Tenant] | None
    tool_name: str | None = None
    api_key_id: UUID | None = None
    client_name: str | None = None


@dataclass(frozen=True)
class Overview:
    """An overview of the calls of a period; `before`: those of the preceding period of the same length."""

    period: Period
    points: list[Point]
    total: CallStatistics
    before: CallStatistics
    tools: list[Row]
    keys: list[Row]
    clients: list[Row]

    @property
    def is_empty(self) -> bool:
        """Whether there were no calls and denials, in the preceding period either."""
        return not any((self.total.calls, self.total.denials, self.before.calls, self.before.denials))


def overview(query: OverviewQuery, now: datetime, zone: tzinfo = UTC) -> Overview:
    """Return an overview, read with four queries."""
    begins = query.period.points(now, zone)
    points = [Point(begin, CallStatistics()) for begin in begins]
    total, before = CallStatistics(), CallStatistics()
    # As much of the preceding period as has passed of this one.
    before_end = now - (begins[-1] - begins[0]) - query.period.step
    for begins_at, *numbers in _by(_rows(query, begins[0] - query.period.length, now), "begins_at"):
        if begins_at >= begins[0]:
            points[bisect_right(begins, begins_at) - 1].statistics.add(numbers)
            total.add(numbers)
        elif begins_at < before_end:
            before.add(numbers)
    rows = _rows(query, begins[0], now)
    most: list[list[Row]] = []
    for column in ("tool_name", "api_key_id", "client_name"):
        found = _by(rows, column).order_by("-sum_calls", "-sum_denials", column)[:MAX_ROWS]
        most.append([Row("" if name == NIL else str(name), CallStatistics(numbers)) for name, *numbers in found])
    return Overview(query.period, points, total, before, *most)


def _rows(query: OverviewQuery, begin: datetime, now: datetime) -> "QuerySet[CallFigures]":
    # Figures of a process whose clock is a little ahead count, too.
    rows = storage.within(begin, now + HOUR)
    if query.tenants is not None:
        ids: Any = query.tenants
        ids = ids.order_by().values("pk") if isinstance(ids, QuerySet) else list(ids)
        rows = rows.filter(tenant_id__in=ids)
    for column in ("tool_name", "api_key_id", "client_name"):
        wanted = getattr(query, column)
        if wanted is not None:
            rows = rows.filter(**{column: wanted})
    return rows


def _by(rows: "QuerySet[CallFigures]", column: str) -> Any:
    """Return a row of sums for each value of a column, which comes first."""
    return rows.order_by().values(column).annotate(**SUMS).values_list(column, *SUMS)
