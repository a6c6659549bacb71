"""nginx with deploy/nginx.conf, in front of two web processes of each server."""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.services.caller import Caller
from tests.services.conftest import SERVERS
from tests.services.load import loading
from tests.services.stack import ROOT, WAIT_SECONDS, Running, Stack, eventually, free_port

CONFIGURATION = ROOT / "deploy" / "nginx.conf"
LIMIT = 4 * 1024 * 1024
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


class Nginx:
    """An nginx process with its own directory."""

    def __init__(self, home: Path, upstream: str) -> None:
        home.mkdir()
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        (home / "nginx.conf").write_text(rendered(home, port))
        (home / "mcphub-upstream.conf").write_text(upstream)
        (home / "mime.types").write_text("types {}\n")
        self._home = home
        self._process = subprocess.Popen(self._command(), stderr=subprocess.DEVNULL)
        eventually(self._listens)

    def logged(self) -> str:
        return "".join(log.read_text() for log in sorted(self._home.glob("*.log")))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(WAIT_SECONDS)

    def _command(self) -> list[str]:
        nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
        assert nginx, "These tests need nginx; `.ci/run` installs it on Debian."
        # Otherwise its workers could not enter the directory.
        more = "daemon off;" + (" user root;" if os.getuid() == 0 else "")
        return [nginx, "-p", str(self._home), "-c", str(self._home / "nginx.conf"), "-g", more]

    def _listens(self) -> bool:
        assert self._process.poll() is None, self.logged()
        try:
            return httpx.get(f"{self.url}/metrics", trust_env=False).status_code == 404
        except httpx.TransportError:
            return False


def rendered(home: Path, port: int) -> str:
    """The deployed configuration, with other paths and another port."""
    text = CONFIGURATION.read_text()
    places = "".join(f"    {name}_temp_path {home}/{name};\n" for name in TEMPORARY)
    for old, new in {
        "listen 80 default_server;": f"listen 127.0.0.1:{port} default_server;",
        "pid /run/nginx.pid;": f"pid {home}/nginx.pid;",
        "/var/log/nginx/": f"{home}/",
        "worker_processes auto;": "worker_processes 2;",
        "\nhttp {\n": f"\nhttp {{\n{places}",
    }.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


@dataclass
class Front:
    """nginx, and the processes behind it."""

    stack: Stack
    server: str
    webs: list[Running]
    nginx: Nginx

    @property
    def url(self) -> str:
        return f"{self.nginx.url}/mcp"

    def restart(self, number: int) -> None:
        self.webs[number] = self.stack.web(self.server, port_of(self.webs[number]))


def port_of(web: Running) -> int:
    return int(web.url.rpartition(":")[2])


@pytest.fixture(scope="module", params=list(dict.fromkeys(SERVERS)))
def front(request: pytest.FixtureRequest, stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """Two web processes, a worker and nginx, shared by the tests of a module: each leaves all of them running."""
    stack.environment["MCPHUB_TRUSTED_PROXIES"] = "1"
    worker = stack.worker()
    webs = stack.webs(request.param, request.param)
    lines = "".join(f"server 127.0.0.1:{port_of(web)} max_fails=0;\n" for web in webs)
    nginx = Nginx(tmp_path_factory.mktemp("front") / "nginx", lines)
    yield Front(stack, request.param, webs, nginx)
    nginx.stop()
    for running in (*webs, worker):
        running.kill()


@pytest.fixture
def caller(front: Front) -> Caller:
    return Caller(front.stack.key).open(front.url)


def test_progress_comes_when_it_is_made(front: Front, caller: Caller) -> None:
    for turn in range(2):  # one for each process
        seen = caller.counting(front.url, 5, turn).finished()
        assert [message["params"]["progress"] for _, message in seen[:-1]] == [0, 1, 2, 3, 4]
        assert seen[-2][0] - seen[0][0] > 0.2, "progress came all at once"


def test_the_sessions_stream_is_open_before_there_is_anything_to_say(front: Front, caller: Caller) -> None:
    stream = caller.listening(front.url)
    assert stream.opened.wait(5)
    assert httpx.delete(front.url, headers=caller.headers, trust_env=False).status_code == 204
    stream.finished(10)


def test_http_and_sse_passes(front: Front) -> None:
    key = {"Authorization": f"Bearer {front.stack.key}"}
    with httpx.stream("GET", f"{front.nginx.url}/sse", headers=key, timeout=10, trust_env=False) as stream:
        events = (line[6:] for line in stream.iter_lines() if line.startswith("data: "))
        address = next(events)
        response = httpx.post(front.nginx.url + address, json=INITIALIZE, headers=key, timeout=10, trust_env=False)
        assert response.status_code == 202
        assert json.loads(next(events))["result"]["protocolVersion"] == "2025-11-25"


def test_a_websocket_passes(front: Front) -> None:
    url = front.nginx.url.replace("http", "ws", 1) + "/t/demo/ws"
    key = {"Authorization": f"Bearer {front.stack.key}"}
    with connect(url, additional_headers=key, subprotocols=["mcp"], proxy=None) as socket:
        socket.send(json.dumps(INITIALIZE))
        assert json.loads(socket.recv(10))["result"]["protocolVersion"] == "2025-11-25"


def test_the_callers_address_is_the_one_that_nginx_saw(front: Front, caller: Caller) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo_ip", "arguments": {}}}
    headers = {**caller.headers, "X-Forwarded-For": "203.0.113.9"}
    with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2")) as elsewhere:
        response = elsewhere.post(front.url, json=request, headers=headers)
    assert response.json()["result"]["content"][0]["text"] == "127.0.0.2"


@pytest.mark.parametrize(("size", "status"), [(LIMIT, 200), (LIMIT + 1, 413)])
def test_a_body_has_a_largest_size(front: Front, caller: Caller, size: int, status: int) -> None:
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'.ljust(size)
    headers = {**caller.headers, "Content-Type": "application/json"}
    assert httpx.post(front.url, content=ping, headers=headers, timeout=30, trust_env=False).status_code == status


def test_a_process_that_is_killed_is_no_loss_to_the_next_requests(front: Front, caller: Caller) -> None:
    front.webs[0].kill()
    responses = [caller.call(front.url, "echo", {"message": "x"}, id=turn) for turn in range(10)]
    assert {response.status_code for response in responses} == {200}
    front.restart(0)


def test_processes_are_restarted_in_turn_and_no_call_fails(front: Front) -> None:
    with loading(front.url, front.stack.key) as load:
        for number in range(2):
            assert front.webs[number].terminate() == 0
            front.restart(number)
            seen = load.answered
            eventually(lambda seen=seen: load.answered > seen + 10)
    assert load.failures == [], front.nginx.logged()


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[Callable[[str], Nginx]]:
    """Another nginx with an upstream of the test."""
    started: list[Nginx] = []

    def start(upstream: str) -> Nginx:
        started.append(Nginx(tmp_path / "nginx", upstream))
        return started[-1]

    yield start
    for one in started:
        one.stop()


def test_a_call_that_was_sent_is_never_sent_again(front: Front, caller: Caller, nginx: Callable[[str], Nginx]) -> None:
    first, second = map(port_of, front.webs)
    url = nginx(f"server 127.0.0.1:{first};\nserver 127.0.0.1:{second} backup;\n").url + "/mcp"
    calls = "SELECT count(*) FROM tools_app_{} WHERE tool_name = 'count'"

    def count(table: str) -> Any:
        return front.stack.rows(calls.format(table))[0][0]

    before = count("call")
    stream = caller.calling(url, "count", {"n": 30}, 1)
    silent = Silent(caller, url)
    eventually(lambda: count("runningcall") == 2)
    front.webs[0].kill()

    assert silent.status() == 502
    stream.finished()
    assert caller.call(url, "echo", {"message": "x"}).status_code == 200, "the other process did not take over"
    eventually(lambda: count("runningcall") == 0)
    assert count("call") == before + 2
    front.restart(0)


class Silent:
    """A call without a stream: nothing of the response is sent before the call ends."""

    def __init__(self, caller: Caller, url: str) -> None:
        self._answers: list[httpx.Response] = []
        self._thread = threading.Thread(target=self._call, args=[caller, url], daemon=True)
        self._thread.start()

    def status(self) -> int:
        self._thread.join(WAIT_SECONDS)
        return self._answers[0].status_code

    def _call(self, caller: Caller, url: str) -> None:
        params = {"name": "count", "arguments": {"n": 30}}
        body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        headers = {**caller.headers, "Accept": "application/json"}
        self._answers.append(httpx.post(url, json=body, headers=headers, timeout=WAIT_SECONDS, trust_env=False))


def test_no_log_holds_a_key(front: Front) -> None:
    for path in ("/mcp", "/sse", "/ws"):
        httpx.get(f"{front.nginx.url}{path}?api_key=mcphub_secret", timeout=10, trust_env=False)
    eventually(lambda: front.nginx.logged().count("GET /ws") == 1)
    assert "mcphub_secret" not in front.nginx.logged()


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_the_health_checks_pass(front: Front, path: str) -> None:
    assert httpx.get(front.nginx.url + path, trust_env=False).status_code == 200


def test_metrics_are_not_for_whoever_passes_nginx(front: Front) -> None:
    assert httpx.get(f"{front.nginx.url}/metrics", trust_env=False).status_code == 404
