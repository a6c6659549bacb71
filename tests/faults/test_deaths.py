"""Processes die or hang under load: each response that a client received has its record, and every call ends."""

import os
import signal
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tests.faults.hub import PROCESS_TIMEOUT, Hub
from tests.faults.ledger import check_records
from tests.faults.load import Load, loading
from tests.faults.processes import family
from tests.services.stack import Running, eventually

# A call of a process that died is settled after MCPHUB_PROCESS_TIMEOUT without a heartbeat, which is checked each
# second. A call that the dead process had only reserved is queued again after the same time.
SETTLED_SECONDS = PROCESS_TIMEOUT + 7.0
ANSWERED_SECONDS = SETTLED_SECONDS + 10.0
RUNNER = """
    SELECT p.pid FROM tools_app_runningcall c JOIN tools_app_process p ON p.id = c.owner
    WHERE c.status = 'running' AND c.arguments LIKE %s
"""
# Calls that a worker runs at a time.
CONCURRENCY = 2


@contextmanager
def loaded(hub: Hub) -> Iterator[Load]:
    """Run a load before, during and after the block, and then compare all responses with the records."""
    with loading(hub.urls, hub.stack.key, request_timeout=ANSWERED_SECONDS) as load:
        load.wait_for_results()
        yield load
        load.wait_for_results()
    check_records(hub.stack, load, settled_within=SETTLED_SECONDS)


@contextmanager
def long_call(hub: Hub) -> Iterator[tuple[int, Running, Future[Any]]]:
    """A call in addition to the load: the process that runs it, the worker of that process, and the result."""
    word = uuid.uuid4().hex
    with ThreadPoolExecutor(1) as thread:
        result_future = thread.submit(hub.call, 0, "toil", word=word, n=300, pause=0.1)
        ((pid,),) = eventually(lambda: hub.stack.rows(RUNNER, f"%{word}%"))
        (worker,) = [one for one in hub.workers if pid in {process.pid for process in family(one)}]
        yield pid, worker, result_future


def assert_lost(result_future: Future[Any]) -> None:
    """The call gets the error of a lost call in time."""
    result = result_future.result(SETTLED_SECONDS)
    assert result["isError"] is True
    assert "was lost" in result["content"][0]["text"]


def lost(load: Load) -> list[str]:
    """The errors of lost calls."""
    return [attempt.detail for attempt in load.attempts if attempt.outcome == "tool_error"]


def test_a_web_process_that_is_killed_takes_no_answer_with_it_and_the_other_one_goes_on(hub: Hub) -> None:
    with loaded(hub) as load:
        hub.webs[1].kill()
        load.wait_for_results()
        hub.start_web(1)
    assert load.except_outcomes("result", "broken") == []
    assert {attempt.url for attempt in load.attempts if attempt.outcome == "broken"} == {hub.webs[1].url}


def test_a_killed_process_of_a_worker_loses_the_call_that_it_ran_and_its_client_is_told(hub: Hub) -> None:
    with loaded(hub) as load, long_call(hub) as (pid, _, result_future):
        os.kill(pid, signal.SIGKILL)
        assert_lost(result_future)
    assert load.except_outcomes("result") == []


def test_a_killed_worker_loses_the_calls_that_it_ran_and_the_other_one_takes_those_that_it_held(hub: Hub) -> None:
    with loaded(hub) as load, long_call(hub) as (_, worker, result_future):
        worker.kill()
        assert_lost(result_future)
        load.wait_for_results()
        hub.workers[hub.workers.index(worker)] = hub.stack.worker()
    assert load.except_outcomes("result", "tool_error") == []
    assert len(lost(load)) < CONCURRENCY
    assert all("was lost" in text for text in lost(load))


def test_a_worker_that_hangs_is_taken_for_dead_and_changes_nothing_when_it_wakes_up(hub: Hub) -> None:
    with loaded(hub) as load, long_call(hub) as (_, worker, result_future):
        with frozen(worker):
            assert_lost(result_future)
            load.wait_for_results()
        load.wait_for_results()
    assert load.except_outcomes("result", "tool_error") == []
    assert len(lost(load)) < CONCURRENCY
    assert all("was lost" in text for text in lost(load))


def test_tools_that_never_return_are_given_up_and_others_go_on(hub: Hub) -> None:
    """Their timeout is 2 seconds; the sweeper comes 5 seconds after it for a tool that cannot be interrupted.

    It has the process of a worker ended that such a tool keeps.
    """

    def processes() -> set[int]:
        return {process.pid for worker in hub.workers for process in family(worker)}

    with loaded(hub) as load:
        started_at, processes_before = time.monotonic(), processes()
        tools = ((0, "wait_for_ever"), (1, "hang"), (0, "hang"), (1, "seize"))
        results = [hub.call(web, tool, word="x") for web, tool in tools]
        assert time.monotonic() - started_at < 4 * 2 + 3 * 7
        assert len(eventually(lambda: processes_before - processes())) == 1
    assert [result["isError"] for result in results] == [True] * 4
    assert load.except_outcomes("result") == []
    outcomes = "SELECT outcome FROM tools_app_call WHERE tool_name IN ('hang', 'seize', 'wait_for_ever')"
    assert hub.stack.rows(outcomes) == [("timeout",)] * 4


@contextmanager
def frozen(running: Running) -> Iterator[None]:
    """Stop a process and its children during the block."""
    os.killpg(running.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(running.process.pid, signal.SIGCONT)
