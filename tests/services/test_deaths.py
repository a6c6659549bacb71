"""Processes die, calls are not lost: each answer that a client received has its record."""

import pytest

from tests.services.caller import Caller
from tests.services.conftest import Hub
from tests.services.stack import eventually


def test_a_worker_killed_in_the_middle_leaves_a_call_that_is_lost_and_answered(hub: Hub, caller: Caller) -> None:
    counting = caller.counting(hub.urls[0], 300, 5)
    eventually(lambda: len(counting.seen) > 2)
    hub.worker.kill()
    seen = counting.finished(15)
    assert seen[-1][1]["result"]["isError"] is True
    assert "was lost" in seen[-1][1]["result"]["content"][0]["text"]
    assert hub.outcomes("count")[-1] == "lost"
    hub.restart_worker()
    assert caller.counting(hub.urls[0], 2, 6).finished()[-1][1]["result"]["isError"] is False


@pytest.mark.parametrize("number", [0, 1])
def test_a_session_outlives_the_restart_of_its_process(hub: Hub, caller: Caller, number: int) -> None:
    assert hub.webs[number].terminate() == 0
    hub.restart_web(number)
    assert caller.call(hub.urls[number], "echo", {"message": "again"}).json()["result"]["isError"] is False


@pytest.mark.parametrize("number", [0, 1])
def test_what_was_answered_before_a_web_process_was_killed_is_recorded(hub: Hub, caller: Caller, number: int) -> None:
    before = len(hub.outcomes("echo"))
    answered = 0
    for turn in range(50):
        response = caller.call(hub.urls[number], "echo", {"message": str(turn)}, id=turn)
        answered += response.status_code == 200
    hub.webs[number].kill()
    assert answered == 50
    assert len(hub.outcomes("echo")) - before == answered
    hub.restart_web(number)


@pytest.mark.parametrize("number", [0, 1])
def test_a_web_process_that_is_stopped_lets_a_running_call_finish(hub: Hub, caller: Caller, number: int) -> None:
    counting = caller.counting(hub.urls[number], 20, 8)
    eventually(lambda: len(counting.seen) > 2)
    assert hub.webs[number].terminate() == 0
    assert counting.finished()[-1][1]["result"]["content"] == [{"type": "text", "text": "20"}]
    hub.restart_web(number)
