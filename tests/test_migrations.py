"""Landed migrations are not changed, because existing databases have run them."""

import re
from hashlib import sha256
from pathlib import Path

import pytest
from django.conf import settings

# The SHA-256 of each file. A new migration adds its line.
LANDED = {
    "0001_initial.py": "6d6e96b2b28734d691cdf4b3f4501b0d351dd00bdaf796ed081386b5c334763c",
    "0002_texts_of_tenants.py": "30b85e4fef8cfe809b242413bebbf04c6d7190eda486d2b36d5d059661e1d4f3",
}
MIGRATIONS = Path(settings.BASE_DIR) / "tools_app" / "migrations"
# From where a migration imports what is the hub's own, which may move.
MODULES = re.compile(r"^(?:import|from) tools_app\..*\n|\btools_app(?:\.\w+)+\.(?=\w)", re.MULTILINE)


def digest_of(name: str) -> str:
    return sha256(MODULES.sub("", (MIGRATIONS / name).read_text()).encode()).hexdigest()


@pytest.mark.parametrize("name", LANDED)
def test_a_landed_migration_is_never_edited(name: str) -> None:
    assert digest_of(name) == LANDED[name], (
        f"{name} was edited after it had landed. Databases that ran it as it was will not run it again, so they would "
        "differ from new ones: undo the edit, and write a new migration for what is to change."
    )


def test_each_migration_is_frozen_when_it_lands() -> None:
    missing = {path.name for path in MIGRATIONS.glob("[0-9]*.py")} - set(LANDED)
    digests = [f'"{name}": "{digest_of(name)}",' for name in sorted(missing)]
    assert not missing, f"Add to LANDED, so that it is frozen from then on: {' '.join(digests)}"
