"""What a request costs inside the hub: no sockets and no server, only the ASGI application and its database.

    python -m benchmarks.in_process
    python -m benchmarks.in_process --workload progress --calls 320
    python -m benchmarks.in_process --token
    python -m benchmarks.in_process --profile tottime

Makes a hub of its own on SQLite and sends it requests, 32 at a time. Good for comparing two versions of the code on
one machine: the smallest of the rounds moves least. The processor time counts all threads, the recorder's too.
"""

import argparse
import asyncio
import cProfile
import gc
import importlib
import os
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import hub, workloads
from benchmarks.workloads import Request, Workload

WARM_UP = 50
PROFILE_LINES = 60
WORKLOADS = {
    "echo": workloads.ECHO,
    "session": workloads.SESSION_ECHO,
    "list": workloads.LIST,
    "progress": workloads.REPORT,
}
Application = Callable[[dict[str, Any], Any, Any], Awaitable[None]]
T = TypeVar("T")


@dataclass(frozen=True)
class Driver:
    """Sends one request, over and over, to an ASGI application in this process."""

    application: Application
    request: Request
    path: str = "/mcp"

    async def send_once(self) -> tuple[int, dict[bytes, bytes], bytes]:
        """Status, headers and body of one answer."""
        sent: list[dict[str, Any]] = []
        waiting = [{"type": "http.request", "body": self.request.body.encode(), "more_body": False}]

        async def receive() -> dict[str, Any]:
            if waiting:
                return waiting.pop()
            await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.application(self._scope(), receive, send)
        return sent[0]["status"], dict(sent[0]["headers"]), b"".join(part.get("body", b"") for part in sent[1:])

    async def send_many(self, calls: int, clients: int) -> None:
        """`calls` requests by so many clients, each of which waits for its answer. Raises WrongAnswer."""

        async def client() -> None:
            for _ in range(calls // clients):
                status, _, body = await asyncio.create_task(self.send_once())
                if status != 200:  # noqa: PLR2004
                    raise workloads.WrongAnswer(f"{status}: {body!r}")

        await asyncio.gather(*(client() for _ in range(clients)))

    def _scope(self) -> dict[str, Any]:
        """What a server says of a request; each needs its own, because the hub changes it."""
        headers = {"host": "127.0.0.1:8000", "content-length": str(len(self.request.body)), **self.request.headers}
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
        }


async def open_session(application: Application, key: str) -> str:
    """The wire id of a new session of the handshake era."""
    params = {"protocolVersion": workloads.HANDSHAKE, "capabilities": {}, "clientInfo": workloads.CLIENT}
    start = Workload("initialize", workloads.HANDSHAKE, "initialize", params, lambda _: None)
    _, headers, _ = await Driver(application, start.request(key)).send_once()
    return headers[workloads.SESSION.lower().encode()].decode()


async def driver_of(application: Application, bench_hub: hub.Hub, workload: Workload, key: str = "") -> Driver:
    """What sends a workload's request, once its answer proved right. Raises WrongAnswer."""
    key = key or (bench_hub.many_key if workload is workloads.LIST else bench_hub.key)
    session = await open_session(application, key) if workload is workloads.SESSION_ECHO else ""
    driver = Driver(application, workload.request(key, session))
    _, _, body = await driver.send_once()
    workload.check(workloads.messages(body))
    return driver


async def measure(driver: Driver, options: argparse.Namespace) -> None:
    """Print what a request costs, and where its time goes if that is asked for."""
    await driver.send_many(WARM_UP, 1)
    wall, cpu = [], []
    for _ in range(options.rounds):
        gc.collect()
        wall_start, cpu_start = time.perf_counter(), time.process_time()
        await driver.send_many(options.calls, options.clients)
        count = options.calls // options.clients * options.clients
        wall.append((time.perf_counter() - wall_start) / count * 1e6)
        cpu.append((time.process_time() - cpu_start) / count * 1e6)
    for name, times in ("wall clock", wall), ("processor", cpu):
        print(
            f"{options.workload}: {name} {min(times):.1f} us a request at best, median {statistics.median(times):.1f}"
        )
    if options.profile:
        with cProfile.Profile() as profile:
            await driver.send_many(options.calls, options.clients)
        pstats.Stats(profile).sort_stats(options.profile).print_stats(PROFILE_LINES)


# The access token of a superuser's client in a tenant.
SIGN_IN = """
from django.contrib.auth.models import User
from tools_app.identity.oauth import clients, connections, tokens
from tools_app.models import Tenant
client, _ = clients.register({{"redirect_uris": ["http://localhost/"], "token_endpoint_auth_method": "none"}})
tenant, person = Tenant.objects.get(slug="{slug}"), User.objects.get(username="root")
allowed = {{"names": [], "scope": "mcp:read mcp:call", "redirect_uri": "http://localhost/", "days": 7}}
connection = connections.allow(tenant, person, client, **allowed)
code = tokens.issue_code(connection, redirect_uri="http://localhost/", challenge="", scope=allowed["scope"])
print(tokens.exchange_code(tokens.find_code(code, client.pk)).access)
"""


async def compare(by_key: Driver, by_token: Driver, options: argparse.Namespace) -> None:
    """Print what a request with an access token costs, as a part of what it costs with a key.

    A round sends both, in an order that changes from round to round: what else the machine does hits one as the other.
    The ratio is the median of those of the rounds.
    """
    drivers, rounds = {"key": by_key, "token": by_token}, []
    for round_number in range(options.rounds + 1):
        round_times: dict[str, float] = {}
        for name in sorted(drivers, reverse=bool(round_number % 2)):
            gc.collect()
            cpu_start = time.process_time()
            await drivers[name].send_many(options.calls, options.clients)
            round_times[name] = (time.process_time() - cpu_start) / options.calls * 1e6
        rounds.append(round_times)
    # The first one warms up.
    key, token = (statistics.median(times[name] for times in rounds[1:]) for name in ("key", "token"))
    ratio = statistics.median(times["token"] / times["key"] for times in rounds[1:])
    print(f"{options.workload}: key {key:.1f} us of processor a request, access token {token:.1f} us: {ratio:.3f}")


def main() -> None:
    """Make a hub, drive it, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", choices=WORKLOADS, default="echo")
    parser.add_argument("--calls", type=int, default=3200)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--profile", metavar="ORDER", help="such as tottime or cumtime")
    parser.add_argument("--token", action="store_true", help="Compare an OAuth access token with a key.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench_hub = hub.prepare(Path(folder))
        if options.token:
            token = bench_hub.shell(SIGN_IN.format(slug="many" if options.workload == "list" else hub.TENANT))
            drive(bench_hub, options.workload, lambda *both: compare(*both, options), tokens=[token])
        else:
            drive(bench_hub, options.workload, lambda driver: measure(driver, options))


def drive(bench_hub: hub.Hub, name: str, work: Callable[..., Coroutine[Any, Any, T]], tokens: Sequence[str] = ()) -> T:
    """Load a hub's application into this process, and let `work` send it the requests of a workload.

    `work` gets a driver with a key, and one for each of `tokens`.
    """
    # Django reads its settings when the application is imported, so not before they stand.
    os.environ.clear()
    os.environ.update(bench_hub.environment)
    sys.path.insert(0, str(hub.PROJECT))
    application = importlib.import_module("mcphub.asgi").application

    async def run() -> T:
        return await work(*[await driver_of(application, bench_hub, WORKLOADS[name], key) for key in ("", *tokens)])

    try:
        with asyncio.Runner(loop_factory=_loops()) as runner:
            return runner.run(run())
    finally:
        importlib.import_module("tools_app.runtime.process").stop_recording()


def _loops() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes uvloop's loop, as uvicorn does where it is installed."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ModuleNotFoundError:
        return asyncio.new_event_loop
    return factory


if __name__ == "__main__":
    main()
