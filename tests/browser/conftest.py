"""Fixtures of the tests in a browser: one hub and one browser for a module."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.hubs import browsing, log_in, refused, started, window


@pytest.fixture(autouse=True)
def nothing_is_refused() -> Iterator[None]:
    """No page does what its Content-Security-Policy refuses."""
    refused.clear()
    yield
    assert refused == []


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a fresh hub, with the settings that the module gives as SETTINGS."""
    with started(tmp_path_factory.mktemp("hub"), **getattr(request.module, "SETTINGS", {})) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser."""
    with browsing() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def admin(browser: Browser, hub: str) -> Page:
    """A window in which the first admin, a superuser, is logged in."""
    return log_in(window(browser, hub))


@pytest.fixture
def page(admin: Page) -> Iterator[Page]:
    """The same; no script on its pages may fail."""
    faults: list[str] = []

    def note(fault: object) -> None:
        faults.append(str(fault))

    admin.on("pageerror", note)
    yield admin
    admin.remove_listener("pageerror", note)
    assert faults == []
