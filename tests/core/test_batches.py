"""Requests that come while others are handled are handled together, and each has its own result or error."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tools_app.core.batches import AsyncBatches, ThreadBatches

WAIT_SECONDS = 30
AWAY = OSError("away")


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_requests_of_threads_that_come_meanwhile_are_handled_together(threads: ThreadPoolExecutor) -> None:
    began, goes_on, sizes = threading.Event(), threading.Event(), []

    def handle(requests: list[int]) -> list[int | Exception]:
        sizes.append(len(requests))
        began.set()
        assert goes_on.wait(WAIT_SECONDS)
        if 9 in requests:
            raise AWAY
        return [AWAY if request == 3 else request for request in requests]

    batches = ThreadBatches(handle, threads.submit, 4)
    first = batches.submit(1)
    assert began.wait(WAIT_SECONDS)
    later = [batches.submit(number) for number in (2, 2, 3, 4, 8, 9)]
    goes_on.set()
    assert first.result(WAIT_SECONDS) == 1
    assert [one.exception(WAIT_SECONDS) or one.result() for one in later] == [2, 2, AWAY, 4, AWAY, AWAY]
    assert sizes == [1, 4, 2]
    threads.shutdown()
    with pytest.raises(RuntimeError, match="shutdown"):
        batches.submit(5).result(WAIT_SECONDS)


def test_requests_on_an_event_loop_that_come_meanwhile_are_handled_together() -> None:
    sizes = []

    async def handle(requests: list[int]) -> list[int | Exception]:
        sizes.append(len(requests))
        await asyncio.sleep(0)
        if 9 in requests:
            batches.fail_waiting(AWAY)
            raise AWAY
        return [AWAY if request == 3 else request for request in requests]

    batches: AsyncBatches[int, int] = AsyncBatches(handle, 4)

    async def scenario() -> None:
        first = batches.submit(1)
        await asyncio.sleep(0)
        given_up = batches.submit(0)
        given_up.cancel()
        later = [batches.submit(number) for number in (2, 3, 4)]
        assert await asyncio.gather(first, *later, return_exceptions=True) == [1, 2, AWAY, 4]
        failing = [batches.submit(number) for number in (5, 6, 7, 9, 10)]
        assert await asyncio.gather(*failing, return_exceptions=True) == [AWAY] * 5
        assert await batches.submit(11) == 11

    for _ in range(2):
        asyncio.run(scenario())
    assert sizes == [1, 4, 4, 1] * 2
