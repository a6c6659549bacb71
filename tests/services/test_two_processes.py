"""Any process serves any session: over PostgreSQL and Redis, with two web processes and a Celery worker."""

import json
import os
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from tests.clients import scenario_v2
from tests.services.caller import Caller
from tests.services.conftest import Hub
from tests.services.stack import eventually

# Of changes that take effect within two seconds, with time for a busy machine.
BOUND_SECONDS = 10.0
# Of a tenth of a second each: the call runs on when its first step has come, also on a busy machine.
STEPS = 20


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
def test_the_sdk_2_client_gets_everything_from_either_process(hub: Hub, mode: str) -> None:
    for url in hub.urls:
        scenario_v2.check(scenario_v2.play(url, hub.stack.key, mode))


def test_the_sdk_1_client_gets_everything(hub: Hub) -> None:
    python = os.environ.get("MCPHUB_MCP1_PYTHON")
    assert python, "MCPHUB_MCP1_PYTHON must name an interpreter that has `mcp<2`; `.ci/run` makes one"
    script = Path(__file__).parent.parent / "clients" / "scenario_v1.py"
    played = subprocess.run(
        [python, str(script), hub.urls[0], hub.stack.key], capture_output=True, text=True, timeout=120, check=False
    )
    assert played.returncode == 0, played.stderr
    scenario_v2.check(scenario_v2.Seen(**json.loads(played.stdout)))


def test_a_session_made_in_one_process_is_used_in_the_other(hub: Hub, caller: Caller) -> None:
    counting = caller.counting(hub.urls[1], STEPS, 1)
    eventually(lambda: counting.seen)
    assert hub.stack.rows("SELECT 1 FROM tools_app_runningcall"), "progress came all at once"
    seen = counting.finished()
    progress = [message["params"]["progress"] for _, message in seen[:-1]]
    assert progress == list(range(STEPS))
    assert seen[-1][1]["result"]["content"] == [{"type": "text", "text": str(STEPS)}]


def test_a_call_is_cancelled_through_another_process(hub: Hub, caller: Caller) -> None:
    counting = caller.counting(hub.urls[0], 200, 77)
    eventually(lambda: len(counting.seen) > 2)
    body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}}
    assert caller.post(hub.urls[1], body).status_code == 202
    assert all("result" not in message for _, message in counting.finished(10))
    eventually(lambda: hub.outcomes("count")[-1] == "cancelled")


def test_a_tool_that_hears_no_cancellation_is_ended_with_its_process(hub: Hub, caller: Caller) -> None:
    stubborn = caller.calling(hub.urls[0], "stubborn", {"seconds": 100}, 78)
    eventually(lambda: hub.stack.rows("SELECT 1 FROM tools_app_runningcall WHERE status = 'running'"))
    body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 78}}
    assert caller.post(hub.urls[1], body).status_code == 202
    assert stubborn.finished(15) == []
    assert hub.outcomes("stubborn") == ["cancelled"]
    busy = [caller.calling(hub.urls[0], "count", {"n": 2}, id) for id in (1, 2, 3)]
    assert [counted.finished(15)[-1][1]["result"]["isError"] for counted in busy] == [False] * 3


def test_a_change_reaches_the_streams_of_every_process(hub: Hub) -> None:
    callers = [Caller(hub.stack.key).open(url) for url in hub.urls]
    streams = [listener.listening(url) for listener, url in zip(callers, hub.urls, strict=True)]
    for stream in streams:
        assert stream.opened.wait(10)
    hub.stack.shell(
        "from tools_app.catalog import authoring; from tools_app.models import Tool;"
        "authoring.set_enabled(Tool.objects.get(name='echo_ip'), False)"
    )
    for stream in streams:
        eventually(lambda stream=stream: stream.seen)
        assert stream.seen[0][1]["method"] == "notifications/tools/list_changed"
    hub.stack.shell(
        "from tools_app.catalog import authoring; from tools_app.models import Tool;"
        "authoring.set_enabled(Tool.objects.get(name='echo_ip'), True)"
    )
    for listener, other, stream in zip(callers, reversed(hub.urls), streams, strict=True):
        assert httpx.delete(other, headers=listener.headers, timeout=10).status_code == 204
        stream.finished(10)


def test_a_key_revoked_while_a_stream_is_open_loses_it_in_every_process(hub: Hub) -> None:
    key = "k" * 40
    hub.stack.shell(
        "from tools_app.tenants import keys; from tools_app.models import Tenant;"
        f"keys.issue(Tenant.objects.get(slug='demo'), 'short-lived', key='{key}')"
    )
    caller = Caller(key).open(hub.urls[0])
    stream = caller.listening(hub.urls[1])
    assert stream.opened.wait(10)
    hub.stack.rows("UPDATE tools_app_apikey SET revoked_at = now() WHERE name = 'short-lived' RETURNING id")
    revoked = time.monotonic()
    stream.finished(BOUND_SECONDS)
    for url in hub.urls:
        eventually(lambda url=url: caller.call(url, "echo", {"message": "x"}).status_code == 401, BOUND_SECONDS)
    assert time.monotonic() - revoked < BOUND_SECONDS


def test_networks_that_are_allowed_no_more_are_out_of_reach_in_every_process(hub: Hub) -> None:
    """Changed directly in the database, without a notification: the web processes and the worker poll."""
    hub.stack.shell(
        "from tools_app.catalog import authoring; from tools_app.models import Tenant, Tool\n"
        "tenant = Tenant.objects.get(slug='demo')\n"
        "tenant.allowed_networks = ['127.0.0.0/8']; tenant.save()\n"
        f"config = {{'method': 'GET', 'base_url': '{hub.webs[0].url}', 'path': 'healthz'}}\n"
        "for name, background in (('near', False), ('near_in_worker', True)):\n"
        "    authoring.save_tool(Tool(tenant=tenant, name=name, kind='http', config=config, background=background))"
    )
    caller = Caller(hub.stack.key).open(hub.urls[0])
    ways = [(url, name) for url in hub.urls for name in ("near", "near_in_worker")]

    def fails(way: tuple[str, str]) -> bool:
        response = caller.call(*way, {})
        text = response.text.removeprefix("event").rpartition("data: ")[2] or response.text
        return bool(json.loads(text.strip())["result"]["isError"])

    for way in ways:
        eventually(lambda way=way: not fails(way))
    hub.stack.execute("UPDATE tools_app_tenant SET allowed_networks = '[]' WHERE slug = 'demo'")
    changed = time.monotonic()
    for way in ways:
        eventually(lambda way=way: fails(way), BOUND_SECONDS)
    assert time.monotonic() - changed < BOUND_SECONDS


def test_every_process_is_ready(hub: Hub) -> None:
    for url in hub.urls:
        response = httpx.get(url.removesuffix("/mcp") + "/readyz", timeout=10)
        assert response.status_code == 200, response.text
