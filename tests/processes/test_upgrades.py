"""A database of each earlier version is upgraded: nothing is lost, and nothing looks tampered with."""

from pathlib import Path

import pytest

from tests.archives.upgrading import archives, assert_all_is_there, unpacked, used


@pytest.mark.parametrize("version", archives("sqlite3"))
def test_a_hub_on_sqlite_is_upgraded_and_its_audit_log_verifies(version: str, tmp_path: Path) -> None:
    (tmp_path / "hub.sqlite3").write_bytes(unpacked(version, "sqlite3"))
    assert_all_is_there(used(version, "sqlite3", MCPHUB_DATA_DIR=str(tmp_path)))


def test_there_is_an_archive_of_the_version_before_migrations_were_frozen() -> None:
    assert "0007" in archives("sqlite3")
    assert "0007" in archives("sql")
