"""MCP servers that people use as upstreams: PyPI's mcp-server-time and npm's server-everything, each installed here.

`MCPHUB_NODE_UPSTREAMS` names a directory with the `node_modules` of server-everything; without it, npm installs it.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import hub
from tests.upstreams.conftest import fresh_connections, near
from tests.wire.client import RawClient, message_of
from tests.wire.conftest import client, make_client
from tools_app.models import Tenant, Upstream
from tools_app.upstreams import service

__all__ = ["client", "fresh_connections", "hub", "make_client", "near"]

pytestmark = pytest.mark.timeout(300)

EVERYTHING = "@modelcontextprotocol/server-everything"
INSTALL_SECONDS = 200


@pytest.fixture(scope="module")
def time_server(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    place = tmp_path_factory.mktemp("time")
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, timeout=INSTALL_SECONDS)
    pip = [str(place / "bin" / "pip"), "install", "--quiet", "mcp-server-time"]
    subprocess.run(pip, check=True, timeout=INSTALL_SECONDS)
    return [str(place / "bin" / "mcp-server-time"), "--local-timezone", "UTC"]


@pytest.fixture(scope="module")
def everything_server(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    node = shutil.which("node")
    assert node is not None, "server-everything needs Node.js"
    given = os.environ.get("MCPHUB_NODE_UPSTREAMS")
    place = Path(given) if given else tmp_path_factory.mktemp("node")
    if not given:
        npm = ["npm", "install", "--no-audit", "--no-fund", "--silent", EVERYTHING]
        subprocess.run(npm, cwd=place, check=True, timeout=INSTALL_SECONDS)
    package = place / "node_modules" / EVERYTHING
    (program,) = json.loads((package / "package.json").read_text())["bin"].values()
    return [node, str((package / program).resolve()), "stdio"]


@pytest.fixture
def added(near: Tenant, settings: Any) -> Iterator[Callable[..., Upstream]]:
    def add(command: list[str]) -> Upstream:
        settings.MCPHUB_UPSTREAM_COMMANDS = [" ".join(command)]
        settings.MCPHUB_UPSTREAM_PATHS = [str(Path(command[1]).parents[4])] if "node_modules" in command[1] else []
        upstream = Upstream.objects.create(tenant=near, name="real", prefix="real", transport="stdio", command=command)
        good, bad = service.acceptable(service.discover(upstream).items)
        assert not bad
        service.accept(good)
        return upstream

    return add


def test_the_time(added: Callable[..., Upstream], time_server: list[str], client: RawClient) -> None:
    assert added(time_server).status.version == "2026-07-28"
    for version in ("2025-06-18", "2026-07-28"):
        result = client.peer(version).result("real_get_current_time", {"timezone": "Europe/Oslo"})
        assert not result["isError"]
        assert "Europe/Oslo" in result["content"][0]["text"]


def test_everything(added: Callable[..., Upstream], everything_server: list[str], client: RawClient) -> None:
    assert added(everything_server).status.era == "handshake"
    peer = client.peer("2026-07-28")
    assert "hello" in peer.result("real_echo", {"message": "hello"})["content"][0]["text"]
    params = {
        "name": "real_trigger-long-running-operation",
        "arguments": {"duration": 1, "steps": 2},
        "_meta": {"progressToken": 1},
    }
    with peer.stream("tools/call", params) as stream:
        heard = stream.ends()
    assert [one["params"]["progress"] for one in heard if one.get("method") == "notifications/progress"] == [1, 2]
    assert not heard[-1]["result"]["isError"]
    listed = message_of(peer.request("resources/list"))["result"]["resources"]
    read = message_of(peer.request("resources/read", {"uri": listed[0]["uri"]}))
    assert read["result"]["contents"]
    prompts = message_of(peer.request("prompts/list"))["result"]["prompts"]
    simple = next(one for one in prompts if not one.get("arguments"))
    assert message_of(peer.request("prompts/get", {"name": simple["name"]}))["result"]["messages"]
