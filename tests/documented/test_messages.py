"""The documentation quotes the hub's messages exactly."""

import inspect
import json
from types import ModuleType

import pytest

from tests.documented.blocks import ROOT, block
from tools_app.calls import limits, outcomes, run, stop_reasons, sweeper
from tools_app.calls.background import enqueue
from tools_app.protocol import errors, schema
from tools_app.tenant_config import document
from tools_app.tenants.limits.quotas import Rate


@pytest.mark.parametrize(
    ("page", "message", "module"),
    [
        ("limits", "none are allowed. An admin of the tenant can change the limit.", errors),
        ("protocol", "cancelled by its client: tasks/cancel", stop_reasons),
        ("protocol", "the tool did not stop", sweeper),
        ("reliability", "The broker is unavailable", enqueue),
        ("reliability", "It may have run.", outcomes),
        ("reliability", "was abandoned before it started", outcomes),
        ("reliability", "was lost", outcomes),
        ("writing-tools", "this value is too expensive to validate", schema),
        ("writing-tools", "An error occurred invoking '", run),
        ("configuration-files", "unknown field.", document),
    ],
)
def test_a_quoted_message_is_one_of_the_hub(page: str, message: str, module: ModuleType) -> None:
    source = inspect.getsource(module)
    prose = " ".join((ROOT / "docs" / f"{page}.md").read_text().split())

    assert message in prose
    assert all(sentence in source for sentence in message.replace(". ", ".\n").splitlines())


def test_the_error_of_a_limit_is_the_one_that_is_sent() -> None:
    shown = json.loads(block("docs/limits.md", '{\n  "code"').text)
    refusal = limits.rate_limit_error(limits.OverLimit(Rate("key", "calls", 60, 60, ""), 12))

    assert shown == {"code": refusal.code, "message": refusal.message, "data": refusal.data}
