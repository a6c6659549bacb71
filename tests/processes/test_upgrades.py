"""A database of each earlier version is upgraded: nothing is lost, and nothing looks tampered with."""

from pathlib import Path

import pytest

from tests.archives import schema
from tests.archives.upgrading import (
    archives,
    assert_all_is_there,
    assert_sign_in_is_there,
    migrated,
    migrated_one_by_one,
    unpacked,
    used,
)


@pytest.mark.parametrize("version", archives("sqlite3"))
def test_a_hub_on_sqlite_is_upgraded_and_its_audit_log_verifies(version: str, tmp_path: Path) -> None:
    (tmp_path / "hub.sqlite3").write_bytes(unpacked(version, "sqlite3"))
    assert_all_is_there(used(version, "sqlite3", MCPHUB_DATA_DIR=str(tmp_path)))


def test_connections_on_sqlite_outlast_an_upgrade(tmp_path: Path) -> None:
    assert_sign_in_is_there(MCPHUB_DATA_DIR=str(tmp_path))


def test_there_is_an_archive_of_the_version_before_migrations_were_frozen() -> None:
    assert "0007" in archives("sqlite3")
    assert "0007" in archives("sql")


def test_a_new_database_on_sqlite_is_like_one_that_was_upgraded(tmp_path: Path) -> None:
    for name in ("new", "upgraded"):
        (tmp_path / name).mkdir()
    migrated(MCPHUB_DATA_DIR=str(tmp_path / "new"))
    migrated_one_by_one(tmp_path, MCPHUB_DATA_DIR=str(tmp_path / "upgraded"))
    new, upgraded = (schema.of_sqlite(tmp_path / name / "hub.sqlite3") for name in ("new", "upgraded"))
    assert len(new) > 500
    assert new == upgraded
