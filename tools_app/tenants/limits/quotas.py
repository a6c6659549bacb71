"""Quotas of callers and tools, read from their rows: rates and concurrency limits, none where nothing is set."""

from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from tools_app.models import ApiKey, Tenant, Tool
from tools_app.tenants.models import CallerLimited, RateLimited

SECOND: Final = 1
MINUTE: Final = 60
DAY: Final = 86_400


class Rate(NamedTuple):
    """At most `most` calls or requests (`what`) in any `seconds`.

    `scope` is "tool", "key" or "tenant", or "address" for callers without a key. `key` is the name of the counter.
    """

    scope: str
    what: str
    most: int
    seconds: int
    key: str


class ConcurrencyLimit(NamedTuple):
    """At most `most` concurrent calls or streams (`what`) across all processes."""

    scope: str
    what: str
    most: int
    key: str


class CallerLimits(msgspec.Struct, frozen=True):
    """All limits of one caller or one tool; empty where there is no limit."""

    requests: tuple[Rate, ...] = ()
    calls: tuple[Rate, ...] = ()
    concurrent_calls: tuple[ConcurrencyLimit, ...] = ()
    streams: tuple[ConcurrencyLimit, ...] = ()
    most_sessions: int | None = None


UNLIMITED: Final = CallerLimits()


def of_key(key: ApiKey) -> CallerLimits:
    """Return the limits of a key: the key's own, and those that its tenant sets for all its keys together."""
    tenant = key.tenant
    return CallerLimits(
        requests=_requests("key", key) + _requests("tenant", tenant),
        calls=_calls("key", key) + _calls("tenant", tenant),
        concurrent_calls=concurrent_calls("tenant", tenant),
        streams=_streams("key", key) + _streams("tenant", tenant),
        most_sessions=tenant.most_sessions,
    )


def of_tenant(tenant: Tenant) -> CallerLimits:
    """Return the limits of a caller without a key, at the tenant's public endpoint or as its operator."""
    return CallerLimits(
        requests=_requests("tenant", tenant),
        calls=_calls("tenant", tenant),
        concurrent_calls=concurrent_calls("tenant", tenant),
        streams=_streams("tenant", tenant),
        most_sessions=tenant.most_sessions,
    )


def of_tool(tool: Tool) -> CallerLimits:
    """Return the limits of a tool, shared by all its callers."""
    return CallerLimits(calls=_calls("tool", tool), concurrent_calls=concurrent_calls("tool", tool))


def of_address(allowed: CallerLimits, tenant_id: UUID, address: str, calls_per_minute: int) -> CallerLimits:
    """Return `allowed` with a public tenant's limits for each address."""
    rate = Rate("address", "calls", calls_per_minute, MINUTE, f"calls:{MINUTE}:address:{tenant_id}:{address}")
    return msgspec.structs.replace(allowed, calls=(rate, *allowed.calls))


def call_concurrency_limits(tenant_id: UUID | None, tool_id: UUID | None) -> tuple[str, str]:
    """Return the counter names of the concurrent calls of a tenant and of a tool."""
    return f"calls:tenant:{tenant_id}", f"calls:tool:{tool_id}"


def concurrent_calls(scope: str, row: Tenant | Tool) -> tuple[ConcurrencyLimit, ...]:
    """Return the limits on concurrent calls of a tenant or a tool."""
    most = row.calls_in_flight
    return () if most is None else (ConcurrencyLimit(scope, "calls", most, f"calls:{scope}:{row.pk}"),)


def _requests(scope: str, row: CallerLimited) -> tuple[Rate, ...]:
    return _rates(scope, "requests", row, {SECOND: row.requests_per_second, DAY: row.requests_per_day})


def _calls(scope: str, row: RateLimited) -> tuple[Rate, ...]:
    every = {SECOND: row.calls_per_second, MINUTE: row.calls_per_minute, DAY: row.calls_per_day}
    return _rates(scope, "calls", row, every)


def _rates(scope: str, what: str, row: RateLimited, every: dict[int, int | None]) -> tuple[Rate, ...]:
    return tuple(
        Rate(scope, what, most, seconds, f"{what}:{seconds}:{scope}:{row.pk}")
        for seconds, most in every.items()
        if most is not None
    )


def _streams(scope: str, row: CallerLimited) -> tuple[ConcurrencyLimit, ...]:
    most = row.open_streams
    return () if most is None else (ConcurrencyLimit(scope, "streams", most, f"streams:{scope}:{row.pk}"),)
