"""Upstreams on stdio: their sandbox, their environment and their lifetime."""

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from tests.upstreams.servers import SdkServer
from tests.wire.client import Peer, RawClient
from tools_app.calls.models import Call
from tools_app.catalog import authoring
from tools_app.models import CallPayload, Tenant, Upstream
from tools_app.upstreams import connections, service, stdio
from tools_app.upstreams.errors import UpstreamFailed
from tools_app.upstreams.isolation import home, launcher
from tools_app.upstreams.validation import is_allowed_command, upstream_faults

# It starts processes.
pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("program.py")
COMMAND = [sys.executable, str(PROGRAM)]

# What a forked child of this process calls.
fork_handlers: list[Callable[[], None]] = []
os.register_at_fork(after_in_child=lambda: [handler() for handler in fork_handlers])

needs_landlock = pytest.mark.skipif(not launcher.landlock_version(), reason="this kernel has no Landlock")


@pytest.fixture
def program(loopback_tenant: Tenant, settings: Any) -> Upstream:
    """A program that the operator allows, with all of its tools accepted."""
    authoring.set_secret(loopback_tenant, "TOKEN", "hush-hush-1")
    settings.MCPHUB_UPSTREAM_COMMANDS = [shlex.join(COMMAND)]
    settings.MCPHUB_UPSTREAM_PATHS = [str(PROGRAM.parent), sys.base_prefix]
    upstream = Upstream.objects.create(
        tenant=loopback_tenant,
        name="program",
        transport="stdio",
        command=COMMAND,
        environment={"TOKEN": "{secret:TOKEN}"},
    )
    service.accept(service.discover(upstream).items)
    return upstream


@pytest.fixture
def peer(client: RawClient, program: Upstream) -> Peer:
    return client.peer("2026-07-28")


def call_result(peer: Peer, tool: str, **arguments: Any) -> Any:
    return peer.result(tool, arguments)["structuredContent"]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_its_environment_holds_nothing_of_the_hub(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    found = call_result(peer, "environment")
    assert set(found) - {"LC_CTYPE"} == {"GIT_CONFIG_NOSYSTEM", "HOME", "LANG", "PATH", "TMPDIR", "TOKEN"}
    assert found["TOKEN"] == "[redacted]"


def test_the_launcher_obeys_no_variable_of_the_tenant(peer: Peer) -> None:
    program = Path(f"/proc/{call_result(peer, 'spawn')['own']}/stat").read_text()
    launcher_pid = program.rpartition(")")[2].split()[1]
    variables = Path(f"/proc/{launcher_pid}/environ").read_bytes().split(b"\0")
    assert {variable.partition(b"=")[0] for variable in variables if variable} == {
        b"PATH",
        b"LANG",
        b"LAUNCH_ENVIRONMENT",
    }
    assert "LAUNCH_ENVIRONMENT" not in call_result(peer, "environment")


@pytest.mark.parametrize("name", ["LD_PRELOAD", "Locpath", "GCONV_PATH", "PYTHONPATH", "npm_config_registry", "ENV"])
def test_no_variable_changes_what_runs(program: Upstream, name: str) -> None:
    connections.current.stop()
    program.environment = {name: "/tmp/x"}
    assert "changes what the program runs" in upstream_faults(program)["environment"][0]
    program.save()
    with pytest.raises(UpstreamFailed, match="changes what the program runs"):
        service.discover(program)


def test_a_value_that_no_variable_can_have_is_refused_by_the_name_of_the_variable(
    program: Upstream, loopback_tenant: Tenant
) -> None:
    connections.current.stop()
    authoring.set_secret(loopback_tenant, "TOKEN", "hush\0hush")
    with pytest.raises(UpstreamFailed, match="The value of the variable TOKEN cannot be used") as raised:
        service.discover(program)
    assert "hush" not in f"{raised.value.message}{raised.value.cause}"


@needs_landlock
def test_it_reads_and_writes_its_own_directory_and_nothing_of_others(peer: Peer, tmp_path: Path, settings: Any) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    home = call_result(peer, "environment")["HOME"]
    assert call_result(peer, "write", path=f"{home}/note")["text"] == "written"
    assert call_result(peer, "read", path=f"{home}/note")["text"] == "read"
    assert call_result(peer, "read", path=str(secret))["text"] == "PermissionError"
    assert call_result(peer, "write", path=str(tmp_path / "new"))["text"] == "PermissionError"
    assert call_result(peer, "read", path=f"/proc/{os.getpid()}/environ")["text"] == "PermissionError"
    assert call_result(peer, "read", path=str(Path(settings.MCPHUB_DATA_DIR, "secret.key")))["text"] in {
        "PermissionError",
        "FileNotFoundError",
    }


@needs_landlock
def test_it_opens_no_connections_unless_the_operator_allows_it(
    peer: Peer, sdk_server: Callable[..., SdkServer], settings: Any
) -> None:
    port = sdk_server().port
    assert call_result(peer, "connect", port=port)["text"] == "PermissionError"
    connections.current.stop()
    settings.MCPHUB_UPSTREAM_NETWORK = True
    assert call_result(peer, "connect", port=port)["text"] == "connected"


@pytest.mark.skipif(not launcher.has_seccomp(), reason="this kernel has no seccomp")
def test_it_opens_no_sockets_but_pairs_of_its_own_unless_the_operator_allows_it(peer: Peer, settings: Any) -> None:
    found = call_result(peer, "sockets")
    assert {name for name, outcome in found.items() if outcome == "opened"} == {"pair", "addresses of the host"}
    assert set(found.values()) == {"opened", "PermissionError"}
    connections.current.stop()
    settings.MCPHUB_UPSTREAM_NETWORK = True
    assert call_result(peer, "sockets")["unix"] == "opened"


@pytest.mark.parametrize("delete", [False, True])
def test_one_that_stores_too_much_is_ended_and_not_started_again_before_there_is_room(
    peer: Peer, program: Upstream, delete: bool, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(home, "MAX_BYTES", 1_000_000)
    monkeypatch.setattr(home, "MEASURE_SECONDS", 0.05)
    result = peer.result("store", {"bytes": 2_000_000, "delete": delete})
    assert "was ended. Its home holds more than 1000000 bytes." in result["content"][0]["text"]
    again = peer.result("read", {"path": "/etc/hosts"})
    assert again["isError"] is not delete
    if not delete:
        assert "is not started. Its home holds more than" in again["content"][0]["text"]
        Path(settings.MCPHUB_DATA_DIR, "upstreams", str(program.pk), "stored").unlink()
        assert call_result(peer, "read", path="/etc/hosts") == {"text": "read"}


def test_files_of_a_home_are_counted_and_none_can_be_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "all").symlink_to("/")
    (tmp_path / "b").write_bytes(b"x" * 600_000)
    (tmp_path / "c").hardlink_to(tmp_path / "b")
    monkeypatch.setattr(home, "MAX_BYTES", 1_000_000)
    home.check(tmp_path)
    monkeypatch.setattr(home, "MAX_FILES", 3)
    with pytest.raises(home.HomeFull, match="more than 3 files"):
        home.check(tmp_path)
    monkeypatch.setattr(home, "MAX_FILES", 1000)
    monkeypatch.chdir(tmp_path)
    for _ in range(20):
        os.mkdir("d" * 250)  # noqa: PTH102 - the whole path is too long for any call
        os.chdir("d" * 250)
    with pytest.raises(home.HomeFull, match="cannot be measured: File name too long"):
        home.check(tmp_path)


def test_all_that_it_started_ends_with_it(peer: Peer, eventually: Callable[..., Any]) -> None:
    pids = call_result(peer, "spawn").values()
    assert all(map(is_alive, pids))
    connections.current.stop()
    eventually(lambda: not any(map(is_alive, pids)))


def test_one_that_dies_in_a_call_is_started_again_by_the_next_one(peer: Peer) -> None:
    result = peer.result("die")
    assert result["isError"]
    assert result["content"][0]["text"] == (
        "Upstream 'program': The upstream's process has ended. The call may have run."
    )
    assert Call.objects.get(tool_name="die").cause == "out of paper"
    assert call_result(peer, "read", path="/etc/hosts") == {"text": "read"}


@pytest.mark.parametrize(
    ("tool", "message"), [("flood", "sent a message of more than"), ("babble", "sent an invalid message")]
)
def test_one_that_does_not_keep_to_the_protocol_is_ended(peer: Peer, tool: str, message: str) -> None:
    result = peer.result(tool)
    assert message in result["content"][0]["text"]
    assert not peer.result("read", {"path": "/etc/hosts"})["isError"]


def test_a_hanging_call_ends_with_its_timeout_and_others_go_on(peer: Peer, loopback_tenant: Tenant) -> None:
    tool = loopback_tenant.tools.get(name="hang")
    tool.timeout_seconds = 0.5
    authoring.save_tool(tool)
    assert "did not finish within 0.5 seconds" in peer.result("hang")["content"][0]["text"]


def test_a_command_that_is_no_longer_allowed_is_not_started(peer: Peer, settings: Any) -> None:
    connections.current.stop()
    settings.MCPHUB_UPSTREAM_COMMANDS = []
    result = peer.result("read", {"path": "/etc/hosts"})
    assert "does not allow this command" in result["content"][0]["text"]


def test_the_operator_approves_a_command_by_adding_it_at_the_command_line(
    program: Upstream, loopback_tenant: Tenant, settings: Any
) -> None:
    settings.MCPHUB_UPSTREAM_COMMANDS = []
    call_command("add_upstream", "--tenant", loopback_tenant.slug, "--name", "added", "--prefix", "a", "--", *COMMAND)
    added = Upstream.objects.get(name="added")
    assert not upstream_faults(added)
    added.command = [*COMMAND, "--other"]
    assert "does not allow this command" in upstream_faults(added)["command"][0]
    with pytest.raises(UpstreamFailed, match="does not allow this command"):
        service.discover(added)


def test_an_approved_command_reads_the_script_and_writes_the_directory_that_it_names(tmp_path: Path) -> None:
    script = tmp_path / "node_modules" / "server" / "dist" / "index.js"
    script.parent.mkdir(parents=True)
    script.touch()
    root = tmp_path / "files"
    root.mkdir()
    readable, writable = stdio._named_paths([str(script), "--root", str(root), "relative", "/no/such/file"])
    assert readable == [str(root), str(tmp_path / "node_modules")]
    assert writable == [str(root)]


def test_a_command_that_could_read_the_data_of_the_hub_is_not_started(program: Upstream, settings: Any) -> None:
    connections.current.stop()
    settings.MCPHUB_UPSTREAM_PATHS = ["/"]
    with pytest.raises(UpstreamFailed, match="it could read the hub's own data"):
        service.discover(program)


@pytest.mark.parametrize(
    ("entry", "command", "allowed"),
    [
        ("uvx mcp-server-time", ["uvx", "mcp-server-time"], True),
        ("uvx mcp-server-time", ["uvx", "mcp-server-time", "--x"], False),
        ("uvx mcp-server-time *", ["uvx", "mcp-server-time", "--x"], True),
        ("uvx *", ["/tmp/uvx", "mcp-server-time"], False),
        ("*", ["sh"], False),
    ],
)
def test_commands_are_matched_word_by_word(settings: Any, entry: str, command: list[str], allowed: bool) -> None:
    settings.MCPHUB_UPSTREAM_COMMANDS = [entry]
    assert is_allowed_command(command) is allowed


def test_a_secret_is_in_no_record(peer: Peer) -> None:
    call_result(peer, "environment")
    assert "hush-hush-1" not in str(CallPayload.objects.values_list("result", flat=True))


def test_no_fork_handler_of_a_library_runs_before_it_starts(peer: Peer) -> None:
    """One that waits for a lock of another thread would stop the whole hub."""
    fork_handlers.append(lambda: os._exit(1))
    try:
        assert call_result(peer, "environment")
    finally:
        fork_handlers.clear()
