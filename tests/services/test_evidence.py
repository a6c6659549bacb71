"""Tamper evidence of a hub on PostgreSQL: no findings in operation and after crashes, findings after changes by SQL."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from tests.services.caller import Caller
from tests.services.conftest import Hub, started
from tests.services.stack import Running, Stack, eventually

NOTHING = "No problems found."


@pytest.fixture(scope="module")
def running(stack: Stack) -> Hub:
    """A hub of its own, whose whole audit log is verified."""
    return started(stack)


def verify(stack: Stack, *arguments: str) -> tuple[int, str]:
    """The exit code of `verify_audit`, and its output."""
    done = stack.run("verify_audit", *arguments)
    return done.returncode, done.stdout + done.stderr


def is_clean(stack: Stack, *arguments: str) -> bool:
    code, output = verify(stack, *arguments)
    assert (code, NOTHING in output) == (0, True), output
    return True


def writer_of(hub: Hub, web: Running) -> str:
    """The writer ID of a web process."""
    return hub.stack.rows("SELECT id::text FROM tools_app_process WHERE pid = %s", web.process.pid)[0][0]


def last_position(stack: Stack, writer: str) -> int:
    return stack.rows("SELECT max(chain_position) FROM tools_app_call WHERE writer = %s", writer)[0][0]


def last_words(stack: Stack, writer: str) -> list[int]:
    """The positions that the checkpoints of a process name, if the last of them says that nothing follows.

    That one names none where housekeeping signed them a moment before.
    """
    query = "SELECT statement FROM tools_app_checkpoint WHERE writer = %s ORDER BY sequence"
    found = [orjson.loads(row[0]) for row in stack.rows(query, writer)]
    return [head[1] for text in found for head in text["heads"]] if found and found[-1]["last"] else []


@contextmanager
def without_rows(stack: Stack, *tables: str) -> Iterator[None]:
    """Temporarily delete all rows."""
    for table in tables:
        stack.execute(f"CREATE TABLE {table}_kept AS SELECT * FROM {table}")
        stack.execute(f"DELETE FROM {table}")
    yield
    for table in tables:
        stack.execute(f"INSERT INTO {table} SELECT * FROM {table}_kept")
        stack.execute(f"DROP TABLE {table}_kept")


def test_a_running_hub_with_a_worker_is_clean(hub: Hub, caller: Caller) -> None:
    for number in range(8):
        assert caller.call(hub.urls[number % 2], "echo", {"message": str(number)}, id=number).status_code == 200
    caller.counting(hub.urls[0], 3, 100).finished()
    writers = hub.stack.rows("SELECT DISTINCT writer FROM tools_app_call WHERE chain_hash IS NOT NULL")
    assert len(writers) == 3
    assert is_clean(hub.stack)
    assert is_clean(hub.stack, "--tenant", "demo")


def test_what_a_killed_process_left_is_signed_by_another_one(hub: Hub, caller: Caller) -> None:
    caller.call(hub.urls[1], "echo", {"message": "the last"})
    writer = writer_of(hub, hub.webs[1])
    hub.webs[1].kill()
    eventually(lambda: last_position(hub.stack, writer) in last_words(hub.stack, writer))
    hub.restart_web(1)
    assert is_clean(hub.stack)


def test_a_process_that_is_stopped_signs_its_last_record(hub: Hub, caller: Caller) -> None:
    caller.call(hub.urls[0], "echo", {"message": "the last"})
    writer = writer_of(hub, hub.webs[0])
    assert hub.webs[0].terminate() == 0
    assert last_position(hub.stack, writer) in last_words(hub.stack, writer)
    hub.restart_web(0)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_that_is_stopped_signs_its_last_record(hub: Hub, caller: Caller, pool: str) -> None:
    hub.worker.terminate()
    hub.worker = hub.stack.worker("--pool", pool)
    caller.counting(hub.urls[0], 2, 200).finished()
    ((writer,),) = hub.stack.rows(
        "SELECT writer::text FROM tools_app_call WHERE tool_name = 'count' ORDER BY id DESC LIMIT 1"
    )
    hub.worker.terminate()
    assert last_position(hub.stack, writer) in last_words(hub.stack, writer)
    assert not hub.stack.rows("SELECT id FROM tools_app_process WHERE id = %s", writer)
    hub.restart_worker()
    assert is_clean(hub.stack)


def test_a_change_by_sql_is_named(hub: Hub, caller: Caller) -> None:
    caller.call(hub.urls[0], "echo", {"message": "paid 100"})
    ((call_id, position, before),) = hub.stack.rows(
        "SELECT call.id::text, chain_position, arguments FROM tools_app_call call "
        "JOIN tools_app_callpayload payload ON payload.call_id = call.id ORDER BY call.id DESC LIMIT 1"
    )
    change = "UPDATE tools_app_callpayload SET arguments = %s WHERE call_id = %s"
    hub.stack.execute(change, '{"message":"paid 1"}', call_id)
    code, output = verify(hub.stack)
    assert code == 1
    assert f"CHANGED, call {call_id}, position {position}, tenant demo" in output
    hub.stack.execute(change, before, call_id)
    assert is_clean(hub.stack)


def test_who_takes_everything_away_contradicts_what_was_exported(hub: Hub, caller: Caller, tmp_path: Path) -> None:
    caller.call(hub.urls[0], "echo", {"message": "hello"})
    assert hub.webs[0].terminate() == 0
    export = str(tmp_path / "checkpoints.jsonl")
    hub.stack.manage("export_checkpoints", "--out", export)
    assert is_clean(hub.stack, "--checkpoints", export)
    with without_rows(hub.stack, "tools_app_call", "tools_app_checkpoint"):
        code, output = verify(hub.stack, "--checkpoints", export)
    assert (code, "MISSING, position 1, tenant demo" in output) == (1, True), output
    hub.restart_web(0)
