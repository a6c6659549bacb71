"""Failed calls by tool and cause: how many, since when, and how they are spread over a period.

Causes that differ in numbers, ids, addresses and quoted texts only are one cause. Of each outcome the newest failures
are read, up to MAX_READ, by the index of outcomes: in one query for each tenant.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.functions import Left, Right

from tools_app.models import Call, CallPayload, Outcome, Tenant

FAILED: Final = (
    Outcome.TOOL_ERROR,
    Outcome.TIMEOUT,
    Outcome.LOST,
    Outcome.INTERRUPTED,
    Outcome.NOT_STARTED,
    Outcome.REJECTED,
)
MAX_READ: Final = 2_500
# Each costs a query.
MAX_TENANTS: Final = 10
MAX_GROUPS: Final = 200
# The buckets of a sparkline.
BUCKETS: Final = 24
COLUMNS: Final = ("id", "tenant_id", "tool_name", "method", "outcome", "started_at", "head", "tail")
MAX_CAUSE: Final = 200
# The characters of a cause that are read, at its beginning and its end, and of a result where there is no cause.
MAX_PART: Final = 500
MAX_HEAD: Final = 2_000
PAYLOADS_AT_ONCE: Final = 500
DIGEST_LENGTH: Final = 16
TRACEBACK: Final = "Traceback (most recent call last)"
PLACEHOLDER: Final = "…"
# Each alternative begins with another kind of character and repeats one class only: matching takes linear time.
_VARIABLE: Final = re.compile(
    r"\"[^\"]{0,200}\"|'[^']{0,200}'|`[^`]{0,200}`"
    r"|\b[a-z][a-z0-9+.-]{1,20}://[^\s,;)]{1,300}"
    r"|\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b0x[0-9a-f]{1,40}\b|\b[0-9a-f]{16,128}\b|\d{1,40}(?:[.:]\d{1,40}){0,20}",
    re.IGNORECASE,
)


class Failed(NamedTuple):
    """A failed call: `head` and `tail` are the beginning and the end of its cause."""

    id: UUID
    tenant_id: UUID
    tool_name: str
    method: str
    outcome: str
    started_at: datetime
    head: str
    tail: str

    @property
    def line(self) -> str:
        """The line of the cause that says what happened."""
        return cause_line(f"{self.head}\n{self.tail}" if self.head.startswith(TRACEBACK) else self.head)


@dataclass
class Failures:
    """The failures of one tool for one cause. `example` is the newest, `cause` its text without what varies.

    `name` is that of the tool, or the method of a call that has none.
    """

    tenant_id: UUID
    name: str
    is_tool: bool
    outcome: Outcome
    cause: str
    example: str
    example_id: UUID
    first_at: datetime
    last_at: datetime
    count: int = 0
    buckets: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    @property
    def digest(self) -> str:
        """The name of the group in addresses."""
        text = f"{self.tenant_id}|{self.name}|{self.outcome}|{self.cause}"
        return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]

    @property
    def words(self) -> str:
        """The longest piece of the cause that does not vary, to search for; "" if it is too short."""
        piece = max(self.cause.split(PLACEHOLDER), key=len, default="").strip(" :,.;()[]{}")
        return piece if len(piece) >= 4 else ""  # noqa: PLR2004 - a word


@dataclass(frozen=True)
class Report:
    """The groups of a period. `is_partial`: there were more failures than are read."""

    groups: list[Failures]
    read: int
    is_partial: bool


def failures(
    tenants: Sequence[Tenant], audited: Mapping[UUID, bool], since: datetime, until: datetime, tool_name: str = ""
) -> Report:
    """Return the failures of tenants in a period, by group, the latest first.

    `audited` says for each tenant whether causes may be read; where they may not, failures are grouped by outcome.
    """
    most = MAX_READ // max(1, len(tenants))
    calls: list[Failed] = []
    is_partial = False
    for tenant in tenants:
        ended = Call.objects.filter(tenant=tenant, started_at__gte=since, started_at__lt=until)
        found = _newest(ended.filter(tool_name=tool_name) if tool_name else ended, most)
        is_partial = is_partial or most in Counter(call.outcome for call in found).values()
        calls += found
    texts = _results([call.id for call in calls if not call.head and audited[call.tenant_id]])
    groups: dict[tuple[Any, ...], Failures] = {}
    for call in calls:
        text = (call.line or texts.get(call.id, "")) if audited[call.tenant_id] else ""
        _add(groups, call, text, since, until)
    newest = sorted(groups.values(), key=lambda group: group.last_at, reverse=True)
    return Report(newest[:MAX_GROUPS], len(calls), is_partial or len(newest) > MAX_GROUPS)


def group_of(call: Call, *, audited: bool) -> Failures | None:
    """Return the group to which a call belongs, with this call alone; None if it has not failed."""
    if call.outcome not in FAILED or call.tenant_id is None:
        return None
    groups: dict[tuple[Any, ...], Failures] = {}
    head, tail = call.cause[:MAX_PART], call.cause[-MAX_PART:]
    one = Failed(call.pk, call.tenant_id, call.tool_name, call.method, call.outcome, call.started_at, head, tail)
    text = (one.line or _results([call.pk]).get(call.pk, "")) if audited else ""
    _add(groups, one, text, call.started_at, call.started_at + timedelta(seconds=1))
    return next(iter(groups.values()))


def cause_line(text: str) -> str:
    """Return the line of a cause that says what happened: of a traceback the last one, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    return lines[-1] if lines[0].startswith(TRACEBACK) else lines[0]


def normalized(text: str) -> str:
    """Return a cause with what varies replaced, at most MAX_CAUSE characters."""
    return _VARIABLE.sub(PLACEHOLDER, " ".join(text[:MAX_HEAD].split()))[:MAX_CAUSE]


def _newest(ended: "QuerySet[Call]", most: int) -> list[Failed]:
    """Return the newest of the calls that failed, up to `most` of each outcome: each is one range of the index."""
    # The condition of the index has to be in the query: SQLite does not conclude it from another outcome.
    failed = ended.exclude(outcome=Outcome.OK)
    parts = failed.annotate(head=Left("cause", MAX_PART), tail=Right("cause", MAX_PART)).order_by("-started_at")
    arms, params = [], []
    for outcome in FAILED:
        arm, values = parts.filter(outcome=outcome).values(*COLUMNS)[:most].query.sql_with_params()
        # SQLite has no limit within a union, except in a subquery, and PostgreSQL wants its name.
        arms.append(f'SELECT * FROM ({arm}) "{outcome.value}"')  # noqa: S608 - compiled by Django, with parameters
        params += values
    rows = Call.objects.raw(" UNION ALL ".join(arms), params)
    return [Failed(*(getattr(row, name) for name in COLUMNS)) for row in rows]


def _add(groups: dict[tuple[Any, ...], Failures], call: Failed, text: str, since: datetime, until: datetime) -> None:
    cause = normalized(text)
    name = call.tool_name or call.method or "Request"
    key = (call.tenant_id, name, call.outcome, cause)
    group = groups.get(key)
    if group is None:
        outcome = Outcome(call.outcome)
        example = text[:MAX_CAUSE]
        group = Failures(
            call.tenant_id,
            name,
            bool(call.tool_name),
            outcome,
            cause,
            example,
            call.id,
            call.started_at,
            call.started_at,
        )
        groups[key] = group
    elif call.started_at > group.last_at:
        group.example, group.example_id, group.last_at = text[:MAX_CAUSE], call.id, call.started_at
    group.first_at = min(group.first_at, call.started_at)
    group.count += 1
    share = (call.started_at - since) / (until - since)
    group.buckets[min(BUCKETS - 1, max(0, int(share * BUCKETS)))] += 1


def _results(ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return the first text of the results of tools that failed, of those that are not large."""
    found: dict[UUID, str] = {}
    for start in range(0, len(ids), PAYLOADS_AT_ONCE):
        some = CallPayload.objects.filter(pk__in=ids[start : start + PAYLOADS_AT_ONCE], packed=None)
        rows: Iterable[tuple[UUID, str]] = some.annotate(head=Left("result", MAX_HEAD)).values_list("pk", "head")
        for pk, head in rows:
            if match := _TEXT.search(head):
                found[pk] = cause_line(match[1].replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\"))
    return found


_TEXT: Final = re.compile(r'"text":\s?"((?:[^"\\]|\\.){0,2000})')
