"""The tables that the recorder writes, and SQL that databases share."""

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any, Protocol
from uuid import UUID

from django.db import models
from django.db.models import Model

from tools_app.audit.recorder.entries import CALL_COLUMNS, RUNNING_COLUMNS, Answer, EventRow, Payload
from tools_app.audit.stats import counters
from tools_app.models import Call, CallAnswer, CallEvent, CallFigures, CallPayload, CallStatus, RunningCall

Row = Sequence[Any]
Table = tuple[type[Model], Sequence[str]]

RUNNING: Table = (RunningCall, RUNNING_COLUMNS)
CALLS: Table = (Call, CALL_COLUMNS)
PAYLOADS: Table = (CallPayload, Payload._fields)
ANSWERS: Table = (CallAnswer, Answer._fields)
EVENTS: Table = (CallEvent, EventRow._fields)
FIGURES: Table = (CallFigures, counters.COLUMNS)


class Statements(Protocol):
    """The statements that differ between databases. All are called inside one transaction."""

    def insert(self, table: Table, rows: list[Row]) -> None:
        """Add `rows` to `table`."""

    def settle(self, ids: list[UUID], *, only_queued: bool = False) -> set[UUID]:
        """Delete these running calls, or only those still queued, and return the ids of the deleted ones."""

    def add(self, rows: list[Row]) -> None:
        """Add the numbers of `rows`, in the order of `counters.COLUMNS`, to the figures of the same kinds."""

    def flush(self) -> None:
        """Send what is not sent yet, so that this connection can read it. The end of the transaction does so too."""


@cache
def adding_sql() -> str:
    """Return the clause that makes an INSERT of figures add to existing rows."""
    table = CallFigures._meta.db_table
    sums = ", ".join(f'"{name}" = "{table}"."{name}" + excluded."{name}"' for name in counters.NUMBER_COLUMNS)
    return f" ON CONFLICT ({named(counters.KIND_COLUMNS)}) DO UPDATE SET {sums}"


def and_queued(only_queued: bool) -> str:
    """Return the condition that limits running calls to those still queued."""
    return f""" AND "status" = '{CallStatus.QUEUED.value}'""" if only_queued else ""


def named(columns: Iterable[str]) -> str:
    """Return quoted names of columns, separated by commas."""
    return ", ".join(f'"{column}"' for column in columns)


@lru_cache(maxsize=8)
def json_columns(table: Table) -> list[str]:
    """Return the columns whose values are already JSON."""
    model, _ = table
    return [field.attname for field in model._meta.concrete_fields if isinstance(field, models.JSONField)]
