"""A clock that is set back under load, in a web process and a worker: calls, sessions and keys keep working."""

from pathlib import Path

from tests.faults.hub import Hub
from tests.faults.ledger import check_records
from tests.faults.load import loading
from tests.services.stack import THREADS, Stack, eventually

CLOCK = Path(__file__).parent / "clock"
AN_HOUR = 3600
ANSWERED_SECONDS = 15.0
SETTLED_SECONDS = 10.0


def test_a_clock_that_is_set_back_ends_no_session_and_no_call_and_nothing_takes_less_than_no_time(
    hub: Hub, tmp_path: Path
) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0")
    path = f"{CLOCK}:{hub.stack.environment.get('PYTHONPATH', '')}"
    wrong = {**hub.stack.environment, "PYTHONPATH": path, "CLOCK_FILE": str(clock)}
    stack = Stack(hub.stack.database_url, wrong, tmp_path, hub.stack.key)
    try:
        web, worker = stack.web("uvicorn"), stack.worker(*THREADS)
        with loading([f"{web.url}/mcp"], stack.key, request_timeout=ANSWERED_SECONDS) as load:
            load.wait_for_results()
            clock.write_text(str(-AN_HOUR))
            load.wait_for_results()
            backwards = "SELECT 1 FROM tools_app_call WHERE started_at < now() - interval '30 minutes'"
            assert eventually(lambda: hub.stack.rows(backwards)), "the clock was not set back"
            load.wait_for_results()
        records = check_records(stack, load, settled_within=SETTLED_SECONDS)
        assert worker.process.poll() is None
    finally:
        stack.end()
    assert load.except_outcomes("result") == []
    assert load.session_count == len(load.clients) // 2, "a session was lost"
    assert all(record.duration_us >= 0 for one in records.values() for record in one)
