"""An admin's first hour in a real browser: log in, make a tool and a key, call it, and find the call."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect, sync_playwright

PROJECT = Path(__file__).resolve().parent.parent.parent
CHROMIUM = "/usr/bin/chromium"
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PASSWORD = "correct horse battery"
SECRET = "s3cret-of-the-service"
START_SECONDS = 40.0
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

pytestmark = pytest.mark.timeout(180)


class Service(BaseHTTPRequestHandler):
    """The service that the tool calls; it remembers what it was asked."""

    asked: list[tuple[str, str | None]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["X-Token"]))
        body = json.dumps({"greeting": "good day"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[str]:
    """The address of a service of our own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    """The address of a fresh hub, started as a newcomer starts it."""
    environment = {**os.environ, "MCPHUB_DATA_DIR": str(tmp_path / "data"), "MCPHUB_ADMIN_PASSWORD": PASSWORD}
    for name in ("DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL"):
        environment.pop(name, None)
    log = tmp_path / "hub.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--port", "0"],
            cwd=PROJECT,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield address_in(log, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(START_SECONDS)


def address_in(log: Path, process: subprocess.Popen[bytes]) -> str:
    """The address that the hub prints when it listens. Raises AssertionError if it does not."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(r"(http://127\.0\.0\.1:\d+)/mcp", log.read_text()):
            return found[1]
        time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.fixture
def page(hub: str) -> Iterator[Page]:
    """A browser window, logged in as the admin."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        window = browser.new_page(base_url=hub)
        window.set_default_timeout(15_000)
        window.goto("/admin/")
        window.fill("input[name=username]", "admin")
        window.fill("input[name=password]", PASSWORD)
        window.press("input[name=password]", "Enter")
        expect(window).to_have_url(re.compile(r"/admin/$"))
        yield window
        browser.close()


def test_an_admin_makes_a_tool_and_a_key_calls_it_and_finds_the_call(hub: str, page: Page, service: str) -> None:
    allow_this_machine(page)
    store_secret(page)
    make_tool(page, service)
    key = make_key(page)
    answer = call(hub, key)
    assert json.loads(answer["content"][0]["text"]) == {"greeting": "good day"}
    assert Service.asked == [("/greet/Zo%C3%AB%2F1", SECRET)]
    find_the_call(page)


def allow_this_machine(page: Page) -> None:
    page.goto("/admin/tools_app/tenant/")
    page.click("text=Demo")
    page.fill("[name=allowed_networks]", '["127.0.0.0/8"]')
    save(page)


def store_secret(page: Page) -> None:
    page.goto("/admin/tools_app/secret/add/")
    choose_tenant(page)
    page.fill("[name=name]", "TOKEN")
    page.fill("[name=value]", SECRET)
    save(page)
    assert SECRET not in page.content()


def make_tool(page: Page, service: str) -> None:
    page.goto("/admin/tools_app/tool/add/")
    choose_tenant(page)
    page.fill("[name=name]", "greet")
    page.fill("[name=description]", "Greet somebody.")
    page.fill("[name=base_url]", service)
    page.fill("[name=path]", "greet/{name}")
    page.fill("[name=headers]", '{"X-Token": "{secret:TOKEN}"}')
    page.fill("[name=input_schema]", '{\n  "type": "object",\n  "properties": {,}\n}')
    page.click("[name=_save]")
    expect(page.locator("body")).to_contain_text("Line 3")
    page.fill("[name=input_schema]", json.dumps(SCHEMA))
    save(page)
    expect(page.locator("body")).to_contain_text("greet")


def make_key(page: Page) -> str:
    page.goto("/admin/tools_app/apikey/add/")
    choose_tenant(page)
    page.fill("[name=name]", "laptop")
    page.click("[name=_save]")
    expect(page.locator("body")).to_contain_text("only time that the key is shown")
    key = page.locator("#issued-key").inner_text().strip()
    page.goto("/admin/tools_app/apikey/")
    expect(page.locator("body")).to_contain_text("laptop")
    assert key not in page.content()
    return key


def call(hub: str, key: str) -> dict[str, list[dict[str, str]]]:
    """Call the tool as a client of the modern era does."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "greet", "arguments": {"name": "Zoë/1"}, "_meta": meta}
    headers = {
        "Authorization": f"Bearer {key}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "greet",
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = httpx.post(f"{hub}/mcp", json=body, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    result: dict[str, list[dict[str, str]]] = answer.json()["result"]
    return result


def find_the_call(page: Page) -> None:
    page.goto("/admin/tools_app/call/?q=greet")
    page.locator("#result_list tbody a").first.click()
    body = page.locator("body")
    expect(body).to_contain_text("Zoë/1")
    expect(body).to_contain_text("good day")
    assert SECRET not in page.content()


def choose_tenant(page: Page) -> None:
    """Where there is a choice of tenants, take the one that there is."""
    tenants = page.locator("select[name=tenant]")
    if tenants.count():
        tenants.select_option(index=tenants.locator("option").count() - 1)


def save(page: Page) -> None:
    """Save, and see that the form was taken."""
    page.click("[name=_save]")
    expect(page.locator("body")).to_contain_text("successfully")
