"""The hub installed as a package: its templates, styles, migrations and documentation are included."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = ("MCPHUB_", "DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL", "DJANGO_SETTINGS_MODULE", "PYTHONPATH")
INSTALL_SECONDS, START_SECONDS = 150.0, 60.0

LOOK = """
import json
import mcphub
from django.conf import settings
from django.contrib.staticfiles import finders
from django.core.management import call_command
from django.test import Client
from tools_app.web.documentation import pages, search

call_command("migrate", verbosity=0)
page = Client(HTTP_HOST="localhost").get("/admin/login/")
print(json.dumps({
    "package": mcphub.__file__,
    "data": str(settings.MCPHUB_DATA_DIR),
    "found": sorted({hit.path for hit in search.index().search("rotate a key")}),
    "page": page.status_code,
    "documentation": len(pages.page("keys").html),
    "styles": bool(finders.find("tools_app/web/admin.css")),
}))
"""


@pytest.mark.timeout(INSTALL_SECONDS + START_SECONDS)
def test_a_package_without_a_checkout_has_everything(tmp_path: Path) -> None:
    source, target, away = tmp_path / "source", tmp_path / "target", tmp_path / "away"
    away.mkdir()
    # Built from a copy, because building leaves files in the source tree.
    files = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    for file in filter(None, files):
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        (source / file).write_bytes((ROOT / file).read_bytes())
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(source)]
    subprocess.run(install, check=True, timeout=INSTALL_SECONDS, cwd=away)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}

    done = subprocess.run(
        [sys.executable, "-m", "mcphub", "shell", "--no-imports", "-c", LOOK],
        cwd=away,
        env=environment | {"PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert Path(report["package"]).is_relative_to(target)
    assert Path(report["data"]) == away / ".mcphub"
    assert {"README.md", "docs/keys.md"} <= set(report["found"])
    assert report["documentation"] > 1_000
    assert (report["page"], report["styles"]) == (200, True)
