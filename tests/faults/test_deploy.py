"""A deploy under load, web processes and workers one after the other: no call fails, and no session is lost.

What a client does by itself is not a failure: it connects anew where an answer said that it was the last one, or where
a kept connection was closed before a byte of the answer came. No call runs twice for that.
"""

import signal

import pytest

from tests.faults.hub import Hub
from tests.faults.ledger import check_records
from tests.faults.load import loading
from tests.services.stack import THREADS, eventually

ANSWERED_SECONDS = 15.0
SETTLED_SECONDS = 10.0
ROLLED_SECONDS = 100.0
ROLLED = "mcphub has replaced its web processes."
CONNECT_ANEW = 3


@pytest.mark.parametrize("server", ["daphne", "uvicorn"])
def test_a_rolling_restart_fails_no_call_and_loses_no_session(hub: Hub, server: str) -> None:
    supervised = hub.stack.web(server, processes=2)
    new = hub.stack.worker(*THREADS)
    with loading(
        [f"{supervised.url}/mcp"], hub.stack.key, request_timeout=ANSWERED_SECONDS, retries=CONNECT_ANEW
    ) as load:
        load.wait_for_results()
        supervised.signal(signal.SIGHUP)
        eventually(lambda: ROLLED in supervised.output(), ROLLED_SECONDS)
        load.wait_for_results()
        assert hub.workers[0].terminate() == 0
        hub.workers[0] = new
        load.wait_for_results()
    check_records(hub.stack, load, settled_within=SETTLED_SECONDS)
    assert load.except_outcomes("result") == []
    assert load.session_count == len(load.clients) // 2, "a session was lost"
    assert supervised.terminate() == 0
