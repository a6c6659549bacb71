"""The load generator: wrk with a script that gives each request an id of its own and reports as JSON."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from benchmarks.processes import HOST
from benchmarks.workloads import FIRST_ID, Request

SCRIPT = """
local parts = {%s}
local id, turn = %d, 0
request = function()
  id, turn = id + 1, turn %% #parts + 1
  local part = parts[turn]
  return part[2] == "" and part[1] or part[1] .. id .. part[2]
end
done = function(summary, latency)
  local e = summary.errors
  local failed = e.connect + e.read + e.write + e.timeout + e.status
  local said = '{"answers": %%d, "us": %%d, "failed": %%d, "p50": %%d, "p90": %%d, "p99": %%d, "max": %%d}'
  io.write(string.format('\\n' .. said .. '\\n', summary.requests, summary.duration, failed,
    latency:percentile(50), latency:percentile(90), latency:percentile(99), latency.max))
end
"""
# A session knows each id once, so no two runs begin with the same.
_first_ids = count(FIRST_ID, 10_000_000)


@dataclass(frozen=True)
class Load:
    """What wrk saw: answers, how many of them were no 2xx or never came, and latencies in milliseconds."""

    answers: int
    rate: float
    failed: int
    p50: float
    p90: float
    p99: float
    slowest: float


def run(
    port: int, requests: Sequence[Request], clients: int, *, seconds: int, cores: str, folder: Path, nice: int = 0
) -> Load:
    """Load the server on `port` with these requests in turn: each client waits for its answer.

    `nice` is added to the priority of the load: one that others are measured beside must not take their core.
    """
    script = folder / f"{port}.lua"
    script.write_text(SCRIPT % (", ".join(_parts(port, request) for request in requests), next(_first_ids)))
    wrk = ["wrk", "-t1", f"-c{clients}", f"-d{seconds}s", "--timeout", "30s", "-s", str(script)]
    command = ["taskset", "-c", cores, "nice", "-n", str(nice), *wrk, f"http://{HOST}:{port}/mcp"]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    output = json.loads(result.stdout.strip().splitlines()[-1])
    latencies = (output[name] / 1000 for name in ("p50", "p90", "p99", "max"))
    return Load(output["answers"], output["answers"] / output["us"] * 1e6, output["failed"], *latencies)


def _parts(port: int, request: Request) -> str:
    """What comes before the id and what comes after it, as Lua writes it; without an id, all comes before it."""
    headers = {"Host": f"{HOST}:{port}", "Content-Length": str(len(request.body)), **request.headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    text = f"{request.verb} {request.path} HTTP/1.1\r\n{head}\r\n{request.body}"
    before, _, after = text.partition(str(FIRST_ID))
    return f"{{{json.dumps(before)}, {json.dumps(after)}}}"
