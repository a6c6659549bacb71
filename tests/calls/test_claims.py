"""Concurrent claims of several threads share one statement, and each thread gets its own call or error."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import OperationalError

from tools_app.calls.background import claims
from tools_app.calls.background.claims import GroupClaimer

WAIT_SECONDS = 30


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.mark.parametrize("problem", [None, OperationalError("connection refused")], ids=["claimed", "away"])
def test_calls_that_are_claimed_meanwhile_are_claimed_together(
    threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, problem: Exception | None, eventually: Any
) -> None:
    began, goes_on, groups = threading.Event(), threading.Event(), []

    def claim_all(call_ids: Sequence[UUID]) -> dict[UUID, Any]:
        groups.append(sorted(call_ids))
        began.set()
        assert goes_on.wait(WAIT_SECONDS)
        if problem and len(groups) > 1:
            raise problem
        return {id: f"claim of {id}" for id in call_ids}

    monkeypatch.setattr(claims, "claim_all", claim_all)
    claimer, (first, *others) = GroupClaimer(), [uuid4() for _ in range(4)]
    claimed = threads.submit(claimer.claim, first)
    assert began.wait(WAIT_SECONDS)
    later = [threads.submit(claimer.claim, id) for id in others]
    again = threads.submit(claimer.claim, others[0])
    assert eventually(lambda: len(claimer._waiting) == 4)
    goes_on.set()

    assert claimed.result(WAIT_SECONDS) == f"claim of {first}"
    if problem:
        assert [one.exception(WAIT_SECONDS) for one in (*later, again)] == [problem] * 4
    else:
        answers = [one.result(WAIT_SECONDS) for one in (*later, again)]
        assert sorted(filter(None, answers)) == sorted(f"claim of {id}" for id in others), "a call is claimed once"
    assert groups == [[first], sorted([*others, others[0]])]
