"""Threads that owners share fairly: no owner waits for all work of another."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.web_services import WAIT_SECONDS
from tools_app.core.process.fair_threads import FairThreads, QueueFull


@pytest.fixture
def threads() -> Iterator[FairThreads]:
    pool = FairThreads("test", threads=2, max_waiting=6, max_of_one=4)
    yield pool
    pool.stop()


class Held:
    """Jobs that block until they are released, and their names in the order in which they started."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.has_begun = threading.Semaphore(0)
        self.released = threading.Event()

    def work(self, name: str) -> Callable[[], str]:
        def run() -> str:
            self.started.append(name)
            self.has_begun.release()
            assert self.released.wait(WAIT_SECONDS)
            return name

        return run

    async def wait(self) -> None:
        assert await asyncio.to_thread(self.has_begun.acquire, timeout=WAIT_SECONDS)


def test_an_owner_with_much_work_leaves_a_thread_to_others(threads: FairThreads) -> None:
    async def scenario() -> None:
        held = Held()
        many = [asyncio.create_task(threads.run("acme", held.work(f"acme {n}"))) for n in range(3)]
        await held.wait()
        assert await asyncio.wait_for(threads.run("rival", lambda: "done"), WAIT_SECONDS) == "done"
        assert held.started == ["acme 0"]
        held.released.set()
        assert await asyncio.gather(*many) == ["acme 0", "acme 1", "acme 2"]

    asyncio.run(scenario())


def test_owners_take_turns() -> None:
    threads = FairThreads("test", threads=1, max_waiting=6, max_of_one=4)

    async def scenario() -> list[str]:
        held = Held()
        first = asyncio.create_task(threads.run("x", held.work("x")))
        await held.wait()
        later = [
            asyncio.create_task(threads.run(name[0], held.work(name))) for name in ("a1", "a2", "a3", "b1", "b2", "c1")
        ]
        await asyncio.sleep(0)
        held.released.set()
        await asyncio.gather(first, *later)
        return held.started

    try:
        assert asyncio.run(scenario()) == ["x", "a1", "b1", "c1", "a2", "b2", "a3"]
    finally:
        threads.stop()


def test_what_waits_is_bounded_for_each_and_for_all(threads: FairThreads) -> None:
    async def scenario() -> None:
        held = Held()
        began = [asyncio.create_task(threads.run(owner, held.work(owner))) for owner in ("x", "y")]
        for _ in began:
            await held.wait()
        waiting = [asyncio.create_task(threads.run("x", lambda: "x")) for _ in range(4)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await threads.run("x", lambda: "x")
        waiting += [asyncio.create_task(threads.run("z", lambda: "z")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await threads.run("w", lambda: "w")
        held.released.set()
        assert await asyncio.gather(*began, *waiting) == ["x", "y", "x", "x", "x", "x", "z", "z"]
        assert await threads.run("w", lambda: "w") == "w"

    asyncio.run(scenario())


def test_work_that_is_cancelled_in_time_never_begins_and_an_error_is_the_callers(threads: FairThreads) -> None:
    async def scenario() -> None:
        held = Held()
        first = asyncio.create_task(threads.run("acme", held.work("first")))
        await held.wait()
        second = asyncio.create_task(threads.run("acme", held.work("second")))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        held.released.set()
        assert await first == "first"
        with pytest.raises(ZeroDivisionError):
            await threads.run("acme", lambda: 1 // 0)
        assert held.started == ["first"]

    asyncio.run(scenario())


def test_cancelled_work_is_freed_before_its_turn(threads: FairThreads) -> None:
    async def scenario() -> None:
        held = Held()
        first = asyncio.create_task(threads.run("acme", held.work("first")))
        await held.wait()
        cancelled = asyncio.create_task(threads.run("acme", held.work("cancelled")))
        await asyncio.sleep(0)
        assert threads.waiting("acme") == 1
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        assert threads.waiting("acme") == 0
        held.released.set()
        assert await asyncio.wait_for(first, WAIT_SECONDS) == "first"
        assert await asyncio.wait_for(threads.run("acme", held.work("later")), WAIT_SECONDS) == "later"
        assert held.started == ["first", "later"]

    asyncio.run(scenario())
