"""Figures of the calls that end: what the recorder adds to `CallFigures` in the transaction of their records.

Every call comes by here, so most is done once for all calls of a batch that are alike. What clients choose, names above
all, is bounded: a flood of names must not become a flood of rows.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from tools_app.audit.entries import Ending
from tools_app.models import Outcome
from tools_app.models.figures import DURATION_BOUNDS_US, DURATION_COLUMNS

NIL: Final = UUID(int=0)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SECONDS: Final = 300
PERIOD: Final = timedelta(seconds=SECONDS)

KIND_COLUMNS: Final = ("tenant_id", "begins_at", "seconds", "writer", "tool_name", "api_key_id", "client_name")
NUMBER_COLUMNS: Final = ("calls", "errors", "denials", "took_us", *DURATION_COLUMNS)
COLUMNS: Final = KIND_COLUMNS + NUMBER_COLUMNS
CALLS, ERRORS, DENIALS, TOOK_US, CLASSES = range(5)

DENIED: Final = Outcome.DENIED.value
# A client that cancels, or is asked for more, found nothing wrong.
FAILED: Final = frozenset(
    outcome.value
    for outcome in (Outcome.TOOL_ERROR, Outcome.REJECTED, Outcome.TIMEOUT, Outcome.LOST, Outcome.INTERRUPTED)
)
# Whatever ends otherwise has been found by its name.
NOT_FOUND: Final = frozenset({DENIED, Outcome.REJECTED.value})

CLIENT_LENGTH: Final = 60
MOST_CLIENTS: Final = 50
MOST_NAMES: Final = 500

Numbers = list[int]
# Tenant, begin of the period, name of the tool, key, and client.
Kind = tuple[UUID, datetime, str, UUID, str]


def period_of(moment: datetime, seconds: int = SECONDS) -> datetime:
    """The begin of the period in which a moment lies; periods begin at multiples of their length, in UTC."""
    return moment - (moment - EPOCH) % timedelta(seconds=seconds)


class Names:
    """Which names of tools and clients have rows of their own, by tenant and period; the rest share the empty one."""

    def __init__(self) -> None:
        self._newest = EPOCH
        self._known: dict[tuple[UUID, datetime | None], tuple[set[str], set[str]]] = {}

    def bounded(self, tenant_id: UUID, begins_at: datetime, tool_name: str, client_name: str) -> tuple[str, str]:
        """The names of tool and client under which a call counts."""
        if begins_at > self._newest:
            self._turn(begins_at)
        # Calls that began earlier share what is left of their names: nobody remembers them for each period.
        recent = begins_at if begins_at >= self._newest - PERIOD else None
        tools, clients = self._known.setdefault((tenant_id, recent), (set(), set()))
        return _admitted(tool_name, tools, MOST_NAMES), _admitted(client_name[:CLIENT_LENGTH], clients, MOST_CLIENTS)

    def _turn(self, begins_at: datetime) -> None:
        self._newest = begins_at
        kept = begins_at - PERIOD
        self._known = {key: names for key, names in self._known.items() if key[1] is not None and key[1] >= kept}


def _admitted(name: str, known: set[str], most: int) -> str:
    if name in known:
        return name
    if len(known) >= most:
        return ""
    known.add(name)
    return name


def numbers_of(endings: Iterable[Ending], names: Names) -> dict[Kind, Numbers]:
    """What `endings` add to the figures of their kinds, in periods of SECONDS."""
    current = period_of(datetime.now(UTC))
    alike: defaultdict[tuple[Any, ...], list[Ending]] = defaultdict(list)
    for entry in endings:
        facts, began = entry.facts, entry.facts.started_at
        # The ids of Python: a UUID takes ten times as long to look up, and the batch keeps its own alive.
        alike[
            id(facts.tenant_id),
            facts.tool_name,
            id(facts.api_key_id),
            facts.client_name,
            entry.ended.outcome,
            facts.tool_id is None,
            current if began >= current else period_of(began),
        ].append(entry)
    made: defaultdict[Kind, Numbers] = defaultdict(_nothing)
    for (_, tool_name, _, client_name, outcome, anonymous, begins_at), group in alike.items():
        facts = group[0].facts
        tenant_id = facts.tenant_id or NIL
        found = "" if anonymous and outcome in NOT_FOUND else tool_name
        tool, client = names.bounded(tenant_id, begins_at, found, client_name)
        _add(made[tenant_id, begins_at, tool, facts.api_key_id or NIL, client], outcome, group)
    return made


def add_to(total: dict[Kind, Numbers], kind: Kind, numbers: Sequence[int]) -> None:
    """Add the numbers of a kind to those in `total`."""
    held = total.setdefault(kind, _nothing())
    for number, value in enumerate(numbers):
        held[number] += value


def _nothing() -> Numbers:
    return [0] * len(NUMBER_COLUMNS)


def _add(numbers: Numbers, outcome: str, group: list[Ending]) -> None:
    """Add calls that ended in the same way."""
    if outcome == DENIED:
        numbers[DENIALS] += sum([entry.ended.repeated for entry in group])
        return
    numbers[CALLS] += len(group)
    if outcome in FAILED:
        numbers[ERRORS] += len(group)
    durations = [entry.ended.duration_us for entry in group]
    numbers[TOOK_US] += sum(durations)
    for duration in durations:
        numbers[CLASSES + bisect_left(DURATION_BOUNDS_US, duration)] += 1


_names = Names()


def rows_of(endings: Sequence[Ending]) -> list[Sequence[Any]]:
    """The rows, in the order of COLUMNS, that a batch adds to those of its process.

    All of a batch is written by one process: the rows of a process are its own, and it waits for nobody.
    """
    if not endings:
        return []
    writer = endings[0].ended.writer
    return as_rows(numbers_of(endings, _names), SECONDS, writer)


def as_rows(numbers: dict[Kind, Numbers], seconds: int, writer: UUID) -> list[Sequence[Any]]:
    """Figures as rows in the order of COLUMNS."""
    return [(kind[0], kind[1], seconds, writer, *kind[2:], *added) for kind, added in numbers.items()]
