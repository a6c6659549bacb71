"""A person connects an application in a browser, sees it under Connections, and ends it."""

import http.server
import re
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.client import call_tool
from tests.browser.test_accessibility import held_against_the_rules
from tests.identity.oauth.person import Application


class Callback(http.server.BaseHTTPRequestHandler):
    """The redirect endpoint of an application on this machine."""

    def do_GET(self) -> None:
        self.server.came.append(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(b"You can close this window.")

    def log_message(self, *_values: object) -> None:
        """Log no requests."""


@pytest.fixture
def application(hub: str) -> Iterator[Application]:
    """An application on this machine, which listens for the redirect."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Callback)
    server.came = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    redirect = f"http://127.0.0.1:{server.server_port}/callback"
    client = Application(hub, f"{hub}/t/demo/mcp", redirect)
    client.came = server.came
    assert client.register(client_name="Robot").status_code == 201
    yield client
    client.close()
    server.shutdown()
    server.server_close()


def test_a_person_allows_some_tools_and_ends_it_again(page: Page, hub: str, application: Application) -> None:
    page.goto(application.url())
    held_against_the_rules(page)
    expect(page.get_by_role("heading", name="Connect Robot")).to_be_visible()
    page.get_by_role("button", name="None").click()
    page.get_by_role("checkbox", name=re.compile("^Echo echo")).check()
    page.get_by_label("Ask again after").select_option("7 days")
    page.get_by_role("button", name="Allow").click()
    expect(page.get_by_text("You can close this window.")).to_be_visible()

    issued = application.exchange(application.came[0]).json()
    assert "hello world" in call_tool(hub, issued["access_token"], "echo", {"message": "world"}).text

    page.goto("/connections")
    held_against_the_rules(page)
    expect(page.get_by_text("Robot")).to_be_visible()
    expect(page.get_by_text(re.compile("^in [67] d$"))).to_be_visible()
    page.get_by_role("button", name="Disconnect").click()
    expect(page.get_by_text("Robot is disconnected from Demo.")).to_be_visible()
    assert application.refresh(issued["refresh_token"]).json()["error"] == "invalid_grant"


def test_a_refusal_and_an_error_are_said(page: Page, application: Application) -> None:
    page.goto(application.url())
    page.get_by_role("button", name="Read only").click()
    page.get_by_role("button", name="Refuse").click()
    expect(page.get_by_text("You can close this window.")).to_be_visible()
    assert "error=access_denied" in application.came[0]

    page.goto(application.url(redirect_uri="https://evil.example/callback"))
    held_against_the_rules(page)
    expect(page.get_by_text("evil.example, which it did not register")).to_be_visible()


def test_nothing_ticked_is_asked_again(page: Page, application: Application) -> None:
    page.goto(application.url())
    page.get_by_role("button", name="None").click()
    page.get_by_role("button", name="Allow").click()
    expect(page.get_by_text("Choose at least one tool, prompt or resource.")).to_be_visible()
    held_against_the_rules(page)
    page.get_by_role("checkbox", name="Everything, including what is added later").check()
    page.get_by_role("button", name="Allow").click()
    expect(page.get_by_text("You can close this window.")).to_be_visible()
