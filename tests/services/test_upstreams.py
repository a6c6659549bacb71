"""Widely used MCP servers of PyPI and npm as upstreams.

`MCPHUB_NODE_UPSTREAMS` names a directory with the `node_modules` of those of npm; without it, npm installs them.
`MCPHUB_PYTHON_UPSTREAMS` names the `bin` of an environment with those of PyPI; without it, pip installs them.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from tests.conftest import hub
from tests.upstreams.conftest import fresh_connections, loopback_tenant
from tests.web_services import Service, http_response, serve
from tests.wire.client import RawClient, message_of
from tests.wire.conftest import client, make_client
from tools_app.models import Tenant, Upstream
from tools_app.upstreams import connections
from tools_app.upstreams.isolation import launcher

__all__ = ["client", "fresh_connections", "hub", "loopback_tenant", "make_client", "serve"]

SCOPE = "@modelcontextprotocol/server-"
NODE_SERVERS = ("everything", "filesystem", "memory")
PYTHON_SERVERS = ("mcp-server-time", "mcp-server-git", "mcp-server-fetch")
INSTALL_SECONDS = 250
# Returns the command of an npm package's server.
NodeProgram = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def python_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the programs from PyPI."""
    if directory := os.environ.get("MCPHUB_PYTHON_UPSTREAMS"):
        return Path(directory)
    place = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, timeout=INSTALL_SECONDS)
    pip = [str(place / "bin" / "pip"), "install", "--quiet", *PYTHON_SERVERS]
    subprocess.run(pip, check=True, timeout=INSTALL_SECONDS)
    return place / "bin"


@pytest.fixture(scope="module")
def node_program(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """The command of an npm package's server."""
    node = shutil.which("node")
    assert node is not None, "servers of npm need Node.js"
    directory = os.environ.get("MCPHUB_NODE_UPSTREAMS")
    place = Path(directory) if directory else tmp_path_factory.mktemp("node")
    if not directory:
        npm = ["npm", "install", "--no-audit", "--no-fund", "--silent", *(SCOPE + name for name in NODE_SERVERS)]
        subprocess.run(npm, cwd=place, check=True, timeout=INSTALL_SECONDS)

    def command(name: str) -> list[str]:
        package = place / "node_modules" / f"{SCOPE}{name}"
        (program,) = json.loads((package / "package.json").read_text())["bin"].values()
        return [node, str((package / program).resolve())]

    return command


@pytest.fixture
def added(loopback_tenant: Tenant) -> Callable[..., Upstream]:
    """Add a program with the command, which approves its command line and paths."""

    def add(*command: str) -> Upstream:
        about = ("--tenant", loopback_tenant.slug, "--name", "real", "--prefix", "real", "--accept")
        call_command("add_upstream", *about, "--", *command, stdout=StringIO())
        return Upstream.objects.get(name="real")

    return add


def text_of(result: dict[str, Any]) -> str:
    assert not result["isError"], result
    text: str = result["content"][0]["text"]
    return text


def test_the_time(added: Callable[..., Upstream], python_programs: Path, client: RawClient) -> None:
    assert added(str(python_programs / "mcp-server-time"), "--local-timezone", "UTC").status.version == "2026-07-28"
    for version in ("2025-06-18", "2026-07-28"):
        result = client.peer(version).result("real_get_current_time", {"timezone": "Europe/Oslo"})
        assert not result["isError"]
        assert "Europe/Oslo" in result["content"][0]["text"]


def test_everything(added: Callable[..., Upstream], node_program: NodeProgram, client: RawClient) -> None:
    assert added(*node_program("everything"), "stdio").status.era == "handshake"
    peer = client.peer("2026-07-28")
    assert "hello" in peer.result("real_echo", {"message": "hello"})["content"][0]["text"]
    params = {
        "name": "real_trigger-long-running-operation",
        "arguments": {"duration": 1, "steps": 2},
        "_meta": {"progressToken": 1},
    }
    with peer.stream("tools/call", params) as stream:
        messages = stream.read_to_end()
    assert [one["params"]["progress"] for one in messages if one.get("method") == "notifications/progress"] == [1, 2]
    assert not messages[-1]["result"]["isError"]
    listed = message_of(peer.request("resources/list"))["result"]["resources"]
    read = message_of(peer.request("resources/read", {"uri": listed[0]["uri"]}))
    assert read["result"]["contents"]
    prompts = message_of(peer.request("prompts/list"))["result"]["prompts"]
    simple = next(one for one in prompts if not one.get("arguments"))
    assert message_of(peer.request("prompts/get", {"name": simple["name"]}))["result"]["messages"]


def test_files(added: Callable[..., Upstream], node_program: NodeProgram, client: RawClient, tmp_path: Path) -> None:
    """Only within its directory: the server rejects other paths, and so does the kernel."""
    root = tmp_path / "files"
    root.mkdir()
    (tmp_path / "secret").write_text("hush")
    assert added(*node_program("filesystem"), str(root)).status.era == "handshake"
    for version in ("2025-11-25", "2026-07-28"):
        peer = client.peer(version)
        note = str(root / version)
        text_of(peer.result("real_write_file", {"path": note, "content": "tea"}))
        assert text_of(peer.result("real_read_text_file", {"path": note})) == "tea"
        assert Path(note).read_text() == "tea"
        assert peer.result("real_read_text_file", {"path": str(tmp_path / "secret")})["isError"]


def test_memory(added: Callable[..., Upstream], node_program: NodeProgram, client: RawClient, tmp_path: Path) -> None:
    """Its structured results match the output schemas that it lists."""
    upstream = added(*node_program("memory"), str(tmp_path))
    upstream.environment = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    upstream.save()
    entity = {"name": "Ada", "entityType": "person", "observations": ["drinks tea"]}
    peer = client.peer("2026-07-28")
    created = peer.result("real_create_entities", {"entities": [entity]})
    assert not created["isError"], created
    graph = client.peer("2025-11-25").result("real_read_graph")
    assert graph["structuredContent"]["entities"] == [entity]


def test_a_repository(added: Callable[..., Upstream], python_programs: Path, client: RawClient, tmp_path: Path) -> None:
    place = tmp_path / "repository"
    subprocess.run(["git", "init", "--quiet", str(place)], check=True, timeout=30)
    (place / "tea.txt").write_text("green")
    added(str(python_programs / "mcp-server-git"), "--repository", str(place))
    for version in ("2025-06-18", "2026-07-28"):
        status = text_of(client.peer(version).result("real_git_status", {"repo_path": str(place)}))
        assert "tea.txt" in status
    outside = client.peer("2026-07-28").result("real_git_status", {"repo_path": "/"})
    assert outside["isError"]


def test_a_page_of_the_web(
    added: Callable[..., Upstream],
    python_programs: Path,
    client: RawClient,
    serve: Callable[..., Service],
    settings: Any,
) -> None:
    """It connects only where the operator allows programs to."""
    page = serve(lambda _request: http_response(200, b"<html><body><p>Green tea</p></body></html>", "text/html"))
    added(str(python_programs / "mcp-server-fetch"), "--ignore-robots-txt", "--allow-private-ips")
    arguments = {"url": f"{page.url}/tea", "raw": True}
    peer = client.peer("2026-07-28")
    if launcher.landlock_version() >= launcher.WITH_NETWORK:
        refused = message_of(peer.call("real_fetch", arguments))
        assert "error" in refused or refused["result"]["isError"]
        assert not page.received
    connections.current.stop()
    settings.MCPHUB_UPSTREAM_NETWORK = True
    assert "Green tea" in text_of(peer.result("real_fetch", arguments))
