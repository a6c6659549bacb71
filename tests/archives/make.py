r"""Creates the database of a hub of this version, for the archive of the upgrade tests.

Run it once in a checkout of each version that is released, commit what it writes, and add the version, which is the
number of its last migration, to `VERSIONS` of `tests.archives.upgrading`. It writes the compressed database and the
test keys that open it.

    python -m tests.archives.make VERSION                                      # SQLite
    DATABASE_URL=postgres://postgres@127.0.0.1:5432/an_empty_database \
        python -m tests.archives.make VERSION                                  # PostgreSQL, needs pg_dump

It runs hubs in its own directory and sends calls over each transport until every outcome is recorded. In the end, each
table has a row.
"""

import argparse
import json
import lzma
import os
import re
import secrets
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from tests.wire import channels
from tests.wire.client import MODERN, Peer, RawClient, call_params, rpc

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
WAIT_SECONDS = 300.0
LONG_MESSAGE = "a long message, which is stored compressed. " * 400
SEED = """
from django.contrib.auth.models import User
from tests.worlds import build_world
from tools_app.audit.changes import changes
from tools_app.tenants import keys
from tools_app.catalog import authoring
from tools_app.models import Membership, Prompt, Resource, Tenant, Tool
import json
with changes.recording_as(changes.at_command_line()), changes.change_log_transaction():
    root = User.objects.create_superuser("root", "", "a password for tests")
    acme = Tenant.objects.create(slug="acme", name="Acme", redacted_keys=["ssn"])
    rival = Tenant.objects.create(slug="rival", name="Rival")
    for name, role in (("ada", "admin"), ("amy", "auditor"), ("otto", "operator")):
        Membership.objects.create(user=User.objects.create_user(name), tenant=acme, role=role)
    authoring.add_code_tools(acme, "ask ask_as_task count echo slow test_throw".split())
    authoring.add_code_tools(rival, ["echo"])
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    config = {"method": "GET", "base_url": "http://192.0.2.1", "path": "/search", "query": {"q": "{q}"},
              "headers": {"X-Api-Key": "{secret:upstream}"}}
    authoring.set_secret(acme, "upstream", "the secret of the archive")
    search = Tool(tenant=acme, name="search", kind="http", description="Search.", input_schema=schema, config=config)
    authoring.save_tool(search, root)
    search.description = "Search, described better."
    authoring.save_tool(search, root)
    authoring.save_resource(Resource(tenant=acme, uri="docs://guide", name="Guide", kind="text", text="Read me."))
    authoring.save_prompt(Prompt(tenant=acme, name="greet", kind="template",
                                 arguments=[{"name": "who", "required": True}],
                                 messages=[{"role": "user", "text": "Greet {who}."}]))
    row, key = keys.issue(acme, "laptop")
    revoked, _ = keys.issue(acme, "lost laptop")
    keys.revoke(revoked)
    _, other = keys.issue(rival, "laptop")
    globex = build_world("globex")
    # The hub would end them, and they are in no chain.
    for row in (globex.runningcall, *globex.call.events.all(), globex.call.payload, globex.call):
        row.delete()
print(json.dumps({"key": key, "other_key": other}))
"""
OUTCOMES = """
import json
from tools_app.models import Call, Outcome
print(json.dumps({"there": sorted(set(Call.objects.values_list("outcome", flat=True))), "all": sorted(Outcome.values)}))
"""
ECHOED = """
from tools_app.models import Call
print(Call.objects.filter(tool_name="echo", outcome="ok", tenant__slug="acme").order_by("id").first().pk)
"""
PRUNE_AND_FILL = """
from django.db import transaction
from tests.archives.rows import fill_empty_tables
from tools_app.audit.checkpoints import pruned
from tools_app.models import Call, CallPayload
calls = Call.objects.filter(tenant__slug="rival")
with transaction.atomic():
    pruned.note(pruned.links_of(calls), "of another tenant")
    CallPayload.objects.filter(call__in=calls).delete()
    calls.delete()
fill_empty_tables()
"""


class Maker:
    """A data directory, a database, and the hubs that run on them."""

    def __init__(self, home: Path) -> None:
        self.keys = {"secret_key": secrets.token_hex(32), "audit_key": secrets.token_hex(32)}
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MCPHUB_")}
        self.environment = clean | {
            "MCPHUB_DATA_DIR": str(home),
            "MCPHUB_SECRET_KEY": self.keys["secret_key"],
            "MCPHUB_AUDIT_KEY": self.keys["audit_key"],
            "MCPHUB_APPS": "tests.services.stubborn,tests.archives",
            "MCPHUB_PROCESS_TIMEOUT": "2",
            "MCPHUB_DRAIN_TIMEOUT": "1",
        }

    def manage(self, *arguments: str, lines: str | None = None) -> str:
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=self.environment,
            input=lines,
            stdout=subprocess.PIPE,
            text=True,
            timeout=WAIT_SECONDS,
            check=True,
        )
        return done.stdout.strip()

    def shell(self, code: str) -> str:
        return self.manage("shell", "--no-imports", "-c", code).splitlines()[-1]

    @contextmanager
    def hub(self, end: signal.Signals = signal.SIGTERM) -> Iterator[str]:
        """Run a hub and yield its URL; stop it with this signal."""
        command = [sys.executable, "manage.py", "up", "--no-demo", "--port", "0"]
        process = subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        output = ""
        while "Press Ctrl-C to stop." not in output:
            line = process.stdout.readline()
            assert line, output
            output += line
        found = re.search(r"(http://\S+)/mcp", output)
        assert found, output
        try:
            yield found[1]
        finally:
            process.send_signal(end)
            process.wait(WAIT_SECONDS)
            process.stdout.close()

    def until(self, question: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not question():
            assert time.monotonic() < deadline, "still not"
            time.sleep(0.2)

    def outcomes(self) -> tuple[set[str], set[str]]:
        """The recorded outcomes, and all existing ones."""
        found = json.loads(self.shell(OUTCOMES))
        return set(found["there"]), set(found["all"])


def ask_everything(maker: Maker, url: str) -> None:
    """Make calls over every transport and revision, with every outcome that needs no killed process."""
    client = RawClient(url, maker.keys["key"])
    old, new = client.handshake(), client.peer(MODERN, {"elicitation": {}})
    for peer in (old, new, *(client.handshake(version) for version in ("2024-11-05", "2025-03-26", "2025-06-18"))):
        peer.call("echo", {"message": "hello", "password": "hidden"})
        peer.call("echo", {"message": "héllo \u2028 \U0001f600"})
        peer.call("echo", {"message": "hello", "ssn": "hidden"})
        peer.call("test_throw", {})
        peer.call("echo", {"message": 5})
        peer.call("nothing of this name", {})
        peer.request("resources/read", {"uri": "docs://guide"})
        peer.request("prompts/get", {"name": "greet", "arguments": {"who": "Ada"}})
        with peer.stream("tools/call", call_params("count", {"n": 2}, {"progressToken": 1}), id=7) as stream:
            stream.read_to_end()
    old.call("echo", {"message": LONG_MESSAGE})
    new.call("ask", {})
    new.call("slow", {})
    cancel(old)
    for name, opened in (("sse", channels.sse), ("ws", channels.socket)):
        with opened(client) as talk:
            talk.negotiate("2024-11-05" if name == "sse" else MODERN)
            assert "result" in talk.tool_response("echo", {"message": name})
    lines = [
        rpc(
            "initialize",
            {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}},
        ),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        rpc("tools/call", call_params("echo", {"message": "stdio"}), id=2),
    ]
    messages = "".join(json.dumps(line) + "\n" for line in lines)
    maker.environment["MCPHUB_API_KEY"] = maker.keys["key"]
    assert "hello stdio" in maker.manage("mcp_stdio", lines=messages)
    RawClient(url, "nobody's key").initialize()
    RawClient(url, maker.keys["other_key"]).handshake().call("echo", {"message": "of another tenant"})


def cancel(peer: Peer) -> None:
    """Make a call and cancel it."""
    with peer.stream("tools/call", call_params("count", {"n": 600}, {"progressToken": 9}), id=99) as stream:
        stream.next()
        peer.notify("notifications/cancelled", {"requestId": 99, "reason": "enough"})
        with suppress(httpx.HTTPError, StopIteration):
            stream.read_to_end()


@contextmanager
def counting(url: str, key: str) -> Iterator[None]:
    """Make a call that runs for a while."""
    peer = RawClient(url, key).handshake()
    with (
        suppress(httpx.HTTPError),
        peer.stream("tools/call", call_params("count", {"n": 600}, {"progressToken": 1})) as s,
    ):
        s.next()
        yield


def make(maker: Maker) -> None:
    """Fill the database."""
    maker.manage("migrate", "--verbosity", "0")
    maker.keys |= json.loads(maker.shell(SEED))
    with maker.hub() as url:
        ask_everything(maker, url)
    with maker.hub(signal.SIGKILL) as url, counting(url, maker.keys["key"]):
        pass
    maker.environment |= {"MCPHUB_WORKER_THREADS": "1", "MCPHUB_QUEUE_TIMEOUT": "1"}
    with maker.hub(signal.SIGTERM) as url:
        # The background work of a hub begins with its first request.
        peer = RawClient(url, maker.keys["key"]).handshake()
        maker.until(lambda: "lost" in maker.outcomes()[0])
        with counting(url, maker.keys["key"]):
            peer.call("count", {"n": 1})
    there, every = maker.outcomes()
    assert there == every, every - there
    maker.keys["call"] = maker.shell(ECHOED)
    maker.manage("shell", "--no-imports", "-c", PRUNE_AND_FILL)
    assert "No problems found." in maker.manage("verify_audit")


def dumped(maker: Maker, home: Path) -> tuple[str, bytes]:
    """The database as one file: its suffix, and its bytes."""
    url = os.environ.get("DATABASE_URL", "")
    if not url.startswith("postgres"):
        copy = home / "copy.sqlite3"
        with sqlite3.connect(home / "hub.sqlite3") as database:
            database.execute("VACUUM INTO ?", (str(copy),))
        return "sqlite3", copy.read_bytes()
    command = ["pg_dump", "--no-owner", "--no-privileges", "--inserts", "--rows-per-insert=50", url]
    text = subprocess.run(command, capture_output=True, check=True, timeout=WAIT_SECONDS).stdout
    # Commands of psql, which a server does not understand.
    return "sql", b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"\\"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        maker = Maker(home)
        make(maker)
        ending, raw = dumped(maker, home)
        packed = options.out / f"{options.version}.{ending}.xz"
        packed.write_bytes(lzma.compress(raw, preset=9 | lzma.PRESET_EXTREME))
        (options.out / f"{options.version}.{ending}.json").write_text(json.dumps(maker.keys, indent=2) + "\n")
        sys.stdout.write(f"{packed}: {packed.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
