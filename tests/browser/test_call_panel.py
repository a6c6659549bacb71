"""The panel beside the list of calls and the live tail, by mouse and by keyboard."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.client import call_tool
from tests.browser.hubs import log_in, window
from tests.browser.test_accessibility import held_against_the_rules

# The calls of the fixture, without those that a test adds.
LIST = "/admin/tools_app/call/?client=laptop"
GONE = "01900000-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
def calls(admin: Page, hub: str) -> str:
    """Three calls, the newest of `count`; returns the API key."""
    admin.goto("/admin/tools_app/apikey/add/")
    admin.fill("[name=name]", "panel")
    admin.click("[name=_save]")
    key = admin.locator("#issued-key").inner_text().strip()
    for tool, arguments in (("test_throw", {}), ("echo", {"message": "x"}), ("count", {"n": 1})):
        call_tool(hub, key, tool, arguments)
    return key


@pytest.fixture
def phone(browser: Browser, hub: str) -> Iterator[Page]:
    page = log_in(window(browser, hub, viewport={"width": 390, "height": 800}))
    yield page
    page.context.close()


def test_a_row_opens_beside_the_list_and_the_address_remembers_it(page: Page, calls: str) -> None:
    page.goto(LIST)
    expect(page.get_by_text("3 calls.")).to_be_visible()
    panel = page.get_by_role("complementary", name="Call")
    page.locator("a[data-call]").first.click()
    expect(panel.get_by_role("heading", name="count")).to_be_visible()
    held_against_the_rules(page)
    expect(page).to_have_url(re.compile(r"#call=[0-9a-f-]{36}$"))
    page.emulate_media(color_scheme="dark")
    page.reload()
    expect(panel.get_by_role("heading", name="count")).to_be_visible()
    expect(page.locator("html.dark tr[aria-current]")).to_be_visible()
    held_against_the_rules(page)
    page.emulate_media(color_scheme="light")
    panel.get_by_role("button", name="Close").click()
    expect(panel).to_be_hidden()
    expect(page).to_have_url(re.compile(r"/call/\?client=laptop$"))


def test_the_keyboard_moves_opens_and_closes(page: Page, calls: str) -> None:
    page.goto(LIST)
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


def test_typing_in_the_search_moves_nothing(page: Page, calls: str) -> None:
    page.goto(LIST)
    page.locator("input[name=text]").press_sequentially("jk")
    expect(page.get_by_role("complementary", name="Call")).to_be_hidden()


def test_a_failed_call_leads_to_its_group_and_back(page: Page, calls: str) -> None:
    page.goto("/admin/tools_app/call/?tool=test_throw")
    page.locator("a[data-call]").first.click()
    page.get_by_role("link", name="Similar failures").click()
    group = page.locator(".call-failure:target")
    expect(group.get_by_role("heading", name="test_throw")).to_be_visible()
    held_against_the_rules(page)
    group.get_by_role("link", name="Calls").click()
    expect(page.locator("a[data-call]")).to_have_count(1)


@pytest.mark.parametrize("modifier", ["Control", "Shift"])
def test_with_a_modifier_a_row_opens_its_page_elsewhere(page: Page, calls: str, modifier: str) -> None:
    page.goto(LIST)
    with page.context.expect_page() as opened:
        page.locator("a[data-call]").first.click(modifiers=[modifier])  # type: ignore[list-item]
    expect(opened.value).to_have_url(re.compile(r"/call/[0-9a-f-]{36}/change/$"))
    opened.value.close()
    expect(page.get_by_role("complementary", name="Call")).to_be_hidden()


def test_on_a_phone_the_panel_covers_the_list_and_is_closed(phone: Page, calls: str) -> None:
    phone.goto(LIST)
    panel = phone.get_by_role("complementary", name="Call")
    phone.locator("a[data-call]").first.click()
    expect(panel.get_by_role("heading", name="count")).to_be_visible()
    assert panel.bounding_box() == {"x": 0, "y": 0, "width": 390, "height": 800}
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    assert panel.evaluate("panel => panel.scrollWidth <= panel.clientWidth")
    held_against_the_rules(phone)
    panel.get_by_role("button", name="Close").click()
    expect(panel).to_be_hidden()


def test_a_call_that_was_removed_meanwhile_is_told_and_the_panel_goes_on(page: Page, calls: str) -> None:
    page.goto(LIST)
    panel = page.get_by_role("complementary", name="Call")
    page.locator("a[data-call]").first.evaluate(f"link => {{ link.dataset.call = '{GONE}'; }}")
    page.locator("a[data-call]").first.click()
    expect(panel.get_by_role("status")).to_contain_text("There is no such call, or you cannot see it.")
    expect(page).to_have_url(re.compile(GONE))
    page.keyboard.press("j")
    expect(panel.get_by_role("heading", name="echo", exact=True)).to_be_visible()


def test_a_shared_link_opens_a_call_that_is_not_on_the_page(page: Page, calls: str) -> None:
    page.goto("/admin/tools_app/call/?tool=echo")
    call = page.locator("a[data-call]").first.get_attribute("data-call")
    panel = page.get_by_role("complementary", name="Call")
    for address in (f"?tool=count#call={call}", f"?tool=nothing#call={call}"):
        page.goto("/admin/")
        page.goto(f"/admin/tools_app/call/{address}")
        expect(panel.get_by_role("heading", name="echo", exact=True)).to_be_visible()
    page.goto("/admin/")
    page.goto(f"/admin/tools_app/call/?tool=count#call={call}")
    expect(panel.get_by_role("heading", name="echo", exact=True)).to_be_visible()
    page.keyboard.press("k")
    expect(panel.get_by_role("heading", name="count", exact=True)).to_be_visible()
    panel.get_by_role("link", name="Open page").click()
    expect(page).to_have_url(re.compile(r"/call/[0-9a-f-]{36}/change/$"))


@pytest.mark.parametrize(
    "text", ["", "nothing", "../../user/1", f"{GONE}/../x", "00000000-0000-0000-0000-00000000000g"]
)
def test_what_is_no_id_in_the_address_opens_nothing(page: Page, calls: str, text: str) -> None:
    page.goto("/admin/")
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.goto(f"/admin/tools_app/call/#call={text}")
    expect(page.get_by_text("calls.", exact=False).first).to_be_visible()
    expect(page.get_by_role("complementary", name="Call")).to_be_hidden()
    assert not [url for url in requested if url.endswith("/panel/")]


def test_the_live_tail_opens_finished_calls_beside_it(page: Page, calls: str, hub: str) -> None:
    page.goto("/admin/live/?tool=echo")
    panel = page.get_by_role("complementary", name="Call")
    link = page.locator("a[data-call]")
    expect(link).to_have_count(1)
    link.click()
    expect(panel.get_by_role("heading", name="echo", exact=True)).to_be_visible()
    expect(page).to_have_url(re.compile(r"/live/\?tool=echo#call=[0-9a-f-]{36}$"))
    call_tool(hub, calls, "echo", {"message": "another one"}, client="phone")
    expect(link).to_have_count(2)
    expect(panel).not_to_contain_text("another one")
    page.keyboard.press("k")
    expect(panel).to_contain_text("another one")
    expect(page.locator("tr[aria-current]")).to_have_count(1)
    page.reload()
    expect(panel).to_contain_text("another one")
    expect(page.locator("tr[aria-current]")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(page).to_have_url(re.compile(r"/live/\?tool=echo$"))
