"""The dashboard: figures of the user's own tenants only, in their time zone, with few queries."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.worlds import World
from tools_app.audit.models import DURATION_BOUNDS_US
from tools_app.audit.stats import counters, storage
from tools_app.audit.stats.counters import NIL, period_of
from tools_app.audit.stats.overview import PERIODS, OverviewQuery, overview, percentile
from tools_app.core.ids import new_id
from tools_app.models import ApiKey, Call, CallFigures, Membership, Role, RunningCall, Tenant, Tool
from tools_app.runtime import hub_stats, readiness
from tools_app.tenants import invitations
from tools_app.web import middleware
from tools_app.web.dashboard import health

NOW = datetime(2026, 5, 4, 12, 34, 56, tzinfo=UTC)


def count(
    tenant: Tenant | UUID | None, calls: int = 1, *, at: datetime | None = None, took: int = 3, **more: Any
) -> CallFigures:
    """Statistics of calls in one latency bucket and one period of five minutes."""
    owner = tenant.pk if isinstance(tenant, Tenant) else tenant or NIL
    kind = {"tool_name": "echo", "api_key_id": NIL, "client_name": "claude", "writer": new_id(), "seconds": 300}
    at = period_of(at or timezone.now())
    return CallFigures.objects.create(
        tenant_id=owner, begins_at=at, calls=calls, **{f"took_{took:02d}": calls}, **kind | more
    )


@pytest.fixture
def first_page(as_: Callable[[str], Client]) -> Callable[..., Any]:
    """The context of the dashboard for a user: `first_page("auditor", period="7d")`."""

    def context(name: str, **query: str) -> Any:
        response = as_(name).get("/admin/", query)
        assert response.status_code == 200
        return response.context

    return context


# Who sees what


@pytest.mark.parametrize(
    ("name", "calls"), [("superuser", 47), ("admin", 4), ("auditor", 4), ("operator", 4), ("stranger", 40)]
)
def test_everybody_sees_the_figures_of_their_tenants(
    first_page: Any, acme: World, globex: World, name: str, calls: int
) -> None:
    count(acme.tenant, 4)
    count(globex.tenant, 40)
    count(None, 3)
    assert first_page(name)["overview"].total.calls == calls


@pytest.mark.parametrize("name", ["anonymous", "outsider"])
def test_nobody_else_sees_the_page(as_: Any, name: str) -> None:
    assert as_(name).get("/admin/").status_code == 302
    assert as_(name).get("/admin/health/").status_code == 302


def test_an_operator_sees_no_arguments(as_: Any, acme: World) -> None:
    RunningCall.objects.update(arguments='{"term": "hush"}')
    text = as_("operator").get("/admin/").content.decode()
    assert "acme_find" in text
    assert "hush" not in text


@pytest.mark.parametrize("slug", ["globex", "' OR 1=1 --"])
def test_a_tenant_beyond_reach_is_not_asked_for(first_page: Any, acme: World, globex: World, slug: str) -> None:
    count(globex.tenant, 40)
    context = first_page("auditor", tenant=slug)
    assert context["choice"].tenant is None
    assert context["overview"].total.calls == 0


def test_a_tenant_is_chosen(first_page: Any, acme: World, globex: World) -> None:
    count(acme.tenant, 4)
    count(globex.tenant, 40)
    context = first_page("superuser", tenant="globex")
    assert context["overview"].total.calls == 40
    assert [call["tool_name"] for call in context["running"].oldest] == ["globex_find"]


@pytest.mark.parametrize("period", ["", "<script>"])
def test_a_period_that_makes_no_sense_is_the_usual_one(first_page: Any, acme: World, period: str) -> None:
    assert first_page("admin", period=period)["choice"].period.name == "24h"


# What it says


def test_numbers_are_compared_with_the_period_before(first_page: Any, acme: World) -> None:
    now = timezone.now()
    count(acme.tenant, 30, errors=3, denials=2)
    count(acme.tenant, 20, errors=10, at=now - timedelta(hours=30))
    count(acme.tenant, 900, at=now - timedelta(hours=60))
    cards = {card.label: card for card in first_page("admin")["cards"]}
    assert (cards["Calls"].figure, cards["Calls"].before) == ("30", "before: 20 (+50%)")
    assert (cards["Errors"].figure, cards["Errors"].before) == ("10.0%", "before: 50.0%")
    assert (cards["Denials"].figure, cards["Denials"].before) == ("2", "before: 0")
    assert cards["p95"].figure == "1.9 ms"


def test_a_period_before_without_calls_has_no_data(first_page: Any, acme: World) -> None:
    count(acme.tenant, 30, errors=3)
    assert {card.before for card in first_page("admin")["cards"]} == {"before: no data"}


def test_tables_link_to_the_calls_behind_them(as_: Any, first_page: Any, acme: World, globex: World) -> None:
    count(acme.tenant, 4, tool_name="a&b<c>", api_key_id=acme.apikey.pk)
    count(acme.tenant, 2, tool_name="", client_name="", denials=3)
    gone = count(acme.tenant, 1, api_key_id=new_id())
    tools, by_key, by_client = first_page("admin", tenant="acme")["tables"]
    assert [row[1:4] for row in tools["rows"]] == [["4", "0.0%", "0"], ["2", "0.0%", "3"], ["1", "0.0%", "0"]]
    assert "tool=a%26b%3Cc%3E" in tools["rows"][0][0]
    assert "a&amp;b&lt;c&gt;" in tools["rows"][0][0]
    keys = [str(row[0]) for row in by_key["rows"]]
    assert (f"key={acme.apikey.pk}" in keys[0], "acme laptop" in keys[0]) == (True, True)
    assert "No API key" in keys[1]
    assert f"{gone.api_key_id} (deleted)" in keys[2]
    assert "client=claude" in by_client["rows"][0][0]
    for row in (*tools["rows"], *by_key["rows"], *by_client["rows"]):
        for link in _links(str(row[0])):
            assert as_("admin").get(link).status_code == 200


def test_figures_of_a_neighbours_key_do_not_tell_its_name(first_page: Any, acme: World, globex: World) -> None:
    count(acme.tenant, api_key_id=globex.apikey.pk)
    assert "globex" not in str(first_page("admin")["tables"])


def test_the_charts_are_valid_and_a_table_says_the_same(first_page: Any, acme: World) -> None:
    count(acme.tenant, 5, errors=2, denials=1)
    context = first_page("admin", period="1h")
    chart = json.loads(context["calls_chart"]["data"])
    assert [dataset["data"][-1] for dataset in chart["datasets"]] == [3, 2, 1]
    assert [dataset["data"][-1] for dataset in json.loads(context["latency_chart"]["data"])["datasets"]] == [1.5, 1.95]
    rows = context["charts_table"]["rows"]
    assert [row[0] for row in rows] == chart["labels"]
    assert (len(rows), rows[-1][1:4]) == (12, ["5", "2", "1"])
    assert rows[0][1:] == ["0", "0", "0", "-", "-"]


def test_running_calls_are_counted_and_the_oldest_shown(first_page: Any, acme: World, globex: World) -> None:
    for number in range(6):
        RunningCall.objects.create(
            tenant=acme.tenant,
            tool_name=f"slow_{number}",
            status="queued",
            background=True,
            owner=new_id(),
            timeout_seconds=1,
            arguments="",
            started_at=NOW + timedelta(seconds=number),
        )
    running = first_page("admin")["running"]
    assert running.count == 7
    assert [call["tool_name"] for call in running.oldest] == [f"slow_{number}" for number in range(5)]


def test_keys_that_expire_soon_are_named(first_page: Any, acme: World, globex: World) -> None:
    now = timezone.now()
    ApiKey.objects.filter(pk=globex.apikey.pk).update(expires_at=now + timedelta(days=3))
    assert first_page("admin")["expiring_keys"] == []
    ApiKey.objects.filter(pk=acme.apikey.pk).update(expires_at=now + timedelta(days=20))
    assert first_page("admin")["expiring_keys"] == []
    ApiKey.objects.filter(pk=acme.apikey.pk).update(expires_at=now + timedelta(days=13))
    assert first_page("admin")["expiring_keys"] == [acme.apikey]


def test_first_steps_tick_themselves_and_go_when_all_are_done(
    as_: Any, first_page: Any, acme: World, people: dict[str, User]
) -> None:
    def left(name: str = "admin") -> list[str]:
        steps = first_page(name)["first_steps"]
        return [step.label for step in steps.steps if not step.is_done] if steps else []

    Membership.objects.filter(tenant=acme.tenant).exclude(user__username="admin").delete()
    Call.objects.all().delete()
    acme.tool.delete()
    assert left() == ["Add a tool", "Connect a client", "See the first call", "Invite a colleague"]
    assert all(as_("admin").get(step.url).status_code == 200 for step in first_page("admin")["first_steps"].steps)
    Tool.objects.create(tenant=acme.tenant, name="again", kind="python")
    ApiKey.objects.update(last_used_at=timezone.now())
    assert left() == ["See the first call", "Invite a colleague"]
    invitations.create(acme.tenant, "colleague@example.com", Role.OPERATOR, people["admin"])
    assert left() == ["See the first call"]
    assert left("superuser") == ["See the first call"]
    Call.objects.create(
        tenant=acme.tenant, started_at=NOW, finished_at=NOW, duration_us=1, outcome="ok", writer=new_id(), result_size=2
    )
    assert left() == []
    assert "First steps" not in as_("admin").get("/admin/").content.decode()


def test_first_steps_are_for_those_who_can_take_them(first_page: Any, acme: World) -> None:
    acme.tool.delete()
    assert first_page("admin")["first_steps"].tenant == acme.tenant
    for name in ("auditor", "operator"):
        assert first_page(name)["first_steps"] is None


def test_a_hub_without_calls_says_what_to_do_next(as_: Any, acme: World) -> None:
    text = as_("admin").get("/admin/").content.decode()
    assert "No calls yet" in text
    assert "Connect a client with an API key" in text
    assert "<canvas" not in text
    count(acme.tenant)
    assert "<canvas" in as_("admin").get("/admin/").content.decode()


@pytest.mark.parametrize("name", ["superuser", "admin", "auditor"])
def test_the_page_takes_few_queries_however_much_there_is(
    as_: Any, acme: World, people: dict[str, User], name: str
) -> None:
    now = timezone.now()
    tenants = [acme.tenant, *(Tenant.objects.create(slug=f"t{number}", name="T") for number in range(20))]
    members = [Membership(user=people[name], tenant=tenant, role=Role.AUDITOR) for tenant in tenants[1:]]
    Membership.objects.bulk_create(members)
    for number in range(60):
        count(
            tenants[number % 21],
            number,
            at=now - timedelta(hours=number),
            tool_name=f"tool_{number}",
            api_key_id=new_id(),
            client_name=f"client {number}",
        )
    client = as_(name)
    with CaptureQueriesContext(connection) as queries:
        assert client.get("/admin/", {"period": "30d"}).status_code == 200
    assert len(queries) <= 12, [query["sql"] for query in queries.captured_queries]


# Health


def test_health_is_for_superusers(as_: Any, acme: World) -> None:
    assert "data-health" in as_("superuser").get("/admin/").content.decode()
    for name in ("admin", "auditor", "operator"):
        assert "data-health" not in as_(name).get("/admin/").content.decode()
        assert as_(name).get("/admin/health/").status_code == 403
    assert as_("superuser").post("/admin/health/").status_code == 405


def test_a_dead_broker_is_told_of_and_the_page_does_not_ask_it(as_: Any, acme: World, monkeypatch: Any) -> None:
    def refuse() -> None:
        raise ConnectionError("redis://user:hush@host")

    monkeypatch.setitem(readiness.PARTS, "broker", refuse)
    response = as_("superuser").get("/admin/health/")
    parts = {part["name"]: part for part in response.json()["parts"]}
    assert parts["Broker"] == {
        "name": "Broker",
        "says": "Unavailable. See the log or run manage.py doctor.",
        "is_well": False,
    }
    assert "hush" not in response.content.decode()
    monkeypatch.setattr(hub_stats, "snapshot", refuse)
    monkeypatch.setattr(readiness, "statuses", refuse)
    assert as_("superuser").get("/admin/").status_code == 200


@pytest.mark.parametrize(
    ("workers", "queued", "oldest", "expected"),
    [
        (2, 0.0, 0.0, [("2 available", True), ("No calls are waiting", True)]),
        (0, 3.0, 5.0, [("No worker responds", False), ("3 calls wait, the oldest for 5 s", True)]),
        (None, 3.0, 90.0, [("Unknown", False), ("Check the workers", False)]),
    ],
)
def test_workers_and_the_queue_say_how_they_are(
    settings: Any, workers: int | None, queued: float, oldest: float, expected: list[tuple[str, bool]]
) -> None:
    settings.CELERY_BROKER_URL = "redis://localhost/1"
    gauges = [["mcphub_queued_calls", [], queued], ["mcphub_oldest_queued_call_seconds", [], oldest]]
    parts = health.parts({"counts": [], "spreads": [], "gauges": gauges}, workers)[-2:]
    for part, (text, is_well) in zip(parts, expected, strict=True):
        assert text in part["says"]
        assert part["is_well"] is is_well


# Times


def test_times_are_in_the_viewers_zone_on_every_page(as_: Any, acme: World, page: Any) -> None:
    browser = as_("auditor")
    address = page("call", "change", acme.call)
    assert "2026-05-04 12:00:00.000" in browser.get(address).content.decode()
    browser.cookies[middleware.ZONE_COOKIE] = "Asia/Tokyo"
    assert "2026-05-04 21:00:00.000" in browser.get(address).content.decode()
    assert "Times in Asia/Tokyo" in browser.get("/admin/").content.decode()
    assert timezone.get_current_timezone_name() == "UTC"


@pytest.mark.parametrize(
    "name", ["", "Mars/Phobos", "../../etc/passwd", "Europe", "a" * 5000, "UTC; Path=/", "tzdata.zi"]
)
def test_a_zone_that_is_none_is_utc(as_: Any, acme: World, name: str) -> None:
    assert middleware.zone_named(name) is None
    browser = as_("auditor")
    browser.cookies[middleware.ZONE_COOKIE] = name
    assert "Times in UTC" in browser.get("/admin/").content.decode()


def test_each_page_tells_the_server_the_zone(as_: Any, acme: World) -> None:
    for name in ("anonymous", "admin"):
        assert "tools_app/web/zone.js" in as_(name).get("/admin/", follow=True).content.decode()


# Reading figures


@pytest.mark.parametrize("name", list(PERIODS))
@pytest.mark.parametrize("place", ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/St_Johns"])
def test_the_points_of_a_period_follow_each_other_up_to_now(name: str, place: str) -> None:
    period, viewer = PERIODS[name], ZoneInfo(place)
    # Berlin has just set its clocks back.
    now = datetime(2026, 10, 26, 12, 34, 56, tzinfo=UTC)
    points = period.points(now, viewer)
    assert len(points) == period.count
    assert points == sorted(set(points))
    assert points[-1] <= now
    if period.step == timedelta(days=1):
        assert {(point.astimezone(viewer).hour, point.astimezone(viewer).minute) for point in points} == {(0, 0)}


@pytest.mark.django_db
def test_a_point_has_what_began_in_it_however_long_its_row_is() -> None:
    tenant, before = new_id(), NOW - timedelta(days=2)
    count(tenant, 3, at=before, seconds=3600)
    count(tenant, 2, at=NOW)
    count(tenant, 5, at=NOW - timedelta(minutes=5))
    seen = overview(OverviewQuery(PERIODS["7d"], None), NOW)
    found = {
        point.begins_at.isoformat()[:13]: point.statistics.calls for point in seen.points if point.statistics.calls
    }
    assert found == {"2026-05-02T12": 3, "2026-05-04T12": 7}
    assert seen.total.calls == 10


@pytest.mark.django_db
def test_an_overview_is_narrowed_down() -> None:
    tenant, key = new_id(), new_id()
    count(tenant, 1, at=NOW)
    count(tenant, 2, at=NOW, tool_name="sum", api_key_id=key)
    count(tenant, 4, at=NOW, client_name="cursor")
    count(new_id(), 8, at=NOW)

    def calls(**narrowed: Any) -> int:
        return overview(OverviewQuery(PERIODS["24h"], narrowed.pop("tenants", None), **narrowed), NOW).total.calls

    assert calls() == 15
    assert calls(tenants=[tenant]) == 7
    assert calls(tenants=[]) == 0
    assert calls(tool_name="sum") == calls(api_key_id=key) == 2
    assert calls(client_name="cursor") == 4


@pytest.mark.django_db
def test_merging_figures_changes_no_overview() -> None:
    tenant, now = new_id(), timezone.now()
    for hours in range(1, 24):
        count(tenant, hours, at=now - timedelta(hours=hours))
    for period in ("24h", "7d", "30d"):
        before = overview(OverviewQuery(PERIODS[period], None), now)
        storage.merge()
        after = overview(OverviewQuery(PERIODS[period], None), now)
        assert [point.statistics.calls for point in after.points] == [point.statistics.calls for point in before.points]


@pytest.mark.parametrize(
    ("classes", "share", "microseconds"),
    [
        ({}, 0.5, None),
        ({0: 1}, 0.5, 125.0),
        ({0: 100}, 0.95, 237.5),
        ({2: 10}, 0.5, 750.0),
        ({0: 50, 3: 50}, 0.95, 1900.0),
        ({0: 95, 3: 5}, 0.95, 250.0),
        ({21: 3}, 0.5, float(DURATION_BOUNDS_US[-1])),
    ],
)
def test_percentiles_are_interpolated_within_their_class(
    classes: dict[int, int], share: float, microseconds: float | None
) -> None:
    counts = [classes.get(number, 0) for number in range(len(counters.NUMBER_COLUMNS) - counters.CLASSES)]
    found = percentile(counts, share)
    assert found is None if microseconds is None else found == pytest.approx(microseconds)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name == "href" and value]


def _links(html: str) -> list[str]:
    parser = _Links()
    parser.feed(html)
    return parser.found
