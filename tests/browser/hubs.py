"""Helpers of the browser tests: a newly installed hub, and logged-in windows."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

PROJECT = Path(__file__).resolve().parent.parent.parent
CHROMIUM = "/usr/bin/chromium"
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PASSWORD = "correct horse battery"
START_SECONDS = 120.0
WAIT_MS = 20_000
# The links of the calls in their list.
CALLS = "table a[href*='/tools_app/call/'][href*='/change/']"
# Violations of the Content-Security-Policy that browsers reported since the last check.
refused: list[str] = []
SERVERS = ("DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL")


@contextmanager
def started(place: Path, **settings: str) -> Iterator[str]:
    """Start a new hub with its data at `place`; yield its URL."""
    environment = {name: value for name, value in os.environ.items() if name not in SERVERS}
    environment |= {"MCPHUB_DATA_DIR": str(place / "data"), "MCPHUB_ADMIN_PASSWORD": PASSWORD, **settings}
    log = place / "hub.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--port", "0"],
            cwd=PROJECT,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield _address_in(log, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(START_SECONDS)


def _address_in(log: Path, process: subprocess.Popen[bytes]) -> str:
    """The URL that the hub prints when it listens. Raises AssertionError if it prints none."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(r"(http://127\.0\.0\.1:\d+)/mcp", log.read_text()):
            return found[1]
        time.sleep(0.1)
    raise AssertionError(log.read_text())


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser."""
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield browser
        browser.close()


def window(browser: Browser, hub: str, **looks: object) -> Page:
    """A new window without a login."""
    context = browser.new_context(base_url=hub, **looks)
    context.on("console", _note_refusal)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    return page


def _note_refusal(message: ConsoleMessage) -> None:
    if "Content Security Policy" in message.text:
        refused.append(f"{message.page.url if message.page else ''}: {message.text}")


def log_in(page: Page, name: str = "admin", password: str = PASSWORD) -> Page:
    """Log in, and wait for the first page."""
    page.goto("/admin/")
    page.fill("input[name=username]", name)
    page.fill("input[name=password]", password)
    page.press("input[name=password]", "Enter")
    # The URL of the login page ends with the same, in its parameter.
    expect(page).to_have_url(re.compile(r"^[^?]*/admin/$"))
    return page
