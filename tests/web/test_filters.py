"""The filters of every list: each finds what matches, and leaves out what does not.

The filters are those of the views: one that is added must say here what it finds.
"""

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from tests.rest import Api
from tests.worlds import NOON, World
from tools_app.models import (
    Action,
    Call,
    Change,
    Export,
    Invitation,
    Membership,
    Role,
    SignInEvent,
    SignInStep,
    Upstream,
)
from tools_app.upstreams.credentials import store
from tools_app.web.api.paging import ListQuery, within_page_bytes
from tools_app.web.api_urls import urlpatterns

OTHER = "01890000-0000-7000-8000-000000000001"
TRACE = "0123456789abcdef" * 2
TENANT = {"tenant": ("acme", "globex")}
ENABLED = {"enabled": ("true", "false")}
WHOLE_HUB = {"whole_hub": ("false", "true")}

# Of each list, what finds acme's row of it, and what finds none of the rows that its admin sees.
FILTERS: dict[str, dict[str, tuple[str, str]]] = {
    "tenants": {"search": ("ACM", "nothing"), "is_active": ("true", "false")},
    "tools": TENANT | ENABLED | {"search": ("FIND", "nothing"), "kind": ("http", "python")},
    "resources": TENANT | ENABLED | {"search": ("GUIDE", "nothing"), "kind": ("text", "file")},
    "prompts": TENANT | ENABLED | {"search": ("GREET", "nothing"), "kind": ("template", "python")},
    "secrets": TENANT | {"search": ("TOKEN", "nothing")},
    "api-sources": TENANT | {"search": ("API", "nothing")},
    "toolsets": TENANT | {"search": ("READING", "nothing")},
    "upstreams": TENANT | {"search": ("BOOKS", "nothing")},
    "upstream-items": TENANT
    | {"upstream": ("{acme.upstream.pk}", OTHER), "kind": ("tool", "prompt"), "state": ("new", "accepted")},
    "upstream-credentials": TENANT,
    "keys": TENANT | {"search": ("LAPTOP", "nothing"), "status": ("active", "revoked")},
    "connections": TENANT | {"state": ("active", "ended")},
    "clients": {"search": ("ROBOT", "nothing"), "source": ("dynamic", "document"), "state": ("active", "blocked")},
    "service-clients": TENANT | {"search": ("JOB", "nothing"), "status": ("active", "revoked")},
    "client-policies": TENANT,
    "scopes": TENANT,
    "sign-ins": TENANT | {"step": ("allowed", "denied")},
    "issuers": TENANT | {"search": ("STAFF", "nothing")},
    "members": TENANT | {"role": ("operator", "auditor"), "person": ("operator", "operat")},
    "invitations": TENANT | {"role": ("auditor", "operator")},
    "sessions": TENANT
    | {"state": ("open", "ended"), "key": ("{acme.apikey.pk}", OTHER), "client": ("ME-CLI", "nothing")},
    "calls": TENANT
    | {
        "tool": ("acme_*", "globex_*"),
        "key": ("{acme.apikey.pk}", "anonymous"),
        "client": ("ROBOT", "nothing"),
        "session": ("{acme.session.pk}", OTHER),
        "method": ("tools/call", "prompts/get"),
        "outcome": ("ok", "timeout,tool_error"),
        "since": ("{two_hours_ago}", "{half_an_hour_ago}"),
        "until": ("{half_an_hour_ago}", "{two_hours_ago}"),
        "period": ("2h", "30m"),
        "duration_min": ("1", "2"),
        "duration_max": ("2", "1"),
        "size_min": ("9", "10"),
        "size_max": ("9", "8"),
        "trace": (TRACE, TRACE[::-1]),
        "request": ("7", "8"),
        "address": ("10.1.*", "10.2.*"),
        "text": ("WORDS", "nothing"),
    },
    "running-calls": TENANT
    | {"status": ("running", "queued"), "tool": ("acme_find", "acme"), "key": ("{acme.apikey.pk}", OTHER)},
    "changes": TENANT
    | {
        "person": ("ann", "an"),
        "action": ("created", "deleted"),
        "kind": ("tool", "too"),
        "object_id": ("12", "1"),
        "via": ("admin", "api"),
        "since": ("{noon}", "{later}"),
        "until": ("{noon}", "{earlier}"),
    },
    "exports": {"state": ("ready", "done")},
    "tokens": {},
    "alert-rules": TENANT | WHOLE_HUB | ENABLED | {"search": ("DENIALS", "nothing"), "kind": ("denials", "p95")},
    "alert-destinations": TENANT | WHOLE_HUB | ENABLED | {"search": ("HOOK", "nothing"), "kind": ("webhook", "email")},
    "alerts": TENANT | WHOLE_HUB | {"rule": ("{acme.alertrule.pk}", OTHER), "firing": ("false", "true")},
    "alert-deliveries": TENANT | WHOLE_HUB | {"status": ("pending", "failed")},
}


def lists() -> dict[str, type[ListQuery]]:
    """The query of every list, by the name of the list."""
    views: dict[str, Any] = {str(pattern.name): pattern.callback for pattern in urlpatterns}
    return {
        name.removeprefix("api-").removesuffix("-list"): view.cls.query_class
        for name, view in views.items()
        if "list" in getattr(view, "actions", {}).values()
    }


@pytest.fixture
def rows(acme: World, globex: World, people: dict[str, User]) -> None:
    """A row of acme in every list."""
    hour_ago = timezone.now() - timedelta(hours=1)
    Call.objects.filter(pk=acme.call.pk).update(
        client_name="robot",
        method="tools/call",
        request_id="7",
        remote_address="10.1.2.3",
        trace_id=TRACE,
        started_at=hour_ago,
        finished_at=hour_ago,
    )
    Change.objects.create(
        tenant=acme.tenant,
        person_name="ann",
        via="admin",
        action=Action.CREATED,
        kind="tool",
        object_id="12",
        at=NOON,
        position=10**6,
        digest=b"d",
    )
    Export.objects.create(person=people["admin"], format="csv")
    Invitation.objects.create(
        tenant=acme.tenant, email="new@example.com", role=Role.AUDITOR, digest="d", invited_by=people["admin"]
    )
    Membership.objects.filter(tenant=acme.tenant, role=Role.AUDITOR).delete()
    Upstream.objects.filter(pk=acme.upstream.pk).update(credential="header")
    store.save_value(Upstream.objects.get(pk=acme.upstream.pk), store.TENANT, "hush")


def found(api: Api, name: str, acme: World, **filters: str) -> list[dict[str, Any]]:
    """The rows that these filters find."""
    now, instant = timezone.now(), timedelta(microseconds=1)
    moments = {
        "noon": NOON,
        "later": NOON + instant,
        "earlier": NOON - instant,
        "half_an_hour_ago": now - timedelta(minutes=30),
        "two_hours_ago": now - timedelta(hours=2),
    }
    times = {name: moment.isoformat() for name, moment in moments.items()}
    query = {key: value.format(acme=acme, **times) for key, value in filters.items()}
    results: list[dict[str, Any]] = api.get(f"{name}/?{urlencode(query)}")["results"]
    return results


def test_every_filter_says_here_what_it_finds() -> None:
    known = {name: set(query().fields) - set(ListQuery().fields) for name, query in lists().items()}
    assert {name: set(filters) for name, filters in FILTERS.items()} == known


@pytest.mark.slow
@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("name", [name for name, filters in FILTERS.items() if filters])
def test_a_filter_finds_what_matches_and_nothing_else(as_: Any, acme: World, name: str) -> None:
    api: Api = as_("admin")
    everything = found(api, name, acme)
    assert everything
    for parameter, (matches, matches_not) in FILTERS[name].items():
        some = found(api, name, acme, **{parameter: matches})
        assert some, parameter
        assert all(row in everything for row in some), parameter
        assert found(api, name, acme, **{parameter: matches_not}) == [], parameter


def test_a_page_has_fifty_rows_unless_another_number_is_asked_for_and_at_most_two_hundred(
    as_: Any, acme: World
) -> None:
    steps = [SignInEvent(step=SignInStep.ASKED, tenant=acme.tenant, client_name="robot") for _ in range(200)]
    SignInEvent.objects.bulk_create(steps)
    api: Api = as_("admin")
    for limit, most in {"": 50, "?limit=1": 1, "?limit=200": 200}.items():
        page = api.get(f"sign-ins/{limit}")
        assert (len(page["results"]), page["next"] is None) == (most, False), limit
    for wrong in ("0", "201", "-1", "1.0", "1e2", "", "all"):
        answer = api.request("GET", f"sign-ins/?limit={wrong}")
        assert (answer.status_code, list(answer.json()["errors"])) == (400, ["limit"]), wrong


def test_a_page_has_at_most_a_mebibyte_of_rows() -> None:
    row = "x" * (2**19 - 2)
    assert len(within_page_bytes([row] * 3)) == 2, "with the quotes, half a mebibyte each"
    assert len(within_page_bytes([f"{row}x"] * 3)) == 1
