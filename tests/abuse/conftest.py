"""The hubs that are attacked: one under each server, shared by all tests."""

from collections.abc import Iterator

import pytest

from tests.abuse.hub import Hub, running
from tools_app.server.base import SERVERS


@pytest.fixture(scope="session", params=SERVERS)
def attacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub that is up before the first attack, and must be after the last one."""
    with running(request.param, tmp_path_factory.mktemp(request.param)) as hub:
        yield hub
        assert hub.process.poll() is None, "the hub has ended"
