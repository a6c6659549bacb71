"""`tools/call` of echo, 32 clients, modern era: the hub under uvicorn and under Daphne beside the SDK's bare server.

    pip install -e '.[dev]' && python tests/benchmarks/echo.py

Needs wrk and taskset (Debian: `apt-get install wrk util-linux`) and two processor cores: servers on the first, the
load on the second. The servers take turns, round by round, so that a machine that drifts does so for all of them.
The hub runs with everything on: key, schema check, and each call recorded on disk before its answer leaves.
"""

import argparse
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
START_SECONDS = 30.0
CLIENTS = 32

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "wrk", "version": "1"},
}
BODY = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "echo", "arguments": {"message": "world"}, "_meta": META},
    }
)


@dataclass(frozen=True)
class Server:
    """One contestant: its name and how to start it on a port."""

    name: str
    command: list[str]

    def on(self, port: int) -> list[str]:
        return [part.replace("PORT", str(port)) for part in self.command]


@dataclass(frozen=True)
class Round:
    """What wrk measured: requests a second, latencies in milliseconds, answers that were no 2xx or no answer."""

    rate: float
    median_ms: float
    p99_ms: float
    errors: int


UVICORN = ["-m", "uvicorn", "--port", "PORT", "--log-level", "warning", "--no-access-log"]
SERVERS = [
    Server("mcp 2.3.0, uvicorn", [*UVICORN, "--app-dir", str(HERE), "sdk_server:app"]),
    Server("mcphub, uvicorn", [*UVICORN, "mcphub.asgi:application"]),
    Server("mcphub, Daphne", ["-m", "daphne", "-p", "PORT", "-v", "0", "mcphub.asgi:application"]),
]


def prepare(data: Path) -> str:
    """A hub with one tenant that offers echo; the key to call it with."""
    script = (
        "from tools_app.auth import keys; from tools_app.execution import authoring;"
        "from tools_app.models import Tenant;"
        "t = Tenant.objects.create(slug='bench', name='Bench'); authoring.add_code_tools(t, ['echo']);"
        "print(keys.issue(t, 'bench')[1])"
    )
    environment = {**os.environ, "MCPHUB_DATA_DIR": str(data)}
    manage = [sys.executable, "manage.py"]
    subprocess.run([*manage, "migrate", "-v0"], cwd=PROJECT, env=environment, check=True)
    shell = [*manage, "shell", "-v0", "-c", script]
    printed = subprocess.run(shell, cwd=PROJECT, env=environment, check=True, capture_output=True, text=True)
    return printed.stdout.split()[-1]


@contextmanager
def serving(server: Server, port: int, data: Path) -> Iterator[None]:
    """The server on the first core, until the block ends."""
    environment = {**os.environ, "MCPHUB_DATA_DIR": str(data)}
    command = ["taskset", "-c", "0", sys.executable, *server.on(port)]
    process = subprocess.Popen(command, cwd=PROJECT, env=environment)
    try:
        wait_until_open(port)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(START_SECONDS)


def wait_until_open(port: int) -> None:
    """Return when something listens. Raises TimeoutError."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"Nothing listens on port {port}.")


def check(port: int, key: str) -> None:
    """One call, to see that what is measured is an answer."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/mcp", BODY.encode(), headers(key))
    with urllib.request.urlopen(request, timeout=START_SECONDS) as answer:
        content = json.load(answer)["result"]["content"]
    if content != [{"type": "text", "text": "hello world"}]:
        raise SystemExit(f"Not the answer of echo: {content}")


def headers(key: str) -> dict[str, str]:
    """What a modern client sends."""
    return {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Authorization": f"Bearer {key}",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "echo",
    }


def load(port: int, key: str, seconds: int, clients: int, folder: Path) -> Round:
    """Load a server from the second core."""
    script = folder / "post.lua"
    lines = ['wrk.method = "POST"', f"wrk.body = {json.dumps(BODY)}"]
    lines += [f'wrk.headers["{name}"] = "{value}"' for name, value in headers(key).items()]
    script.write_text("\n".join(lines))
    wrk = ["wrk", "-t1", f"-c{clients}", f"-d{seconds}s", "--latency", "-s", str(script)]
    command = ["taskset", "-c", "1", *wrk, f"http://127.0.0.1:{port}/mcp"]
    return parsed(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def parsed(report: str) -> Round:
    """The figures in wrk's report."""
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", report)[1])
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", report)
    socket_errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", report)
    errors = int(bad[1]) if bad else 0
    errors += sum(map(int, socket_errors.groups())) if socket_errors else 0
    return Round(rate, milliseconds(report, "50%"), milliseconds(report, "99%"), errors)


def milliseconds(report: str, percentile: str) -> float:
    """One line of wrk's latency table."""
    amount, unit = re.search(rf"{percentile}\s+([\d.]+)(us|ms|s)", report).groups()
    return float(amount) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[unit]


def table(results: dict[str, list[Round]]) -> str:
    """The medians as a Markdown table; the ratio is to the first server, round by round."""
    base = [turn.rate for turn in next(iter(results.values()))]
    lines = ["| server | requests/s | p50 ms | p99 ms | errors | ratio |", "|---|---|---|---|---|---|"]
    for name, rounds in results.items():
        ratio = statistics.median(turn.rate / other for turn, other in zip(rounds, base, strict=True))
        rate, p50, p99 = (
            statistics.median(getattr(turn, field) for turn in rounds) for field in ("rate", "median_ms", "p99_ms")
        )
        errors = sum(turn.errors for turn in rounds)
        lines.append(f"| {name} | {rate:,.0f} | {p50:.1f} | {p99:.1f} | {errors} | {ratio:.2f} |")
    return "\n".join(lines)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=int, default=5)
    arguments.add_argument("--clients", type=int, default=CLIENTS)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        data = Path(folder)
        key = prepare(data)
        ports = {server.name: 18_700 + turn for turn, server in enumerate(SERVERS)}
        for server in SERVERS:
            stack.enter_context(serving(server, ports[server.name], data))
            check(ports[server.name], key)
        results: dict[str, list[Round]] = {server.name: [] for server in SERVERS}
        for _ in range(chosen.rounds):
            for name, rounds in results.items():
                rounds.append(load(ports[name], key, chosen.seconds, chosen.clients, data))
        print(table(results))


if __name__ == "__main__":
    main()
