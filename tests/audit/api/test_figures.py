"""Statistics of calls by the API: those of the person's tenants and no others, narrowed down as it is asked."""

from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.utils import timezone

from tests.rest import Api
from tests.worlds import World
from tools_app.audit.stats.counters import NIL, period_of
from tools_app.core.ids import new_id
from tools_app.models import CallFigures, Tenant


def count(tenant: Tenant | None, calls: int, *, at: datetime | None = None, **more: Any) -> None:
    """Figures of calls that began then, or just now."""
    kind = {"tool_name": "echo", "api_key_id": NIL, "client_name": "claude", "writer": new_id(), "seconds": 300}
    CallFigures.objects.create(
        tenant_id=tenant.pk if tenant else NIL,
        begins_at=period_of(at or timezone.now()),
        calls=calls,
        took_03=calls,
        **kind | more,
    )


def counted(api: Api, **query: str) -> int:
    calls: int = api.get(f"figures/?{urlencode(query)}")["total"]["calls"]
    return calls


@pytest.mark.parametrize(
    ("role", "all_of_them", "acmes", "globexes"),
    [
        ("superuser", 47, 4, 40),
        ("admin", 4, 4, None),
        ("auditor", 4, 4, None),
        ("operator", 4, 4, None),
        ("stranger", 40, None, 40),
    ],
)
def test_everybody_gets_the_figures_of_their_tenants(
    as_: Any, acme: World, globex: World, role: str, all_of_them: int, acmes: int | None, globexes: int | None
) -> None:
    for tenant, calls in ((acme.tenant, 4), (globex.tenant, 40), (None, 3)):
        count(tenant, calls)
    api: Api = as_(role)
    assert counted(api) == all_of_them
    for slug, calls in {"acme": acmes, "globex": globexes, "nobody": None}.items():
        if calls is None:
            answer = api.request("GET", f"figures/?tenant={slug}")
            assert (answer.status_code, answer.json()["detail"]) == (404, "Tenant not found."), slug
        else:
            assert counted(api, tenant=slug) == calls


def test_figures_are_narrowed_by_tool_key_client_and_period(as_: Any, acme: World) -> None:
    count(acme.tenant, 1)
    count(acme.tenant, 2, tool_name="sum")
    count(acme.tenant, 4, api_key_id=acme.apikey.pk)
    count(acme.tenant, 8, client_name="cursor")
    count(acme.tenant, 16, at=timezone.now() - timedelta(hours=3))
    api: Api = as_("admin")
    for query, calls in (
        ({}, 31),
        ({"period": "24h"}, 31),
        ({"period": "1h"}, 15),
        ({"tool": "sum"}, 2),
        ({"key": str(acme.apikey.pk)}, 4),
        ({"client": "cursor"}, 8),
        ({"tool": "sum", "client": "cursor"}, 0),
    ):
        assert counted(api, **query) == calls, query
