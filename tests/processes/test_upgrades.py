"""A SQLite database of each earlier version is upgraded: nothing is lost, and nothing looks tampered with."""

from pathlib import Path

import pytest

from tests.archives import schema
from tests.archives.upgrading import VERSIONS, assert_upgraded, unpacked


@pytest.mark.parametrize("version", VERSIONS)
def test_a_hub_is_upgraded_and_is_then_like_a_new_one(version: str, tmp_path: Path, migrated: Path) -> None:
    database = tmp_path / "hub.sqlite3"
    database.write_bytes(unpacked(version, "sqlite3"))
    assert_upgraded(version, "sqlite3", MCPHUB_DATA_DIR=str(tmp_path))
    assert schema.of_sqlite(database) == schema.of_sqlite(migrated)
