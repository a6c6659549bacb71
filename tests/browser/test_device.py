"""The device authorization grant in a browser: a person enters the code and allows the device."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.client import call_tool
from tests.browser.hubs import PASSWORD, window
from tests.browser.test_accessibility import held_against_the_rules
from tests.identity.oauth.person import Application

GRANT = "urn:ietf:params:oauth:grant-type:device_code"
WRONG = "This code is unknown, was used, or has expired."


@pytest.fixture
def device(hub: str) -> Iterator[Application]:
    """A client without a browser."""
    with closing(Application(hub, f"{hub}/t/demo/mcp")) as client:
        metadata = {"client_name": "Robot", "grant_types": [GRANT, "refresh_token"], "redirect_uris": []}
        assert client.register(**metadata).status_code == 201
        yield client


def begin(device: Application) -> dict[str, str]:
    """Request the device and user codes."""
    response = device.http.post("/oauth/device_authorization", data={"client_id": device.client_id})
    assert response.status_code == 200, response.text
    codes: dict[str, str] = response.json()
    return codes


def type_code(page: Page, code: str) -> None:
    page.goto("/device")
    page.get_by_label("Code on the device").fill(code)
    page.get_by_role("button", name="Continue").click()


def poll(device: Application, codes: dict[str, str]) -> dict[str, str]:
    response: dict[str, str] = device.token(grant_type=GRANT, device_code=codes["device_code"]).json()
    return response


def test_a_person_types_the_code_chooses_tools_and_allows_the_device(page: Page, hub: str, device: Application) -> None:
    codes = begin(device)
    page.goto("/device")
    held_against_the_rules(page)
    type_code(page, codes["user_code"].lower().replace("-", " "))
    held_against_the_rules(page)
    expect(page.get_by_role("heading", name="Connect Robot")).to_be_visible()
    page.get_by_role("button", name="None").click()
    page.get_by_role("checkbox", name=re.compile("^Echo echo")).check()
    page.get_by_role("button", name="Allow").click()
    expect(page.get_by_text("Robot is connected. Go back to the device.")).to_be_visible()
    held_against_the_rules(page)

    issued = poll(device, codes)
    assert "hello world" in call_tool(hub, issued["access_token"], "echo", {"message": "world"}).text
    # The code can be used once.
    type_code(page, codes["user_code"])
    expect(page.get_by_text(WRONG)).to_be_visible()
    held_against_the_rules(page)


def test_a_toolset_ticks_its_tools_on_the_consent_page(page: Page, device: Application) -> None:
    page.goto("/admin/tools_app/toolset/add/")
    page.fill("input[name=name]", "Echoes")
    page.get_by_text("Patterns and names as text").click()
    page.fill("textarea[name=tools]", "ech*o")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("was added successfully")).to_be_visible()
    codes = begin(device)
    type_code(page, codes["user_code"])
    ticked = page.locator("input[name=tool]:checked")
    assert ticked.count() > 1
    page.get_by_role("button", name="Echoes").click()
    expect(ticked).to_have_count(1)
    expect(ticked).to_have_value("echo")
    held_against_the_rules(page)
    page.get_by_role("button", name="Refuse").click()


def test_a_person_refuses_a_device(page: Page, device: Application) -> None:
    codes = begin(device)
    type_code(page, codes["user_code"])
    page.get_by_role("button", name="Refuse").click()
    expect(page.get_by_text("Robot was not connected.")).to_be_visible()
    held_against_the_rules(page)
    assert poll(device, codes)["error"] == "access_denied"


def test_an_expired_code_is_said_before_and_after_the_choice(
    page: Page, device: Application, tmp_path_factory: pytest.TempPathFactory
) -> None:
    codes = begin(device)
    type_code(page, codes["user_code"])
    expect(page.get_by_role("heading", name="Connect Robot")).to_be_visible()
    database = max(tmp_path_factory.getbasetemp().glob("hub*/data/*.sqlite3"), key=lambda file: file.stat().st_ctime)
    with closing(sqlite3.connect(database, timeout=10)) as connection, connection:
        assert connection.execute("UPDATE tools_app_devicecode SET expires_at = '2020-01-01'").rowcount
    page.get_by_role("button", name="Allow").click()
    expect(page.get_by_text(WRONG)).to_be_visible()
    assert poll(device, codes)["error"] == "expired_token"
    type_code(page, codes["user_code"])
    expect(page.get_by_text(WRONG)).to_be_visible()


def test_a_link_fills_the_code_in_for_somebody_who_has_to_log_in_first(
    browser: Browser, hub: str, device: Application
) -> None:
    codes = begin(device)
    login_page = window(browser, hub)
    login_page.goto(codes["verification_uri_complete"])
    login_page.fill("input[name=username]", "admin")
    login_page.fill("input[name=password]", PASSWORD)
    login_page.press("input[name=password]", "Enter")
    expect(login_page.get_by_label("Code on the device")).to_have_value(codes["user_code"])
    login_page.context.close()
