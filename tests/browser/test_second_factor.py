"""Passkeys in a browser: adding one, logging in with it, and as a required second factor."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.hubs import PASSWORD, log_in, started, window
from tests.browser.test_accessibility import held_against_the_rules
from tests.browser.test_people import invited
from tests.identity.oauth.person import Application


def with_authenticator(page: Page) -> None:
    """Add a virtual authenticator to the browser."""
    browser = page.context.new_cdp_session(page)
    browser.send("WebAuthn.enable")
    abilities = {"hasResidentKey": True, "hasUserVerification": True, "isUserVerified": True}
    key = {"protocol": "ctap2", "transport": "internal", "automaticPresenceSimulation": True, **abilities}
    browser.send("WebAuthn.addVirtualAuthenticator", {"options": key})


def log_out(page: Page) -> None:
    page.context.clear_cookies()


def add_passkey(page: Page) -> None:
    """Add a passkey; return the page of recovery codes."""
    page.goto("/account/factors/webauthn/add/")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Confirm").click()
    expect(page.get_by_role("heading", name="Add a security key")).to_be_visible()
    held_against_the_rules(page)
    page.get_by_label("Log in without a password").check()
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()


def test_a_passkey_is_added_and_logs_in_and_is_asked_for_after_the_password(browser: Browser, hub: str) -> None:
    # Security keys are bound to a host name, not an IP address.
    page = log_in(window(browser, hub.replace("127.0.0.1", "localhost")))
    with_authenticator(page)
    add_passkey(page)
    held_against_the_rules(page)
    expect(page.get_by_label("Unused codes")).to_have_value(re.compile(r"^(\d{8}\s?){10}$"))

    log_out(page)
    page.goto("/admin/login/?next=/admin/tools_app/tool/")
    held_against_the_rules(page)
    page.get_by_role("button", name="Use a passkey").click()
    # The whole path, because the URL of the login page ends with that of the next page.
    expect(page).to_have_url(re.compile(r"://[^/]+/admin/tools_app/tool/$"))
    expect(page.get_by_role("link", name="Add HTTP tool")).to_be_visible()

    log_out(page)
    page.goto("/admin/login/")
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Second factor")).to_be_visible()
    held_against_the_rules(page)
    page.get_by_role("button", name="Use a security key").click()
    expect(page).to_have_url(re.compile(r"://[^/]+/admin/$"))


@pytest.fixture
def new_hub(tmp_path: Path) -> Iterator[str]:
    """The URL, with a host name, of a hub whose admin has no passkey."""
    with started(tmp_path) as address:
        yield address.replace("127.0.0.1", "localhost")


def test_who_a_tenant_asks_for_a_factor_adds_a_passkey_and_goes_on_to_the_application(
    browser: Browser, new_hub: str
) -> None:
    boss = log_in(window(browser, new_hub))
    guest = invited(browser, new_hub, boss, "gina", "operator")
    with_authenticator(guest)
    boss.goto("/admin/tools_app/tenant/")
    boss.locator("#result_list a", has_text="Demo").first.click()
    # By keyboard: at the end of the window it lies below the bar with the buttons.
    boss.get_by_label("Require a second factor").press("Space")
    boss.click("[name=_save]")
    # Those of the admin, too.
    expect(boss.get_by_text("Demo requires a second factor: an app or a security key.")).to_be_visible()

    with closing(Application(new_hub, f"{new_hub}/t/demo/mcp")) as application:
        assert application.register(client_name="Robot").status_code == 201
        guest.goto(application.url())
        expect(guest.get_by_text("Demo requires a second factor: an app or a security key.")).to_be_visible()
        held_against_the_rules(guest)
        add_passkey(guest)
        guest.get_by_role("link", name="Go on to the page that you opened").click()
        expect(guest.get_by_role("heading", name="Connect Robot")).to_be_visible()

        # A passkey counts as both factors.
        log_out(guest)
        guest.goto(application.url())
        guest.get_by_role("button", name="Use a passkey").click()
        expect(guest.get_by_role("heading", name="Connect Robot")).to_be_visible()
