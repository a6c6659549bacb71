"""A key for some tools is made by ticking them; the names and patterns behind it stay in step."""

import re

from playwright.sync_api import Page, expect

from tests.browser.test_accessibility import held_against_the_rules

NAMES = "#id_tool_patterns"


def test_a_key_for_two_tools_is_ticked_and_saved(page: Page) -> None:
    page.goto("/admin/tools_app/apikey/add/")
    page.fill("[name=name]", "two tools")
    expect(page.get_by_label("Everything, including what is added later")).to_be_checked()
    page.get_by_label("Only what I tick").check()
    page.click("[name=_save]")
    expect(page.get_by_text("Tick at least one, or allow everything.")).to_be_visible()
    held_against_the_rules(page)

    page.get_by_role("searchbox", name="Find a name").fill("ech")
    expect(page.get_by_role("checkbox", name=re.compile("^Count"))).to_be_hidden()
    page.get_by_role("checkbox", name=re.compile("^Echo echo")).check()
    page.get_by_role("searchbox", name="Find a name").fill("")
    page.get_by_role("checkbox", name=re.compile("^Count")).check()
    page.click("[name=_save]")
    page.get_by_role("link", name="two tools").first.click()
    expect(page.locator(NAMES)).to_have_value("tool=echo\ntool=count")
    expect(page.get_by_role("checkbox", name=re.compile("^Echo echo"))).to_be_checked()
    expect(page.get_by_role("checkbox", name=re.compile("^Calculator"))).not_to_be_checked()


def test_what_a_pattern_matches_is_ticked_and_cannot_be_unticked(page: Page) -> None:
    page.goto("/admin/tools_app/apikey/add/")
    page.get_by_label("Only what I tick").check()
    page.get_by_text("Patterns and names as text").click()
    page.fill(NAMES, "ec*")
    echo = page.get_by_role("checkbox", name=re.compile("^Echo echo"))
    expect(echo).to_be_checked()
    expect(echo).to_be_disabled()
    page.get_by_role("checkbox", name=re.compile("^Count")).check()
    expect(page.locator(NAMES)).to_have_value("ec*\ntool=count")
    page.get_by_role("button", name="None").click()
    expect(page.locator(NAMES)).to_have_value("")
    expect(page.get_by_label("Only what I tick")).to_be_checked()
    page.get_by_role("button", name="Read only").click()
    expect(page.locator(NAMES)).to_have_value(re.compile("calculator"))
    page.get_by_label("Everything, including what is added later").check()
    expect(page.locator(NAMES)).to_have_value("")
