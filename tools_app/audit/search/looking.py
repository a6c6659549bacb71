"""The statements of a search: each looks at so many calls and says which of them are wanted.

Arguments, results and causes are looked into by the database. Packed ones come along with what is wanted, and are
looked into here.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.db import connection, transaction
from django.db.models import BigIntegerField, BinaryField, Case, F, Func, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Cast
from django.db.models.lookups import Contains

from tools_app.audit.search.marks import Mark
from tools_app.audit.search.plan import Plan
from tools_app.models import Call, CallPayload
from tools_app.models.packing import NotPacked, unpack

# What a call's search comes to: nothing, no bytes for a call that is wanted, or packed texts on which it depends.
YES: Final = Value(b"", output_field=BinaryField())
NO: Final = Value(None, output_field=BinaryField())
FOLD: Final = "hub_upper"

# Of the calls that a statement looks at, those that are wanted come back, and the last one.
WANTED: Final = """
SELECT found_at, found_id, found, number FROM (
    SELECT looked.*, row_number() OVER (ORDER BY {order}) AS number, count(*) OVER () AS "all" FROM ({looked}) looked
) numbered WHERE found IS NOT NULL OR number = "all" ORDER BY number
"""
TABLE: Final = f'"{Call._meta.db_table}"'
FROM: Final = f" FROM {TABLE}"
# Of a call, what a search may ask for.
COLUMNS: Final = (
    *("id", "tenant_id", "api_key_id", "session_id", "tool_name", "method", "request_id", "client_name"),
    *("remote_address", "trace_id", "started_at", "duration_us", "outcome", "arguments_size", "result_size", "cause"),
)
# Calls are walked in the order of an index: a bitmap would have all of them read and sorted for the first fifty.
LIMITS: Final = "SELECT set_config('statement_timeout', %s, true), set_config('enable_bitmapscan', 'off', true)"
COUNTED: Final = "SELECT count(*), count(found) FROM ({looked}) looked"


class Look(NamedTuple):
    """What a statement came to: which calls are wanted, of how many, where it ended, and the packed bytes it read."""

    found: list[Mark]
    searched: int
    last: Mark | None
    packed_bytes: int


class Upper(Func):
    """A text without the difference of upper and lower case."""

    function = "UPPER"

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """SQLite's own knows ASCII only."""
        return self.as_sql(compiler, connection, function=FOLD, **context)


def look(plan: Plan, start: Mark | None, most: int, *, newer: bool = False) -> Look:
    """Look at the first `most` calls that are older than `start`, or at the last ones that are newer."""
    if not plan.arms:
        return Look([], 0, None, 0)
    sql, params = _looked(plan, start, most, newer=newer)
    order = "found_id {0}" if plan.by_id else "found_at {0}, found_id {0}"
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            connection.connection.create_function(FOLD, 1, _upper, deterministic=True)
        cursor.execute(WANTED.format(order=order.format("ASC" if newer else "DESC"), looked=sql), params)
        return _read(cursor.fetchall(), plan.text)


def count(plan: Plan, most: int) -> int | None:
    """How many calls are wanted, if there are fewer than `most` to look at. Not for texts."""
    if not plan.arms:
        return 0
    sql, params = _looked(plan, None, most, newer=False)
    with connection.cursor() as cursor:
        cursor.execute(COUNTED.format(looked=sql), params)
        searched, found = cursor.fetchone()
    return found if searched < most else None


@contextmanager
def guarded(seconds: float) -> Iterator[None]:
    """Let no statement take longer, where the database can be told so: it raises OperationalError then."""
    if connection.vendor != "postgresql":
        yield
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(LIMITS, [str(int(seconds * 1000))])
        yield


def _looked(plan: Plan, start: Mark | None, most: int, *, newer: bool) -> tuple[str, tuple[Any, ...]]:
    """The statement that says of the calls along the way what is known of each."""
    rows = Call.objects.order_by().annotate(
        size=Cast("arguments_size", BigIntegerField()) + F("result_size"), found_at=F("started_at"), found_id=F("pk")
    )
    sql, params = rows.annotate(found=_found(plan)).values_list("found_at", "found_id", "found").query.sql_with_params()
    way, along = _way(plan, start, most, newer=newer).query.sql_with_params()
    # The rest is asked of no more calls than these, wherever the planner would begin. Params of columns come first.
    return sql.replace(FROM, f" FROM ({way}) {TABLE}", 1), (*params, *along)


def _way(plan: Plan, start: Mark | None, most: int, *, newer: bool) -> "QuerySet[Call, Any]":
    beyond = _beyond(plan, start, newer=newer)
    arms = [Call.objects.order_by().filter(way & beyond).values_list(*COLUMNS) for way in plan.arms]
    if len(arms) == 1 or connection.features.supports_slicing_ordering_in_compound:
        # Each by its index; sorted together, PostgreSQL would read them to their ends.
        arms = [arm.order_by(*_order(plan, newer=newer))[:most] for arm in arms]
    if len(arms) == 1:
        return arms[0]
    return arms[0].union(*arms[1:], all=True).order_by(*_order(plan, newer=newer))[:most]


def _order(plan: Plan, *, newer: bool) -> list[str]:
    names = ["id"] if plan.by_id else ["started_at", "id"]
    return names if newer else [f"-{name}" for name in names]


def _beyond(plan: Plan, start: Mark | None, *, newer: bool) -> Q:
    if start is None:
        return Q()
    side = "gt" if newer else "lt"
    beside = Q(**{f"pk__{side}": start.id})
    if plan.by_id:
        return beside
    # The first condition is for the index.
    return Q(**{f"started_at__{side}e": start.at}) & (Q(**{f"started_at__{side}": start.at}) | beside)


def _found(plan: Plan) -> Any:
    """What is known of one call: YES, NO, or packed texts."""
    if not plan.text:
        return Case(When(plan.asked, then=YES), default=NO) if plan.asked else YES
    # A subquery for one value is run call by call; another one might be run for all calls that there are.
    payload = CallPayload.objects.filter(call_id=OuterRef("pk"))
    texts = _contains(plan.text, "arguments", "result")
    inside = Case(When(packed__isnull=False, then=F("packed")), When(texts, then=YES), default=NO)
    said = Case(
        When(_contains(plan.text, "cause"), then=YES),
        default=Subquery(payload.values(inside=inside)[:1]),
        output_field=BinaryField(),
    )
    return Case(When(plan.asked, then=said), default=NO) if plan.asked else said


def _contains(text: str, *columns: str) -> Q:
    spellings = [Upper(Value(spelling)) for spelling in sorted(spellings_of(text))]
    return reduce(or_, (Q(Contains(Upper(F(column)), spelling)) for column in columns for spelling in spellings))


def spellings_of(text: str) -> set[str]:
    """A text as it is, and as it is written within JSON."""
    return {text, orjson.dumps(text).decode()[1:-1]}


def _read(rows: Iterable[tuple[Any, Any, Any, int]], text: str) -> Look:
    found, searched, last, packed_bytes = [], 0, None, 0
    for at, id, packed, number in rows:
        searched = number
        last = Mark(_moment(at), id if isinstance(id, UUID) else UUID(id))
        packed_bytes += len(packed or b"")
        if packed is not None and (not packed or _inside(bytes(packed), text)):
            found.append(last)
    return Look(found, searched, last, packed_bytes)


def _inside(packed: bytes, text: str) -> bool:
    try:
        both = "\n".join(unpack(packed)).upper()
    except NotPacked:
        return False
    return any(spelling.upper() in both for spelling in spellings_of(text))


def _moment(stored: Any) -> datetime:
    """A moment as the database's own driver gives it: SQLite has UTC without saying so, and texts once it computed."""
    moment = stored if isinstance(stored, datetime) else datetime.fromisoformat(stored)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _upper(text: str | None) -> str | None:
    return None if text is None else text.upper()
