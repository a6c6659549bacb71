"""The attacked hubs: one for each server, shared by all tests."""

from collections.abc import Iterator

import pytest

from tests.abuse.hub import Hub, running
from tools_app.server.base import SERVERS


@pytest.fixture(scope="session", params=SERVERS)
def attacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub that has to be running after the last attack."""
    with running(request.param, tmp_path_factory.mktemp(request.param)) as hub:
        yield hub
        assert hub.process.poll() is None, "the hub has ended"
