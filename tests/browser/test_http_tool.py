"""An HTTP tool in a real browser: from a pasted cURL command to a tool that is called, in five clicks."""

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Page, expect

from tests.browser.client import call_tool
from tests.browser.test_accessibility import held_against_the_rules
from tests.browser.test_first_hour import allow_this_machine, make_key

HIDDEN = "s3cret-of-the-service"
# Pastes text, because tests cannot use the clipboard's keys.
PASTE = (
    """(field, text) => { field.value = text; field.dispatchEvent(new ClipboardEvent("paste", {bubbles: true})); }"""
)


class Service(BaseHTTPRequestHandler):
    """The service that the tool calls; it stores the requests."""

    requests: list[tuple[str, str | None, bytes]] = []

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        self.requests.append((self.path, self.headers["Authorization"], sent))
        body = json.dumps({"created": True}).encode()
        self.send_response(201)
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


def test_a_pasted_command_becomes_a_tool_that_is_called_in_five_clicks(hub: str, page: Page, service: str) -> None:
    allow_this_machine(page)
    key = make_key(page)
    page.goto("/admin/")
    page.locator("#nav-sidebar").get_by_role("link", name=re.compile(r"\bTools$")).click()
    page.get_by_role("link", name="Add HTTP tool").click()
    expect(page).to_have_url(re.compile("/tool/add/"))
    # The form's scripts are active from here on.
    page.wait_for_load_state("load")
    page.locator("#tb-paste-text").evaluate(
        PASTE,
        f"curl '{service}/users/:id/notes' -H 'Authorization: Bearer {HIDDEN}' --json '{{\"text\": \"{{text}}\"}}'",
    )
    page.get_by_role("button", name="Store as a secret").click()
    expect(page.locator("#tb-paste-result")).to_contain_text("Stored as the secret API_TOKEN.")
    page.get_by_label("id *", exact=True).fill("7/8")
    page.get_by_label("text *", exact=True).fill("hello")
    page.get_by_role("button", name="Try it", exact=True).click()
    expect(page.locator("#tb-try-result")).to_contain_text("HTTP 201")
    expect(page.locator("#tb-try-result")).to_contain_text("Authorization: Bearer ••••••")
    held_against_the_rules(page)
    page.click("[name=_save]")
    expect(page.locator("body")).to_contain_text("successfully")
    result = call_tool(hub, key, "post_users_notes", {"id": "9", "text": "again"}).json()["result"]
    assert json.loads(result["content"][0]["text"]) == {"created": True}
    assert Service.requests == [
        ("/users/7%2F8/notes", f"Bearer {HIDDEN}", b'{"text":"hello"}'),
        ("/users/9/notes", f"Bearer {HIDDEN}", b'{"text":"again"}'),
    ]
    assert HIDDEN not in page.content()


def test_a_second_paste_replaces_what_the_first_suggested_and_is_undone(page: Page) -> None:
    page.goto("/admin/tools_app/tool/add/")
    page.fill("#tb-paste-text", "https://api.example.com/users/{id}?limit=10")
    page.get_by_role("button", name="Fill in the form").click()
    expect(page.locator("[name=name]")).to_have_value("get_users")
    page.get_by_role("button", name="limit = 10").click()
    schema = page.locator("[name=input_schema]")
    limit = {"type": "integer", "examples": [10]}
    assert json.loads(schema.input_value())["properties"] == {"id": {"type": "string"}, "limit": limit}
    assert json.loads(page.locator("[name=query]").input_value()) == {"limit": "{limit}"}
    page.fill("#tb-paste-text", "DELETE https://api.example.com/notes/{note}")
    page.get_by_role("button", name="Fill in the form").click()
    expect(page.locator("[name=name]")).to_have_value("delete_notes")
    expect(page.locator("[name=path]")).to_have_value("notes/{note}")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("[name=name]")).to_have_value("get_users")
    expect(page.locator("[name=path]")).to_have_value("users/{id}")
    assert json.loads(schema.input_value())["properties"] == {"id": {"type": "string"}, "limit": limit}
    page.fill("#tb-paste-text", "wget https://api.example.com")
    page.get_by_role("button", name="Fill in the form").click()
    expect(page.locator("#tb-paste-result")).to_contain_text("Paste a command that starts with curl")


def test_arguments_follow_the_placeholders_and_rows_follow_the_json(page: Page) -> None:
    page.goto("/admin/tools_app/tool/add/")
    schema = page.locator("[name=input_schema]")
    rows = page.locator(".tb-row")
    page.fill("[name=path]", "users/{id}/{part}")
    expect(rows).to_have_count(2)
    assert json.loads(schema.input_value())["required"] == ["id", "part"]
    rows.nth(1).get_by_label("Description").fill("Which part.")
    page.fill("[name=path]", "users")
    # The first argument is unedited, so it is removed with its placeholder; the other one has a description.
    expect(rows).to_have_count(1)
    assert json.loads(schema.input_value())["properties"] == {"part": {"type": "string", "description": "Which part."}}
    rows.first.get_by_label("Type").select_option("integer")
    rows.first.get_by_label("Allowed values").fill("1, x")
    rows.first.get_by_label("Allowed values").press("Tab")
    expect(rows.first).to_contain_text("x is not a whole number.")
    rows.first.get_by_label("Allowed values").fill("1, 2")
    rows.first.get_by_label("Allowed values").press("Tab")
    assert json.loads(schema.input_value())["properties"]["part"]["enum"] == [1, 2]
    deep = {"type": "object", "properties": {"any": {"oneOf": [{"type": "string"}, {"type": "null"}], "x-kept": 1}}}
    schema.fill(json.dumps(deep))
    expect(rows.first).to_contain_text("This argument has more than a row can show.")
    rows.first.get_by_label("Description").fill("Anything.")
    expected = deep["properties"]["any"] | {"description": "Anything."}  # type: ignore[index]
    assert json.loads(schema.input_value())["properties"] == {"any": expected}
    schema.fill("{")
    expect(rows).to_have_count(0)
    expect(page.locator(".tb-schema")).to_contain_text("The JSON is invalid.")
    schema.fill('{"type": "object", "oneOf": [{"required": ["a"]}]}')
    expect(page.locator(".tb-schema")).to_contain_text("This schema combines others. Edit it as JSON.")
    page.fill("[name=base_url]", "ftp://x")
    page.get_by_role("button", name="Try it", exact=True).click()
    expect(page.locator("[name=base_url]")).to_be_focused()
    expect(page.locator("[data-tb-error=base_url]")).to_contain_text("Invalid URL")
