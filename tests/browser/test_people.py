"""Common tasks in a browser: rotating a key, replaying a call, exporting, inviting, and being denied."""

import csv
import re
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.browser.client import call_tool
from tests.browser.hubs import CALLS, PASSWORD, window
from tests.services.stack import eventually


def issue(page: Page, name: str) -> str:
    """Issue a key of the demo tenant; return the key."""
    page.goto("/admin/tools_app/apikey/add/")
    page.select_option("[name=tenant]", label="Demo")
    page.fill("[name=name]", name)
    page.click("[name=_save]")
    return page.locator("#issued-key").inner_text().strip()


def test_a_key_is_rotated_and_both_work_until_the_old_one_is_ended(hub: str, page: Page) -> None:
    old = issue(page, "robot")
    page.goto("/admin/tools_app/apikey/")
    page.locator("#result_list a", has_text="robot").click()
    page.get_by_role("link", name="Rotate").click()
    page.check("[name=overlap][value=day]")
    page.get_by_role("button", name="Rotate").click()
    new = page.locator("#issued-key").inner_text().strip()

    assert new != old
    assert [call_tool(hub, key, "echo", {"message": "x"}).status_code for key in (old, new)] == [200, 200]

    page.goto("/admin/tools_app/apikey/")
    page.locator("#result_list tr", has_text=old[:12]).locator("a").first.click()
    page.get_by_role("link", name="Overlap").click()
    page.check("[name=overlap][value=now]")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("body")).to_contain_text("no longer valid")
    eventually(lambda: call_tool(hub, old, "echo", {"message": "x"}).status_code == 401, within=3.0)
    assert call_tool(hub, new, "echo", {"message": "x"}).status_code == 200


def test_a_call_is_found_by_what_was_sent_and_replayed(hub: str, page: Page) -> None:
    key = issue(page, "searched")
    call_tool(hub, key, "count", {"n": 4})
    call_tool(hub, key, "echo", {"message": "a needle"})
    page.goto("/admin/tools_app/call/")
    page.fill("input[name=text]", "a needle")
    page.get_by_role("button", name="Search").click()
    expect(page).to_have_url(re.compile("text=a\\+needle"))
    expect(page.locator("table")).to_contain_text("echo")
    assert "count" not in page.locator("table").inner_text()
    page.locator(CALLS).first.click()
    expect(page.locator("body")).to_contain_text("a needle")

    page.goto("/admin/tools_app/call/?tool=count")
    page.locator(CALLS).first.click()
    replay = page.locator("[data-replay]")
    replay.get_by_role("button", name=re.compile("Play")).click()
    expect(replay).to_contain_text("OK")


def test_what_a_search_finds_is_downloaded(hub: str, page: Page, tmp_path: Path) -> None:
    key = issue(page, "exported")
    for number in range(3):
        call_tool(hub, key, "echo", {"message": f"={number}"})
    page.goto("/admin/tools_app/call/?tool=echo")
    page.locator("summary", has_text="Export").click()
    page.check("input[name=format][value=csv]")
    page.check("input[name=with_payloads]")
    with page.expect_download() as begun:
        page.get_by_role("button", name="Export").click()
    begun.value.save_as(tmp_path / "calls.csv")
    expect(page.locator("[data-part=label]")).to_have_text("Done")
    with (tmp_path / "calls.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["tool_name"] for row in rows} == {"echo"}
    assert len(rows) >= 3


def invited(browser: Browser, hub: str, page: Page, name: str, role: str) -> Page:
    """A window of a user who accepted an invitation and set a password."""
    page.goto("/admin/tools_app/membership/")
    page.get_by_role("link", name="Invite").first.click()
    page.fill("[name=email]", f"{name}@example.com")
    page.select_option("[name=role]", role)
    page.click("[name=_save]")
    link = re.search(r"http://\S+?/invitations/[\w-]+/?", page.locator("body").inner_text())
    assert link is not None
    guest = window(browser, hub)
    guest.goto(link[0])
    guest.fill("[name=username]", name)
    for field in guest.locator("input[type=password]").all():
        field.fill(PASSWORD)
    guest.get_by_role("button", name=re.compile("Join")).click()
    expect(guest).to_have_url(re.compile("/admin/"))
    return guest


def test_an_auditor_reads_everything_and_changes_nothing(browser: Browser, hub: str, page: Page) -> None:
    call_tool(hub, issue(page, "seen"), "echo", {"message": "seen by auditors"})
    auditor = invited(browser, hub, page, "ada", "auditor")
    auditor.goto("/admin/tools_app/call/?text=seen+by+auditors")
    auditor.locator(CALLS).first.click()
    expect(auditor.locator("body")).to_contain_text("seen by auditors")
    for model in ("tool", "apikey", "secret", "resource", "prompt", "membership"):
        auditor.goto(f"/admin/tools_app/{model}/")
        expect(auditor.locator("a[href$='/add/']")).to_have_count(0)
        refused = auditor.goto(f"/admin/tools_app/{model}/add/")
        assert refused is not None
        assert refused.status == 403
    auditor.goto("/admin/tools_app/tool/")
    auditor.locator("#result_list tbody a").first.click()
    expect(auditor.locator("[name=_save]")).to_have_count(0)


def test_an_operator_sees_that_there_was_a_call_and_nothing_of_it(browser: Browser, hub: str, page: Page) -> None:
    call_tool(hub, issue(page, "metered"), "echo", {"message": "not for operators"})
    operator = invited(browser, hub, page, "oscar", "operator")
    operator.goto("/admin/tools_app/call/?tool=echo")
    operator.locator(CALLS).first.click()
    expect(operator.locator("#call-facts")).to_be_visible()
    assert "not for operators" not in operator.content()


def test_a_stranger_gets_nothing(browser: Browser, hub: str, page: Page) -> None:
    key = issue(page, "private")
    call_tool(hub, key, "echo", {"message": "private"})
    page.goto("/admin/tools_app/call/?tool=echo")
    href = page.locator(CALLS).first.get_attribute("href")
    page.goto("/admin/tools_app/tenant/add/")
    page.fill("[name=name]", "Elsewhere")
    page.fill("[name=slug]", "elsewhere")
    page.click("[name=_save]")
    expect(page.locator("body")).to_contain_text("successfully")
    page.goto("/admin/auth/user/add/")
    page.fill("[name=username]", "eve")
    page.fill("[name=password1]", PASSWORD)
    page.fill("[name=password2]", PASSWORD)
    page.click("[name=_save]")

    eve = window(browser, hub)
    eve.goto("/admin/")
    eve.fill("input[name=username]", "eve")
    eve.fill("input[name=password]", PASSWORD)
    eve.press("input[name=password]", "Enter")
    expect(eve.locator("body")).to_contain_text("The username or password is incorrect")
    eve.goto(f"/admin/tools_app/call/{href}" if href and not href.startswith("/") else href or "")
    expect(eve.locator("input[name=password]")).to_have_count(1)
    assert "private" not in eve.content()
    assert call_tool(hub, key, "echo", {"message": "x"}, slug="elsewhere").status_code == 404
