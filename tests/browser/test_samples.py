"""The samples of a fresh hub, in a real browser: one click each, without a network."""

from playwright.sync_api import Page, expect

from tests.browser.test_accessibility import held_against_the_rules


def test_one_click_adds_a_document_and_another_shows_that_circles_are_refused(page: Page, hub: str) -> None:
    page.goto(f"{hub}/admin/tools_app/apisource/")
    held_against_the_rules(page)
    page.get_by_role("button", name="Add this hub's REST API").click()
    expect(page.get_by_text("The source was added.")).to_be_visible()
    # A worker parses it, and the page polls until it is done.
    expect(page.get_by_text("tools_list").first).to_be_visible(timeout=60_000)

    page.goto(f"{hub}/admin/tools_app/upstream/")
    page.get_by_role("button", name="Add this hub's own endpoint").click()
    expect(page.get_by_text("call itself in a circle")).to_be_visible()
    expect(page.get_by_role("button", name="Add this hub's own endpoint")).to_be_visible()
