"""The hub that the tests share."""

from collections.abc import Iterator

import pytest

from tests.faults.hub import Hub, own_hub


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """The servers and processes, shared by all tests: each leaves all of them running."""
    with own_hub(tmp_path_factory.mktemp("faults")) as hub:
        yield hub


@pytest.fixture
def hub(running: Hub) -> Hub:
    """The hub at scale. Elsewhere, the fixture of this name is an embedded hub."""
    return running
