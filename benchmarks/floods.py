"""What a hub can be flooded with: requests that wrk repeats, and streams that are opened and closed."""

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from benchmarks import workloads, wrk
from benchmarks.contestants import Contestant
from benchmarks.plan import Plan
from benchmarks.processes import Running
from benchmarks.wire import Connection
from benchmarks.workloads import ECHO, LIST, MODERN, Request, Workload

LARGE_BYTES: Final = 1_000_000
UNKNOWN_KEY: Final = "mcphub_" + "x" * 43
LARGE_PARAMS: Final = {"name": "echo", "arguments": {"message": "x" * LARGE_BYTES}}
STREAM_CLIENTS: Final = 16
# With more of them, the load generator takes its own core from the neighbour's.
LARGE_CLIENTS: Final = 16
# The neighbour's load comes from the same core, and would wait for the flood's instead of for the hub.
LOWEST_PRIORITY: Final = 19
MISSING_URI: Final = "none://such"
LARGE_ECHO: Final = "echo of 1 MB"


def _request_of(method: str, params: Mapping[str, object]) -> Callable[[str], Request]:
    return Workload(method, MODERN, method, params, lambda _: None).request


def _page(path: str) -> Callable[[str], Request]:
    return lambda _key: Request("", {"Accept": "*/*"}, "GET", path)


def _read_missing_resource(key: str) -> Request:
    """A read of a resource that there is not: its header repeats the URI, so it is refused by no check of headers."""
    request = _request_of("resources/read", {"uri": MISSING_URI})(key)
    return replace(request, headers={**request.headers, "Mcp-Name": MISSING_URI})


def _invalid_json(key: str) -> Request:
    return replace(LIST.request(key), body='{"jsonrpc": not at all')


# By name: the request, from the key of whoever floods. Lists are those of a hundred tools.
REQUESTS: Final[Mapping[str, Callable[[str], Request]]] = {
    "echo": ECHO.request,
    "list": LIST.request,
    "server/discover": _request_of("server/discover", {}),
    "unknown key": lambda _key: LIST.request(UNKNOWN_KEY),
    "no JSON": _invalid_json,
    LARGE_ECHO: Workload("large", MODERN, workloads.CALL, LARGE_PARAMS, lambda _: None).request,
    "resources/read": _read_missing_resource,
    "header that is missing": _request_of("resources/read", {"uri": MISSING_URI}),
    "REST API without a token": _page("/api/v1/tools/"),
    "login page": _page("/admin/login/"),
}
STREAMS: Final = "streams opened and closed"
KINDS: Final = (*REQUESTS, STREAMS)


@dataclass(frozen=True)
class Flood:
    """One kind of flood against a server."""

    kind: str
    plan: Plan
    running: Running
    contestant: Contestant

    def rate(self, clients: int, seconds: int) -> float:
        """Flood it for so long; answers a second, whatever they said, or streams a second."""
        if self.kind == STREAMS:
            return asyncio.run(self._open_and_close(seconds))
        key = self.contestant.key_for(LIST if self.kind == LIST.name else ECHO)
        load = wrk.run(
            self.running.port,
            [REQUESTS[self.kind](key)],
            LARGE_CLIENTS if self.kind == LARGE_ECHO else clients,
            seconds=seconds,
            cores=self.plan.cores.load,
            folder=self.plan.new_folder(),
            nice=LOWEST_PRIORITY,
        )
        return load.rate

    async def _open_and_close(self, seconds: int) -> float:
        request = _request_of("subscriptions/listen", {"notifications": {"toolsListChanged": True}})(
            self.contestant.key_for(ECHO)
        )
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
        started_at, stream_count = time.monotonic(), 0

        async def client(number: int) -> None:
            nonlocal stream_count
            while time.monotonic() - started_at < seconds:
                body = json.loads(request.body) | {"id": f"{number}-{stream_count}"}
                connection = await Connection.open(self.running.port)
                await connection.send("POST", replace(request, body=json.dumps(body)))
                stream_count += 1
                await connection.close()

        await asyncio.gather(*map(client, range(STREAM_CLIENTS)))
        return stream_count / (time.monotonic() - started_at)
