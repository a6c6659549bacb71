"""What tests of every part share: tenants, keys, and a real hub that runs in this process."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar

import pytest
from django.conf import settings
from django.contrib.contenttypes.management import create_contenttypes
from django.db.models.signals import post_migrate
from pytest_django import DjangoDbBlocker

from tools_app.audit import evidence, recorder
from tools_app.audit.chain import heads
from tools_app.audit.entries import Saying
from tools_app.audit.recorder import RecorderGone
from tools_app.audit.rows import Said
from tools_app.auth import keys, limits
from tools_app.execution import authoring
from tools_app.execution.kinds import python
from tools_app.execution.offers import prompts, resources
from tools_app.management.embedded import EmbeddedHub
from tools_app.management.listening import bind
from tools_app.models import Prompt, Resource, Tenant, Tool
from tools_app.models.ids import new_id
from tools_app.transport import state

STOP_SECONDS = 30.0
WAIT_SECONDS = 8.0
T = TypeVar("T")


def pytest_xdist_auto_num_workers() -> int:
    """One more process than there are cores, up to four: tests of whole processes mostly wait for them."""
    return min(4, (os.cpu_count() or 1) + 1)


def forget_everything() -> None:
    """Empty what this process remembers of a database that was just flushed."""
    limits.forget_all()
    heads.forget()
    evidence.notary.forget()
    state.forget_everything()


def write_all() -> None:
    """Wait until all is recorded that this process was given to record: what nobody waited for belongs to its test.

    A test may have taken the database away from it, and then there is nothing to wait for.
    """
    last = Said(new_id(), 1, datetime.now(UTC), "log", "{}")
    with suppress(RecorderGone):
        recorder.current().record(Saying(last), WAIT_SECONDS)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Let SQLite leave the disk to the operating system: no test pulls the plug, and each would wait for the disk.

    PostgreSQL drops no database to which a thread of a pool is still connected: let none keep its connection.

    And processes that share a directory answer for each other at /metrics: give each process of the tests its own.
    """
    settings.MCPHUB_DATA_DIR = tmp_path_factory.mktemp("data")
    options = settings.DATABASES["default"].get("OPTIONS", {})
    if "init_command" not in options:
        settings.DATABASES["default"]["CONN_MAX_AGE"] = 0
    else:
        options["init_command"] = options["init_command"].replace("synchronous=FULL", "synchronous=OFF")


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> None:
    """Let Django's own tables stay empty when a test's rows are flushed: making permissions anew, which the hub does
    not use, would take ten times as long as the flush.
    """
    post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")
    post_migrate.disconnect(create_contenttypes)


@pytest.fixture(scope="session")
def running_hub(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[EmbeddedHub]:
    """The hub of `manage.py up`, server and worker. Once per run: the reactor starts only once.

    MCPHUB_TEST_SERVER names the server, in place of the one that `up` would take.
    """
    with django_db_blocker.unblock():
        hub = EmbeddedHub(bind("127.0.0.1", 0), server=os.environ.get("MCPHUB_TEST_SERVER"))
        hub.start_in_thread()
        yield hub
        hub.stop()
        hub.join(STOP_SECONDS)


@pytest.fixture
def hub(running_hub: EmbeddedHub, transactional_db: None) -> Iterator[EmbeddedHub]:
    """The running hub, on a database that holds nothing but what the test puts there."""
    forget_everything()
    yield running_hub
    write_all()
    forget_everything()


@pytest.fixture
def tenant(db: None) -> Tenant:
    """The tenant that the test is about."""
    return Tenant.objects.create(slug="acme", name="Acme")


@pytest.fixture
def other_tenant(db: None) -> Tenant:
    """The neighbour, who must never see anything of `tenant`."""
    return Tenant.objects.create(slug="rival", name="Rival")


@pytest.fixture
def key(tenant: Tenant) -> str:
    """An API key of `tenant`, as a client carries it."""
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
    """Let a test register functions of its own, which are forgotten after it."""
    for registry in (python, prompts, resources):
        monkeypatch.setattr(registry, "_functions", dict(registry._functions))


@pytest.fixture
def eventually() -> Callable[..., object]:
    """Ask again and again until the answer is true, for a bounded time, and give it back."""

    def ask(question: Callable[[], T], within: float = WAIT_SECONDS) -> T:
        deadline = time.monotonic() + within
        while not (answer := question()):
            assert time.monotonic() < deadline, f"still {answer!r} after {within} seconds"
            time.sleep(0.02)
        return answer

    return ask
