"""Clients that vanish, under load: they delay nobody, and no resource of theirs remains."""

import json
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.faults.hub import Hub
from tests.faults.ledger import check_records
from tests.faults.load import loading, modern_call
from tests.faults.processes import family
from tests.faults.vanish import NAME, crowd
from tests.faults.wire import request
from tests.services.stack import eventually

CROWD = 2000
ANSWERED_SECONDS = 15.0
SETTLED_SECONDS = 10.0
# Within this, nothing of clients that vanished is left.
FORGOTTEN_SECONDS = 20.0
EXPIRED_SECONDS = 40.0
SLOW_SECONDS = 12.0
# What a slow reader may cost: the stream that it does not read is held back, not kept.
MAX_BYTES = 25 * 2**20
# It is offered more than twice as much: so many bytes, up to a hundred times a second.
SIZE, TIMES = 80_000, 1_200


@pytest.mark.parametrize("web", [0, 1], ids=["daphne", "uvicorn"])
def test_a_client_that_reads_a_byte_a_second_holds_up_nobody_and_costs_little(hub: Hub, web: int) -> None:
    word = uuid.uuid4().hex
    before = family(hub.webs[web])[0].rss
    with loading(hub.urls, hub.stack.key, request_timeout=ANSWERED_SECONDS) as load, pouring(hub, web, word) as slow:
        end = time.monotonic() + SLOW_SECONDS
        while time.monotonic() < end:
            slow.recv(1)
            time.sleep(1)
        load.wait_for_results()
        grown = family(hub.webs[web])[0].rss - before
    check_records(hub.stack, load, settled_within=SETTLED_SECONDS)
    assert load.except_outcomes("result") == []
    assert grown < MAX_BYTES
    assert eventually(lambda: hub.stack.rows(OUTCOME, f"%{word}%")) in ([("ok",)], [("cancelled",)])


UNUSED_FOR_DAYS = "UPDATE tools_app_session SET last_seen_at = now() - interval '2 days' WHERE client_name = %s"
OUTCOME = """
    SELECT outcome FROM tools_app_call c JOIN tools_app_callpayload p ON p.call_id = c.id WHERE p.arguments LIKE %s
"""


@contextmanager
def pouring(hub: Hub, web: int, word: str) -> Iterator[socket.socket]:
    """A connection on which the hub sends more than fits into the buffers of the system."""
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", int(hub.webs[web].url.rpartition(":")[2])))
        body, headers = modern_call(hub.stack.key, "pour", word=word, n=TIMES, size=SIZE)
        slow.sendall(request("POST", "/mcp", "127.0.0.1", headers, json.dumps(body).encode()))
        yield slow


def test_two_thousand_clients_that_vanish_leave_nothing_behind(hub: Hub) -> None:
    before = [resources_of(hub, web) for web in range(2)]
    with loading(hub.urls, hub.stack.key, clients=8, request_timeout=ANSWERED_SECONDS) as load:
        load.wait_for_results()
        crowd(hub.urls, hub.stack.key, CROWD)
        load.wait_for_results()
    check_records(hub.stack, load, settled_within=SETTLED_SECONDS)
    assert load.except_outcomes("result") == []
    for web in range(2):
        eventually(lambda web=web: is_back(before[web], resources_of(hub, web)), FORGOTTEN_SECONDS)


def test_sessions_end_with_their_clients_or_when_nobody_has_used_them_for_long(hub: Hub) -> None:
    with loading(hub.urls, hub.stack.key, clients=8) as load:
        load.wait_for_results()
        assert len(open_sessions(hub, load.name)) == 4
    assert open_sessions(hub, load.name) == []
    crowd(hub.urls, hub.stack.key, 32)
    assert open_sessions(hub, NAME)
    hub.stack.execute(UNUSED_FOR_DAYS, NAME)
    eventually(lambda: not open_sessions(hub, NAME), EXPIRED_SECONDS)


def open_sessions(hub: Hub, client: str) -> list[tuple[object, ...]]:
    """The sessions of clients of this name that have not ended."""
    return hub.stack.rows("SELECT id FROM tools_app_session WHERE client_name = %s AND ended_at IS NULL", client)


def resources_of(hub: Hub, web: int) -> dict[str, int]:
    """The resources of a web process: open files, tasks, streams, calls."""
    inside: dict[str, int] = json.loads(hub.call(web, "insides")["content"][0]["text"])
    return inside | {"fds": family(hub.webs[web])[0].fds}


def is_back(before: dict[str, int], now: dict[str, int]) -> bool:
    """Whether a process holds no more than before, but for connections and threads of its pools.

    Pools of connections to PostgreSQL and Redis grow with what runs at once. A kind of client that leaves a file open
    leaves more than a hundred of them.
    """
    slack = {"fds": 60, "tasks": 3, "threads": 12}
    return all(now[name] <= before[name] + slack.get(name, 0) for name in now)
