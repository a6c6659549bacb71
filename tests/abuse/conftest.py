"""The attacked hub, shared by the tests of a server."""

from collections.abc import Iterator

import pytest

from tests.abuse.hub import Hub, running


@pytest.fixture(scope="module")
def attacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub that has to be running after the last attack."""
    with running(request.module.SERVER, tmp_path_factory.mktemp(request.module.SERVER)) as hub:
        yield hub
        assert hub.process.poll() is None, "the hub has ended"
