"""`manage.py mcp_stdio`: a process on whose standard streams messages travel, and nothing else (stdio)."""

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
from tests.wire.channels import Message, Talk
from tests.wire.client import ALL_VERSIONS, HANDSHAKES, MODERN, rpc
from tools_app.management.commands import mcp_stdio
from tools_app.models import Tenant
from tools_app.transport.stdio import Lines

KEY = "stdio" * 8
SHORT_LIVED = "short" * 8
# What runs there would take ten times as long.
SOON_SECONDS = 30.0
NOISE = "NOISE"
TOLD = {"progressToken": "t"}
SEED = f"""
from tools_app.access import keys
from tools_app.catalog import authoring
from tools_app.models import Tenant
tenant = Tenant.objects.create(slug="demo", name="Demo")
authoring.add_code_tools(tenant, ["count", "deaf", "echo", "holds", "loud", "nosy"])
keys.issue(tenant, "stdio", key="{KEY}")
keys.issue(tenant, "short-lived", key="{SHORT_LIVED}")
Tenant.objects.create(slug="off", name="Off", is_active=False)
"""


class StdioTalk(Talk):
    """A process, and what stands on its streams. Each line has to be a message."""

    def __init__(self, arguments: list[str], environment: dict[str, str], errors: Path, source: Any = None) -> None:
        super().__init__()
        self.errors = errors
        with errors.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "mcp_stdio", *arguments],
                cwd=ROOT,
                env=environment,
                stdin=source or subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
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
            pytest.fail(f"nothing was said; on the standard error: {self.stderr_text()}")
        assert line is not None, f"the process ended; on the standard error: {self.stderr_text()}"
        return message_in(line)

    def close(self) -> None:
        """End the input."""
        self.process.stdin.close()

    def read_to_end(self) -> list[Message]:
        """Wait for the end: what was still said."""
        said = []
        while (line := self._lines.get(timeout=WAIT_SECONDS)) is not None:
            said.append(message_in(line))
        self.process.wait(WAIT_SECONDS)
        return said

    def stderr_text(self) -> str:
        """What stands on the standard error."""
        return self.errors.read_text(errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_SECONDS)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


def message_in(line: bytes) -> Message:
    """The message of a line, which is one, whole, and nothing else."""
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert b"\r" not in line
    message = json.loads(line)
    assert isinstance(message, list) or message["jsonrpc"] == "2.0"
    return message


@pytest.fixture(scope="module")
def settings_of(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a hub with a database of the module's own."""
    foreign = ("MCPHUB_", "DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL", "DJANGO_SETTINGS_MODULE")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    data = tmp_path_factory.mktemp("stdio")
    shutil.copy(migrated, data)
    environment = {
        **clean,
        "MCPHUB_DATA_DIR": str(data),
        "MCPHUB_APPS": "tests.processes.noisy",
        "MCPHUB_DRAIN_TIMEOUT": "1",
    }
    command = [sys.executable, "manage.py", "shell", "--no-imports", "-c", SEED]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=WAIT_SECONDS)
    return environment


@pytest.fixture
def start(settings_of: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., StdioTalk]]:
    """Start processes that end with the test: `start("--tenant", "demo", MCPHUB_LOG_LEVEL="DEBUG")`."""
    started: list[StdioTalk] = []

    def run(*arguments: str, source: Any = None, **variables: str) -> StdioTalk:
        errors = tmp_path / f"{len(started)}.err"
        started.append(StdioTalk(list(arguments), settings_of | variables, errors, source))
        return started[-1]

    yield run
    for talk in started:
        talk.kill()


@pytest.fixture
def talk(start: Callable[..., StdioTalk]) -> StdioTalk:
    """The process of a client with a key, which says nothing yet."""
    return start(MCPHUB_API_KEY=KEY)


@pytest.fixture
def recorded(settings_of: dict[str, str]) -> Callable[[str], list[Any]]:
    """The columns of all calls, the newest first: `recorded("tool_name, outcome")`."""

    def ask(columns: str) -> list[Any]:
        query = f"SELECT {columns} FROM tools_app_call ORDER BY started_at DESC"
        return rows(Path(settings_of["MCPHUB_DATA_DIR"]), query)

    return ask


# --- The conversation -------------------------------------------------------------------------------------------------


@pytest.mark.shows("base.patterns")
def test_every_revision_is_spoken(start: Callable[..., StdioTalk], recorded: Callable[[str], list[Any]]) -> None:
    talks = [start(MCPHUB_API_KEY=KEY) for _ in ALL_VERSIONS]
    for talk, version in zip(talks, ALL_VERSIONS, strict=True):
        talk.speak(version)
        assert "echo" in [tool["name"] for tool in talk.ask("tools/list", id=1)["result"]["tools"]]
        assert talk.ask_tool("echo", {"message": version}, id="two")["result"]["content"][0]["text"].endswith(version)
        assert talk.ask_tool("count", {"n": 2}, id=3, meta=TOLD)["result"]["content"][0]["text"] == "2"
        progress = [message["params"]["progress"] for message in talk.heard]
        assert progress == [0, 1]
        talk.close()
        assert (talk.read_to_end(), talk.process.returncode, talk.stderr_text()) == ([], 0, "")
    called = recorded("tool_name, outcome, protocol_version, remote_address, api_key_id IS NOT NULL")
    assert set(called) >= {
        (tool, "ok", version, "stdio", True) for tool in ("echo", "count") for version in ALL_VERSIONS
    }


def test_the_operator_needs_no_key_and_tools_do_not_read_what_the_client_says(
    start: Callable[..., StdioTalk], recorded: Callable[[str], list[Any]]
) -> None:
    talk = start("--tenant", "demo").speak("2025-11-25")
    talk.call("nosy", id=1)
    for id in range(2, 8):
        talk.request("ping", id=id)
    answers = {message["id"]: message["result"] for message in (talk.next() for _ in range(7))}
    assert answers.pop(1)["content"][0]["text"] == "read 0 bytes"
    assert answers == {id: {} for id in range(2, 8)}
    assert recorded("tool_name, outcome, api_key_id")[0] == ("nosy", "ok", None)


@pytest.mark.shows("stdio.messages-only", "stdio.one-line", "stdio.credentials")
def test_nothing_but_messages_stands_on_the_standard_output(start: Callable[..., StdioTalk]) -> None:
    talk = start(MCPHUB_API_KEY=KEY, MCPHUB_LOG_LEVEL="DEBUG").speak("2025-11-25")
    assert KEY.encode() not in Path(f"/proc/{talk.process.pid}/cmdline").read_bytes()
    assert talk.ask_tool("loud")["result"]["content"][0]["text"] == LINES
    assert talk.ask_tool("count", {"n": 1}, id=2)["result"]["isError"] is False
    talk.close()
    assert talk.read_to_end() == []
    said = talk.stderr_text()
    for source in ("print", "write", "a descriptor", "a program", "a log"):
        assert f"{NOISE} of {source}" in said
    assert "DEBUG" in said
    assert KEY not in said


@pytest.mark.shows("stdio.cancelled-silent", "cancellation.of-subscriptions")
def test_a_cancelled_request_is_stopped_and_not_spoken_of_again(
    talk: StdioTalk, recorded: Callable[[str], list[Any]], eventually: Callable[..., Any]
) -> None:
    talk.speak(MODERN)
    for id, tool, arguments in ((1, "count", {"n": 600}), (2, "holds", {})):
        talk.call(tool, arguments, id=id, meta=TOLD)
        talk.next()
        talk.cancel(id, "enough of it")
        talk.ask("server/discover", id="after")
        talk.heard.clear()
        eventually(lambda tool=tool: recorded("tool_name, outcome")[:1] == [(tool, "cancelled")])
        assert "enough of it" in recorded("cause")[0][0]
    talk.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="sub")
    talk.next()
    talk.process.send_signal(signal.SIGTERM)
    cancelled, closed = talk.read_to_end()
    assert (cancelled["method"], cancelled["params"]["requestId"]) == ("notifications/cancelled", "sub")
    assert (closed["id"], closed["result"]["resultType"]) == ("sub", "complete")


def test_what_is_no_message_is_told_so_and_the_process_goes_on(start: Callable[..., StdioTalk]) -> None:
    talk = start(MCPHUB_API_KEY=KEY, MCPHUB_MAX_BODY_BYTES="300")
    talk.write(b"{bad")
    talk.write(b"   ")
    assert talk.next()["error"]["code"] == -32700
    talk.write(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"%b"}}' % (b"x" * 200_000))
    too_long = talk.next()
    assert ("id" not in too_long, too_long["error"]["message"]) == (True, "The message is larger than 300 bytes.")
    assert talk.speak(HANDSHAKES[0]).ask("ping")["result"] == {}


# --- The end ----------------------------------------------------------------------------------------------------------


@pytest.mark.shows("stdio.exits")
def test_what_was_asked_before_the_input_ended_is_answered(start: Callable[..., StdioTalk], tmp_path: Path) -> None:
    asked = [
        rpc("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}, id=0),
        rpc("tools/call", {"name": "echo", "arguments": {"message": "x"}}, id=1),
        rpc("tools/call", {"name": "count", "arguments": {"n": 2}}, id=2),
    ]
    script = tmp_path / "script"
    script.write_text("\n".join(map(json.dumps, asked)))
    with script.open("rb") as source:
        talk = start(MCPHUB_API_KEY=KEY, source=source)
        answers = {message["id"]: message["result"] for message in talk.read_to_end() if "id" in message}
    assert answers.keys() == {0, 1, 2}
    assert answers[2]["content"][0]["text"] == "2"
    assert talk.process.returncode == 0


def begun(talk: StdioTalk, *tools: str) -> StdioTalk:
    """The process, once it runs these tools, which take long. The names of the tools are the ids of their calls."""
    talk.speak("2025-11-25")
    for tool in tools:
        talk.call(tool, {"n": 600} if tool == "count" else {}, id=tool, meta={"progressToken": tool})
        while talk.next()["params"]["progressToken"] != tool:
            pass
    return talk


def answers_at_the_end(talk: StdioTalk) -> dict[str, Message]:
    """The results that were still said, by the ids of their calls."""
    return {message["id"]: message["result"] for message in talk.read_to_end() if "id" in message}


@pytest.mark.shows("stdio.exits")
def test_it_ends_soon_after_its_input_whatever_still_runs(
    start: Callable[..., StdioTalk], recorded: Callable[[str], list[Any]]
) -> None:
    # A thread that never ends has a process of its own: the other one has to end without being torn away from any.
    calls = [("holds", "count"), ("deaf",)]
    talks = [begun(start(MCPHUB_API_KEY=KEY), *tools) for tools in calls]
    ended = time.monotonic()
    for talk in talks:
        talk.close()
    for talk, tools in zip(talks, calls, strict=True):
        answers = answers_at_the_end(talk)
        assert answers.keys() == set(tools)
        for answer in answers.values():
            assert answer["isError"] is True
            assert "closed its end" in answer["content"][0]["text"]
        assert talk.process.returncode == 0
    assert time.monotonic() - ended < SOON_SECONDS
    assert set(recorded("tool_name, outcome")[:3]) == {(tool, "cancelled") for tools in calls for tool in tools}


def test_a_signal_ends_it_and_what_runs_is_recorded_as_interrupted(
    talk: StdioTalk, recorded: Callable[[str], list[Any]]
) -> None:
    tools = {"holds", "count"}
    begun(talk, *tools)
    told = time.monotonic()
    talk.process.send_signal(signal.SIGTERM)
    answers = answers_at_the_end(talk)
    assert answers.keys() == tools
    for answer in answers.values():
        assert answer["content"][0]["text"] == "The hub was stopped while the call was running."
    assert talk.process.returncode == 0
    assert time.monotonic() - told < SOON_SECONDS
    assert set(recorded("tool_name, outcome")[:2]) == {(tool, "interrupted") for tool in tools}


def test_a_signal_lets_a_call_finish_that_is_quick_enough(talk: StdioTalk) -> None:
    talk.speak(MODERN).call("count", {"n": 4}, id=1, meta=TOLD)
    talk.next()
    talk.process.send_signal(signal.SIGINT)
    assert talk.read_to_end()[-1]["result"]["content"][0]["text"] == "4"


def test_it_ends_when_nobody_reads_it_any_more(settings_of: dict[str, str]) -> None:
    nobody, sink = os.pipe()
    os.close(nobody)
    command = [sys.executable, "manage.py", "mcp_stdio", "--tenant", "demo"]
    with subprocess.Popen(command, cwd=ROOT, env=settings_of, stdin=subprocess.PIPE, stdout=sink) as process:
        os.close(sink)
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"x"}}\n')
        process.stdin.flush()
        assert process.wait(WAIT_SECONDS) == 0


def test_it_ends_soon_after_its_key_was_revoked(start: Callable[..., StdioTalk], settings_of: dict[str, str]) -> None:
    talk = start(MCPHUB_API_KEY=SHORT_LIVED).speak("2025-11-25")
    with closing(sqlite3.connect(Path(settings_of["MCPHUB_DATA_DIR"]) / "hub.sqlite3")) as database, database:
        database.execute("UPDATE tools_app_apikey SET revoked_at = '2026-01-01' WHERE name = 'short-lived'")
    assert talk.read_to_end() == []
    assert talk.process.returncode == 0


# --- Who may start it -------------------------------------------------------------------------------------------------


@pytest.mark.shows("stdio.credentials")
def test_what_is_wrong_is_said_on_the_standard_error(start: Callable[..., StdioTalk], tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "hub.sqlite3").write_text("This is no database. " * 100)
    wrong = {
        "The API key is unknown, revoked or expired.": start(MCPHUB_API_KEY="nonsense"),
        "The database is not migrated. Run `manage.py migrate`": start(
            "--tenant", "demo", MCPHUB_DATA_DIR=str(tmp_path)
        ),
        "The database is unavailable: ": start("--tenant", "demo", MCPHUB_DATA_DIR=str(broken)),
    }
    for reason, talk in wrong.items():
        assert (talk.read_to_end(), talk.process.returncode) == ([], 1)
        assert talk.stderr_text().startswith(f"CommandError: {reason}")
        assert len(talk.stderr_text().splitlines()) <= 3


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
