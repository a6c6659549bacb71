"""Limits of a caller or a tool from their rows, and the keys under which they are counted."""

from typing import Any
from uuid import uuid4

import pytest

from tools_app.models import ApiKey, Tenant, Tool
from tools_app.tenants.limits import quotas
from tools_app.tenants.limits.quotas import UNLIMITED, CallerLimits, Rate

# What a field limits: (tuple, unit, window in seconds). Without a window, it limits concurrency.
FIELDS: dict[str, tuple[str, str, int | None]] = {
    "requests_per_second": ("requests", "requests", 1),
    "requests_per_day": ("requests", "requests", 86_400),
    "calls_per_second": ("calls", "calls", 1),
    "calls_per_minute": ("calls", "calls", 60),
    "calls_per_day": ("calls", "calls", 86_400),
    "open_streams": ("streams", "streams", None),
    "calls_in_flight": ("concurrent_calls", "calls", None),
}
NONE = dict.fromkeys(FIELDS)


def unlimited(model: type[Any], **fields: Any) -> Any:
    names = {field.name for field in model._meta.concrete_fields}
    return model(**{name: None for name in NONE if name in names}, **fields)


@pytest.fixture
def tenant() -> Tenant:
    row: Tenant = unlimited(Tenant, slug="acme")
    return row


@pytest.fixture
def key(tenant: Tenant) -> ApiKey:
    row: ApiKey = unlimited(ApiKey, tenant=tenant)
    return row


@pytest.fixture
def tool(tenant: Tenant) -> Tool:
    row: Tool = unlimited(Tool, tenant=tenant)
    return row


def limits_of(quota: Any) -> list[tuple[str, str, str, int, int | None]]:
    """All limits: tuple, owner, unit, maximum, window in seconds."""
    kinds = ("requests", "calls", "concurrent_calls", "streams")
    return [
        (kind, one.scope, one.what, one.most, getattr(one, "seconds", None))
        for kind in kinds
        for one in getattr(quota, kind)
    ]


def names(quota: Any) -> set[str]:
    """The keys of its counters."""
    return {one.key for one in (*quota.requests, *quota.calls, *quota.concurrent_calls, *quota.streams)}


def test_nothing_is_limited_unless_it_is_set(key: ApiKey, tenant: Tenant, tool: Tool) -> None:
    assert quotas.of_key(key) == quotas.of_tenant(tenant) == quotas.of_tool(tool) == UNLIMITED


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_limits_what_it_says_for_whom_it_is_set(key: ApiKey, tenant: Tenant, tool: Tool, field: str) -> None:
    kind, what, seconds = FIELDS[field]
    of_tenant = [(kind, "tenant", what, 5, seconds)]
    setattr(tenant, field, 5)
    assert limits_of(quotas.of_tenant(tenant)) == of_tenant
    assert limits_of(quotas.of_key(key)) == of_tenant
    assert limits_of(quotas.of_tool(tool)) == []
    if hasattr(key, field):
        setattr(key, field, 3)
        # The key's own limit comes first: it is reported if both are exhausted.
        assert limits_of(quotas.of_key(key)) == [(kind, "key", what, 3, seconds), *of_tenant]
        assert limits_of(quotas.of_tenant(tenant)) == of_tenant
    if hasattr(tool, field):
        setattr(tool, field, 4)
        assert limits_of(quotas.of_tool(tool)) == [(kind, "tool", what, 4, seconds)]


def test_a_limit_of_zero_is_one(key: ApiKey, tenant: Tenant) -> None:
    tenant.open_streams = tenant.calls_in_flight = key.calls_per_day = 0
    assert {one[3] for one in limits_of(quotas.of_key(key))} == {0}
    assert len(limits_of(quotas.of_key(key))) == 3


def test_every_limit_of_everyone_is_counted_on_its_own(key: ApiKey, tenant: Tenant, tool: Tool) -> None:
    rows: list[Any] = [key, tenant, tool, unlimited(ApiKey, tenant=unlimited(Tenant)), unlimited(Tool)]
    for row in (*rows, rows[3].tenant):
        for field in FIELDS:
            if hasattr(row, field):
                setattr(row, field, 1)
    limited: list[CallerLimits] = [
        quotas.of_key(key),
        quotas.of_tool(tool),
        quotas.of_key(rows[3]),
        quotas.of_tool(rows[4]),
    ]
    every = [name for quota in limited for name in names(quota)]
    assert len(every) == len(set(every)) == sum(len(limits_of(quota)) for quota in limited)
    # A tenant's limits are shared by all its keys and anonymous callers.
    assert names(quotas.of_tenant(tenant)) < names(quotas.of_key(key))


def test_the_sessions_of_a_tenant_are_all_its_callers_together(key: ApiKey, tenant: Tenant) -> None:
    tenant.most_sessions = 2
    assert quotas.of_key(key).most_sessions == quotas.of_tenant(tenant).most_sessions == 2


def test_an_address_has_calls_of_its_own_beside_those_of_its_tenant(tenant: Tenant) -> None:
    tenant.calls_per_minute = 100
    everybody = quotas.of_tenant(tenant)
    one, another = (quotas.of_address(everybody, tenant.pk, address, 5) for address in ("192.0.2.1", "192.0.2.2"))
    elsewhere = quotas.of_address(UNLIMITED, uuid4(), "192.0.2.1", 5)
    assert limits_of(one) == [("calls", "address", "calls", 5, 60), *limits_of(everybody)]
    assert len({quota.calls[0].key for quota in (one, another, elsewhere)}) == 3
    assert isinstance(one.calls[0], Rate)
    assert one.calls[1:] == everybody.calls


def test_calls_at_once_are_found_again_by_those_who_let_them_go(tenant: Tenant, tool: Tool) -> None:
    tenant.calls_in_flight = tool.calls_in_flight = 1
    held = [one.key for quota in (quotas.of_tenant(tenant), quotas.of_tool(tool)) for one in quota.concurrent_calls]
    assert tuple(held) == quotas.call_concurrency_limits(tenant.pk, tool.pk)
