"""The statements of a search: each scans a number of calls and returns those that match.

A `Plan` says which indexes a query uses, and which conditions are checked on each call: conditions that an index serves
select the calls, in one *arm* or in several that are merged, and all others are checked on these. So a statement scans
as many calls as it is told to and no more, however rare the matches are.

The database searches arguments, results and causes. Packed ones are returned with the matches and searched here.
A `PagePosition` is a position in the list of calls, and `BatchSizer` chooses how many calls the next statement scans:
as many as are likely to fill its time.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

import orjson
from django.db import connection, transaction
from django.db.models import BigIntegerField, BinaryField, Case, F, Func, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Cast
from django.db.models.lookups import Contains

from tools_app.audit.search.query import ANONYMOUS, BadQuery, CallQuery, expression, has_stars
from tools_app.audit.search.scope import Scope
from tools_app.core.ids import least_id
from tools_app.core.packing import UnpackError, unpack
from tools_app.models import Call, CallPayload, Outcome, methods_like

# More are not merged: a statement with many arms takes longer to plan than to run.
MAX_ARMS: Final = 30
# An id is created when its call starts, in the same process: the two times never differ by more.
IDS_DIFFER: Final = timedelta(minutes=10)
MILLISECOND_US: Final = 1000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MOMENT, _ID = 8, 16
MAX_TEXT: Final = 64
MAX_UUID: Final = 2**128 - 1


class PagePosition(NamedTuple):
    """A position in the list of calls."""

    at: datetime
    id: UUID

    @classmethod
    def of(cls, call: Call) -> Self:
        """Return the position of a call."""
        return cls(call.started_at, call.pk)

    @classmethod
    def read(cls, cursor: str, name: str) -> Self:
        """Return the position that a cursor names. Raises BadQuery, under the parameter's name, for anything else."""
        try:
            # The decoder drops what follows the end of base64, so the length is checked first.
            both = urlsafe_b64decode(cursor) if cursor.isascii() and len(cursor) <= MAX_TEXT else b""
            if len(both) != _MOMENT + _ID:
                raise ValueError
            at = _EPOCH + int.from_bytes(both[:_MOMENT], "big") * _MICROSECOND
        except (ValueError, OverflowError):
            raise BadQuery({name: "This is no cursor of a list: begin with the newest calls."}) from None
        return cls(at, UUID(bytes=both[_MOMENT:]))

    def beside(self, *, newer: bool) -> Self:
        """Return the adjacent position, from which a search in the other direction finds this call, too."""
        number = self.id.int + (1 if newer else -1)
        return type(self)(self.at, UUID(int=min(max(number, 0), MAX_UUID)))

    @property
    def cursor(self) -> str:
        """The opaque text that `read` accepts."""
        moment = max(0, (self.at - _EPOCH) // _MICROSECOND)
        return urlsafe_b64encode(moment.to_bytes(_MOMENT, "big") + self.id.bytes).decode()


@dataclass(frozen=True)
class Plan:
    """The calls to scan, and the conditions that are checked on each.

    Without arms nothing is found. `by_id`: in the order of ids, which is that of the starts, to the millisecond.
    """

    arms: tuple[Q, ...]
    condition: Q
    by_id: bool
    text: str


def plan_of(query: CallQuery, scope: Scope, now: datetime) -> Plan:
    """Return the plan of a query within a scope."""
    since, condition = query.starts(now), _condition(query)
    if scope.tenants is not None:
        lead, left = _leads(query)
        if len(scope.tenants) * len(lead) <= MAX_ARMS:
            span = _span(since, query.until) & _ids_from(since)
            arms = tuple(Q(tenant_id=tenant) & way & span for tenant in scope.tenants for way in lead)
            return Plan(arms, condition & left, by_id=False, text=query.text)
        condition &= Q(tenant_id__in=scope.tenants)
    lead, left = _leads(query)
    condition &= reduce(or_, lead) & left & _span(since, query.until)
    ids = Q(pk__lt=least_id(query.until + IDS_DIFFER)) if query.until else Q()
    return Plan((_ids_from(since) & ids,), condition, by_id=True, text=query.text)


def _leads(query: CallQuery) -> tuple[list[Q], Q]:
    """Return the conditions that an index serves, one index at a time, and those of them that are only checked."""
    exact = Q(tool_name=query.tool) if query.tool and not has_stars(query.tool) else Q()
    if query.outcome and Outcome.OK not in query.outcome:
        # The second condition is that of the partial index, which contains no others.
        ways = [Q(outcome=outcome) & ~Q(outcome=Outcome.OK) for outcome in query.outcome]
        return ways, exact
    return [exact], Q(outcome__in=query.outcome) if query.outcome else Q()


def _span(since: datetime | None, until: datetime | None) -> Q:
    return (Q(started_at__gte=since) if since else Q()) & (Q(started_at__lte=until) if until else Q())


def _ids_from(since: datetime | None) -> Q:
    return Q(pk__gte=least_id(since - IDS_DIFFER)) if since else Q()


def _condition(query: CallQuery) -> Q:
    ranges: dict[str, int | None] = {
        "duration_us__gte": None if query.duration_min is None else query.duration_min * MILLISECOND_US,
        "duration_us__lte": None if query.duration_max is None else query.duration_max * MILLISECOND_US,
        "size__gte": query.size_min,
        "size__lte": query.size_max,
    }
    condition = Q(**{lookup: value for lookup, value in ranges.items() if value is not None})
    backtracks = connection.vendor == "sqlite"
    if has_stars(query.tool):
        condition &= Q(tool_name__regex=expression(query.tool, backtracks=backtracks))
    if query.key == ANONYMOUS:
        condition &= Q(api_key_id=None, tenant_id__isnull=False)
    elif query.key:
        condition &= Q(api_key_id=UUID(query.key))
    if has_stars(query.address):
        condition &= Q(remote_address__regex=expression(query.address, backtracks=backtracks))
    elif query.address:
        condition &= Q(remote_address=query.address)
    if query.request:
        # Stored as JSON: a string has quotes around it, which people omit.
        condition &= Q(request_id__in=[query.request, f'"{query.request}"'])
    if query.method:
        condition &= Q(method__in=methods_like(query.method))
    plain: dict[str, Any] = {
        "client_name__icontains": query.client,
        "session_id": query.session,
        "trace_id": query.trace,
    }
    return condition & Q(**{lookup: value for lookup, value in plain.items() if value})


# The result for a call: no bytes for a match, NULL for none, or packed texts on which it depends.
MATCH: Final = Value(b"", output_field=BinaryField())
NO_MATCH: Final = Value(None, output_field=BinaryField())
UPPER_FUNCTION: Final = "hub_upper"

# Of the calls that a statement scans, the matches are returned, and the last one.
MATCHES: Final = """
SELECT found_at, found_id, found, number FROM (
    SELECT looked.*, row_number() OVER (ORDER BY {order}) AS number, count(*) OVER () AS "all" FROM ({looked}) looked
) numbered WHERE found IS NOT NULL OR number = "all" ORDER BY number
"""
TABLE: Final = f'"{Call._meta.db_table}"'
FROM: Final = f" FROM {TABLE}"
# The columns of a call that a search may check.
COLUMNS: Final = (
    *("id", "tenant_id", "api_key_id", "session_id", "tool_name", "method", "request_id", "client_name"),
    *("remote_address", "trace_id", "started_at", "duration_us", "outcome", "arguments_size", "result_size", "cause"),
)
# Calls are scanned in index order: a bitmap scan would read and sort all of them for the first fifty.
LIMITS: Final = "SELECT set_config('statement_timeout', %s, true), set_config('enable_bitmapscan', 'off', true)"
COUNTED: Final = "SELECT count(*), count(found) FROM ({looked}) looked"


class ScanResult(NamedTuple):
    """The result of a statement: the matches, how many calls it scanned, the last one, and the packed bytes read."""

    found: list[PagePosition]
    searched: int
    last: PagePosition | None
    packed_bytes: int


class Upper(Func):
    """A text in upper case, for comparison regardless of case."""

    function = "UPPER"

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """SQLite's own function converts ASCII only."""
        return self.as_sql(compiler, connection, function=UPPER_FUNCTION, **context)


def scan(plan: Plan, start: PagePosition | None, most: int, *, newer: bool = False) -> ScanResult:
    """Scan the first `most` calls that are older than `start`, or the last ones that are newer."""
    if not plan.arms:
        return ScanResult([], 0, None, 0)
    sql, params = _scan(plan, start, most, newer=newer)
    order = "found_id {0}" if plan.by_id else "found_at {0}, found_id {0}"
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            connection.connection.create_function(
                UPPER_FUNCTION, 1, lambda text: text and text.upper(), deterministic=True
            )
        cursor.execute(MATCHES.format(order=order.format("ASC" if newer else "DESC"), looked=sql), params)
        return _read(cursor.fetchall(), plan.text)


class Count(NamedTuple):
    """How many calls match; more of them if not all were scanned."""

    found: int
    is_complete: bool


def count(plan: Plan, most: int) -> Count:
    """Return how many of the newest `most` calls match. Not for text searches."""
    if not plan.arms:
        return Count(0, is_complete=True)
    sql, params = _scan(plan, None, most, newer=False)
    with connection.cursor() as cursor:
        cursor.execute(COUNTED.format(looked=sql), params)
        searched, found = cursor.fetchone()
    return Count(found, is_complete=searched < most)


@contextmanager
def guarded(seconds: float) -> Iterator[None]:
    """Limit the duration of each statement, if the database supports it; it raises OperationalError on timeout."""
    if connection.vendor != "postgresql":
        yield
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(LIMITS, [str(int(seconds * 1000))])
        yield


def _scan(plan: Plan, start: PagePosition | None, most: int, *, newer: bool) -> tuple[str, tuple[Any, ...]]:
    """Return the statement that evaluates each call of the plan."""
    rows = Call.objects.order_by().annotate(
        size=Cast("arguments_size", BigIntegerField()) + F("result_size"), found_at=F("started_at"), found_id=F("pk")
    )
    sql, params = rows.annotate(found=_found(plan)).values_list("found_at", "found_id", "found").query.sql_with_params()
    way, along = _direction(plan, start, most, newer=newer).query.sql_with_params()
    # The rest is checked on these calls only, regardless of the planner. Parameters of columns come first.
    return sql.replace(FROM, f" FROM ({way}) {TABLE}", 1), (*params, *along)


def _direction(plan: Plan, start: PagePosition | None, most: int, *, newer: bool) -> "QuerySet[Call, Any]":
    """Return the calls to scan, along the indexes."""
    order = [name if newer else f"-{name}" for name in (["id"] if plan.by_id else ["started_at", "id"])]
    beyond = Q()
    if start is not None:
        side = "gt" if newer else "lt"
        beyond = Q(**{f"pk__{side}": start.id})
        if not plan.by_id:
            # The first condition is for the index.
            beyond = Q(**{f"started_at__{side}e": start.at}) & (Q(**{f"started_at__{side}": start.at}) | beyond)
    arms = [Call.objects.order_by().filter(way & beyond).values_list(*COLUMNS) for way in plan.arms]
    if len(arms) == 1 or connection.features.supports_slicing_ordering_in_compound:
        # Each by its index; sorted together, PostgreSQL would read them to their ends.
        arms = [arm.order_by(*order)[:most] for arm in arms]
    if len(arms) == 1:
        return arms[0]
    return arms[0].union(*arms[1:], all=True).order_by(*order)[:most]


def _found(plan: Plan) -> Any:
    """Return the expression for one call: MATCH, NO_MATCH, or packed texts."""
    if not plan.text:
        return Case(When(plan.condition, then=MATCH), default=NO_MATCH) if plan.condition else MATCH
    # A scalar subquery is run call by call; another one might be run for all existing calls.
    payload = CallPayload.objects.filter(call_id=OuterRef("pk"))
    texts = _contains(plan.text, "arguments", "result")
    inside = Case(When(packed__isnull=False, then=F("packed")), When(texts, then=MATCH), default=NO_MATCH)
    columns = Case(
        When(_contains(plan.text, "cause"), then=MATCH),
        default=Subquery(payload.values(inside=inside)[:1]),
        output_field=BinaryField(),
    )
    return Case(When(plan.condition, then=columns), default=NO_MATCH) if plan.condition else columns


def _contains(text: str, *columns: str) -> Q:
    spellings = [Upper(Value(spelling)) for spelling in sorted(spellings_of(text))]
    return reduce(or_, (Q(Contains(Upper(F(column)), spelling)) for column in columns for spelling in spellings))


def spellings_of(text: str) -> set[str]:
    """Return a text as it is, and as it is escaped in JSON."""
    return {text, orjson.dumps(text).decode()[1:-1]}


def _read(rows: Iterable[tuple[Any, Any, Any, int]], text: str) -> ScanResult:
    found, searched, last, packed_bytes = [], 0, None, 0
    spellings = [spelling.upper() for spelling in spellings_of(text)]
    for at, id, packed, number in rows:
        searched = number
        # SQLite returns UTC without a zone, and computed values as text.
        moment = at if isinstance(at, datetime) else datetime.fromisoformat(at)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        last = PagePosition(moment, id if isinstance(id, UUID) else UUID(id))
        packed_bytes += len(packed or b"")
        texts = ""
        if packed:
            with suppress(UnpackError):
                texts = "\n".join(unpack(bytes(packed))).upper()
        if packed is not None and (not packed or any(spelling in texts for spelling in spellings)):
            found.append(last)
    return ScanResult(found, searched, last, packed_bytes)


FIRST_BATCH: Final = 1_000
MIN_BATCH, MAX_BATCH = 100, 300_000
MAX_PACKED_BYTES: Final = 32 * 1024 * 1024
# The maximum growth over the last batch, which may have been fast because it was in memory.
GROWTH: Final = 20
# Safety factor on the estimated number of calls, where only some of them match.
RESERVE: Final = 1.3


@dataclass
class BatchSizer:
    """The measured speed of a search. `wanted`: how many calls are sufficient."""

    plan: Plan
    wanted: int
    found: int = 0
    searched: int = 0

    @property
    def first(self) -> int:
        """The size of the first batch. If indexes serve the whole query, every call matches."""
        return FIRST_BATCH if self.plan.condition or self.plan.text else self.wanted

    def next(self, look: ScanResult, took: float, seconds: float) -> int:
        """Return how many calls to scan in `seconds`, after a batch that took `took` seconds."""
        self.found += len(look.found)
        self.searched += look.searched
        likely = [look.searched * seconds / max(took, 0.001), look.searched * GROWTH, MAX_BATCH]
        if look.packed_bytes:
            likely.append(look.searched * MAX_PACKED_BYTES / look.packed_bytes)
        if 0 < self.found < self.wanted:
            likely.append((self.wanted - self.found) * self.searched / self.found * RESERVE)
        return max(MIN_BATCH, int(min(likely)))
