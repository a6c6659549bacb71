"""The documentation in a browser: links from the admin, search with Ctrl-K, the dark scheme, and without scripts."""

import re

from playwright.sync_api import Browser, Page, expect

from tests.browser.hubs import log_in, window

DARK = re.compile(r"\bdark(-mode)?\b")


def test_a_page_of_the_admin_leads_to_its_documentation(page: Page) -> None:
    page.goto("/admin/tools_app/apikey/add/")
    page.get_by_role("link", name="Documentation", exact=True).and_(page.locator(".hub-docs")).click()
    expect(page).to_have_url(re.compile(r"/docs/keys/#issue-an-api-key$"))
    expect(page.locator("#issue-an-api-key")).to_be_in_viewport()

    page.get_by_role("navigation", name="On this page").get_by_role("link", name="Rotate an API key").click()
    expect(page.locator("#rotate-an-api-key")).to_be_in_viewport()
    page.get_by_role("link", name="Back to the admin").click()
    expect(page).to_have_url(re.compile(r"/admin/$"))


def test_it_is_found_with_ctrl_k(page: Page) -> None:
    page.goto("/admin/")
    page.keyboard.press("Control+k")
    box = page.locator("#search-input-command")
    expect(box).to_be_focused()
    box.press_sequentially("tamper evid")
    page.get_by_role("link", name=re.compile("Tamper evidence")).click()
    expect(page).to_have_url(re.compile(r"/docs/audit/#tamper-evidence$"))


def test_code_is_copied(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/docs/keys/")
    code = page.locator(".doc-code").first
    code.hover()
    code.get_by_role("button", name="Copy").click()
    expect(code.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").startswith("python manage.py issue_key")


def test_it_is_dark_when_the_admin_is_and_so_is_the_api_browser(browser: Browser, hub: str) -> None:
    page = log_in(window(browser, hub, color_scheme="light"))
    for address in ("/docs/", "/api/v1/docs/"):
        page.goto(address)
        expect(page.locator("html")).not_to_have_class(DARK)
    page.goto("/docs/")
    page.locator("#nav-sidebar").get_by_text("admin", exact=True).last.click()
    page.get_by_text("Dark", exact=True).click()
    for address in ("/docs/keys/", "/api/v1/docs/"):
        page.goto(address)
        expect(page.locator("html")).to_have_class(DARK)


def test_it_is_read_and_searched_without_scripts(browser: Browser, hub: str, admin: Page) -> None:
    page = window(browser, hub, java_script_enabled=False, storage_state=admin.context.storage_state())
    page.goto("/docs/")
    page.get_by_role("searchbox", name="Search the documentation").fill("rotate key")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("mark").first).to_be_visible()
    page.get_by_role("link", name="API keys: Rotate an API key").click()
    expect(page.locator("#rotate-an-api-key")).to_be_visible()
    expect(page.get_by_role("button", name="Copy")).to_have_count(0)
