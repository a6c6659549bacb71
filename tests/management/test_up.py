"""`manage.py up`, as its user meets it."""

import json
import re
import signal
import socket
import sqlite3
import time
from pathlib import Path

import httpx
import pytest

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
    end = time.monotonic() + 10
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


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop_and_then_ends_without_a_word(up, how):
    hub = up()

    assert httpx.get(f"{hub.url}/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{hub.url}/readyz").status_code == 200
    hub.send(how)

    assert hub.ended() == (0, "")


def test_it_stops_although_a_client_keeps_its_connection_open(up):
    hub = up()

    with httpx.Client(base_url=hub.url) as client:
        client.get("/healthz")
        hub.send(signal.SIGTERM)
        assert hub.ended() == (0, "")


def test_the_first_run_shows_each_secret_once_and_how_to_connect(up):
    banner = up().banner

    key = KEY.search(banner)[1]
    snippet = json.loads(banner[banner.index("{\n") : banner.rindex("}\n") + 1])
    assert PASSWORD.search(banner)
    assert snippet["mcpServers"]["mcphub"]["headers"] == {"Authorization": f"Bearer {key}"}
    assert f"claude mcp add --transport http mcphub {snippet['mcpServers']['mcphub']['url']} --header" in banner
    assert f"'Authorization: Bearer {key}'" in banner


def test_the_first_run_makes_the_demo_tenant_with_its_tools(up, tmp_path):
    up(bare=True)

    assert rows(tmp_path / "data", "SELECT slug, allow_query_key FROM tools_app_tenant") == [("demo", 1)]
    names = {name for (name,) in rows(tmp_path / "data", "SELECT name FROM tools_app_tool")}
    assert names == {"echo", "echo_ip", "count", "test_throw", "calculator", "search_docs"}


def test_the_admin_signs_in_with_the_password_that_was_shown(up):
    hub = up()

    with httpx.Client(base_url=hub.url) as browser:
        browser.get("/admin/login/")
        form = {
            "username": "admin",
            "password": PASSWORD.search(hub.banner)[1],
            "csrfmiddlewaretoken": browser.cookies["csrftoken"],
        }
        answer = browser.post("/admin/login/?next=/admin/", data=form, headers={"Referer": hub.url})
    assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/")


def test_a_second_run_reuses_everything_and_says_how_to_get_a_new_key(up, tmp_path):
    first = up()
    first.send(signal.SIGTERM)
    first.ended()

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
        "from django.contrib.auth import authenticate; from tools_app.auth import keys;"
        "from tools_app.models import ApiKey;"
        "print(authenticate(username='admin', password='correct horse'),"
        f"ApiKey.objects.get(digest=keys.digest_of('{CHOSEN_KEY}')).tenant.slug)"
    )
    assert manage("shell", "-v", "0", "-c", check).stdout.split() == ["admin", "demo"]


def test_a_demo_key_that_is_too_short_is_refused_by_name(manage):
    ended = manage("up", "--port", "0", MCPHUB_DEMO_API_KEY="short")

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("CommandError: MCPHUB_DEMO_API_KEY")


def test_a_port_in_use_is_one_clear_line(manage):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = manage("up", "--port", str(port))

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"CommandError: Port {port} on 127.0.0.1 is in use. Choose another one with --port.\n"


def test_an_address_of_another_machine_is_one_clear_line(manage):
    ended = manage("up", "--host", "192.0.2.1")

    assert ended.returncode == 1
    assert ended.stderr.startswith("CommandError: Cannot listen on 192.0.2.1:8000")
    assert ended.stderr.count("\n") == 1


def test_without_a_worker_the_in_memory_queue_would_fill_for_nobody(manage):
    ended = manage("up", "--no-worker")

    assert ended.returncode == 1
    assert "CELERY_BROKER_URL" in ended.stderr


def test_a_thread_that_never_ends_does_not_keep_the_process_alive(manage):
    code = (
        "import concurrent.futures, threading;"
        "from tools_app.management.commands import up;"
        "concurrent.futures.ThreadPoolExecutor().submit(threading.Event().wait);"
        "up._leave_stragglers_behind()"
    )

    ended = manage("shell", "-v", "0", "-c", code)

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.shows("http-sse.localhost", "streamable-http.localhost")
def test_it_listens_on_the_loopback_address_alone_unless_told_otherwise(up):
    hub = up()
    port = int(hub.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass
    # Whoever listens on all addresses listens on this one too.
    with pytest.raises(OSError, match=r"refused|unreachable|assign"), socket.create_connection(("127.0.0.2", port), 5):
        pass


def test_it_listens_on_ipv6(up):
    hub = up("--host", "::1")

    assert hub.url.startswith("http://[::1]:")
    assert httpx.get(f"{hub.url}/healthz").status_code == 200


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

    with httpx.stream("POST", f"{hub.url}/mcp", json=request, headers=headers, timeout=30) as answer:
        said = answer.iter_lines()
        next(said)
        hub.send(signal.SIGINT)
        wait_until_refused(hub.url)
        hub.send(signal.SIGINT)

        code, stderr = hub.ended()
    assert (code, stderr) == (-signal.SIGINT, "")
