"""The official SDK's client, in both eras, against the embedded hub."""

from collections.abc import Callable

import pytest

from tests.clients import scenario_v2
from tools_app.server.embedded import EmbeddedHub

pytestmark = pytest.mark.servers


@pytest.mark.shows("base.patterns", "lifecycle.supported")
@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
def test_the_sdk_client_gets_everything(
    hub: EmbeddedHub, key: str, offer: Callable[..., object], mode: str, version: str
) -> None:
    offer(*scenario_v2.TOOLS)
    seen = scenario_v2.play(f"{hub.url}/mcp", key, mode)
    assert seen.version == version
    scenario_v2.check(seen)
