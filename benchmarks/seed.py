"""Fills a hub's audit log, inside the hub's own process, with made-up calls of the benchmark's tenants.

`manage.py shell -c "from benchmarks import seed; seed.calls(1_000_000, 10)"`. The calls are those of
`python -m benchmarks.seed_calls`, of the last ninety days.
"""

from typing import Final

from benchmarks.seed_calls import fill
from benchmarks.seed_calls.shapes import Owner
from tools_app.models import Tenant
from tools_app.tenants import keys

DAYS: Final = 90


def calls(count: int, tenants: int) -> None:
    """Add `count` calls with their payloads, shared among so many tenants, the newest of them from a moment ago.

    The tenant `bench`, with its keys, is one of them.
    """
    others = [f"tenant-{number}" for number in range(1, tenants)]
    fill.fill([_owner(slug) for slug in ("bench", *others)], count, DAYS, lambda _: None)


def _owner(slug: str) -> Owner:
    tenant, is_new = Tenant.objects.get_or_create(slug=slug, defaults={"name": slug})
    if is_new:
        keys.issue(tenant, "laptop")
    return Owner(tenant.pk, list(tenant.api_keys.values_list("pk", flat=True)))
