"""Upgrades of PostgreSQL databases of each earlier version: no loss, and verification without findings."""

from pathlib import Path

import psycopg
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
from tests.services.conftest import new_database


@pytest.mark.parametrize("version", archives("sql"))
def test_a_hub_on_postgresql_is_upgraded_and_its_audit_log_verifies(version: str, tmp_path: Path) -> None:
    with new_database() as url:
        with psycopg.connect(url) as connection:
            connection.execute(unpacked(version, "sql"))
        assert_all_is_there(used(version, "sql", MCPHUB_DATA_DIR=str(tmp_path), DATABASE_URL=url))


def test_connections_on_postgresql_outlast_an_upgrade(tmp_path: Path) -> None:
    with new_database() as url:
        assert_sign_in_is_there(MCPHUB_DATA_DIR=str(tmp_path), DATABASE_URL=url)


def test_a_new_database_on_postgresql_is_like_one_that_was_upgraded(tmp_path: Path) -> None:
    home = {"MCPHUB_DATA_DIR": str(tmp_path)}
    with new_database() as new, new_database() as upgraded:
        migrated(DATABASE_URL=new, **home)
        migrated_one_by_one(tmp_path, DATABASE_URL=upgraded, **home)
        assert len(schema.of_postgresql(new)) > 500
        assert schema.of_postgresql(new) == schema.of_postgresql(upgraded)
