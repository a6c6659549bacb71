"""The playground in a real browser, in both eras: progress, an elicitation, a cancelled call, and their records."""

import re

import pytest
from playwright.sync_api import Page, expect

SETTINGS = {"MCPHUB_APPS": "tests.conformance.fixture"}
ASKING = ["slow_compute", "test_elicitation", "test_sampling"]
ERAS = ["2026-07-28", "2025-11-25"]


@pytest.fixture(scope="module", autouse=True)
def tools_that_ask(admin: Page) -> None:
    """Offer the tools that use elicitation."""
    admin.goto("/admin/tools_app/tool/add-python/?tenant=demo")
    for name in ASKING:
        admin.check(f"input[name=functions][value={name}]")
    admin.click("text=Add selected")
    expect(admin.locator("#result_list")).to_contain_text(ASKING[-1])


@pytest.fixture(params=ERAS)
def playground(page: Page, request: pytest.FixtureRequest) -> Page:
    """The playground, connected in one revision."""
    page.goto("/admin/playground/")
    page.select_option("#pg-version", request.param)
    expect(page.locator("#pg-status")).to_contain_text(f"protocol version {request.param}")
    return page


def choose(page: Page, tool: str) -> None:
    page.locator("#pg-entries button", has=page.get_by_text(tool, exact=True)).click()


def run(page: Page, tool: str, **arguments: str) -> None:
    choose(page, tool)
    for name, value in arguments.items():
        page.fill(f"#pg-form [data-path={name}]", value)
    page.click("#pg-run")


def test_a_tool_runs_with_its_progress_and_leads_to_its_record(playground: Page) -> None:
    run(playground, "count", n="3")
    expect(playground.locator("#pg-outcome")).to_contain_text("Done in")
    expect(playground.locator("#pg-progress-words")).to_contain_text("Step 2 of 3")
    expect(playground.locator("#pg-result")).to_have_text("3")
    wire = playground.locator("#pg-wire")
    expect(wire).to_contain_text("notifications/progress")
    assert "mcphub_pass_" not in playground.content()
    playground.locator("#pg-records a").click()
    expect(playground.locator("body")).to_contain_text("playground (admin)")


def test_a_form_is_answered(playground: Page) -> None:
    run(playground, "test_elicitation", message="Who are you?")
    question = playground.locator(".pg-question")
    expect(question).to_contain_text("Who are you?")
    question.get_by_text("Answer", exact=True).click()
    expect(question.locator(".pg-fault:visible")).to_have_count(2)
    question.locator("[data-path=username]").fill("Ada")
    expect(question.locator(".pg-fault:visible")).to_have_count(1)
    expect(question.locator("[data-path=username]")).not_to_have_attribute("aria-invalid", "true")
    question.locator("[data-path=email]").fill("ada@example.com")
    question.get_by_text("Answer", exact=True).click()
    expect(playground.locator("#pg-result")).to_contain_text('action=accept, content={"username": "Ada"')
    expect(playground.locator("#pg-records a").last).to_contain_text("OK")


def test_a_model_is_stood_in_for(playground: Page) -> None:
    run(playground, "test_sampling", prompt="Why?")
    question = playground.locator(".pg-question")
    expect(question).to_contain_text("Why?")
    question.locator("textarea").fill("Because.")
    question.get_by_text("Answer", exact=True).click()
    expect(playground.locator("#pg-result")).to_have_text("LLM response: Because.")


def test_a_call_is_cancelled(playground: Page) -> None:
    run(playground, "count", n="9000")
    expect(playground.locator("#pg-progress-words")).to_contain_text("of 9000")
    playground.click("#pg-cancel")
    expect(playground.locator("#pg-outcome")).to_contain_text("Cancelled")
    expect(playground.locator("#pg-records")).to_contain_text("Cancelled")


def test_what_does_not_fit_is_told_beside_its_field(playground: Page) -> None:
    run(playground, "count", n="-1")
    expect(playground.locator("#pg-form .pg-fault:visible")).to_contain_text("less than the minimum")
    number = playground.locator("#pg-form [data-path=n]")
    expect(number).to_have_attribute("aria-invalid", "true")
    number.fill("1")
    expect(playground.locator("#pg-form .pg-fault:visible")).to_have_count(0)
    expect(number).not_to_have_attribute("aria-invalid", "true")


def test_what_is_missing_is_told_until_it_is_filled_in(playground: Page) -> None:
    choose(playground, "calculator")
    playground.click("#pg-run")
    faults = playground.locator("#pg-form .pg-fault:visible")
    expect(faults).to_have_count(3)
    expect(faults.first).to_contain_text("required")
    playground.select_option("#pg-form [data-path=operation]", label="add")
    expect(faults).to_have_count(2)
    playground.fill("#pg-raw", '{"operation": "add", "a": 1, "b": 2}')
    expect(faults).to_have_count(0)


def test_form_and_json_are_kept_in_step(playground: Page) -> None:
    choose(playground, "calculator")
    playground.fill("#pg-form [data-path=a]", "1.5")
    playground.select_option("#pg-form [data-path=operation]", label="add")
    expect(playground.locator("#pg-raw")).to_have_value(re.compile(r'"a": 1\.5'))
    playground.fill("#pg-raw", '{"operation": "divide", "a": 1, "b": 4}')
    expect(playground.locator("#pg-form [data-path=b]")).to_have_value("4")
    playground.click("#pg-run")
    expect(playground.locator("#pg-result")).to_contain_text("0.25")
    playground.click("#pg-as-code")
    expect(playground.locator("#pg-code pre")).to_contain_text("YOUR_KEY")


def test_a_call_that_becomes_a_task_is_waited_for(playground: Page) -> None:
    choose(playground, "slow_compute")
    playground.fill("#pg-form [data-path=seconds]", "0.1")
    playground.check("#pg-task")
    playground.click("#pg-run")
    expect(playground.locator("#pg-outcome")).to_contain_text("Done in")
    expect(playground.locator("#pg-records")).to_contain_text("OK")


def test_leaving_the_page_ends_its_session(page: Page) -> None:
    page.goto("/admin/playground/")
    page.select_option("#pg-version", "2025-11-25")
    expect(page.locator("#pg-status")).to_contain_text("protocol version 2025-11-25")
    page.goto("/admin/tools_app/session/?q=playground")
    newest = page.locator("#result_list tbody").first
    for _ in range(20):
        if "ended" in newest.inner_text().lower():
            break
        page.wait_for_timeout(200)
        page.reload()
    expect(newest).to_contain_text(re.compile("ended", re.IGNORECASE))


def test_a_connection_is_tested_with_a_key_and_with_none(page: Page) -> None:
    page.goto("/admin/tools_app/apikey/add/")
    page.fill("[name=name]", "laptop")
    page.click("[name=_save]")
    key = page.locator("#issued-key").inner_text().strip()
    expect(page.locator("[data-snippet=claude-code]")).to_contain_text(key)
    page.goto("/admin/tools_app/apikey/")
    page.locator("#result_list a", has_text="laptop").click()
    page.locator("a[href$='/connect/'], a[href$='/connect']").first.click()
    page.click("[data-client=curl]")
    expect(page.locator("[data-snippet=curl]")).to_contain_text("YOUR_KEY")
    page.fill("#pg-key", key)
    expect(page.locator("[data-snippet=curl]")).to_contain_text(key)
    page.click("#pg-test")
    expect(page.locator("#pg-tested .pg-good")).to_have_count(2)
    page.fill("#pg-key", "mcphub_none_of_ours")
    page.click("#pg-test")
    expect(page.locator("#pg-tested .pg-bad").first).to_contain_text("unknown, revoked or expired")
