"""An admin's first hour in a real browser: log in, make a tool and a key, call it, and find the call."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Page, expect

from tests.browser.client import call_tool
from tests.browser.hubs import CALLS

SECRET = "s3cret-of-the-service"
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Service(BaseHTTPRequestHandler):
    """The service that the tool calls; it stores the requests."""

    requests: list[tuple[str, str | None]] = []

    def do_GET(self) -> None:
        self.requests.append((self.path, self.headers["X-Token"]))
        body = json.dumps({"greeting": "good day"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log no requests."""


@pytest.fixture
def service() -> Iterator[str]:
    """The URL of the service."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_an_admin_makes_a_tool_and_a_key_calls_it_and_finds_the_call(hub: str, page: Page, service: str) -> None:
    allow_this_machine(page)
    store_secret(page)
    make_tool(page, service)
    key = make_key(page)
    result = call_tool(hub, key, "greet", {"name": "Zoë/1"}).json()["result"]
    assert json.loads(result["content"][0]["text"]) == {"greeting": "good day"}
    assert Service.requests == [("/greet/Zo%C3%AB%2F1", SECRET)]
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
    expect(page.locator("body")).to_contain_text("Copy the key now")
    key = page.locator("#issued-key").inner_text().strip()
    page.goto("/admin/tools_app/apikey/")
    expect(page.locator("body")).to_contain_text("laptop")
    assert key not in page.content()
    return key


def find_the_call(page: Page) -> None:
    page.goto("/admin/tools_app/call/?tool=greet")
    page.locator(CALLS).first.click()
    body = page.locator("body")
    expect(body).to_contain_text("Zoë/1")
    expect(body).to_contain_text("good day")
    assert SECRET not in page.content()


def choose_tenant(page: Page) -> None:
    """Select the tenant, if the form has a choice."""
    tenants = page.locator("select[name=tenant]")
    if tenants.count():
        tenants.select_option(index=tenants.locator("option").count() - 1)


def save(page: Page) -> None:
    """Save, and check that the form was accepted."""
    page.click("[name=_save]")
    expect(page.locator("body")).to_contain_text("successfully")
