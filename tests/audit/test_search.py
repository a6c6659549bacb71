"""The search of the audit log: query syntax, results, permissions, and bounds on the examined rows."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import QueryDict
from django.utils import timezone

from tests.audit.aged import id_of
from tests.clock import Clock
from tools_app.audit.search import pages, scan
from tools_app.audit.search.query import PARAMETERS, BadQuery, CallQuery
from tools_app.audit.search.scan import PagePosition
from tools_app.audit.search.scope import TextRefused, scope_of
from tools_app.core.packing import pack
from tools_app.models import ApiKey, Call, CallPayload, Membership, Role, Tenant

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


@pytest.fixture
def root(db: None) -> User:
    return User.objects.create_superuser("root")


def member(*tenants: Tenant, role: Role = Role.AUDITOR) -> User:
    user, _ = User.objects.get_or_create(username=f"{role}-{'-'.join(tenant.slug for tenant in tenants)}")
    for tenant in tenants:
        Membership.objects.create(user=user, tenant=tenant, role=role)
    return user


def record(tenant: Tenant | None, ago: float = 1, *, arguments: str = "", result: str = "", **facts: Any) -> Call:
    """A call that started this many minutes ago."""
    at = timezone.now() - timedelta(minutes=ago)
    values = {"started_at": at, "finished_at": at, "duration_us": 1, "outcome": "ok", "writer": uuid4()}
    call = Call.objects.create(id=id_of(at), tenant=tenant, **(values | facts))
    CallPayload.objects.create(call=call, arguments=arguments, result=result)
    return call


def search_results(person: User, **params: Any) -> list[Call]:
    return pages.page(CallQuery.from_params(params), person).calls


def everything(query: CallQuery, person: User, chunk: int = 500) -> Iterator[list[Call]]:
    return pages.iterate_calls(query, lambda: scope_of(query, person), chunk)


# --- What a query may say ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key", "laptop"),
        ("session", "7"),
        ("outcome", "fine"),
        ("since", "yesterday"),
        ("until", "2026-13-01"),
        ("since", "0001-01-01T00:00+14:00"),
        ("period", "7 days"),
        ("period", "0h"),
        ("period", "999999d"),
        ("duration_min", "-1"),
        ("duration_max", "1e3"),
        ("size_min", "9" * 30),
        ("trace", "abc"),
        ("tool", "******"),
        ("text", "x" * 501),
        ("text", "a\0b"),
        ("tool", ["one", "two"]),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name_with_advice(name: str, value: Any) -> None:
    with pytest.raises(BadQuery) as caught:
        CallQuery.from_params({name: value})
    assert list(caught.value.errors) == [name]
    assert caught.value.errors[name].endswith(".")


def test_all_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(BadQuery) as caught:
        CallQuery.from_params({"key": "x", "period": "x", "tool": "fine"})
    assert set(caught.value.errors) == {"key", "period"}


@pytest.mark.parametrize("name", ["duration", "size"])
def test_bounds_that_exclude_each_other_are_refused(name: str) -> None:
    with pytest.raises(BadQuery) as caught:
        CallQuery.from_params({f"{name}_min": "5", f"{name}_max": "4"})
    assert list(caught.value.errors) == [f"{name}_max"]


def test_all_bounds_that_exclude_each_other_are_named_at_once() -> None:
    with pytest.raises(BadQuery) as caught:
        CallQuery.from_params(
            QueryDict("since=2026-05-05&until=2026-05-04&duration_min=5&duration_max=4&size_min=2&size_max=1")
        )
    assert set(caught.value.errors) == {"until", "duration_max", "size_max"}


def test_empty_and_unknown_parameters_say_nothing() -> None:
    assert CallQuery.from_params(QueryDict("tool=&outcome=&page=7&key=+")).is_empty


def test_a_query_and_its_parameters_are_the_same() -> None:
    text = (
        "tenant=acme&tool=search_*&key=anonymous&client=cur&session=01890a5d-ac96-774b-bcce-b302099a8057&method=tools/call"
        "&outcome=lost&outcome=timeout,denied&since=2026-05-04T10:00:00%2B02:00&until=2026-05-05&duration_min=1"
        "&duration_max=2&size_min=3&size_max=4&trace=0AF7651916CD43DD8448EB211C80319C&request=7&address=10.*&text=a+b"
    )
    query = CallQuery.from_params(QueryDict(text))
    assert query.outcome == ("lost", "timeout", "denied")
    assert query.since == datetime(2026, 5, 4, 8, tzinfo=UTC)
    assert query.until == datetime(2026, 5, 5, 23, 59, 59, 999999, tzinfo=UTC)
    assert CallQuery.from_params(QueryDict(query.to_string())) == query
    assert set(query.to_params()) == set(PARAMETERS) - {"period"}


def test_a_condition_can_be_dropped_and_one_outcome_of_several() -> None:
    query = CallQuery.from_params({"outcome": "lost,denied", "tool": "a"})
    assert query.without("tool") == CallQuery(outcome=("lost", "denied"))
    assert query.without("outcome", "lost") == CallQuery(outcome=("denied",), tool="a")


def test_a_period_becomes_bounds_when_it_is_fixed() -> None:
    query = CallQuery(period="90m").at(NOW)
    assert (query.since, query.until, query.period) == (NOW - timedelta(minutes=90), NOW, "")
    assert query.at(NOW + timedelta(days=1)) == query


@pytest.mark.parametrize(
    "params",
    [
        {"since": "1960-01-01"},
        {"period": "36500d"},
        {"until": "1960-01-01"},
        {"since": "1001-01-01", "until": "9998-12-31"},
    ],
    ids=str,
)
def test_any_time_can_be_searched(tenant: Tenant, root: User, params: dict[str, str]) -> None:
    record(tenant)
    for person in (root, member(tenant)):
        assert len(search_results(person, **params)) == (params.get("until") != "1960-01-01")


@pytest.mark.parametrize("params", [{"since": "2030-01-01"}, {"period": "1h", "until": "2020-01-01"}], ids=str)
def test_a_search_that_finds_nothing_is_still_one_when_it_is_fixed(params: dict[str, str]) -> None:
    fixed = CallQuery.from_params(params).at(NOW)
    assert CallQuery.from_params(QueryDict(fixed.to_string())) == fixed


@pytest.mark.parametrize(
    "cursor", ["", "x", "AAAA", "é", "!" * 32, "A" * 100, "__________________________________________"]
)
def test_a_cursor_that_is_none_is_refused(cursor: str) -> None:
    with pytest.raises(BadQuery):
        PagePosition.read(cursor, "after")


def test_a_cursor_leads_back_to_its_call() -> None:
    mark = PagePosition(NOW + timedelta(microseconds=1), uuid4())
    assert PagePosition.read(mark.cursor, "after") == mark


# --- What it finds -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "facts"),
    [
        ({"tool": "find"}, {"tool_name": "find"}),
        ({"tool": "f*_[d]"}, {"tool_name": "fin_[d]"}),
        ({"client": "CURS"}, {"client_name": "cursor"}),
        ({"method": "prompts/get"}, {"method": "prompts/get"}),
        ({"outcome": "lost"}, {"outcome": "lost"}),
        ({"outcome": "ok,lost", "tool": "find"}, {"tool_name": "find"}),
        ({"outcome": ["lost", "timeout"]}, {"outcome": "timeout"}),
        ({"duration_min": "5", "duration_max": "5"}, {"duration_us": 5000}),
        ({"size_min": "12", "size_max": "12"}, {"arguments_size": 5, "result_size": 7}),
        ({"trace": "A" * 32}, {"trace_id": "a" * 32}),
        ({"request": "7"}, {"request_id": "7"}),
        ({"request": "seven"}, {"request_id": '"seven"'}),
        ({"address": "10.1.*"}, {"remote_address": "10.1.2.3"}),
        ({"address": "::1"}, {"remote_address": "::1"}),
        ({"text": "NEEDLE"}, {"arguments": '{"a": "a needle"}'}),
        ({"text": "ärger"}, {"result": '{"a": "ÄRGER"}'}),
        ({"text": 'say "hi"'}, {"result": '{"a": "say \\"hi\\""}'}),
        ({"text": "refused"}, {"cause": "Connection refused"}),
        ({"text": "100%_"}, {"arguments": '"100%_"'}),
        ({"text": "needle", "outcome": "lost"}, {"arguments": "needle", "outcome": "lost"}),
    ],
)
def test_a_call_is_found_by_what_is_known_of_it(
    tenant: Tenant, other_tenant: Tenant, root: User, params: dict[str, Any], facts: dict[str, Any]
) -> None:
    record(tenant, arguments='{"a": "1000 hay"}')
    call = record(tenant, **facts)
    foreign = record(other_tenant, **facts)
    assert search_results(member(tenant), **params) == [call]
    assert set(search_results(root, **params)) == {call, foreign}
    assert set(search_results(member(tenant, other_tenant), **params)) == {call, foreign}


def test_calls_are_found_by_key_session_and_tenant(tenant: Tenant, other_tenant: Tenant, root: User, key: str) -> None:
    session = uuid4()
    of_key, anonymous = record(tenant, api_key=ApiKey.objects.get(), session_id=session), record(other_tenant)
    record(None)
    assert search_results(root, key=str(of_key.api_key_id)) == search_results(root, session=str(session)) == [of_key]
    assert search_results(root, key="anonymous") == [anonymous]
    for name in (tenant.slug, str(tenant.pk), tenant.pk.hex):
        assert search_results(root, tenant=name) == [of_key]


def test_calls_of_a_deleted_tenant_are_found_by_its_id(tenant: Tenant, root: User) -> None:
    call, id = record(tenant), str(tenant.pk)
    tenant.delete()
    assert search_results(root, tenant=id) == [call]


def test_calls_are_found_by_when_they_started(tenant: Tenant, root: User) -> None:
    old, middle, new = record(tenant, 180), record(tenant, 90), record(tenant, 5)
    for person in (root, member(tenant)):
        assert search_results(person, period="2h") == [new, middle]
        assert search_results(person, until=middle.started_at.isoformat()) == [middle, old]
        assert search_results(person, since=middle.started_at.isoformat(), until=middle.started_at.isoformat()) == [
            middle
        ]


def test_packed_texts_are_searched_too(tenant: Tenant) -> None:
    packed, other = record(tenant), record(tenant)
    texts = {packed: "in the NEEDLE's eye", other: "hay"}
    for call, text in texts.items():
        CallPayload.objects.filter(call=call).update(packed=pack("{}", text), arguments="", result="")
    broken = record(tenant)
    CallPayload.objects.filter(call=broken).update(packed=b"no texts", arguments="", result="")
    assert search_results(member(tenant), text="Needle") == [packed]


# --- For whom ----------------------------------------------------------------------------------------------------


def test_nobody_finds_calls_of_a_foreign_tenant(tenant: Tenant, other_tenant: Tenant) -> None:
    record(other_tenant, arguments="needle")
    record(None, arguments="needle")
    person = member(tenant)
    for params in ({}, {"tenant": other_tenant.slug}, {"tenant": str(other_tenant.pk)}, {"text": "needle"}):
        assert search_results(person, **params) == []
    assert list(everything(CallQuery(tenant=other_tenant.slug), person)) == [[]]


def test_whoever_is_no_member_or_inactive_finds_nothing(tenant: Tenant) -> None:
    record(tenant)
    assert search_results(User.objects.create_user("nobody")) == []
    person = member(tenant)
    User.objects.update(is_active=False)
    assert search_results(User.objects.get(pk=person.pk)) == []


def test_an_operator_finds_by_facts_and_is_told_why_not_by_text(tenant: Tenant) -> None:
    call, operator = record(tenant, arguments="needle"), member(tenant, role=Role.OPERATOR)
    assert search_results(operator, outcome="ok") == [call]
    for params in ({"text": "needle"}, {"text": "needle", "tenant": tenant.slug}):
        with pytest.raises(TextRefused, match="auditor"):
            search_results(operator, **params)


def test_a_text_is_looked_for_only_where_the_person_audits(tenant: Tenant, other_tenant: Tenant) -> None:
    person = member(tenant)
    Membership.objects.create(user=person, tenant=other_tenant, role=Role.OPERATOR)
    read, _ = record(tenant, cause="needle"), record(other_tenant, cause="needle")
    page = pages.page(CallQuery(text="needle"), person)
    assert (page.calls, page.narrowed) == ([read], True)
    with pytest.raises(TextRefused):
        search_results(person, text="needle", tenant=other_tenant.slug)
    assert not pages.page(CallQuery(tool="x"), person).narrowed


# --- Page by page ------------------------------------------------------------------------------------------------


@pytest.fixture(params=["superuser", "one tenant", "two tenants", "more than can be merged"])
def reader(
    request: pytest.FixtureRequest, root: User, tenant: Tenant, other_tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> User:
    if request.param == "more than can be merged":
        monkeypatch.setattr(scan, "MAX_ARMS", 1)
    people = {"superuser": root, "one tenant": member(tenant)}
    return people.get(request.param) or member(tenant, other_tenant)


def test_pages_follow_one_another_in_both_directions(reader: User, tenant: Tenant, other_tenant: Tenant) -> None:
    moment = timezone.now()
    for number in range(7):
        # Several calls with the same time are ordered by ID.
        record(tenant, started_at=moment - timedelta(minutes=number // 3))
        record(other_tenant, started_at=moment - timedelta(minutes=number // 3))
    first = pages.page(CallQuery(), reader, size=3)
    every, seen, page = [first.calls], list(first.calls), first
    assert first.previous is None
    while page.next:
        page = pages.page(CallQuery(), reader, after=page.next, size=3)
        every.append(page.calls)
        seen += page.calls
    assert len(seen) == len(set(seen)) == len(search_results(reader))
    for calls in reversed(every[:-1]):
        assert page.previous
        page = pages.page(CallQuery(), reader, before=page.previous, size=3)
        assert page.calls == calls
    assert page.previous is None
    assert page.next


def test_what_is_asked_of_calls_does_not_change_their_pages(reader: User, tenant: Tenant) -> None:
    calls = [record(tenant, ago, duration_us=ago * 1000) for ago in range(1, 10)]
    query = CallQuery(duration_min=3)
    first = pages.page(query, reader, size=4)
    assert first.calls == calls[2:6]
    second = pages.page(query, reader, after=first.next, size=4)
    assert second.calls == calls[6:]
    assert second.complete
    assert pages.page(query, reader, before=second.previous, size=4).calls == first.calls


def test_everything_is_walked_through_in_pieces(reader: User, tenant: Tenant) -> None:
    calls = [record(tenant, ago) for ago in range(1, 8)]
    pieces = list(everything(CallQuery(), reader, chunk=3))
    assert [call for piece in pieces for call in piece] == calls
    assert max(map(len, pieces)) == 3


def test_whoever_is_no_member_any_more_gets_no_more_pieces(tenant: Tenant) -> None:
    person = member(tenant)
    for ago in range(1, 8):
        record(tenant, ago)
    pieces = everything(CallQuery(), person, chunk=3)
    assert len(next(pieces)) == 3
    Membership.objects.all().delete()
    assert [call for piece in pieces for call in piece] == []


def test_calls_are_counted_ahead_as_far_as_that_is_quick(
    tenant: Tenant, root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    for outcome in ("ok", "lost", "lost"):
        record(tenant, outcome=outcome)
    for query, count in ((CallQuery(), 3), (CallQuery(outcome=("lost",)), 2), (CallQuery(text="x"), None)):
        assert pages.expected(query, scope_of(query, root)) == count
    monkeypatch.setattr(pages, "MAX_EXPECTED", 2)
    assert pages.expected(CallQuery(), scope_of(CallQuery(), root)) is None


# --- How much it looks at ----------------------------------------------------------------------------------------


class SearchClock(Clock):
    """A clock that advances by the configured duration of each statement."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[int] = []


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], SearchClock]]:
    """Let each examined call take this many seconds."""

    def pace(seconds_each: float) -> SearchClock:
        clock = SearchClock()

        def look(plan: Any, start: Any, most: int, *, newer: bool = False) -> scan.ScanResult:
            clock.looks.append(most)
            clock.now += most * seconds_each
            return scan.scan(plan, start, most, newer=newer)

        monkeypatch.setattr(pages, "monotonic", clock)
        monkeypatch.setattr(pages, "scan", look)
        return clock

    return pace


def test_a_search_that_finds_little_stops_and_says_how_far_it_came(
    slow: Callable[[float], SearchClock], tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools_app.audit.search.scan.FIRST_BATCH", 4)
    monkeypatch.setattr("tools_app.audit.search.scan.MIN_BATCH", 1)
    monkeypatch.setattr("tools_app.audit.search.scan.GROWTH", 1)
    calls = [record(tenant, ago, duration_us=1000 * (ago in {2, 20})) for ago in range(1, 31)]
    clock, person, query = slow(0.01), member(tenant), CallQuery(duration_min=1)

    page = pages.page(query, person)
    assert not page.complete
    assert page.calls == [calls[1]]
    assert page.searched == sum(clock.looks) == 12
    assert page.searched_back_to == calls[11].started_at
    following = pages.page(query, person, after=page.next)
    assert following.calls == [calls[19]]
    assert following.searched_back_to == calls[23].started_at


def test_back_from_where_nothing_is_no_call_is_skipped(tenant: Tenant) -> None:
    calls = [record(tenant, ago) for ago in (1, 2)]
    person, newest = member(tenant), CallQuery()
    empty = pages.page(newest, person, before=PagePosition.of(calls[0]).cursor)
    assert (empty.calls, empty.next is not None) == ([], True)
    assert pages.page(newest, person, after=empty.next).calls == calls


def test_no_page_looks_on_when_its_time_is_up(
    slow: Callable[[float], SearchClock], tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ago in range(1, 300):
        record(tenant, ago)
    monkeypatch.setattr("tools_app.audit.search.scan.FIRST_BATCH", 5)
    monkeypatch.setattr("tools_app.audit.search.scan.MIN_BATCH", 5)
    person, query = member(tenant), CallQuery(duration_min=10**6)
    tired = slow(1.0)
    assert pages.page(query, person).searched == 5
    assert tired.looks == [5]


def test_a_page_asks_the_database_a_bounded_number_of_questions(
    tenant: Tenant, django_assert_max_num_queries: Any
) -> None:
    for ago in range(60):
        record(tenant, ago, arguments="needle")
    person = member(tenant)
    # PostgreSQL gets its statement timeout, in a transaction.
    limits = 3 * (connection.vendor == "postgresql")
    with django_assert_max_num_queries(2 + pages.MAX_LOOKS + limits):
        assert len(search_results(person, text="needle", duration_max="7")) == pages.PAGE_SIZE
    with django_assert_max_num_queries(3 + limits):
        assert len(search_results(person)) == pages.PAGE_SIZE
