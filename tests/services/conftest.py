"""A scaled hub for each test: a fresh database, a queue and a channel prefix of its own."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from tests.services.stack import Stack

DATABASE_URL = "postgres://postgres@127.0.0.1:5432/postgres"
REDIS_URL = "redis://127.0.0.1:6379/0"
FOREIGN = ("MCPHUB_", "DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL")
LOST_SECONDS = 2.0
SEED = """
from tools_app.models import Tenant
from tools_app.execution import authoring
tenant = Tenant.objects.create(slug="acme", name="Acme")
authoring.add_code_tools(tenant, ["echo", "count", "test_throw", "calculator"])
"""


@pytest.fixture
def database_url() -> Iterator[str]:
    """A database of the test's own."""
    base = os.environ.get("MCPHUB_TEST_DATABASE_URL") or os.environ.get("DATABASE_URL") or DATABASE_URL
    name = f"mcphub_test_{uuid.uuid4().hex}"
    with psycopg.connect(base, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield urlunsplit(urlsplit(base)._replace(path=f"/{name}"))
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def stack(database_url: str, tmp_path: Path) -> Iterator[Stack]:
    """A migrated hub with the tenant `acme` and its tools, and no process yet."""
    unique = f"test-{uuid.uuid4().hex}"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    settings = {
        "DATABASE_URL": database_url,
        "REDIS_URL": os.environ.get("MCPHUB_TEST_REDIS_URL") or os.environ.get("REDIS_URL") or REDIS_URL,
        "MCPHUB_REDIS_PREFIX": unique,
        "MCPHUB_QUEUE": unique,
        "MCPHUB_DATA_DIR": str(tmp_path / "data"),
        "MCPHUB_SECRET_KEY": unique * 2,
        "MCPHUB_LOST_SECONDS": str(LOST_SECONDS),
        "MCPHUB_CANCEL_SECONDS": "1",
    }
    stack = Stack(database_url, clean | settings, tmp_path)
    stack.manage("migrate", "--verbosity", "0")
    stack.shell(SEED)
    yield stack
    stack.end()


@pytest.fixture
def service_key(stack: Stack) -> str:
    """An API key of `acme`."""
    return stack.manage("issue_key", "--tenant", "acme", "--name", "test")
