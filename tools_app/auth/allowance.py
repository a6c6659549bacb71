"""What a caller or a tool may use up, as their rows say: rates and places, none where nothing is set."""

from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from tools_app.models import ApiKey, Tenant, Tool
from tools_app.models.tenants import CallerLimited, RateLimited

SECOND: Final = 1
MINUTE: Final = 60
DAY: Final = 86_400


class Rate(NamedTuple):
    """At most `most` calls or requests (`what`) in any `seconds`. `scope` is whose: "tool", "key" or "tenant", or
    "address" for who calls without a key. `key` is under which name they are counted.
    """

    scope: str
    what: str
    most: int
    seconds: int
    key: str


class Places(NamedTuple):
    """At most `most` calls or streams (`what`) at once, in all processes together."""

    scope: str
    what: str
    most: int
    key: str


class Allowance(msgspec.Struct, frozen=True):
    """All limits of one caller or one tool: what is not limited is empty."""

    requests: tuple[Rate, ...] = ()
    calls: tuple[Rate, ...] = ()
    calls_at_once: tuple[Places, ...] = ()
    streams: tuple[Places, ...] = ()
    most_sessions: int | None = None


UNLIMITED: Final = Allowance()


def of_key(key: ApiKey) -> Allowance:
    """What the holder of a key may: what the key allows, and what its tenant allows to all its keys together."""
    tenant = key.tenant
    return Allowance(
        requests=_requests("key", key) + _requests("tenant", tenant),
        calls=_calls("key", key) + _calls("tenant", tenant),
        calls_at_once=calls_at_once("tenant", tenant),
        streams=_streams("key", key) + _streams("tenant", tenant),
        most_sessions=tenant.most_sessions,
    )


def of_tenant(tenant: Tenant) -> Allowance:
    """What somebody without a key may, at the tenant's own address or as its operator."""
    return Allowance(
        requests=_requests("tenant", tenant),
        calls=_calls("tenant", tenant),
        calls_at_once=calls_at_once("tenant", tenant),
        streams=_streams("tenant", tenant),
        most_sessions=tenant.most_sessions,
    )


def of_tool(tool: Tool) -> Allowance:
    """What all callers of a tool may together."""
    return Allowance(calls=_calls("tool", tool), calls_at_once=calls_at_once("tool", tool))


def of_address(allowed: Allowance, tenant_id: UUID, address: str, calls_per_minute: int) -> Allowance:
    """`allowed` with what a public tenant grants to each address."""
    rate = Rate("address", "calls", calls_per_minute, MINUTE, f"calls:{MINUTE}:address:{tenant_id}:{address}")
    return msgspec.structs.replace(allowed, calls=(rate, *allowed.calls))


def call_places(tenant_id: UUID | None, tool_id: UUID | None) -> tuple[str, str]:
    """Under which names the calls at once of a tenant and of a tool are counted."""
    return f"calls:tenant:{tenant_id}", f"calls:tool:{tool_id}"


def calls_at_once(scope: str, row: Tenant | Tool) -> tuple[Places, ...]:
    """How many calls a tenant or a tool has at once."""
    most = row.calls_in_flight
    return () if most is None else (Places(scope, "calls", most, f"calls:{scope}:{row.pk}"),)


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


def _streams(scope: str, row: CallerLimited) -> tuple[Places, ...]:
    most = row.open_streams
    return () if most is None else (Places(scope, "streams", most, f"streams:{scope}:{row.pk}"),)
