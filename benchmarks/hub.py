"""A hub for a benchmark: its own data directory and environment, a tenant with tools, and keys."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
EXCLUDED_VARIABLES = ("MCPHUB_", "DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL")
TENANT = "bench"
PASSWORD = "a benchmark has no secrets"  # noqa: S105 - of databases that live for a minute
SEED_CODE = f"""
import json
from django.contrib.auth.models import User
from benchmarks.servers.look_up import LOOK_UPS
from tools_app.tenants import keys
from tools_app.catalog import authoring
from tools_app.models import Membership, Role, Tenant
def made(slug, tools):
    tenant = Tenant.objects.create(slug=slug, name=slug)
    authoring.add_code_tools(tenant, tools)
    return keys.issue(tenant, slug)[1]
few = made("{TENANT}", ["echo", "report", "report_in_worker", "report_as_task"])
many = made("many", LOOK_UPS)
tenant = Tenant.objects.get(slug="{TENANT}")
User.objects.create_superuser("root", "", "{PASSWORD}")
auditor = User.objects.create_user("auditor", "", "{PASSWORD}", is_staff=True)
Membership.objects.create(user=auditor, tenant=tenant, role=Role.AUDITOR)
print(json.dumps([few, many, str(tenant.pk), str(tenant.tools.get(name="echo").pk)]))
"""
COUNT_CODE = """
import json
from django.db.models import Count
from tools_app.models import Call, CallEvent
outcomes = dict(Call.objects.order_by().values_list("outcome").annotate(Count("pk")))
print(json.dumps([outcomes, CallEvent.objects.count()]))
"""


@dataclass(frozen=True)
class Records:
    """What a hub has recorded: calls by their outcomes, and events of calls."""

    outcomes: Mapping[str, int]
    events: int

    @property
    def ok(self) -> int:
        """Calls that went well."""
        return self.outcomes.get("ok", 0)


@dataclass(frozen=True)
class Hub:
    """What a process of this hub needs to know, and two keys: of a tenant with a few tools, and of one with many.

    `tenant_id` and `tool_id` are of the first tenant and of its `echo`. The people are `root`, a superuser, and
    `auditor`, who sees that tenant.
    """

    environment: Mapping[str, str]
    key: str = field(repr=False)
    many_key: str = field(repr=False)
    tenant_id: str
    tool_id: str

    def copy(self, data: Path) -> "Hub":
        """Another hub like this one, in `data`: only where its database is a file."""
        shutil.copytree(self.environment["MCPHUB_DATA_DIR"], data)
        return replace(self, environment={**self.environment, "MCPHUB_DATA_DIR": str(data)})

    def records(self) -> "Records":
        """What is recorded by now."""
        return Records(*json.loads(self.shell(COUNT_CODE)))

    def manage(self, *arguments: str) -> str:
        """Run a management command; what it printed."""
        return manage(self.environment, *arguments)

    def shell(self, code: str) -> str:
        """Run some Python as another process of the hub; what it printed."""
        return self.manage("shell", "-v0", "--no-imports", "-c", code)


def prepare(data: Path, **settings: str) -> Hub:
    """A migrated hub that keeps its data in `data`, or in the database that `settings` name."""
    data.mkdir(parents=True, exist_ok=True)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(EXCLUDED_VARIABLES)}
    defaults = {
        "MCPHUB_DATA_DIR": str(data),
        "MCPHUB_APPS": "benchmarks.tools",
        "DJANGO_SETTINGS_MODULE": "mcphub.settings",
    }
    environment = {**inherited, **defaults, **settings}
    manage(environment, "migrate", "-v0")
    return Hub(environment, *json.loads(manage(environment, "shell", "-v0", "--no-imports", "-c", SEED_CODE)))


def manage(environment: Mapping[str, str], *arguments: str) -> str:
    """Run a management command; what it printed. Raises SystemExit with what it complained of."""
    command = [sys.executable, "manage.py", *arguments]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"manage.py {arguments[0]} failed:\n{done.stderr}")
    return done.stdout.strip()
