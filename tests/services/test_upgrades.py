"""A PostgreSQL database of each earlier version is upgraded: nothing is lost, and nothing looks tampered with."""

from pathlib import Path

import psycopg
import pytest

from tests.archives.upgrading import archives, assert_all_is_there, unpacked, used
from tests.services.conftest import new_database

pytestmark = pytest.mark.timeout(150)


@pytest.mark.parametrize("version", archives("sql"))
def test_a_hub_on_postgresql_is_upgraded_and_its_audit_log_verifies(version: str, tmp_path: Path) -> None:
    with new_database() as url:
        with psycopg.connect(url) as connection:
            connection.execute(unpacked(version, "sql"))
        assert_all_is_there(used(version, "sql", MCPHUB_DATA_DIR=str(tmp_path), DATABASE_URL=url))
