"""What the admin's first page says: how a person's tenants did in the last day, and what they still lack."""

from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Exists, OuterRef, Q, Sum
from django.utils import timezone

from tools_app.auth import access
from tools_app.models import ApiKey, Call, Outcome, RunningCall, Tenant, Tool

PERIOD = timedelta(hours=24)
MOST_TENANTS = 10


@dataclass(frozen=True)
class OutcomeCount:
    """How many calls of the period ended in one way."""

    outcome: str
    label: str
    count: int


@dataclass(frozen=True)
class FirstSteps:
    """What a tenant needs before a client can do anything with it."""

    tenant: Tenant
    needs_tool: bool
    needs_key: bool


@dataclass(frozen=True)
class Overview:
    """The figures of the first page."""

    outcomes: list[OutcomeCount]
    running: int
    active_keys: int
    enabled_tools: int
    first_steps: list[FirstSteps]

    @property
    def calls(self) -> int:
        """All calls of the period, denials included."""
        return sum(outcome.count for outcome in self.outcomes)


def overview_for(person: access.Person) -> Overview:
    """The figures over all tenants that `person` may read."""
    return Overview(
        outcomes=_outcomes(person),
        running=access.rows_seen_by(person, RunningCall.objects.all()).count(),
        active_keys=access.rows_seen_by(person, ApiKey.objects.filter(active_keys())).count(),
        enabled_tools=access.rows_seen_by(person, Tool.objects.filter(enabled=True)).count(),
        first_steps=_first_steps(person),
    )


def active_keys() -> Q:
    """Keys that open the door now."""
    return Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=timezone.now()))


def _outcomes(person: access.Person) -> list[OutcomeCount]:
    recent = access.rows_seen_by(person, Call.objects.filter(started_at__gte=timezone.now() - PERIOD))
    counts = recent.order_by().values_list("outcome").annotate(Sum("repeated"))
    return [OutcomeCount(name, Outcome(name).label, count) for name, count in sorted(counts, key=lambda row: -row[1])]


def _first_steps(person: access.Person) -> list[FirstSteps]:
    tools = Exists(Tool.objects.filter(tenant=OuterRef("pk")))
    keys = Exists(ApiKey.objects.filter(tenant=OuterRef("pk"), revoked_at=None))
    lacking = access.tenants_run_by(person).annotate(has_tool=tools, has_key=keys)
    lacking = lacking.filter(Q(has_tool=False) | Q(has_key=False))[:MOST_TENANTS]
    return [FirstSteps(tenant, not tenant.has_tool, not tenant.has_key) for tenant in lacking]
