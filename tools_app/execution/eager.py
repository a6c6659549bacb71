"""Running a coroutine as far as it goes without waiting: most tools that never wait need no timeout and no task."""

import types
from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Finished(Generic[T]):
    """The coroutine is done; this is what it returned."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


def begin(work: Coroutine[Any, Any, T]) -> Finished[T] | Coroutine[Any, Any, T]:
    """Run `work` to its first wait: what it returned if it got to its end, else the rest of it, to be awaited.

    Runs in the caller's task. Raises what `work` raises before its first wait.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as end:
        return Finished(end.value)
    return _rest(work, waits_for)


@types.coroutine
def _rest(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """What `yield from` does, for a coroutine that has already begun."""
    while True:
        try:
            sent = yield waits_for
        except BaseException as thrown:  # noqa: BLE001 - cancellation is for the coroutine to handle
            step = partial(work.throw, thrown)
        else:
            step = partial(work.send, sent)
        try:
            waits_for = step()
        except StopIteration as end:
            result: T = end.value
            return result
