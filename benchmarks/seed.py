"""Fills a hub's audit log, inside the hub's own process: copies of one recorded call, spread over months and tenants.

`manage.py shell -c "from benchmarks import seed; seed.calls(1_000_000, 10)"`. The database makes the rows; ids are
UUIDv7 of the moment at which a call is said to have started, as the hub makes them.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import connection
from django.db.models import Model
from django.utils import timezone

from tools_app.audit.partitions import TABLES, Month, attach, attached
from tools_app.models import Call, CallPayload, Tenant

AT_ONCE: Final = 500_000
DAYS: Final = 90
# One call in so many went wrong.
WRONG: Final = 100

# What differs from the copied row, by column.
CHANGED: Final = {
    "id": "new_id",
    "tenant_id": "of_tenant",
    "started_at": "at",
    "finished_at": "at",
    "outcome": f"CASE WHEN i % {WRONG} = 0 THEN 'tool_error' ELSE 'ok' END",
    # No chain was made of these records.
    "chain_position": "NULL",
    "chain_hash": "NULL",
}
# How a database makes rows: each has a number `i`, a moment `at`, an id and a tenant.
ON_POSTGRESQL: Final = """
    generate_series({first}, {last}) AS numbers(i)
    CROSS JOIN LATERAL (SELECT timestamptz '{begin}' + i * interval '{step} microseconds' AS at) AS moments
    CROSS JOIN LATERAL (SELECT md5(i || 'seed') AS noise) AS random
    CROSS JOIN LATERAL (SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0')
        || '7' || left(noise, 3) || 'a' || substr(noise, 4, 15))::uuid AS new_id) AS ids
    CROSS JOIN LATERAL (SELECT (ARRAY[{tenants}]::uuid[])[i % {count} + 1] AS of_tenant) AS owners
"""
ON_SQLITE: Final = """
    (WITH RECURSIVE numbers(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM numbers WHERE i < {last}),
        moments AS (SELECT i, {begin_ms} + i * {step} / 1000 AS ms FROM numbers)
    SELECT i, strftime('%Y-%m-%d %H:%M:%f000', ms / 1000.0, 'unixepoch') AS at,
        printf('%012x7%03xa%015x', ms, i % 4096, i) AS new_id,
        (SELECT value FROM json_each('[{json_tenants}]') WHERE key = i % {count}) AS of_tenant
    FROM moments)
"""


def calls(count: int, tenants: int) -> None:
    """Add `count` calls with their payloads, shared among so many tenants, the newest of them from a moment ago.

    The tenant `bench` is one of them, and has a recorded call.
    """
    copied = Call.objects.filter(outcome="ok").latest("started_at")
    begin = timezone.now() - timedelta(days=DAYS)
    if connection.vendor == "postgresql":
        _make_months(begin)
    ids = [id.hex for id in _tenants(tenants)]
    known: dict[str, str | int] = {
        "begin": begin.isoformat(),
        "begin_ms": int(begin.timestamp() * 1000),
        "step": timedelta(days=DAYS) // timedelta(microseconds=1) // count,
        "tenants": ", ".join(f"'{id}'" for id in ids),
        "json_tenants": ", ".join(f'"{id}"' for id in ids),
        "count": len(ids),
    }
    for first in range(1, count + 1, AT_ONCE):
        _insert(copied, {**known, "first": first, "last": min(first + AT_ONCE - 1, count)})
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE" if connection.vendor == "postgresql" else "ANALYZE")


def _insert(copied: Call, known: Mapping[str, str | int]) -> None:
    """Add the calls `first` to `last`."""
    rows = (ON_POSTGRESQL if connection.vendor == "postgresql" else ON_SQLITE).format_map(known)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET synchronous_commit = off")
        cursor.execute(_copies(Call, "id", copied, rows, CHANGED))
        cursor.execute(_copies(CallPayload, "call_id", copied, rows, {"call_id": "new_id"}))


def _copies(model: type[Model], key: str, copied: Call, rows: str, changed: Mapping[str, str]) -> str:
    """The statement that adds a copy of the one row for each of `rows`."""
    table = model._meta.db_table
    columns = [str(field.column) for field in model._meta.concrete_fields]
    named = ", ".join(f'"{column}"' for column in columns)
    values = ", ".join(changed.get(column, f'copied."{column}"') for column in columns)
    one = f'SELECT * FROM "{table}" WHERE "{key}" = \'{copied.pk.hex}\''
    return f'INSERT INTO "{table}" ({named}) SELECT {values} FROM ({one}) AS copied CROSS JOIN {rows}'


def _tenants(count: int) -> list[UUID]:
    """The tenant that calls belong to, and others: each has as many calls."""
    others = [f"tenant-{number}" for number in range(1, count)]
    for slug in others:
        Tenant.objects.get_or_create(slug=slug, defaults={"name": slug})
    return list(Tenant.objects.filter(slug__in=["bench", *others]).values_list("pk", flat=True))


def _make_months(begin: datetime) -> None:
    """Partitions for the months in which the calls are said to have been."""
    with connection.cursor() as cursor:
        there = attached(cursor)
        month, this = Month.of(begin), Month.of(timezone.now())
        while month < this:
            if month not in there:
                for table in TABLES:
                    attach(cursor, table, month, month.begin)
            month = month.after(1)
