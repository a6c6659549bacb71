"""Accessibility of every page of the admin and some of the documentation: WCAG 2.1 AA, checked with axe.

In the light scheme on a desktop, and in the dark scheme on a phone, without horizontal scrolling.
"""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser.client import call_tool
from tests.browser.hubs import log_in, window

LONG = "name_of_a_tool_that_is_as_long_as_one_can_be_" * 2 + "x" * 38
# Elements that scroll horizontally, except for code, which is not wrapped.
SCROLLING = """() => [...document.querySelectorAll("body *:not(pre, textarea, .doc-table)")]
    .filter((e) => e.clientWidth && e.scrollWidth > e.clientWidth + 2)
    .filter((e) => ["auto", "scroll"].includes(getComputedStyle(e).overflowX))
    .map((e) => `${e.tagName} ${e.className}: ${e.innerText.slice(0, 40)}`)"""
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
LOOKS = {"desk": ("light", 1280), "phone": ("dark", 390)}
ADDED = [
    "alertdestination",
    "alertrule",
    "apikey",
    "apisource",
    "clientpolicy",
    "invitation",
    "issuer",
    "membership",
    "personaltoken",
    "prompt",
    "resource",
    "secret",
    "serviceclient",
    "tenant",
    "tenantscope",
    "tool",
    "toolset",
    "upstream",
]
MODELS = [*ADDED, "call", "change", "connection", "oauthclient", "runningcall", "session", "signinevent"]
# Models whose change pages are checked, with one row each.
OPENED = ["apikey", "call", "change", "tenant", "tool"]
PAGES = [
    "/admin/",
    "/admin/playground/",
    "/admin/live/",
    "/admin/failures/?period=1h",
    "/admin/searches/",
    "/connections",
    "/connections/upstreams",
    "/admin/tools_app/upstream/health/",
    "/device",
    "/sign-in/?tenant=nobody",
    "/account/factors/",
    "/account/reauthenticate/?next=/account/factors/",
    "/admin/evidence/",
    "/admin/auth/user/",
    "/admin/auth/user/add/",
    "/admin/password_change/",
    "/api/v1/docs/",
    "/docs/",
    "/docs/?q=rotate+key",
    "/docs/architecture/",
    "/docs/keys/",
    *(f"/admin/tools_app/{model}/" for model in MODELS),
    *(f"/admin/tools_app/{model}/add/" for model in ADDED),
]


@pytest.fixture(scope="module", params=LOOKS)
def looking(browser: Browser, hub: str, request: pytest.FixtureRequest) -> Page:
    """A window of one size and colour scheme, at a hub with data."""
    scheme, width = LOOKS[request.param]
    page = window(browser, hub, color_scheme=scheme, viewport={"width": width, "height": 900})
    page.goto("/admin/")
    held_against_the_rules(page)
    log_in(page)
    page.goto("/admin/tools_app/apikey/add/")
    page.fill("[name=name]", f"looks-{scheme}-{LONG[:80]}")
    page.click("[name=_save]")
    held_against_the_rules(page)
    key = page.locator("#issued-key").inner_text().strip()
    for tool, arguments in (("echo", {"message": "x"}), ("count", {"n": 3}), ("test_throw", {}), (LONG, {})):
        call_tool(hub, key, tool, arguments)
    return page


def held_against_the_rules(page: Page) -> None:
    """Fail for serious violations, with the first elements, and for a page that is wider than the window."""
    violations = Axe().run(page, options=RULES).response["violations"]
    serious = [
        (violation["id"], [node["html"][:200] for node in violation["nodes"][:3]])
        for violation in violations
        if violation["impact"] in {"serious", "critical"}
    ]
    assert serious == []
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0, "wider than its window"
    assert page.evaluate(SCROLLING) == []


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_for_everybody(looking: Page, path: str) -> None:
    response = looking.goto(path)
    assert response is not None
    assert response.status == 200
    expect(looking.locator("body")).not_to_be_empty()
    looking.wait_for_load_state("networkidle" if "live" not in path else "load")
    held_against_the_rules(looking)


def test_the_mistakes_in_a_form_are_for_everybody(looking: Page) -> None:
    looking.goto("/admin/tools_app/upstream/add/")
    looking.fill("[name=name]", "bad name")
    looking.fill("[name=url]", "nowhere")
    looking.fill("[name=headers]", '{"Host": "x"}')
    looking.click("[name=_save]")
    for name in ("name", "url", "headers"):
        expect(looking.locator(f"#id_{name}_error")).to_be_visible()
    held_against_the_rules(looking)


@pytest.mark.parametrize("model", OPENED)
def test_the_page_of_a_row_is_for_everybody(looking: Page, model: str) -> None:
    looking.goto(f"/admin/tools_app/{model}/")
    looking.locator("table a[href*='/change/']").first.click()
    looking.wait_for_load_state("load")
    held_against_the_rules(looking)
