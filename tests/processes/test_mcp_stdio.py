"""`manage.py mcp_stdio`: messages, and nothing else, on the standard streams of a process (stdio)."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest
from django.core.management import CommandError

from tests.processes.hub import ROOT, WAIT_SECONDS
from tests.processes.noisy import LINES
from tests.processes.test_up import rows
from tests.wire.channels import ChannelClient, Message
from tests.wire.client import ALL_VERSIONS, HANDSHAKES, MODERN, rpc
from tools_app.management.commands import mcp_stdio
from tools_app.models import Tenant
from tools_app.transport.stdio import Lines

KEY = "stdio" * 8
SHORT_LIVED = "short" * 8
# What runs there would take ten times as long.
SOON_SECONDS = 30.0
NOISE = "NOISE"
WITH_PROGRESS = {"progressToken": "t"}
SEED = f"""
from tools_app.tenants import keys
from tools_app.catalog import authoring
from tools_app.models import Tenant
tenant = Tenant.objects.create(slug="demo", name="Demo")
authoring.add_code_tools(tenant, ["count", "deaf", "echo", "holds", "loud", "nosy"])
keys.issue(tenant, "stdio", key="{KEY}")
keys.issue(tenant, "short-lived", key="{SHORT_LIVED}")
Tenant.objects.create(slug="off", name="Off", is_active=False)
"""


class StdioClient(ChannelClient):
    """A process and the messages on its streams. Each line must be a message."""

    def __init__(self, arguments: list[str], environment: dict[str, str], errors: Path, source: Any = None) -> None:
        super().__init__()
        self.errors = errors
        with errors.open("wb") as error_file:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "mcp_stdio", *arguments],
                cwd=ROOT,
                env=environment,
                stdin=source or subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=error_file,
            )
        self._lines: Queue[bytes | None] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def write(self, raw: bytes) -> None:
        self.process.stdin.write(raw + b"\n")
        self.process.stdin.flush()

    def next(self) -> Message:
        try:
            line = self._lines.get(timeout=WAIT_SECONDS)
        except Empty:
            pytest.fail(f"no message; on the standard error: {self.stderr_text()}")
        assert line is not None, f"the process ended; on the standard error: {self.stderr_text()}"
        return message_in(line)

    def close(self) -> None:
        """End the input."""
        self.process.stdin.close()

    def read_to_end(self) -> list[Message]:
        """Wait for the end, and return the messages that came until then."""
        messages = []
        while (line := self._lines.get(timeout=WAIT_SECONDS)) is not None:
            messages.append(message_in(line))
        self.process.wait(WAIT_SECONDS)
        return messages

    def stderr_text(self) -> str:
        """The text of the standard error."""
        return self.errors.read_text(errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_SECONDS)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


def message_in(line: bytes) -> Message:
    """The message of a line, which must contain exactly one."""
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert b"\r" not in line
    message = json.loads(line)
    assert isinstance(message, list) or message["jsonrpc"] == "2.0"
    return message


@pytest.fixture(scope="module")
def settings_of(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a hub with a database of the module's own."""
    hub_variables = ("MCPHUB_", "DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL", "DJANGO_SETTINGS_MODULE")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(hub_variables)}
    data = tmp_path_factory.mktemp("stdio")
    shutil.copy(migrated, data)
    environment = {
        **variables,
        "MCPHUB_DATA_DIR": str(data),
        "MCPHUB_APPS": "tests.processes.noisy",
        "MCPHUB_DRAIN_TIMEOUT": "1",
    }
    command = [sys.executable, "manage.py", "shell", "--no-imports", "-c", SEED]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=WAIT_SECONDS)
    return environment


@pytest.fixture
def start(settings_of: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., StdioClient]]:
    """Start processes that end with the test: `start("--tenant", "demo", MCPHUB_LOG_LEVEL="DEBUG")`."""
    started: list[StdioClient] = []

    def run(*arguments: str, source: Any = None, **variables: str) -> StdioClient:
        errors = tmp_path / f"{len(started)}.err"
        started.append(StdioClient(list(arguments), settings_of | variables, errors, source))
        return started[-1]

    yield run
    for client in started:
        client.kill()


@pytest.fixture
def client(start: Callable[..., StdioClient]) -> StdioClient:
    """The process of a client with a key, before its first message."""
    return start(MCPHUB_API_KEY=KEY)


@pytest.fixture
def recorded(settings_of: dict[str, str]) -> Callable[[str], list[Any]]:
    """The columns of all calls, the newest first: `recorded("tool_name, outcome")`."""

    def query_calls(columns: str) -> list[Any]:
        query = f"SELECT {columns} FROM tools_app_call ORDER BY started_at DESC"
        return rows(Path(settings_of["MCPHUB_DATA_DIR"]), query)

    return query_calls


# --- Messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.shows("base.patterns")
def test_every_revision_is_spoken(start: Callable[..., StdioClient], recorded: Callable[[str], list[Any]]) -> None:
    clients = [start(MCPHUB_API_KEY=KEY) for _ in ALL_VERSIONS]
    for client, version in zip(clients, ALL_VERSIONS, strict=True):
        client.negotiate(version)
        assert "echo" in [tool["name"] for tool in client.response_to("tools/list", id=1)["result"]["tools"]]
        assert client.tool_response("echo", {"message": version}, id="two")["result"]["content"][0]["text"].endswith(
            version
        )
        assert client.tool_response("count", {"n": 2}, id=3, meta=WITH_PROGRESS)["result"]["content"][0]["text"] == "2"
        progress = [message["params"]["progress"] for message in client.received]
        assert progress == [0, 1]
        client.close()
        assert (client.read_to_end(), client.process.returncode, client.stderr_text()) == ([], 0, "")
    calls = recorded("tool_name, outcome, protocol_version, remote_address, api_key_id IS NOT NULL")
    assert set(calls) >= {
        (tool, "ok", version, "stdio", True) for tool in ("echo", "count") for version in ALL_VERSIONS
    }


def test_the_operator_needs_no_key_and_tools_do_not_read_what_the_client_says(
    start: Callable[..., StdioClient], recorded: Callable[[str], list[Any]]
) -> None:
    client = start("--tenant", "demo").negotiate("2025-11-25")
    client.call("nosy", id=1)
    for id in range(2, 8):
        client.request("ping", id=id)
    answers = {message["id"]: message["result"] for message in (client.next() for _ in range(7))}
    assert answers.pop(1)["content"][0]["text"] == "read 0 bytes"
    assert answers == {id: {} for id in range(2, 8)}
    assert recorded("tool_name, outcome, api_key_id")[0] == ("nosy", "ok", None)


@pytest.mark.shows("stdio.messages-only", "stdio.one-line", "stdio.credentials")
def test_nothing_but_messages_stands_on_the_standard_output(start: Callable[..., StdioClient]) -> None:
    client = start(MCPHUB_API_KEY=KEY, MCPHUB_LOG_LEVEL="DEBUG").negotiate("2025-11-25")
    assert KEY.encode() not in Path(f"/proc/{client.process.pid}/cmdline").read_bytes()
    assert client.tool_response("loud")["result"]["content"][0]["text"] == LINES
    assert client.tool_response("count", {"n": 1}, id=2)["result"]["isError"] is False
    client.close()
    assert client.read_to_end() == []
    errors = client.stderr_text()
    for source in ("print", "write", "a descriptor", "a program", "a log"):
        assert f"{NOISE} of {source}" in errors
    assert "DEBUG" in errors
    assert KEY not in errors


@pytest.mark.shows("stdio.cancelled-silent", "cancellation.of-subscriptions")
def test_a_cancelled_request_is_stopped_and_no_message_follows_about_it(
    client: StdioClient, recorded: Callable[[str], list[Any]], eventually: Callable[..., Any]
) -> None:
    client.negotiate(MODERN)
    for id, tool, arguments in ((1, "count", {"n": 600}), (2, "holds", {})):
        client.call(tool, arguments, id=id, meta=WITH_PROGRESS)
        client.next()
        client.cancel(id, "enough of it")
        client.response_to("server/discover", id="after")
        client.received.clear()
        eventually(lambda tool=tool: recorded("tool_name, outcome")[:1] == [(tool, "cancelled")])
        assert "enough of it" in recorded("cause")[0][0]
    client.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="sub")
    client.next()
    client.process.send_signal(signal.SIGTERM)
    cancelled, closed = client.read_to_end()
    assert (cancelled["method"], cancelled["params"]["requestId"]) == ("notifications/cancelled", "sub")
    assert (closed["id"], closed["result"]["resultType"]) == ("sub", "complete")


def test_an_invalid_line_is_answered_with_an_error_and_the_process_goes_on(start: Callable[..., StdioClient]) -> None:
    client = start(MCPHUB_API_KEY=KEY, MCPHUB_MAX_BODY_BYTES="300")
    client.write(b"{bad")
    client.write(b"   ")
    assert client.next()["error"]["code"] == -32700
    client.write(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"%b"}}' % (b"x" * 200_000))
    too_long = client.next()
    assert ("id" not in too_long, too_long["error"]["message"]) == (True, "The message is larger than 300 bytes.")
    assert client.negotiate(HANDSHAKES[0]).response_to("ping")["result"] == {}


# --- The end ----------------------------------------------------------------------------------------------------------


@pytest.mark.shows("stdio.exits")
def test_requests_before_the_end_of_the_input_are_answered(start: Callable[..., StdioClient], tmp_path: Path) -> None:
    requests = [
        rpc("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}, id=0),
        rpc("tools/call", {"name": "echo", "arguments": {"message": "x"}}, id=1),
        rpc("tools/call", {"name": "count", "arguments": {"n": 2}}, id=2),
    ]
    script = tmp_path / "script"
    script.write_text("\n".join(map(json.dumps, requests)))
    with script.open("rb") as source:
        client = start(MCPHUB_API_KEY=KEY, source=source)
        answers = {message["id"]: message["result"] for message in client.read_to_end() if "id" in message}
    assert answers.keys() == {0, 1, 2}
    assert answers[2]["content"][0]["text"] == "2"
    assert client.process.returncode == 0


def start_calls(client: StdioClient, *tools: str) -> StdioClient:
    """The process, once it runs these tools, which take long. The names of the tools are the ids of their calls."""
    client.negotiate("2025-11-25")
    for tool in tools:
        client.call(tool, {"n": 600} if tool == "count" else {}, id=tool, meta={"progressToken": tool})
        while client.next()["params"]["progressToken"] != tool:
            pass
    return client


def results_at_the_end(client: StdioClient) -> dict[str, Message]:
    """The results until the end of the process, by the ids of their calls."""
    return {message["id"]: message["result"] for message in client.read_to_end() if "id" in message}


@pytest.mark.shows("stdio.exits")
def test_it_ends_soon_after_its_input_whatever_still_runs(
    start: Callable[..., StdioClient], recorded: Callable[[str], list[Any]]
) -> None:
    # A thread that never ends gets a process of its own: the other process must end without being killed.
    calls = [("holds", "count"), ("deaf",)]
    clients = [start_calls(start(MCPHUB_API_KEY=KEY), *tools) for tools in calls]
    closed_at = time.monotonic()
    for client in clients:
        client.close()
    for client, tools in zip(clients, calls, strict=True):
        answers = results_at_the_end(client)
        assert answers.keys() == set(tools)
        for answer in answers.values():
            assert answer["isError"] is True
            assert "closed its end" in answer["content"][0]["text"]
        assert client.process.returncode == 0
    assert time.monotonic() - closed_at < SOON_SECONDS
    assert set(recorded("tool_name, outcome")[:3]) == {(tool, "cancelled") for tools in calls for tool in tools}


def test_a_signal_ends_it_and_what_runs_is_recorded_as_interrupted(
    client: StdioClient, recorded: Callable[[str], list[Any]]
) -> None:
    tools = {"holds", "count"}
    start_calls(client, *tools)
    signalled_at = time.monotonic()
    client.process.send_signal(signal.SIGTERM)
    answers = results_at_the_end(client)
    assert answers.keys() == tools
    for answer in answers.values():
        assert answer["content"][0]["text"] == "The hub was stopped while the call was running."
    assert client.process.returncode == 0
    assert time.monotonic() - signalled_at < SOON_SECONDS
    assert set(recorded("tool_name, outcome")[:2]) == {(tool, "interrupted") for tool in tools}


def test_a_signal_lets_a_call_finish_that_is_quick_enough(client: StdioClient) -> None:
    client.negotiate(MODERN).call("count", {"n": 4}, id=1, meta=WITH_PROGRESS)
    client.next()
    client.process.send_signal(signal.SIGINT)
    assert client.read_to_end()[-1]["result"]["content"][0]["text"] == "4"


def test_it_ends_when_nobody_reads_it_any_more(settings_of: dict[str, str]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "manage.py", "mcp_stdio", "--tenant", "demo"]
    with subprocess.Popen(command, cwd=ROOT, env=settings_of, stdin=subprocess.PIPE, stdout=write_end) as process:
        os.close(write_end)
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"x"}}\n')
        process.stdin.flush()
        assert process.wait(WAIT_SECONDS) == 0


def test_it_ends_soon_after_its_key_was_revoked(start: Callable[..., StdioClient], settings_of: dict[str, str]) -> None:
    client = start(MCPHUB_API_KEY=SHORT_LIVED).negotiate("2025-11-25")
    with closing(sqlite3.connect(Path(settings_of["MCPHUB_DATA_DIR"]) / "hub.sqlite3")) as database, database:
        database.execute("UPDATE tools_app_apikey SET revoked_at = '2026-01-01' WHERE name = 'short-lived'")
    assert client.read_to_end() == []
    assert client.process.returncode == 0


# --- Who may start it -------------------------------------------------------------------------------------------------


@pytest.mark.shows("stdio.credentials")
def test_startup_errors_are_written_to_the_standard_error(start: Callable[..., StdioClient], tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "hub.sqlite3").write_text("This is no database. " * 100)
    started = {
        "The API key is unknown, revoked or expired.": start(MCPHUB_API_KEY="nonsense"),
        "The database is not migrated. Run `manage.py migrate`": start(
            "--tenant", "demo", MCPHUB_DATA_DIR=str(tmp_path)
        ),
        "The database is unavailable: ": start("--tenant", "demo", MCPHUB_DATA_DIR=str(broken)),
    }
    for reason, client in started.items():
        assert (client.read_to_end(), client.process.returncode) == ([], 1)
        assert client.stderr_text().startswith(f"CommandError: {reason}")
        assert len(client.stderr_text().splitlines()) <= 3


@pytest.mark.shows("stdio.credentials")
@pytest.mark.parametrize(
    ("slug", "reason"),
    [
        (None, "--key, --tenant or the environment variable MCPHUB_API_KEY is required."),
        ("nobody", "Unknown or disabled tenant: 'nobody'."),
        ("acme", "Unknown or disabled tenant: 'acme'."),
    ],
)
def test_somebody_has_to_call(tenant: Tenant, slug: str | None, reason: str) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(is_active=False)
    with pytest.raises(CommandError, match=re.escape(reason)):
        mcp_stdio._caller(None, slug)


# --- Lines ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b\r", b"\nc"], [b"ab", b"c"]),
        ([b"\n\n  \n\r\n"], []),
        ([b"12345\n"], [b"12345"]),
        ([b"123456\n7\n"], [None, b"7"]),
        ([b"123", b"456", b"789", b"\n", b"7\n"], [None, b"7"]),
        ([b"123456"], [None]),
        ([], []),
    ],
)
def test_lines_are_put_together_and_none_is_longer_than_allowed(chunks: list[bytes], lines: list[Any]) -> None:
    reader = Lines(5)
    assert [line for chunk in [*chunks, b""] for line in reader.of(chunk)] == lines
