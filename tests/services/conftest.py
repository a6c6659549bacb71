"""A hub at scale for the tests of this directory: Daphne and uvicorn side by side, and a Celery worker."""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from tests.services.caller import Caller
from tests.services.stack import ROOT, Running, Stack

DATABASE_URL = "postgres://postgres@127.0.0.1:5432/postgres"
REDIS_URL = "redis://127.0.0.1:6379/0"
NODE = ROOT / "tests" / "clients" / "node"
FOREIGN = ("MCPHUB_", "DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL")
PROCESS_TIMEOUT = 2.0
LONGEST = ("test_on_postgresql.py", "test_schemathesis.py")
# Both side by side, unless the run is about one of them.
SERVERS = (os.environ["MCPHUB_TEST_SERVER"],) * 2 if "MCPHUB_TEST_SERVER" in os.environ else ("daphne", "uvicorn")
SEED = """
from django.core.management import call_command
from tools_app.tenants import keys
from tools_app.models import Tenant
from tools_app.catalog import authoring
call_command("migrate", verbosity=0)
tenant = Tenant.objects.create(slug="demo", name="Demo")
names = "ask ask_as_task ask_in_worker calculator count echo echo_ip search_docs stubborn test_throw"
authoring.add_code_tools(tenant, names.split())
print(keys.issue(tenant, "test")[1])
"""


@dataclass
class Hub:
    """Two web processes, one for each of SERVERS, and one worker."""

    stack: Stack
    webs: list[Running]
    worker: Running

    @property
    def urls(self) -> list[str]:
        """The MCP endpoint of each web process."""
        return [f"{web.url}/mcp" for web in self.webs]

    def outcomes(self, tool: str) -> list[str]:
        """The outcomes of the recorded calls of a tool, in the order of recording."""
        query = "SELECT outcome FROM tools_app_call WHERE tool_name = %s ORDER BY finished_at"
        return [row[0] for row in self.stack.rows(query, tool)]

    def restart_web(self, number: int) -> None:
        """Restart a web process that has ended, on the same port."""
        port = int(self.webs[number].url.rpartition(":")[2])
        self.webs[number] = self.stack.web(SERVERS[number], port)

    def restart_worker(self) -> None:
        """Start a worker in place of the one that has ended."""
        self.worker = self.stack.worker()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests begin first, so that no process waits for them at the end."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


@contextmanager
def new_database(template: str = "template1") -> Iterator[str]:
    """The URL of a database, empty or a copy, which is dropped at the end."""
    base = os.environ.get("MCPHUB_TEST_DATABASE_URL") or os.environ.get("DATABASE_URL") or DATABASE_URL
    name = f"mcphub_test_{uuid.uuid4().hex}"
    with psycopg.connect(base, autocommit=True) as connection:
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
        yield urlunsplit(urlsplit(base)._replace(path=f"/{name}"))
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def redis_url() -> str:
    """The URL of Redis, with a database for each test process: Celery's broadcasts reach every worker."""
    base = os.environ.get("MCPHUB_TEST_REDIS_URL") or os.environ.get("REDIS_URL") or REDIS_URL
    process = os.environ.get("PYTEST_XDIST_WORKER")
    return urlunsplit(urlsplit(base)._replace(path=f"/{int(process[2:]) + 1}")) if process else base


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A migrated hub with the tenant `demo` and its tools, without processes: each module gets a copy."""
    home = tmp_path_factory.mktemp("seeded")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    with new_database() as url:
        settings = {
            "DATABASE_URL": url,
            "REDIS_URL": redis_url(),
            "DJANGO_SETTINGS_MODULE": "mcphub.settings",
            "MCPHUB_PREFIX": "seeded",
            "MCPHUB_DATA_DIR": str(home / "data"),
            "MCPHUB_SECRET_KEY": uuid.uuid4().hex * 2,
            "MCPHUB_PROCESS_TIMEOUT": str(PROCESS_TIMEOUT),
            "MCPHUB_APPS": "tests.services.stubborn",
        }
        stack = Stack(url, clean | settings, home)
        try:
            stack.key = stack.shell(SEED)
        finally:
            stack.end()
        yield stack


@contextmanager
def copied(seeded: Stack, home: Path) -> Iterator[Stack]:
    """A copy of a hub, whose processes end with the block."""
    shutil.copytree(seeded.logs / "data", home / "data")
    with new_database(seeded.database_url.rpartition("/")[2]) as url:
        own = {
            "DATABASE_URL": url,
            "MCPHUB_PREFIX": f"test-{uuid.uuid4().hex}",
            "MCPHUB_DATA_DIR": str(home / "data"),
        }
        stack = Stack(url, seeded.environment | own, home, seeded.key)
        try:
            yield stack
        finally:
            stack.end()


@pytest.fixture(scope="module")
def stack(seeded: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A hub with the tenant `demo` and its tools, and no process yet."""
    with copied(seeded, tmp_path_factory.mktemp("services")) as stack:
        yield stack


def started(stack: Stack, *options: str) -> Hub:
    """Start the processes of a hub, with these options of the worker."""
    worker = stack.worker(*options)
    return Hub(stack, stack.webs(*SERVERS), worker)


@pytest.fixture(scope="session")
def shared(seeded: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """The hub of the modules that do not start their own. Each test leaves its processes running."""
    with copied(seeded, tmp_path_factory.mktemp("shared")) as stack:
        yield started(stack)


@pytest.fixture(scope="module")
def running(shared: Hub) -> Hub:
    """The hub of a module. One that needs other settings, or a database without the calls of others, starts its own."""
    return shared


@pytest.fixture
def hub(running: Hub) -> Hub:
    """The hub at scale. In other directories, this fixture is the embedded hub."""
    return running


@pytest.fixture
def caller(hub: Hub) -> Caller:
    """A session created in the first web process."""
    return Caller(hub.stack.key).open(hub.urls[0])


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the Node programs and what they need.

    `MCPHUB_NODE_CLIENTS` names a directory with the `node_modules` that `tests/clients/node/package.json` asks for;
    without it, npm installs them for this run.
    """
    place = tmp_path_factory.mktemp("node")
    for file in NODE.iterdir():
        shutil.copy(file, place)
    installed = os.environ.get("MCPHUB_NODE_CLIENTS")
    if installed:
        (place / "node_modules").symlink_to(Path(installed).resolve() / "node_modules")
    else:
        install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(place)]
        subprocess.run(install, cwd=place, check=True, timeout=200)
    return place


def node_program(place: Path) -> str:
    """The executable of Node 22."""
    return str(place / "node_modules" / ".bin" / "node")
