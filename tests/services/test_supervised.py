"""`up --processes`: several web processes behind one port, which are restarted, replaced and stopped."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.services.caller import Caller
from tests.services.conftest import SERVERS
from tests.services.load import loading
from tests.services.stack import ROOT, Running, Stack, eventually

PROCESSES = 2
REPLACED = "mcphub has replaced its web processes."
# Breaks web processes, but not their supervisor.
FRAGILE = """
import pathlib, sys
if "--supervised" in sys.argv and pathlib.Path(__file__).with_name("broken").exists():
    raise SystemExit("broken")
"""


@pytest.fixture(scope="module")
def app(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An operator's app that can be broken."""
    place = tmp_path_factory.mktemp("apps") / "fragile"
    place.mkdir()
    (place / "__init__.py").write_text(FRAGILE)
    stack.environment["PYTHONPATH"] = str(place.parent)
    stack.environment["MCPHUB_APPS"] += ",fragile"
    return place


@pytest.fixture(scope="module", params=list(dict.fromkeys(SERVERS)))
def supervisor(request: pytest.FixtureRequest, stack: Stack, app: Path) -> Iterator[Running]:
    """A supervisor of two processes, shared by the tests of a module: each test leaves both running."""
    running = stack.web(request.param, processes=PROCESSES)
    yield running
    assert running.terminate() == 0


def children(running: Running) -> set[int]:
    """The web processes."""
    pid = running.process.pid
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def both_answer(running: Running) -> bool:
    return len(children(running)) == PROCESSES and all(map(is_listening, children(running)))


def is_listening(pid: int) -> bool:
    """Whether a process serves requests: it has threads by then."""
    return is_alive(pid) and len(list(Path(f"/proc/{pid}/task").iterdir())) > 1


def test_each_process_answers(supervisor: Running, stack: Stack) -> None:
    assert len(children(supervisor)) == PROCESSES
    assert supervisor.output().count("mcphub is running.") == 1
    caller = Caller(stack.key).open(f"{supervisor.url}/mcp")
    responses = [caller.call(f"{supervisor.url}/mcp", "echo", {"message": "x"}, id=turn) for turn in range(20)]
    assert {response.status_code for response in responses} == {200}


def test_a_process_that_dies_is_replaced_and_the_other_answers_meanwhile(supervisor: Running, stack: Stack) -> None:
    before = children(supervisor)
    dying = min(before)
    os.kill(dying, signal.SIGKILL)
    caller = Caller(stack.key).open(f"{supervisor.url}/mcp")
    assert caller.call(f"{supervisor.url}/mcp", "echo", {"message": "x"}).status_code == 200
    eventually(lambda: both_answer(supervisor) and dying not in children(supervisor))
    assert children(supervisor) & before == before - {dying}
    assert "A web process exited unexpectedly (-9)." in supervisor.output()


def test_a_rolling_restart_fails_no_call(supervisor: Running, stack: Stack) -> None:
    before = children(supervisor)
    rounds = supervisor.output().count(REPLACED)
    with loading(f"{supervisor.url}/mcp", stack.key) as load:
        supervisor.signal(signal.SIGHUP)
        eventually(lambda: supervisor.output().count(REPLACED) > rounds, 240)
        seen = load.answered
        eventually(lambda: load.answered > seen + 10)
    assert load.failures == []
    assert len(children(supervisor)) == PROCESSES
    assert not children(supervisor) & before


def test_processes_that_cannot_be_replaced_stay(supervisor: Running, app: Path) -> None:
    before = children(supervisor)
    (app / "broken").touch()
    try:
        supervisor.signal(signal.SIGHUP)
        eventually(lambda: "The new web process did not start. The old ones keep running." in supervisor.output())
    finally:
        (app / "broken").unlink()
    assert children(supervisor) == before
    assert httpx.get(f"{supervisor.url}/readyz", trust_env=False).status_code == 200


@pytest.mark.parametrize("server", list(dict.fromkeys(SERVERS)))
def test_a_stop_lets_calls_finish_and_leaves_no_process(stack: Stack, app: Path, server: str) -> None:
    running = stack.web(server, processes=PROCESSES)
    worker = stack.worker()
    pids = children(running)
    caller = Caller(stack.key).open(f"{running.url}/mcp")
    counting = caller.counting(f"{running.url}/mcp", 15, 8)
    eventually(lambda: len(counting.seen) > 2)
    assert running.terminate() == 0
    assert counting.finished()[-1][1]["result"]["content"] == [{"type": "text", "text": "15"}]
    assert not any(map(is_alive, pids))
    worker.terminate()


def test_web_processes_do_not_outlive_their_supervisor(stack: Stack, app: Path) -> None:
    running = stack.web(SERVERS[0], processes=PROCESSES)
    pids = children(running)
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.wait(10)
    eventually(lambda: not any(map(is_alive, pids)))


def test_a_second_signal_does_not_wait(stack: Stack, app: Path) -> None:
    running = stack.web(SERVERS[0], processes=PROCESSES)
    worker = stack.worker()
    pids = children(running)
    caller = Caller(stack.key).open(f"{running.url}/mcp")
    counting = caller.counting(f"{running.url}/mcp", 300, 9)
    eventually(lambda: len(counting.seen) > 2)
    running.signal(signal.SIGTERM)
    eventually(lambda: _is_refused(running.url))
    running.signal(signal.SIGTERM)
    assert running.process.wait(5) == 1
    assert not any(map(is_alive, pids))
    worker.kill()


def _is_refused(url: str) -> bool:
    with suppress(httpx.TransportError):
        httpx.get(f"{url}/healthz", trust_env=False)
        return False
    return True


def test_it_ends_when_its_first_processes_do_not_start(stack: Stack, app: Path) -> None:
    (app / "broken").touch()
    try:
        command = [sys.executable, "manage.py", "up", "--no-demo", "--port", "0", "--processes", "2"]
        done = subprocess.run(
            command, cwd=ROOT, env=stack.environment, capture_output=True, text=True, timeout=120, check=False
        )
    finally:
        (app / "broken").unlink()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == "CommandError: A web process did not start. See its output above."
