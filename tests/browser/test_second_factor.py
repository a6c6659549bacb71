"""A person adds a passkey in a browser, logs in with it, and is asked for it after the password."""

import re

from playwright.sync_api import Browser, Page, expect

from tests.browser.hubs import PASSWORD, log_in, window
from tests.browser.test_accessibility import held_against_the_rules


def with_authenticator(page: Page) -> None:
    """Let the browser have a security key that answers by itself."""
    browser = page.context.new_cdp_session(page)
    browser.send("WebAuthn.enable")
    abilities = {"hasResidentKey": True, "hasUserVerification": True, "isUserVerified": True}
    key = {"protocol": "ctap2", "transport": "internal", "automaticPresenceSimulation": True, **abilities}
    browser.send("WebAuthn.addVirtualAuthenticator", {"options": key})


def log_out(page: Page) -> None:
    page.context.clear_cookies()


def test_a_passkey_is_added_and_logs_in_and_is_asked_for_after_the_password(browser: Browser, hub: str) -> None:
    # Security keys belong to a name, not to an address.
    page = log_in(window(browser, hub.replace("127.0.0.1", "localhost")))
    with_authenticator(page)
    page.goto("/account/factors/webauthn/add/")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Confirm").click()
    expect(page.get_by_role("heading", name="Add a security key")).to_be_visible()
    held_against_the_rules(page)
    page.get_by_label("Log in without a password").check()
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()
    held_against_the_rules(page)
    expect(page.get_by_label("Unused codes")).to_have_value(re.compile(r"^(\d{8}\s?){10}$"))

    log_out(page)
    page.goto("/admin/login/?next=/admin/tools_app/tool/")
    held_against_the_rules(page)
    page.get_by_role("button", name="Use a passkey").click()
    # The whole path: the address of the login page ends with that of the next one.
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
