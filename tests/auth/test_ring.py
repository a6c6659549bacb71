"""What requests remember of the database: never older than a second, and never what was just forgotten."""

import asyncio
import threading
from collections.abc import Mapping, Sequence

import pytest
from django.db import OperationalError

from tools_app.auth.ring import Ring

WAIT_SECONDS = 5.0


class Store:
    """Rows that are read when a test lets them be."""

    def __init__(self) -> None:
        self.row = "old"
        self.reads = 0
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def load(self, keys: Sequence[str]) -> Mapping[str, str]:
        self.reads += 1
        read = dict.fromkeys(keys, self.row)
        self.begun.set()
        assert self.go_on.wait(WAIT_SECONDS)
        return read


@pytest.mark.parametrize("forget_all", [False, True])
def test_what_was_forgotten_while_it_was_read_is_read_anew(forget_all: bool) -> None:
    async def scenario() -> tuple[str | None, str | None]:
        store = Store()
        ring = Ring(store.load)
        early = asyncio.create_task(ring.get("key"))
        assert await asyncio.to_thread(store.begun.wait, WAIT_SECONDS)
        store.row = "new"
        ring.forget_all() if forget_all else ring.forget("key")
        store.go_on.set()
        return await early, await ring.get("key")

    assert asyncio.run(scenario()) == ("old", "new")


def test_what_is_in_memory_is_not_read_again() -> None:
    async def scenario() -> int:
        store = Store()
        store.go_on.set()
        ring = Ring(store.load)
        assert [await ring.get("key") for _ in range(3)] == ["old"] * 3
        return store.reads

    assert asyncio.run(scenario()) == 1


def test_for_a_store_that_hangs_nobody_waits_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools_app.auth.ring.HANGS_AFTER", 0.0)
    begun, go_on, asked = threading.Event(), threading.Event(), []

    def load(keys: Sequence[str]) -> dict[str, str]:
        asked.append(list(keys))
        begun.set()
        assert go_on.wait(WAIT_SECONDS)
        raise OperationalError("the database does not answer")

    async def scenario() -> list[object]:
        ring: Ring[str, str] = Ring(load)
        early = asyncio.create_task(ring.get("early"))
        assert await asyncio.to_thread(begun.wait, WAIT_SECONDS)
        late = asyncio.create_task(ring.get("late"))
        await asyncio.sleep(0)
        go_on.set()
        return await asyncio.gather(early, late, return_exceptions=True)

    assert [type(problem) for problem in asyncio.run(scenario())] == [OperationalError, OperationalError]
    assert asked == [["early"]]
