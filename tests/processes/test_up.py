"""`manage.py up`: its banner, its options and its errors."""

import json
import re
import signal
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.identity.oauth.person import Application, Person
from tests.processes.hub import WAIT_SECONDS, Up, environment_of, run_each
from tools_app.management.commands.up import about_workers

PASSWORD = re.compile(r"with the password (\S+)")
KEY = re.compile(r"API key  (mcphub_\S+)")
CHOSEN_KEY = "a-key-that-the-operator-made-up-by-himself"
CLIENT = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def wait_until_refused(url: str) -> None:
    """Return when nothing listens at `url` any more: the shutdown has begun."""
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        try:
            httpx.get(f"{url}/healthz")
        except httpx.ConnectError:
            return
    pytest.fail("the hub still takes connections")


def rows(data_dir: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(data_dir / "hub.sqlite3")
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Up, Path]]:
    """A hub in an empty directory, as a new user starts it, and that directory."""
    data = tmp_path_factory.mktemp("first") / "data"
    hub = Up([], environment_of(data))
    yield hub, data
    hub.kill()


def test_the_first_run_shows_each_secret_once_and_how_to_connect(first_run):
    banner = first_run[0].banner

    key = KEY.search(banner)[1]
    snippet = json.loads(banner[banner.index("{\n") : banner.rindex("}\n") + 1])
    assert PASSWORD.search(banner)
    assert snippet["mcpServers"]["mcphub"]["headers"] == {"Authorization": f"Bearer {key}"}
    assert f"claude mcp add --transport http mcphub {snippet['mcpServers']['mcphub']['url']} --header" in banner
    assert f"'Authorization: Bearer {key}'" in banner


def test_the_first_run_makes_the_demo_tenant_with_its_tools(first_run):
    hub, data = first_run

    assert hub.banner.startswith("Preparing the database. This takes a few seconds.\n")
    assert rows(data, "SELECT slug, allow_query_key FROM tools_app_tenant") == [("demo", 1)]
    names = {name for (name,) in rows(data, "SELECT name FROM tools_app_tool")}
    assert names == {"echo", "echo_ip", "count", "test_throw", "calculator", "search_docs"}


def test_the_admin_signs_in_with_the_password_that_was_shown(first_run):
    hub = first_run[0]

    with httpx.Client(base_url=hub.url) as browser:
        browser.get("/admin/login/")
        form = {
            "username": "admin",
            "password": PASSWORD.search(hub.banner)[1],
            "csrfmiddlewaretoken": browser.cookies["csrftoken"],
        }
        answer = browser.post("/admin/login/?next=/admin/", data=form, headers={"Referer": hub.url})
    assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/")


def test_the_url_that_is_shown_is_enough_to_connect_a_client(first_run):
    hub = first_run[0]
    url = re.search(r"Connect a client with the URL alone: (\S+)", hub.banner)[1]
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": CLIENT}}
    headers = {"Mcp-Method": "tools/list", "Mcp-Protocol-Version": "2026-07-28"}
    headers |= {"Accept": "application/json, text/event-stream"}
    refused = httpx.post(url, json=request, headers=headers)
    place = re.search(r'resource_metadata="([^"]+)"', refused.headers["www-authenticate"])[1]
    found = httpx.get(place).json()
    assert (refused.status_code, found["resource"], found["authorization_servers"]) == (401, url, [hub.url])

    person = Person(hub.url, "admin", PASSWORD.search(hub.banner)[1])
    application = Application(hub.url, resource=url)
    with closing(person), closing(application):
        application.register()
        issued = application.exchange(person.connect(application.url(), ["echo"])).json()
    headers["Authorization"] = f"Bearer {issued['access_token']}"
    tools = httpx.post(url, json=request, headers=headers).json()["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["echo"]


@pytest.mark.shows("http-sse.localhost", "streamable-http.localhost")
def test_it_listens_on_the_loopback_address_alone_unless_told_otherwise(first_run):
    port = int(first_run[0].url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS):
        pass
    # Whoever listens on all addresses listens on this one too.
    with pytest.raises(OSError, match=r"refused|unreachable|assign"), socket.create_connection(("127.0.0.2", port), 5):
        pass


def test_it_serves_until_it_is_told_to_stop_and_a_second_run_reuses_everything(up, tmp_path):
    first = up()
    assert httpx.get(f"{first.url}/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{first.url}/readyz").status_code == 200
    first.send(signal.SIGTERM)
    assert first.wait() == (0, "")

    banner = up().banner

    assert not PASSWORD.search(banner)
    assert not KEY.search(banner)
    assert "manage.py issue_key --tenant demo" in banner
    assert "Bearer YOUR_API_KEY" in banner
    assert rows(tmp_path / "data", "SELECT count(*) FROM tools_app_apikey") == [(1,)]


def test_without_the_demo_there_is_an_admin_but_no_tenant_and_no_key(up, tmp_path):
    banner = up("--no-demo").banner

    assert PASSWORD.search(banner)
    assert "demo" not in banner
    assert rows(tmp_path / "data", "SELECT count(*) FROM tools_app_tenant") == [(0,)]


def test_secrets_from_the_environment_are_used_and_not_shown(up, manage):
    banner = up(MCPHUB_ADMIN_PASSWORD="correct horse", MCPHUB_DEMO_API_KEY=CHOSEN_KEY).banner

    assert "MCPHUB_ADMIN_PASSWORD" in banner
    assert "MCPHUB_DEMO_API_KEY" in banner
    assert "correct horse" not in banner
    assert CHOSEN_KEY not in banner
    check = (
        "from django.contrib.auth import authenticate; from tools_app.tenants import keys;"
        "from tools_app.models import ApiKey;"
        "print(authenticate(username='admin', password='correct horse'),"
        f"ApiKey.objects.get(digest=keys.digest_of('{CHOSEN_KEY}')).tenant.slug)"
    )
    assert manage("shell", "-v", "0", "-c", check).stdout.split() == ["admin", "demo"]


def test_a_demo_key_that_is_too_short_is_refused_by_name(manage):
    ended = manage("up", "--port", "0", MCPHUB_DEMO_API_KEY="short")

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("CommandError: MCPHUB_DEMO_API_KEY")


def test_options_that_cannot_work_are_one_clear_line(environment):
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket(socket.AF_UNIX) as local:
        port, descriptor = taken.getsockname()[1], local.fileno()
        problems = {
            ("--port", str(port)): f"Port {port} on 127.0.0.1 is in use. Choose another one with --port.\n",
            ("--port", "99999"): "--port 99999: choose a port from 1 to 65535, or 0 for any free one.\n",
            ("--host", "192.0.2.1"): "Cannot listen on 192.0.2.1:8000",
            ("--no-worker",): "--no-worker requires CELERY_BROKER_URL",
            ("--processes", "2"): "--processes requires REDIS_URL: ",
            ("--processes", "0"): "--processes must be at least 1.\n",
            ("--fd", "0"): "--fd: File descriptor 0 is not a socket: ",
            ("--fd", "999"): "--fd: File descriptor 999 is not a socket: ",
            ("--fd", str(descriptor)): f"--fd: File descriptor {descriptor} is not a TCP socket.\n",
        }
        ends = run_each([["up", *options] for options in problems], environment, (descriptor,))

    for (options, problem), (code, out, err) in zip(problems.items(), ends, strict=True):
        assert (options, code, out) == (options, 1, "")
        assert err.startswith(f"CommandError: {problem}"), options
        assert err.count("\n") == 1, options


def test_a_thread_that_never_ends_does_not_keep_the_process_alive(manage):
    code = (
        "import concurrent.futures, threading;"
        "from tools_app.core.process.threads import leave_stragglers_behind;"
        "concurrent.futures.ThreadPoolExecutor().submit(threading.Event().wait);"
        "leave_stragglers_behind()"
    )

    ended = manage("shell", "-v", "0", "-c", code)

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.usefixtures("server")
def test_it_listens_on_ipv6(up):
    hub = up("--host", "::1")

    assert hub.url.startswith("http://[::1]:")
    assert httpx.get(f"{hub.url}/healthz").status_code == 200


@pytest.mark.usefixtures("server")
def test_a_second_ctrl_c_does_not_wait(up):
    hub = up()
    call = {"name": "count", "arguments": {"n": 600}, "_meta": {"progressToken": 1} | CLIENT}
    headers = {
        "Authorization": f"Bearer {KEY.search(hub.banner)[1]}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "count",
    }
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}

    with httpx.stream("POST", f"{hub.url}/mcp", json=request, headers=headers, timeout=WAIT_SECONDS) as answer:
        lines = answer.iter_lines()
        next(lines)
        hub.send(signal.SIGINT)
        wait_until_refused(hub.url)
        hub.send(signal.SIGINT)

        code, stderr = hub.wait()
    assert (code, stderr) == (-signal.SIGINT, "")


@pytest.mark.parametrize(
    ("broker", "no_worker", "expected"),
    [
        ("memory://localhost/", False, ""),
        ("redis://127.0.0.1/0", False, "their running calls are lost if it is killed"),
        ("redis://127.0.0.1/0", True, "Background tools run in separate workers"),
    ],
)
def test_it_says_where_background_tools_run_if_there_is_a_choice(
    settings: Any, broker: str, no_worker: bool, expected: str
) -> None:
    settings.CELERY_BROKER_URL = broker
    message = about_workers(no_worker)
    assert expected in message
    assert bool(message) == bool(expected)
