"""A hub at scale with its own PostgreSQL and Redis: two web processes and two workers."""

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.faults.load import modern_call
from tests.faults.servers import OwnPostgres, OwnRedis
from tests.services.stack import Running, Stack

FOREIGN = ("MCPHUB_", "DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL", "DJANGO_SETTINGS_MODULE")
PROCESS_TIMEOUT = 5.0
SERVERS = ("daphne", "uvicorn")
TOOLS = "quick change steps toil hang seize wait_for_ever pour insides"
SEED = f"""
from tools_app.models import Tenant
from tools_app.catalog import authoring
authoring.add_code_tools(Tenant.objects.create(slug="demo", name="Demo"), {TOOLS!r}.split())
"""


@dataclass
class Hub:
    """Two web processes, Daphne and uvicorn, and two workers."""

    stack: Stack
    postgres: OwnPostgres
    redis: OwnRedis
    webs: list[Running] = field(default_factory=list)
    workers: list[Running] = field(default_factory=list)

    @property
    def urls(self) -> list[str]:
        """The MCP endpoint of each web process."""
        return [f"{web.url}/mcp" for web in self.webs]

    def start_web(self, number: int) -> None:
        """Start a web process again, on its port."""
        port = int(self.webs[number].url.rpartition(":")[2])
        self.webs[number] = self.stack.web(SERVERS[number], port)

    def call(self, web: int, tool: str, **arguments: Any) -> Any:
        """The result of one call in addition to the load."""
        body, headers = modern_call(self.stack.key, tool, **arguments)
        headers["Accept"] = "application/json"
        answer = httpx.post(self.urls[web], json=body, headers=headers, timeout=30, trust_env=False)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]


@contextmanager
def own_hub(home: Path, **more_settings: str) -> Iterator[Hub]:
    """Servers, processes and a tenant, which stop with the block."""
    unique = f"test-{uuid.uuid4().hex}"
    with tempfile.TemporaryDirectory(prefix="mcphub-", ignore_cleanup_errors=True) as cluster:
        postgres, redis = OwnPostgres(Path(cluster)), OwnRedis(home)
        stack = Stack("", _environment(unique, home, redis, more_settings), home)
        try:
            postgres.create()
            redis.start()
            stack.database_url = stack.environment["DATABASE_URL"] = postgres.create_database(unique)
            yield _started(Hub(stack, postgres, redis))
        finally:
            stack.end()
            redis.stop()
            postgres.stop()


def _environment(unique: str, home: Path, redis: OwnRedis, more: dict[str, str]) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    settings = {
        "REDIS_URL": redis.url,
        "DJANGO_SETTINGS_MODULE": "mcphub.settings",
        "MCPHUB_DATA_DIR": str(home / "data"),
        "MCPHUB_SECRET_KEY": unique * 2,
        "MCPHUB_PROCESS_TIMEOUT": str(PROCESS_TIMEOUT),
        "MCPHUB_APPS": "tests.faults.toil",
    }
    return clean | settings | more


def _started(hub: Hub) -> Hub:
    stack = hub.stack
    stack.manage("migrate", "--verbosity", "0")
    stack.shell(SEED)
    stack.key = stack.manage("issue_key", "--tenant", "demo", "--name", "test")
    hub.workers = [stack.worker(), stack.worker()]
    hub.webs = stack.webs(*SERVERS)
    assert hub.call(0, "toil", word="first", n=1, pause=0)["isError"] is False
    return hub
