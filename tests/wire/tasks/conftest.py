"""Fixtures for tests of both kinds of tasks: tools in the web process and in workers, and polling."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.wire.client import Peer
from tests.wire.task_tools import TOOLS, Gate, get_task, register


@pytest.fixture(params=[False, True], ids=["here", "in-a-worker"])
def background(request: pytest.FixtureRequest) -> bool:
    """Whether the tools run in a worker."""
    return bool(request.param)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def here(registries: None, offer: Callable[..., object], gate: Gate) -> None:
    """The tools, in the web process."""
    register(gate, background=False)
    offer(*TOOLS)


@pytest.fixture
def tools(registries: None, offer: Callable[..., object], gate: Gate, background: bool) -> None:
    """The tools, in the web process and in a worker."""
    register(gate, background=background)
    offer(*TOOLS)


@pytest.fixture
def in_state(eventually: Callable[..., Any]) -> Callable[[Peer, str, str], dict[str, Any]]:
    """Poll a task until it has a status: `in_state(peer, task, "completed")`."""

    def ask(peer: Peer, task: str, status: str) -> dict[str, Any]:
        eventually(lambda: get_task(peer, task)["status"] == status)
        return get_task(peer, task)

    return ask
