"""The panel beside the list of calls, by mouse and by keyboard."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.client import ask
from tests.browser.test_accessibility import held_against_the_rules


@pytest.fixture(scope="module")
def calls(admin: Page, hub: str) -> None:
    """Three calls, the newest of `count`."""
    admin.goto("/admin/tools_app/apikey/add/")
    admin.fill("[name=name]", "panel")
    admin.click("[name=_save]")
    key = admin.locator("#issued-key").inner_text().strip()
    for tool, arguments in (("test_throw", {}), ("echo", {"message": "x"}), ("count", {"n": 1})):
        ask(hub, key, tool, arguments)


def test_a_row_opens_beside_the_list_and_the_address_remembers_it(page: Page, calls: None) -> None:
    page.goto("/admin/tools_app/call/")
    expect(page.get_by_text("3 calls.")).to_be_visible()
    panel = page.get_by_role("complementary", name="Call")
    page.locator("a[data-call]").first.click()
    expect(panel.get_by_role("heading", name="count")).to_be_visible()
    held_against_the_rules(page)
    expect(page).to_have_url(re.compile(r"#call=[0-9a-f-]{36}$"))
    page.reload()
    expect(panel.get_by_role("heading", name="count")).to_be_visible()
    panel.get_by_role("button", name="Close").click()
    expect(panel).to_be_hidden()
    expect(page).to_have_url(re.compile(r"/call/$"))


def test_the_keyboard_moves_opens_and_closes(page: Page, calls: None) -> None:
    page.goto("/admin/tools_app/call/")
    panel = page.get_by_role("complementary", name="Call")
    for key, name in (("j", "count"), ("j", "echo"), ("j", "test_throw"), ("j", "test_throw"), ("k", "echo")):
        page.keyboard.press(key)
        expect(panel.get_by_role("heading", name=name, exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(page.locator("a[data-call]").nth(1)).to_be_focused()
    page.keyboard.press("j")
    expect(panel.get_by_role("heading", name="count", exact=True)).to_be_visible()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/call/[0-9a-f-]{36}/change/$"))


def test_typing_in_the_search_moves_nothing(page: Page, calls: None) -> None:
    page.goto("/admin/tools_app/call/")
    page.locator("input[name=text]").press_sequentially("jk")
    expect(page.get_by_role("complementary", name="Call")).to_be_hidden()


def test_a_failed_call_leads_to_its_group_and_back(page: Page, calls: None) -> None:
    page.goto("/admin/tools_app/call/?tool=test_throw")
    page.locator("a[data-call]").first.click()
    page.get_by_role("link", name="Similar failures").click()
    group = page.locator(".call-failure:target")
    expect(group.get_by_role("heading", name="test_throw")).to_be_visible()
    held_against_the_rules(page)
    group.get_by_role("link", name="Calls").click()
    expect(page.locator("a[data-call]")).to_have_count(1)
