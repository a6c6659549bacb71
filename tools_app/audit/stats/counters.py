"""Figures of finished calls, which the recorder adds to `CallFigures` in the transaction of their records.

On the hot path, so most is done once for all similar calls of a batch. What clients choose, names above all, is
bounded: a flood of names must not become a flood of rows.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from tools_app.audit.models import DURATION_BOUNDS_US, DURATION_COLUMNS
from tools_app.audit.recorder.entries import CallFinished
from tools_app.models import Outcome

NIL: Final = UUID(int=0)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SECONDS: Final = 300
PERIOD: Final = timedelta(seconds=SECONDS)

KIND_COLUMNS: Final = ("tenant_id", "begins_at", "seconds", "writer", "tool_name", "api_key_id", "client_name")
NUMBER_COLUMNS: Final = ("calls", "errors", "denials", "took_us", *DURATION_COLUMNS)
COLUMNS: Final = KIND_COLUMNS + NUMBER_COLUMNS
CALLS, ERRORS, DENIALS, TOOK_US, CLASSES = range(5)

DENIED: Final = Outcome.DENIED.value
# Cancellations and requests for more input are not errors.
FAILED: Final = frozenset(
    outcome.value
    for outcome in (
        Outcome.TOOL_ERROR,
        Outcome.REJECTED,
        Outcome.TIMEOUT,
        Outcome.NOT_STARTED,
        Outcome.LOST,
        Outcome.INTERRUPTED,
    )
)
# With any other outcome, the tool has been found by its name.
NOT_FOUND: Final = frozenset({DENIED, Outcome.REJECTED.value})

CLIENT_LENGTH: Final = 60
MAX_CLIENTS: Final = 50
MAX_NAMES: Final = 500

Numbers = list[int]
# Tenant, start of the period, name of the tool, key, and client.
Kind = tuple[UUID, datetime, str, UUID, str]


def period_of(moment: datetime, seconds: int = SECONDS) -> datetime:
    """Return the start of the period of a moment; periods start at multiples of their length, in UTC."""
    return moment - (moment - EPOCH) % timedelta(seconds=seconds)


class Names:
    """The names of tools and clients that have their own rows, by tenant and period; the rest share the empty name."""

    def __init__(self) -> None:
        self._newest = EPOCH
        self._known: dict[tuple[UUID, datetime | None], tuple[set[str], set[str]]] = {}

    def bounded(self, tenant_id: UUID, begins_at: datetime, tool_name: str, client_name: str) -> tuple[str, str]:
        """Return the names of tool and client under which a call is counted."""
        if begins_at > self._newest:
            self._rotate(begins_at)
        # Earlier calls share one set of names, because names are not stored for each past period.
        recent = begins_at if begins_at >= self._newest - PERIOD else None
        tools, clients = self._known.setdefault((tenant_id, recent), (set(), set()))
        client_name = client_name[:CLIENT_LENGTH]
        return (
            tool_name if tool_name in tools else _admitted(tool_name, tools, MAX_NAMES),
            client_name if client_name in clients else _admitted(client_name, clients, MAX_CLIENTS),
        )

    def _rotate(self, begins_at: datetime) -> None:
        self._newest = begins_at
        oldest = begins_at - PERIOD
        self._known = {key: names for key, names in self._known.items() if key[1] is not None and key[1] >= oldest}


def _admitted(name: str, known: set[str], most: int) -> str:
    """Return a new name, or the empty one if there are too many."""
    if len(known) >= most:
        return ""
    known.add(name)
    return name


def numbers_of(endings: Iterable[CallFinished], names: Names) -> dict[Kind, Numbers]:
    """Return what `endings` add to the figures of their kinds, in periods of SECONDS."""
    current = period_of(datetime.now(UTC))
    alike: defaultdict[tuple[Any, ...], list[CallFinished]] = defaultdict(list)
    for entry in endings:
        facts, began = entry.facts, entry.facts.started_at
        # Python object ids: a UUID takes ten times as long to look up, and the batch keeps the objects alive.
        alike[
            id(facts.tenant_id),
            facts.tool_name,
            id(facts.api_key_id),
            facts.client_name,
            entry.row.outcome,
            facts.tool_id is None,
            current if began >= current else period_of(began),
        ].append(entry)
    totals: dict[Kind, Numbers] = {}
    for (_, tool_name, _, client_name, outcome, anonymous, begins_at), group in alike.items():
        facts = group[0].facts
        tenant_id = facts.tenant_id or NIL
        found = "" if anonymous and outcome in NOT_FOUND else tool_name
        tool, client = names.bounded(tenant_id, begins_at, found, client_name)
        kind = tenant_id, begins_at, tool, facts.api_key_id or NIL, client
        numbers = totals.setdefault(kind, [0] * len(NUMBER_COLUMNS))
        if outcome == DENIED:
            numbers[DENIALS] += sum([entry.row.repeated for entry in group])
            continue
        numbers[CALLS] += len(group)
        if outcome in FAILED:
            numbers[ERRORS] += len(group)
        durations = [entry.row.duration_us for entry in group]
        numbers[TOOK_US] += sum(durations)
        for duration in durations:
            numbers[CLASSES + bisect_left(DURATION_BOUNDS_US, duration)] += 1
    return totals


def add_to(total: dict[Kind, Numbers], kind: Kind, numbers: Sequence[int]) -> None:
    """Add the numbers of a kind to those in `total`."""
    held = total.setdefault(kind, [0] * len(NUMBER_COLUMNS))
    for number, value in enumerate(numbers):
        held[number] += value


_names = Names()


def rows_of(endings: Sequence[CallFinished]) -> list[Sequence[Any]]:
    """Return the rows, in the order of COLUMNS, that a batch of at least one adds to those of its process.

    A batch is written by one process, and the rows of a process are not shared, so it waits for no other process.
    """
    writer, figures = endings[0].row.writer, numbers_of(endings, _names)
    return [(*kind[:2], SECONDS, writer, *kind[2:], *numbers) for kind, numbers in figures.items()]
