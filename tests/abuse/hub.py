"""A hub of `manage.py up` with an attacker's tenant, a neighbour's tenant, and a public tenant."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.faults.hub import FOREIGN
from tests.services.stack import ROOT, START_SECONDS, WAIT_SECONDS, eventually, free_port

MEGABYTE = 1024 * 1024
PASSWORD = "correct horse battery"
LOOK_SECONDS = 0.05
# Rows are created without the hub's validation: such rows may exist from an earlier version.
SEED = f"""
import json
from django.contrib.auth.models import User
from tools_app.tenants import keys
from tools_app.identity import personal_tokens as tokens
from tools_app.catalog import authoring
from tools_app.models import Membership, Resource, Tenant, Tool
slugs = ("neighbour", "attacker", "open")
neighbour, attacker, public = (Tenant.objects.create(slug=slug, name=slug) for slug in slugs)
Tenant.objects.filter(pk=attacker.pk).update(allowed_networks=["127.0.0.0/8"])
Tenant.objects.filter(pk=public.pk).update(is_public=True, public_tools=["*"], public_calls_per_minute=100000)
for tenant in (neighbour, attacker, public):
    authoring.add_code_tools(tenant, ["echo", "count"])
Resource.objects.create(tenant=attacker, uri="x://{{+a}}{{+b}}{{+c}}{{+d}}/end", name="t", kind="text", text="x")
for name, pattern in (("ahead", "(?=.*x)z"), ("behind", "(?<=a.*b)c|(?=(a*)*$)z"), ("twice", "^(a|aa)+$")):
    schema = {{"type": "object", "properties": {{"q": {{"type": "string", "pattern": pattern}}}}}}
    config = {{"method": "GET", "url": "https://127.0.0.1:9/"}}
    Tool.objects.create(tenant=attacker, name=name, kind="http", input_schema=schema, config=config)
person = User.objects.create_superuser("mallory", password={PASSWORD!r})
print(json.dumps([keys.issue(neighbour, "n")[1], keys.issue(attacker, "a")[1], tokens.issue(person, "t")[1]]))
"""


@dataclass
class Hub:
    """The running hub. `largest` is the maximum increase of its memory since it was ready.

    `internal_errors` are the requests that got the status 500.
    """

    server: str
    url: str
    process: "subprocess.Popen[bytes]"
    neighbour_key: str
    key: str
    token: str
    log: Path
    base: int = 0
    largest: int = 0
    internal_errors: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> tuple[str, int]:
        place = urlsplit(self.url)
        return str(place.hostname), int(place.port or 0)

    def watch(self) -> None:
        """Measure the memory until the hub ends."""
        self.base = memory_of(self.process.pid)
        while not self.over.wait(LOOK_SECONDS):
            with suppress(OSError, ValueError, StopIteration):
                self.largest = max(self.largest, memory_of(self.process.pid) - self.base)


def memory_of(pid: int) -> int:
    """The resident memory of a process and its children, in bytes."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    own = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(own.split()[1]) * 1024 + sum(map(memory_of, map(int, children)))


@contextmanager
def _hostile_upstream() -> Iterator[str]:
    """Start the hostile upstream; yield its URL."""
    port = free_port()
    command = [sys.executable, str(Path(__file__).with_name("hostile.py")), str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as serving:
        assert serving.stdin is not None
        assert serving.stdout is not None
        assert serving.stdout.readline() == b"begun\n"
        yield f"http://127.0.0.1:{port}/mcp"
        serving.stdin.close()


@contextmanager
def running(server: str, home: Path) -> Iterator[Hub]:
    """Run a hub on SQLite with this server."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    environment |= {"MCPHUB_DATA_DIR": str(home / "data"), "MCPHUB_API_REQUESTS_PER_MINUTE": "0"}

    def manage(*arguments: str) -> str:
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.strip()

    manage("migrate", "--verbosity", "0")
    keys = json.loads(manage("shell", "--no-imports", "-c", SEED).splitlines()[-1])
    port, log = free_port(), home / "up.log"
    with ExitStack() as stack:
        upstream = ["--name", "hostile", "--prefix", "up", "--url", stack.enter_context(_hostile_upstream())]
        manage("add_upstream", "--tenant", "attacker", *upstream, "--accept")
        written = stack.enter_context(log.open("wb"))
        command = [sys.executable, "manage.py", "up", "--no-demo", "--server", server, "--port", str(port)]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=written, stderr=written)
        hub = Hub(server, f"http://127.0.0.1:{port}", process, *keys, log)
        try:
            eventually(lambda: _is_ready(hub), START_SECONDS)
            watching = threading.Thread(target=hub.watch)
            watching.start()
            yield hub
        finally:
            hub.over.set()
            process.kill()
            process.wait(WAIT_SECONDS)
            sys.stdout.write(log.read_text(errors="replace")[-20_000:])


def _is_ready(hub: Hub) -> bool:
    assert hub.process.poll() is None, hub.log.read_text()
    try:
        return httpx.get(f"{hub.url}/readyz", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
