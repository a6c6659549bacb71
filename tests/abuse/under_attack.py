"""Under every attack, a neighbour gets all its responses, the hub's memory is bounded, and nothing fails with a 500.

Bounded in count and time. How long the neighbour waits depends on the machine: `benchmarks/fairness.py` measures it.

Modules that import the test name a SERVER.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.abuse import websocket_attacks  # noqa: F401 - importing it registers its attacks
from tests.abuse.attacks import ATTACKS, SECONDS
from tests.abuse.hub import MEGABYTE, Hub

# The maximum increase since the hub was ready, over all attacks. Large bodies and results of a tenant may have 64
# MiB each, and take a few times as much while they are parsed and sent. Half of it is what the C library keeps of freed
# memory: with 200 WebSockets, Python's own never exceeded 30 MB above that of a hub at rest.
MAX_MEMORY = 700 * MEGABYTE
NEIGHBOUR = Path(__file__).with_name("neighbour.py")


@contextmanager
def neighbour(hub: Hub) -> Iterator[dict[str, Any]]:
    """Run a client of another tenant during the block; its result is filled in afterwards."""
    host, port = hub.address
    command = [sys.executable, str(NEIGHBOUR), host, str(port), hub.neighbour_key]
    result: dict[str, Any] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as calling:
        assert calling.stdin is not None
        assert calling.stdout is not None
        assert calling.stdout.readline() == "begun\n"
        yield result
        calling.stdin.close()
        result |= json.loads(calling.stdout.readline())


@pytest.mark.parametrize("name", ATTACKS)
def test_a_neighbour_is_answered_and_memory_is_bounded(attacked: Hub, name: str, record_property: Any) -> None:
    with neighbour(attacked) as result:
        ATTACKS[name](attacked, time.monotonic() + SECONDS)
    record_property("longest_wait", result["longest"])
    record_property("memory", attacked.largest)
    sys.stdout.write(f"{attacked.server} {name}: {result}, memory {attacked.largest / MEGABYTE:.0f} MB\n")
    assert result["wrong"] == 0
    assert attacked.internal_errors == []
    assert attacked.largest < MAX_MEMORY
