"""Toolsets, aliases and the listing of tools in a tenant's file."""

from typing import Any

import pytest

from tools_app.models import Tenant, Tool, Toolset
from tools_app.tenant_config.export import described
from tools_app.tenant_config.plan import StepAction
from tools_app.tenants import keys

pytestmark = pytest.mark.django_db

FILE = """
mcphub: 1
tenant: {name: Acme, presentation: auto, search_above_tokens: 500}
tools:
  echo: {function: echo, aliases: [repeat], pinned: true}
toolsets:
  Reading: {description: Look up, tools: [echo, "search_*"]}
"""


def test_a_file_sets_toolsets_aliases_and_how_tools_are_listed(applied: Any, planned: Any, tenant: Tenant) -> None:
    found = applied(FILE)
    assert found.problems == []
    assert ("toolset", "Reading") in {(step.kind, step.name) for step in found.steps}
    row, echo = Toolset.objects.get(), Tool.objects.get()
    assert (row.tools, row.description) == (["echo", "search_*"], "Look up")
    assert (echo.aliases, echo.pinned) == (["repeat"], True)
    tenant.refresh_from_db()
    assert (tenant.presentation, tenant.search_above_tokens) == ("auto", 500)
    assert planned(FILE).is_empty
    assert described(tenant)["toolsets"] == {"Reading": {"description": "Look up", "tools": ["echo", "search_*"]}}


def test_a_file_shapes_results(applied: Any, planned: Any, tenant: Tenant) -> None:
    text = "mcphub: 1\ntools: {echo: {function: echo, result_mask: 'a.b', result_items: 3, result_bytes: 500}}\n"
    assert applied(text).problems == []
    echo = Tool.objects.get()
    assert (echo.result_mask, echo.result_items, echo.result_bytes) == ("a.b", 3, 500)
    assert planned(text).is_empty
    exported = described(tenant)["tools"]["echo"]
    assert (exported["result_mask"], exported["result_items"], exported["result_bytes"]) == ("a.b", 3, 500)
    applied("mcphub: 1\ntools: {echo: {function: echo, result_bytes: null}}\n")
    echo.refresh_from_db()
    assert (echo.result_bytes, echo.revision) == (None, 2)


def test_a_toolset_is_pruned_unless_a_key_uses_it(applied: Any, planned: Any, tenant: Tenant) -> None:
    applied(FILE)
    key, _ = keys.issue(tenant, "small", toolset=Toolset.objects.get())
    text = "mcphub: 1\ntoolsets: {}\n"
    (problem,) = planned(text, prune=True).problems
    assert "Reading is used by API key small" in problem.message
    key.toolset = None
    key.save()
    (step,) = applied(text, prune=True).steps
    assert (step.doing, step.name) == (StepAction.DELETE, "Reading")
    assert not Toolset.objects.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("toolsets: {A: {tools: []}}", "at least one name"),
        ("toolsets: {A: {}}", "at least one name"),
        ("toolsets: {A: {tools: [two words]}}", "use only characters of a name"),
        ("tenant: {presentation: never}", "not a valid choice"),
        ("tools: {find_tools: {request: {method: GET, base_url: 'https://a.example', path: x}}}", "tool of the hub"),
        ("tools: {echo: {function: echo, aliases: ['']}}", "enter one line"),
        ("tools: {echo: {function: echo, result_mask: 'a['}}", "no JMESPath expression"),
        ("tools: {echo: {function: echo, result_bytes: 99}}", "greater than or equal to 100"),
    ],
)
def test_what_is_invalid_is_refused_with_its_place(planned: Any, tenant: Tenant, text: str, message: str) -> None:
    Tenant.objects.update(presentation="search")
    tenant.refresh_from_db()
    assert any(message in problem.message for problem in planned(f"mcphub: 1\n{text}\n").problems)
