"""The path of one request through the project's code: every Python call of it, in order.

    python -m benchmarks.path
    python -m benchmarks.path --workload progress
    python -m benchmarks.path --max-calls 150 --max-files 35

Makes a hub of its own on SQLite and sends it one request at a time through the ASGI application, in this process. The
recorder's thread counts too, with a batch of one. What happens only now and then, such as refreshing a cache, does
not: of several requests the one with the fewest calls is printed.
"""

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from benchmarks import hub, in_process
from benchmarks.in_process import Driver

PACKAGE = hub.PROJECT / "tools_app"
WARM_UP = 30
REQUESTS = 20
# A request is over when nothing was called for so long: its record is counted after its answer.
QUIET_SECONDS = 0.02
# Python 3.11 calls a function for each of these; later versions do not.
INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")


class Call(NamedTuple):
    """One call of a function: in which thread, below how many others, and what was called."""

    thread: str
    depth: int
    file: str
    line: int
    function: str


class Tracer:
    """Notes calls of the project's functions: in this thread, and in those that start after it was installed."""

    def __init__(self) -> None:
        self._active = False
        self._calls: list[Call] = []
        # By frame: a coroutine is entered again after each wait, and is called once. Frames are held, so that no two
        # of them are taken for one.
        self._depths: dict[FrameType, int] = {}

    def install(self) -> None:
        """Begin to look at calls."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def remove(self) -> None:
        """Let the threads that start from here on go unwatched."""
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # typeshed knows only what begins it

    @contextmanager
    def recording(self) -> Iterator[list[Call]]:
        """Note the calls that are made within a block."""
        self._calls, self._depths = [], {}
        self._active = True
        try:
            yield self._calls
        finally:
            self._active = False

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if not self._active or event != "call" or frame in self._depths:
            return
        code = frame.f_code
        if not code.co_filename.startswith(str(PACKAGE)) or code.co_name in INLINED:
            return
        depth = self._depths[frame] = self._depth(frame)
        file = str(Path(code.co_filename).relative_to(PACKAGE))
        self._calls.append(Call(threading.current_thread().name, depth, file, code.co_firstlineno, code.co_qualname))

    def _depth(self, frame: FrameType) -> int:
        frame_ = frame.f_back
        while frame_ is not None and frame_ not in self._depths:
            frame_ = frame_.f_back
        return 0 if frame_ is None else self._depths[frame_] + 1


async def shortest(driver: Driver, tracer: Tracer) -> list[Call]:
    """The calls of the request that needed the fewest."""
    await driver.send_many(WARM_UP, 1)
    return min([await _calls(driver, tracer) for _ in range(REQUESTS)], key=len)


async def _calls(driver: Driver, tracer: Tracer) -> list[Call]:
    with tracer.recording() as calls:
        await driver.send_many(1, 1)
        count = -1
        while count != len(calls):
            count = len(calls)
            await asyncio.sleep(QUIET_SECONDS)
    return calls


def files(calls: list[Call]) -> int:
    """In how many files they stand."""
    return len({call.file for call in calls})


def render(name: str, calls: list[Call]) -> str:
    """The totals and every call, indented below its caller."""
    lines = [f"{name}: {len(calls)} Python calls of tools_app in {files(calls)} files"]
    thread = ""
    for call in calls:
        if call.thread != thread:
            thread = call.thread
            lines.append(f"\n[{thread}]")
        lines.append(f"{'  ' * call.depth}{call.file}:{call.line} {call.function}")
    return "\n".join(lines)


def main() -> None:
    """Make a hub, send it requests, and print the calls of one."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--workload", choices=in_process.WORKLOADS, default="echo")
    arguments.add_argument("--max-calls", type=int, help="fail with more calls than this")
    arguments.add_argument("--max-files", type=int, help="fail with calls in more files than this")
    options = arguments.parse_args()
    tracer = Tracer()

    async def measure(driver: Driver) -> list[Call]:
        return await shortest(driver, tracer)

    with tempfile.TemporaryDirectory() as folder:
        tracer.install()
        try:
            calls: list[Call] = in_process.drive(hub.prepare(Path(folder)), options.workload, measure)
        finally:
            tracer.remove()
    print(render(options.workload, calls))
    _check("calls", len(calls), options.max_calls)
    _check("files", files(calls), options.max_files)


def _check(name: str, count: int, maximum: Any) -> None:
    """End with an error where there are too many."""
    if maximum is not None and count > maximum:
        raise SystemExit(f"{count} {name}; at most {maximum} are allowed.")


if __name__ == "__main__":
    main()
