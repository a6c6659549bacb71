"""Fixtures for all tests: tenants, keys, and a real hub in this process."""

import asyncio
import functools
import gc
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest
from django.conf import settings
from django.core.management.color import no_style
from django.core.management.sql import sql_flush
from django.db import connection
from django.template import Context, RequestContext, Template
from django.test import TransactionTestCase
from django.test.signals import template_rendered
from django.utils.safestring import SafeString
from pytest_django import DjangoDbBlocker

from tests.audit.chained import forget
from tests.processes.hub import copy_database
from tools_app.audit.changes import changes
from tools_app.audit.checkpoints import signer, witness
from tools_app.audit.recorder import denials, recorder
from tools_app.audit.recorder.chain import heads
from tools_app.audit.recorder.entries import CallEventEntry, EventRow
from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.catalog import authoring, compiled
from tools_app.catalog import prompt_functions as prompts
from tools_app.catalog import resource_functions as resources
from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.versioned import catalog_changed
from tools_app.core.ids import new_id
from tools_app.models import Prompt, Resource, Tenant, Tool
from tools_app.runtime import housekeeping, readiness
from tools_app.server.base import UVICORN, bind
from tools_app.server.embedded import EmbeddedHub
from tools_app.tenants import keys
from tools_app.tenants.limits import limits
from tools_app.transport import state

# Readiness is computed each time, because tests stop parts of the hub.
readiness.KEEP_SECONDS = 0.0
STOP_SECONDS = 30.0
# How long a test waits before it fails: long enough for a busy machine.
WAIT_SECONDS = 30.0
T = TypeVar("T")


class HousekeepingSwitch:
    """Pauses the housekeeping of the hub in this process unless a test uses the hub.

    The hub keeps running after the tests that use it. Its sweeps, heartbeats and checkpoints would change the database
    during tests of housekeeping.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._allowed = False
        self._running_count = 0
        self._do = housekeeping._do_what_is_due

    def do_what_is_due(self, tasks: list[housekeeping.Task], due: list[float]) -> None:
        """Replaces the function of housekeeping. A test's own housekeeper is not paused.

        Tasks that are due each second run at each tick, because tests wait for them.
        """
        with self._changed:
            if _is_of_the_hub(threading.current_thread()):
                if not self._allowed:
                    return
                due[:] = [0.0 if every <= 1.0 else at for at, (every, _) in zip(due, tasks, strict=True)]
            self._running_count += 1
        try:
            self._do(tasks, due)
        finally:
            with self._changed:
                self._running_count -= 1
                self._changed.notify_all()

    def allow(self) -> None:
        """Allow its tasks from now on."""
        with self._changed:
            self._allowed = True

    def forbid(self) -> None:
        """Pause its tasks, and wait for the running ones."""
        with self._changed:
            self._allowed = False
            assert self._changed.wait_for(lambda: not self._running_count, WAIT_SECONDS), "a task does not end"


def _is_of_the_hub(thread: threading.Thread) -> bool:
    keeper = housekeeping.housekeeper.running()
    return keeper is not None and thread in {keeper._heartbeat, keeper._thread}


chores = HousekeepingSwitch()
housekeeping._do_what_is_due = chores.do_what_is_due


def pytest_xdist_auto_num_workers() -> int:
    """A process for each core, up to four: each imports the hub and migrates a database before its first test."""
    return min(4, os.cpu_count() or 1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Disable garbage collection while tests are collected: nearly all objects stay, and it took a third of the time.

    The objects are frozen, so that later garbage collections skip them. These are rare: a test makes many objects, and
    drops them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 100)
        gc.enable()


@pytest.fixture
def no_tries_yet(settings: Any) -> Iterator[None]:
    """Reset the counts of logins, links and mails."""
    settings.REDIS_URL = ""  # attempts are counted in this process, where they can be reset
    limits.forget_all()
    yield
    limits.forget_all()


def reset_process_state() -> None:
    """Clear the state that this process has of a database that was just flushed."""
    limits.forget_all()
    heads.stop()
    signer.checkpoint_signer.stop()
    # Otherwise denials of other tests in the same minute decide whether a denial gets a row or is counted later.
    denials._window.stop()
    witness.path().unlink(missing_ok=True)
    state.forget_everything()


def forget_catalog(tenant_id: UUID, **_signal: object) -> None:
    """Make the hub reload a changed catalog before the test continues: notifications are late on a busy machine."""
    for web in list(state._states.values()):
        if web.loop.is_running() and web.loop is not asyncio._get_running_loop():
            forgotten = threading.Event()
            web.loop.call_soon_threadsafe(compiled.cache.forget, tenant_id)
            web.loop.call_soon_threadsafe(forgotten.set)
            assert forgotten.wait(WAIT_SECONDS)


def empty_database(_test_case: TransactionTestCase) -> None:
    """Empty the database after a test. The command `flush` looks for the tables each time, for as long as it takes."""
    connection.ops.execute_sql_flush(flush_statements())


@functools.cache
def flush_statements() -> list[str]:
    """Return the SQL that empties all tables."""
    return sql_flush(no_style(), connection, allow_cascade=False)


def delete_rows(_style: object, tables: Iterable[str], **_options: object) -> list[str]:
    """The SQL that empties tables of PostgreSQL, after waiting for writers."""
    names = [connection.ops.quote_name(table) for table in tables]
    deletes = [f"DELETE FROM {name}" for name in names]
    return ["; ".join([f"LOCK TABLE {', '.join(names)} IN EXCLUSIVE MODE", *deletes])] if names else []


def flush_recorder() -> None:
    """Wait until this process has recorded all its entries, so that they belong to the test that made them.

    If a test has made the database unavailable, there is nothing to wait for.
    """
    last = EventRow(new_id(), 1, datetime.now(UTC), "log", "{}")
    with suppress(RecorderUnavailable):
        recorder.current().record(CallEventEntry(last), WAIT_SECONDS)


@pytest.fixture(scope="session", autouse=True)
def _quick_passwords(django_test_environment: None) -> None:
    """Hash passwords with one iteration: the default takes a third of a second for each user."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture(scope="session", autouse=True)
def _quick_pages(django_test_environment: None) -> None:
    """Give the test client the context of pages only, not of each widget: it takes a fifth of the time."""

    def render(template: Template, context: Context) -> SafeString:
        if context.template is template and isinstance(context, RequestContext):
            template_rendered.send(sender=template, template=template, context=context)
        return template.nodelist.render(context)

    Template._render = render


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Do not sync the database to disk: no test needs durability, and each would wait for it.

    PostgreSQL does not drop a database with open connections, so threads of pools keep none.

    Processes that share a directory are summed at /metrics, so each test process gets its own.
    """
    settings.MCPHUB_DATA_DIR = tmp_path_factory.mktemp("data")
    options = settings.DATABASES["default"].setdefault("OPTIONS", {})
    if "init_command" not in options:
        settings.DATABASES["default"]["CONN_MAX_AGE"] = 0
        options["options"] = f"{options.get('options', '')} -c synchronous_commit=off"
    else:
        options["init_command"] = options["init_command"].replace("synchronous=FULL", "synchronous=OFF")


@pytest.fixture(scope="session")
def django_db_setup(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Path | None:
    """A copy of the new database, with which hubs in separate processes start; None on other databases than SQLite.

    A test that is not in a transaction leaves an empty database, without the permissions that Django makes for each
    model: the hub does not use them, and they take ten times as long. TRUNCATE, which recreates each table and index,
    is as slow.
    """
    with django_db_blocker.unblock():
        copy = copy_database(tmp_path_factory.mktemp("migrated") / "hub.sqlite3")
    TransactionTestCase._fixture_teardown = empty_database
    if connection.vendor == "postgresql":
        connection.ops.sql_flush = delete_rows
    return copy


@pytest.fixture(scope="session")
def running_hub(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[EmbeddedHub]:
    """The hub of `manage.py up`, server and worker. One for each run: the reactor can be started only once.

    MCPHUB_TEST_SERVER names the server; without it, the default of `up`.
    """
    with django_db_blocker.unblock():
        hub = EmbeddedHub(bind("127.0.0.1", 0), server=os.environ.get("MCPHUB_TEST_SERVER", UVICORN))
        hub.start_in_thread()
        yield hub
        hub.stop()
        hub.join(STOP_SECONDS)


@pytest.fixture
def hub(running_hub: EmbeddedHub, transactional_db: None) -> Iterator[EmbeddedHub]:
    """The running hub, with an empty database."""
    reset_process_state()
    chores.allow()
    catalog_changed.connect(forget_catalog)
    yield running_hub
    catalog_changed.disconnect(forget_catalog)
    chores.forbid()
    flush_recorder()
    reset_process_state()


@pytest.fixture
def tenant(db: None) -> Tenant:
    """The tenant under test."""
    return Tenant.objects.create(slug="acme", name="Acme")


@pytest.fixture
def other_tenant(db: None) -> Tenant:
    """Another tenant, which must never see anything of `tenant`."""
    return Tenant.objects.create(slug="rival", name="Rival")


@pytest.fixture
def key(tenant: Tenant) -> str:
    """An API key of `tenant`, as clients send it."""
    return keys.issue(tenant, "test")[1]


@pytest.fixture
def other_key(other_tenant: Tenant) -> str:
    """An API key of `other_tenant`."""
    return keys.issue(other_tenant, "test")[1]


@pytest.fixture
def offer(tenant: Tenant) -> Callable[..., list[Tool]]:
    """Offer registered functions to `tenant`: `offer("echo", "count")`."""

    def add(*names: str) -> list[Tool]:
        return authoring.add_code_tools(tenant, list(names))

    return add


@pytest.fixture
def offer_resources(tenant: Tenant) -> Callable[..., list[Resource]]:
    """Offer registered resources to `tenant`, by their URIs."""

    def add(*uris: str) -> list[Resource]:
        return authoring.add_code_resources(tenant, list(uris))

    return add


@pytest.fixture
def offer_prompts(tenant: Tenant) -> Callable[..., list[Prompt]]:
    """Offer registered prompts to `tenant`, by their names."""

    def add(*names: str) -> list[Prompt]:
        return authoring.add_code_prompts(tenant, list(names))

    return add


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test register functions, which are removed after it."""
    for registry in (python, prompts, resources):
        monkeypatch.setattr(registry, "_functions", dict(registry._functions))


@pytest.fixture
def new_chains(transactional_db: None) -> Iterator[None]:
    """Start new chains of audit records for this test only."""
    forget()
    yield
    forget()


@pytest.fixture
def eventually() -> Callable[..., object]:
    """Call a condition until its result is true, for a bounded time, and return the result."""

    def wait(condition: Callable[[], T], within: float = WAIT_SECONDS) -> T:
        deadline = time.monotonic() + within
        while not (result := condition()):
            assert time.monotonic() < deadline, f"still {result!r} after {within} seconds"
            time.sleep(0.02)
        return result

    return wait


@pytest.fixture
def while_waiting(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Has a function run, once, while the next change waits for the lock of the change log."""

    def arrange(happen: Callable[[], object]) -> None:
        lock, pending = changes.lock_change_log, [happen]

        def wait() -> None:
            if pending and changes.actor() is not None:
                with changes.recording_as(lambda: None):
                    pending.pop()()
            lock()

        monkeypatch.setattr(changes, "lock_change_log", wait)

    return arrange
