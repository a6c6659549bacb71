"""Fixtures of the tests in a browser: one hub and one browser for a module."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.hubs import browsing, log_in, refused, started, window


@pytest.fixture(autouse=True)
def nothing_is_refused() -> Iterator[None]:
    """Fail if a page violates its Content-Security-Policy."""
    refused.clear()
    yield
    assert refused == []


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a new hub, with the module's SETTINGS."""
    with started(tmp_path_factory.mktemp("hub"), **getattr(request.module, "SETTINGS", {})) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser."""
    with browsing() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def admin(browser: Browser, hub: str) -> Page:
    """A window logged in as the first admin, a superuser."""
    return log_in(window(browser, hub))


@pytest.fixture
def page(admin: Page) -> Iterator[Page]:
    """The same window; fail if a script on its pages fails."""
    faults: list[str] = []

    def note(fault: object) -> None:
        faults.append(str(fault))

    admin.on("pageerror", note)
    yield admin
    admin.remove_listener("pageerror", note)
    assert faults == []
