"""Forms and lists in a browser: cards on a phone, concurrent edits, and an expired login."""

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.hubs import PASSWORD, log_in, window

LONG = "t" * 128
ADD = "/admin/tools_app/tool/add/"
LIST = "/admin/tools_app/tool/"


@pytest.fixture(scope="module")
def tool(admin: Page) -> str:
    """The URL of a tool with the longest name."""
    admin.goto(ADD)
    admin.fill("[name=name]", LONG)
    admin.fill("[name=base_url]", "https://api.example.com/")
    admin.click("[name=_save]")
    admin.locator("#result_list a").filter(has_text=LONG).click()
    return admin.url


@pytest.fixture
def phone(browser: Browser, hub: str) -> Iterator[Page]:
    page = log_in(window(browser, hub, viewport={"width": 390, "height": 900}))
    yield page
    page.context.close()


def sideways(page: Page) -> int:
    """By how many pixels the page and its list overflow."""
    return int(
        page.evaluate(
            """() => {
              const list = document.querySelector("#result_list");
              const room = list.closest(".simplebar-content-wrapper") ?? list.parentElement;
              return Math.max(room.scrollWidth - room.clientWidth,
                document.documentElement.scrollWidth - window.innerWidth);
            }"""
        )
    )


@pytest.mark.usefixtures("tool")
def test_a_long_name_leaves_room_for_the_other_columns(page: Page) -> None:
    page.goto(LIST)
    name = page.locator("#result_list .hub-cut").filter(has_text=LONG)
    expect(name).to_have_attribute("title", LONG)
    expect(page.locator("#result_list .simplebar-content, #result_list")).to_be_visible()
    assert sideways(page) <= 0


@pytest.mark.usefixtures("tool")
def test_a_list_is_cards_on_a_phone(phone: Page) -> None:
    phone.goto(LIST)
    cell = phone.locator("#result_list .field-updated_at").first
    expect(cell).to_be_visible()
    assert phone.evaluate("cell => getComputedStyle(cell, '::before').content", cell.element_handle()) == '"Updated"'
    left, right = (
        phone.locator(f"#result_list .field-{name}").first.bounding_box() for name in ("title", "updated_at")
    )
    assert left
    assert right
    assert right["y"] > left["y"]
    assert sideways(phone) <= 0


def test_the_second_of_two_windows_sees_both_values_and_chooses(page: Page, tool: str) -> None:
    page.goto(tool)
    other = page.context.new_page()
    other.goto(tool)
    other.fill("[name=description]", "theirs")
    other.click("[name=_save]")
    expect(other).to_have_url(re.compile(LIST + "$"))
    page.bring_to_front()
    page.fill("[name=description]", "mine")
    page.click("[name=_save]")
    choices = page.get_by_role("group", name="Description")
    expect(choices).to_contain_text("admin changed it just now")
    expect(choices.get_by_label("Keep mine")).to_be_checked()
    choices.get_by_label("Take theirs").check()
    page.click("[name=_save]")
    expect(page).to_have_url(re.compile(LIST + "$"))
    page.goto(tool)
    expect(page.locator("[name=description]")).to_have_value("theirs")


def test_what_was_typed_survives_a_login_that_ran_out(browser: Browser, hub: str) -> None:
    page = log_in(window(browser, hub))
    page.goto(ADD)
    page.fill("[name=name]", "kept_name")
    page.fill("[name=input_schema]", '{"type": "object", "title": "kept"}')
    page.select_option("[name=method]", "POST")
    page.context.clear_cookies(name="sessionid")
    page.click("[name=_save]")
    page.fill("input[name=username]", "admin")
    page.fill("input[name=password]", PASSWORD)
    page.press("input[name=password]", "Enter")
    expect(page.locator(".hub-note")).to_contain_text("is back")
    expect(page.locator("[name=name]")).to_have_value("kept_name")
    expect(page.locator("[name=input_schema]")).to_have_value('{"type": "object", "title": "kept"}')
    expect(page.locator("[name=method]")).to_have_value("POST")
    # It has been released.
    page.goto(ADD)
    expect(page.locator("[name=name]")).to_have_value("")
    assert page.evaluate("sessionStorage.getItem('mcphub_draft')") is None
    page.context.close()


def test_no_password_and_no_secret_is_kept_in_the_browser(browser: Browser, hub: str) -> None:
    page = log_in(window(browser, hub))
    page.goto("/admin/tools_app/secret/add/")
    page.fill("[name=name]", "token")
    page.fill("[name=value]", "hush-hush")
    page.context.clear_cookies(name="sessionid")
    page.click("[name=_save]")
    expect(page.locator("#login-form")).to_be_visible()
    draft = page.evaluate("sessionStorage.getItem('mcphub_draft')")
    assert '"token"' in draft
    assert "hush-hush" not in draft
    assert "csrf" not in draft
    page.context.close()


@pytest.mark.usefixtures("tool")
def test_ctrl_k_finds_a_tool_and_opens_it(page: Page, tool: str) -> None:
    page.goto("/admin/")
    page.keyboard.press("Control+k")
    box = page.locator("#search-input-command")
    expect(box).to_be_focused()
    box.press_sequentially("tttt")
    expect(page.locator("#command-results a")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(tool)


def test_the_form_of_a_destination_has_the_address_of_its_kind_only(page: Page) -> None:
    page.goto("/admin/tools_app/alertdestination/add/")
    email, url = page.locator("[name=email]"), page.locator("[name=url]")
    expect(url).to_be_hidden()
    page.fill("[name=name]", "mail")
    page.select_option("[name=kind]", "webhook")
    expect(email).to_be_hidden()
    url.fill("nonsense")
    page.select_option("[name=kind]", "email")
    expect(url).to_be_hidden()
    page.click("[name=_save]")
    expect(page.locator("#id_email_error")).to_contain_text("Enter an e-mail address")
    expect(url).to_be_hidden()
    email.fill("ops@example.com")
    page.click("[name=_save]")
    expect(page.locator("#result_list")).to_contain_text("ops@example.com")


def test_the_form_of_an_alert_rule_follows_its_kind(page: Page) -> None:
    page.goto("/admin/tools_app/alertrule/add/")
    help_text = page.locator("#id_threshold_helptext")
    expect(help_text).to_contain_text("% of calls")
    page.select_option("[name=kind]", "failures")
    expect(help_text).to_contain_text("calls in a row")
    expect(page.locator("[name=min_calls]")).to_be_hidden()
    expect(page.locator("[name=tool_pattern]")).to_be_visible()


def test_the_arguments_of_a_prompt_are_edited_in_rows_and_as_json(page: Page) -> None:
    page.goto("/admin/tools_app/prompt/add/")
    arguments, rows = page.locator("[name=arguments]"), page.locator(".tb-row")

    def written() -> object:
        return json.loads(arguments.input_value())

    expect(page.locator(".tb-schema")).to_contain_text("No arguments.")
    page.get_by_role("button", name="Add an argument").click()
    rows.first.get_by_label("Name").fill("city")
    rows.first.get_by_label("Name").press("Tab")
    rows.first.get_by_label("Suggested values").fill("Bern, Oslo")
    rows.first.get_by_label("Suggested values").press("Tab")
    rows.first.get_by_label("Description").fill("Where?")
    rows.first.get_by_label("Required").check()
    assert written() == [{"name": "city", "values": ["Bern", "Oslo"], "description": "Where?", "required": True}]
    page.get_by_role("button", name="Add an argument").click()
    rows.nth(1).get_by_label("Name").fill("city")
    rows.nth(1).get_by_label("Name").press("Tab")
    expect(rows.nth(1)).to_contain_text("Another argument has this name.")
    page.get_by_role("button", name="Move argument up").click()
    assert [argument["name"] for argument in written()] == ["argument", "city"]  # type: ignore[attr-defined]
    page.get_by_role("button", name="Remove argument").click()
    expect(rows).to_have_count(1)
    arguments.fill('[{"name": "a"}, {"name": "a"}]')
    expect(page.locator(".tb-schema")).to_contain_text("Two arguments have the same name.")
    expect(rows).to_have_count(0)
    arguments.fill('{"a": 1}')
    expect(page.locator(".tb-schema")).to_contain_text("Enter a JSON list.")
    arguments.fill("")
    expect(page.locator(".tb-schema")).to_contain_text("No arguments.")
    arguments.fill('[{"name": "city"}, {"name": "day", "required": true}]')
    expect(rows).to_have_count(2)
    expect(rows.nth(1).get_by_label("Required")).to_be_checked()
    rows.nth(1).get_by_label("Required").uncheck()
    assert written() == [{"name": "city"}, {"name": "day"}]
    page.fill("[name=name]", "weather")
    page.fill("[name=messages]", '[{"role": "user", "text": "The weather in {city} on {day}?"}]')
    page.click("[name=_save]")
    page.locator("#result_list a").filter(has_text="weather").first.click()
    expect(page.locator(".tb-row")).to_have_count(2)


def test_an_argument_that_is_renamed_is_renamed_in_the_messages_and_back(page: Page) -> None:
    page.goto("/admin/tools_app/prompt/add/")
    arguments, messages = page.locator("[name=arguments]"), page.locator("[name=messages]")
    contents = [
        {"role": "user", "text": "From {city} to {city}, not {cities}"},
        {"role": "assistant", "text": "{city}?"},
    ]
    messages.fill(json.dumps(contents))
    arguments.fill('[{"name": "city"}]')
    name = page.locator(".tb-row").first.get_by_label("Name")
    name.fill("place")
    name.press("Tab")
    note = page.get_by_text("{city} is now {place} in 3 places of the messages.")
    expect(note).to_be_visible()
    assert json.loads(messages.input_value())[0]["text"] == "From {place} to {place}, not {cities}"
    page.get_by_role("button", name="Undo").click()
    expect(name).to_have_value("city")
    assert json.loads(messages.input_value()) == contents
    assert json.loads(arguments.input_value()) == [{"name": "city"}]
    expect(note).to_be_hidden()
    name.fill("place")
    name.press("Tab")
    expect(note).to_be_visible()
    # Undo would revert this, too.
    messages.press("End")
    messages.press_sequentially(" ")
    expect(note).to_be_hidden()
    messages.fill("[")
    name.fill("spot")
    name.press("Tab")
    expect(page.get_by_text("The messages are invalid JSON: replace {place} by {spot} there.")).to_be_visible()
