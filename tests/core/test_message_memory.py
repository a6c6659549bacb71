"""The memory budget of large WebSocket messages: acquired for each, and always released."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tools_app.core import request_memory
from tools_app.core.request_memory import MemoryBudget, MessageMemory, TooMuchMemory


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> MemoryBudget:
    budget = MemoryBudget(lambda: (200, 2000))
    monkeypatch.setattr(request_memory, "_bodies", budget)
    monkeypatch.setattr(request_memory, "WAIT_SECONDS", 0.01)
    return budget


def run(scenario: Callable[[], Any]) -> None:
    asyncio.run(scenario())


def test_a_message_holds_its_size_until_it_is_answered(budget: MemoryBudget) -> None:
    async def scenario() -> None:
        memory = MessageMemory("acme")
        await memory.admit(100)
        assert memory.is_admitted
        memory.complete()
        assert not memory.is_admitted
        free = memory.take(60)
        assert budget._held == {"acme": 120}
        free()
        assert budget._held == {}

    run(scenario)


def test_each_message_gets_what_was_held_for_it(budget: MemoryBudget) -> None:
    async def scenario() -> None:
        memory = MessageMemory("acme")
        memory.complete()  # a small one
        await memory.admit(100)
        memory.complete()
        assert memory.take(10) is None
        assert budget._held == {"acme": 200}
        memory.take(50)()
        assert budget._held == {}

    run(scenario)


def test_what_no_application_receives_is_given_back(budget: MemoryBudget) -> None:
    async def scenario() -> None:
        memory = MessageMemory("acme")
        await memory.admit(40)
        memory.complete()
        await memory.admit(40)
        memory.close()
        assert budget._held == {}
        assert budget.try_hold("acme", 200)  # another connection's
        memory.close()
        assert budget._held == {"acme": 200}
        budget.free("acme", 200)
        await memory.admit(40)  # the connection ended while it waited
        assert budget._held == {}

    run(scenario)


def test_a_message_without_memory_is_refused_after_a_while(budget: MemoryBudget) -> None:
    async def scenario() -> None:
        await MessageMemory("acme").admit(100)
        with pytest.raises(TooMuchMemory):
            await MessageMemory("acme").admit(1)
        await MessageMemory("other").admit(100)

    run(scenario)
