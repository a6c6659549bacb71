"""A thread runs one coroutine after the other on one event loop, and nothing of one reaches the next."""

import asyncio
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from tools_app.core.process.thread_loops import ThreadLoops

about: ContextVar[str] = ContextVar("about", default="nobody")


@pytest.fixture
def loops() -> Iterator[ThreadLoops]:
    loops_of_threads = ThreadLoops()
    yield loops_of_threads
    loops_of_threads.close()


async def running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_a_thread_keeps_its_loop_until_all_are_closed(loops: ThreadLoops) -> None:
    loop = loops.run(running_loop())
    assert loops.run(running_loop()) is loop
    loops.close()
    assert loop.is_closed()


def test_what_a_coroutine_leaves_running_is_cancelled(loops: ThreadLoops) -> None:
    left: list[asyncio.Task[bool]] = []

    async def leave() -> None:
        left.append(asyncio.create_task(asyncio.Event().wait()))
        await asyncio.sleep(0)

    loops.run(leave())
    assert left[0].cancelled()


def test_what_a_coroutine_leaves_is_cancelled_though_it_failed(loops: ThreadLoops) -> None:
    left: list[asyncio.Task[bool]] = []

    async def fail() -> None:
        left.append(asyncio.create_task(asyncio.Event().wait()))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loops.run(fail())
    assert left[0].cancelled()


def test_the_context_of_one_does_not_reach_the_next(loops: ThreadLoops) -> None:
    async def note() -> str:
        before = about.get()
        about.set("somebody")
        return before

    assert [loops.run(note()) for _ in range(2)] == ["nobody", "nobody"]


def test_a_coroutine_has_the_context_of_its_thread(loops: ThreadLoops) -> None:
    async def read_context() -> str:
        return about.get()

    token = about.set("this call")
    try:
        assert loops.run(read_context()) == "this call"
    finally:
        about.reset(token)
