"""Attempts to sign in: which steps belong together.

A client and its person's browser come from different addresses, and nothing that they send is the same in all steps. A
step continues the latest attempt of the same client, person, tenant and connection, as far as both are known.
"""

from datetime import timedelta
from typing import Final
from uuid import UUID

from django.utils import timezone

from tools_app.core.ids import new_id
from tools_app.identity.principal import rate_limit_key
from tools_app.models import SignInEvent, SignInStep
from tools_app.tenants.limits import limits
from tools_app.tenants.limits.quotas import ConcurrencyLimit

WITHIN: Final = timedelta(minutes=10)
MAX_STEPS: Final = 200
# Of strangers: to a tenant, to a tenant from one address, and in total, in a minute.
MAX_OF_STRANGERS: Final = 100
MAX_OF_ADDRESS: Final = 50
MAX_OF_ALL_STRANGERS: Final = 1000
MINUTE: Final = 60.0
# Of a connection whose tokens an issuer signs, in an hour.
MAX_OF_CONNECTION: Final = 10
HOUR: Final = 3600.0
# Attempts of their own.
SINGLE: Final = frozenset({SignInStep.CLIENT_SEEN, SignInStep.REFRESHED, SignInStep.REVOKED, SignInStep.REPLAYED})
# A new attempt, if the one before has come so far.
FIRST: Final = frozenset({SignInStep.CHALLENGED, SignInStep.ASKED})
LAST: Final = frozenset({SignInStep.ISSUED, SignInStep.DENIED, SignInStep.REJECTED, *SINGLE} - {SignInStep.CLIENT_SEEN})


def attempt_of(event: SignInEvent) -> UUID:
    """Return the attempt that a step continues, or that of a new one."""
    if event.step in SINGLE or not event.client_id:
        return new_id()
    since = timezone.now() - WITHIN
    recent = SignInEvent.objects.filter(at__gt=since, client_id=event.client_id, attempt__isnull=False)
    steps: dict[UUID, list[SignInEvent]] = {}
    for step in recent.order_by("-at", "-id")[:MAX_STEPS]:
        assert step.attempt is not None
        steps.setdefault(step.attempt, []).append(step)
    for attempt, earlier in steps.items():
        if not any(_differ(event, step) for step in earlier) and not _is_over(event, earlier):
            return attempt
    return new_id()


def are_too_many_of_strangers(tenant_id: UUID | None = None, address: str = "") -> bool:
    """Whether so many steps of strangers were recorded within a minute; if not, one more is counted.

    A tenant, and an address at it, has a number of its own, so that none uses up that of another.
    """
    tenant = f"oauth:steps:{tenant_id}"
    places = [
        ConcurrencyLimit("address", "steps", MAX_OF_ADDRESS, f"{tenant}:{rate_limit_key(address)}"),
        ConcurrencyLimit("tenant", "steps", MAX_OF_STRANGERS, tenant),
        ConcurrencyLimit("strangers", "steps", MAX_OF_ALL_STRANGERS, "oauth:steps"),
    ]
    return limits.acquire_here(places, str(new_id()), MINUTE) is not None


def are_too_many_of_connection(connection_id: UUID) -> bool:
    """Whether MAX_OF_CONNECTION steps of a connection were recorded within an hour; if not, one more is counted."""
    place = ConcurrencyLimit("connection", "steps", MAX_OF_CONNECTION, f"oauth:steps:connection:{connection_id}")
    return limits.acquire_here([place], str(new_id()), HOUR) is not None


def _differ(one: SignInEvent, other: SignInEvent) -> bool:
    pairs = (
        (one.person_name, other.person_name),
        (one.tenant_id, other.tenant_id),
        (one.connection_id, other.connection_id),
    )
    return any(mine and its and mine != its for mine, its in pairs)


def _is_over(event: SignInEvent, earlier: list[SignInEvent]) -> bool:
    """Whether an attempt has ended, so that this step begins another."""
    return event.step in FIRST and any(step.step in LAST for step in earlier)
