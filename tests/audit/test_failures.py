"""Failures grouped by tool and cause."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import orjson
import pytest

from tools_app.audit.search import failures
from tools_app.models import Call, CallPayload, Outcome, Tenant

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
DAY = timedelta(days=1)
Fail = Callable[..., Call]


@pytest.fixture
def fail(tenant: Tenant) -> Fail:
    def make(cause: str = "", tool: str = "find", result: str = "", **more: Any) -> Call:
        fields = {"tenant": tenant, "tool_name": tool, "outcome": Outcome.TOOL_ERROR, "started_at": NOON, **more}
        call = Call.objects.create(**fields, cause=cause, finished_at=NOON, duration_us=1, writer=uuid4())
        CallPayload.objects.create(call=call, result=result)
        return call

    return make


def report(*tenants: Tenant, audited: bool = True, tool: str = "") -> failures.Report:
    permissions = {tenant.pk: audited for tenant in tenants}
    return failures.failures(tenants, permissions, NOON - DAY, NOON + DAY, tool)


def grouped(*tenants: Tenant, **options: Any) -> list[tuple[str, str, int]]:
    return [(group.name, group.cause, group.count) for group in report(*tenants, **options).groups]


@pytest.mark.parametrize(
    ("one", "other", "cause"),
    [
        ("No row 17", "No row 4711", "No row …"),
        ("KeyError: 'ann'", 'KeyError: "ben"', "KeyError: …"),
        ("GET https://a.example/x failed", "GET https://b.example/y?z=1 failed", "GET … failed"),
        ("No user 101d4889-ed55-4e49-88f3-d4d61eecad2b", "No user 3953f255-b0b4-4537-abb1-c8fcb6db95bc", "No user …"),
        ("timed out after 1.5 s", "timed out after 20 s", "timed out after … s"),
        ("10.0.0.1:80 refused", "192.168.1.20:8080 refused", "… refused"),
        ("object at 0x7f00aa", "object at 0x1234bc", "object at …"),
        ("too   many\nspaces", "too many", "too many"),
    ],
)
def test_causes_that_differ_in_what_varies_are_one(
    tenant: Tenant, fail: Fail, one: str, other: str, cause: str
) -> None:
    fail(one)
    fail(other)
    assert grouped(tenant) == [("find", cause, 2)]


def test_another_tool_outcome_or_cause_is_another_group(tenant: Tenant, other_tenant: Tenant, fail: Fail) -> None:
    fail("No row 1")
    fail("No row 1", tool="save")
    fail("No row 1", outcome=Outcome.TIMEOUT)
    fail("No column 1")
    fail("No row 1", tenant=other_tenant)
    for well in (Outcome.OK, Outcome.CANCELLED, Outcome.DENIED):
        fail("fine", outcome=well)
    assert len(grouped(tenant)) == 4
    assert len(grouped(tenant, other_tenant)) == 5
    assert grouped(tenant, tool="save") == [("save", "No row …", 1)]


def test_of_a_traceback_the_last_line_counts_however_long_it_is(tenant: Tenant, fail: Fail) -> None:
    frames = '  File "a.py", line 1, in f\n    g()\n' * 500
    fail(f"Traceback (most recent call last):\n{frames}ValueError: bad\n")
    assert grouped(tenant) == [("find", "ValueError: bad", 1)]


def test_without_a_cause_the_text_of_the_result_counts(tenant: Tenant, fail: Fail) -> None:
    for divisor in ("0", "1"):
        content = orjson.dumps({"content": [{"type": "text", "text": f'Cannot divide by "{divisor}".\nNo.'}]}).decode()
        fail(result=content)
    assert grouped(tenant) == [("find", "Cannot divide by ….", 2)]


def test_who_may_not_read_causes_sees_names_and_outcomes(tenant: Tenant, fail: Fail) -> None:
    fail("No row 1")
    fail("secret words")
    (group,) = report(tenant, audited=False).groups
    assert (group.count, group.cause, group.example) == (2, "", "")


def test_a_group_says_when_it_was_seen_and_how_it_is_spread(tenant: Tenant, fail: Fail) -> None:
    first = fail("old 1", started_at=NOON - timedelta(hours=23))
    last = fail("old 2", started_at=NOON)
    fail("old 3", started_at=NOON - 2 * DAY)
    (group,) = report(tenant).groups
    assert (group.first_at, group.last_at, group.example, group.example_id) == (
        first.started_at,
        last.started_at,
        "old 2",
        last.pk,
    )
    assert sum(group.buckets) == group.count == 2
    assert group.buckets[0] == 1


def test_each_tenant_costs_one_query_and_results_without_a_cause_another_one(
    tenant: Tenant, other_tenant: Tenant, fail: Fail, django_assert_num_queries: Any
) -> None:
    for row in (tenant, other_tenant):
        for outcome in failures.FAILED:
            fail("No row 1", tenant=row, outcome=outcome)
    with django_assert_num_queries(2):
        assert report(tenant, other_tenant).read == 2 * len(failures.FAILED)
    fail()
    with django_assert_num_queries(3):
        report(tenant, other_tenant)


def test_only_the_newest_are_read_and_that_is_said(tenant: Tenant, fail: Fail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "MAX_READ", 2)
    for number in range(3):
        fail("late", started_at=NOON + timedelta(seconds=number))
    found = report(tenant)
    assert (found.read, found.is_partial) == (2, True)
    assert found.groups[0].first_at == NOON + timedelta(seconds=1)


@pytest.mark.parametrize("cause", ["No row", "word " * 300, f"{failures.TRACEBACK}:\n{'x' * 900}\nValueError: bad"])
def test_a_call_knows_its_group(tenant: Tenant, fail: Fail, cause: str) -> None:
    call = fail(f"{cause} 1")
    fail(f"{cause} 2")
    (group,) = report(tenant).groups
    assert failures.group_of(call, audited=True).digest == group.digest
    assert failures.group_of(fail("", outcome=Outcome.OK), audited=True) is None


@pytest.mark.parametrize("part", ["'", '"a', "1.", "a://", "0x", "f", "-", "`", "0f-"])
def test_what_varies_is_found_in_linear_time(part: str) -> None:
    text = part * failures.MAX_HEAD
    began = time.thread_time()
    for _ in range(100):
        failures.normalized(text)
    assert time.thread_time() - began < 10


def test_the_words_to_search_for_are_those_that_do_not_vary(tenant: Tenant, fail: Fail) -> None:
    fail("Row 17 of table 'users' is missing")
    assert report(tenant).groups[0].words == "is missing"
