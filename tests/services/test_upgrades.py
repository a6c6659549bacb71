"""A PostgreSQL database of each earlier version is upgraded: nothing is lost, and nothing looks tampered with."""

from pathlib import Path

import psycopg
import pytest

from tests.archives import schema
from tests.archives.upgrading import VERSIONS, assert_upgraded, run, unpacked
from tests.services.conftest import new_database


@pytest.mark.parametrize("version", VERSIONS)
def test_a_hub_is_upgraded_and_is_then_like_a_new_one(version: str, tmp_path: Path) -> None:
    home = {"MCPHUB_DATA_DIR": str(tmp_path)}
    with new_database() as url, new_database() as new:
        with psycopg.connect(url) as connection:
            connection.execute(unpacked(version, "sql"))
        assert_upgraded(version, "sql", DATABASE_URL=url, **home)
        run("manage.py", "migrate", "--verbosity=0", DATABASE_URL=new, **home)
        assert schema.of_postgresql(url) == schema.of_postgresql(new)
