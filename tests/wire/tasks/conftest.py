"""What the tests of both kinds of tasks share: the tools, in either place, and a look at a task."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.wire.client import Peer
from tests.wire.task_tools import TOOLS, Gate, get_task, register


@pytest.fixture(params=[False, True], ids=["here", "in-a-worker"])
def background(request: pytest.FixtureRequest) -> bool:
    """Where the tools run."""
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
    """The tools, in either place."""
    register(gate, background=background)
    offer(*TOOLS)


@pytest.fixture
def in_state(eventually: Callable[..., Any]) -> Callable[[Peer, str, str], dict[str, Any]]:
    """A task once it stands so: `in_state(peer, task, "completed")`."""

    def ask(peer: Peer, task: str, status: str) -> dict[str, Any]:
        eventually(lambda: get_task(peer, task)["status"] == status)
        return get_task(peer, task)

    return ask
