"""Upstreams in a tenant's file: their settings, without their items and the operator's approvals."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tools_app.catalog import authoring
from tools_app.models import Tenant, Tool, Upstream, UpstreamItem
from tools_app.tenant_config.document import read
from tools_app.tenant_config.export import export
from tools_app.tenant_config.plan import Plan, StepAction, apply, plan

LISTED = {"name": "lend", "inputSchema": {"type": "object"}}
COMMAND = ["some-server", "--all"]


@pytest.fixture
def books(tenant: Tenant) -> Upstream:
    """An upstream with one accepted tool."""
    authoring.set_secret(tenant, "BOOKS", "hush-hush")
    upstream = Upstream.objects.create(
        tenant=tenant,
        name="books",
        prefix="books",
        url="https://books.example.com/mcp",
        headers={"Authorization": "Bearer {secret:BOOKS}"},
        approved={"url": "x", "networks": ["10.0.0.1/32"]},
    )
    tool = Tool(
        tenant=tenant,
        name="books_lend",
        kind="upstream",
        input_schema={"type": "object"},
        config={"upstream": "books", "tool": "lend"},
    )
    UpstreamItem.objects.create(
        tenant=tenant,
        upstream=upstream,
        kind="tool",
        name="lend",
        state="accepted",
        accepted=LISTED,
        tool=authoring.save_tool(tool),
    )
    return upstream


def test_a_file_has_the_settings_and_nothing_that_was_accepted_or_approved(tenant: Tenant, books: Upstream) -> None:
    text = export(tenant)

    assert yaml.safe_load(text)["upstreams"] == {
        "books": {
            "prefix": "books",
            "url": "https://books.example.com/mcp",
            "headers": {"Authorization": "Bearer {secret:BOOKS}"},
        }
    }
    assert not [word for word in ("hush-hush", "10.0.0.1", "lend") if word in text]


def test_what_a_tenant_exports_changes_nothing_in_it(tenant: Tenant, books: Upstream, planned: Any) -> None:
    found = planned(export(tenant), prune=True)

    assert (found.steps, found.problems, found.unchanged) == ([], [], 1)


def test_another_tenant_gets_the_upstream_without_what_it_offers(
    tenant: Tenant, books: Upstream, other_tenant: Tenant
) -> None:
    found = plan(other_tenant, read(export(tenant)), None)
    assert (found.problems, found.missing_secrets, found.count(StepAction.CREATE)) == (
        [],
        {"BOOKS": ["upstream books"]},
        1,
    )
    apply(found)

    other_tenant.refresh_from_db()
    upstream = other_tenant.upstreams.get()
    assert (upstream.url, upstream.headers, upstream.approved, upstream.items.count()) == (
        books.url,
        books.headers,
        {},
        0,
    )
    assert plan(other_tenant, read(export(tenant)), None).is_empty


def test_a_change_keeps_what_was_approved_and_accepted(
    tenant: Tenant, books: Upstream, applied: Callable[..., Plan]
) -> None:
    applied("mcphub: 1\nupstreams: {books: {prefix: books, url: 'https://books.example.com/mcp', enabled: false}}\n")

    books.refresh_from_db()
    assert (books.enabled, books.headers, books.approved["networks"]) == (False, {}, ["10.0.0.1/32"])
    assert books.items.get().tool is not None


def test_pruning_deletes_an_upstream_with_what_was_accepted_of_it(
    tenant: Tenant, books: Upstream, applied: Callable[..., Plan]
) -> None:
    applied("mcphub: 1\nupstreams: {}\n", prune=True)

    assert not Upstream.objects.exists()
    assert not Tool.objects.exists()


@pytest.mark.parametrize(
    ("body", "place", "problem"),
    [
        ("{url: 'ftp://x'}", "upstreams.a.url", "Invalid URL"),
        ("{transport: moon, url: 'https://x.example.com'}", "upstreams.a.transport", "not a valid choice"),
        (f"{{transport: stdio, command: {COMMAND}}}", "upstreams.a.command", "does not allow this command"),
        ("{url: 'https://x.example.com', headers: {Host: x}}", "upstreams.a.headers", "set by the hub"),
        ("{url: 'https://x.example.com', headers: {A: '{term}'}}", "upstreams.a.headers", "only {secret:NAME}"),
        ("{url: 'https://x.example.com', timeout_seconds: 0}", "upstreams.a.timeout_seconds", "greater than or equal"),
    ],
)
def test_what_cannot_be_used_is_refused_at_its_place(
    tenant: Tenant, planned: Any, body: str, place: str, problem: str
) -> None:
    problems = [str(one) for one in planned(f"mcphub: 1\nupstreams: {{a: {body}}}\n").problems]

    assert any(place in one and problem in one for one in problems), problems


def test_a_file_approves_nothing(planned: Any) -> None:
    (problem,) = planned("mcphub: 1\nupstreams: {a: {url: 'https://x.example.com', approved: {}}}\n").problems

    assert str(problem) == "upstreams.a.approved: Unknown field."


def test_a_file_cannot_replace_an_approved_command_by_another(tenant: Tenant, planned: Any) -> None:
    Upstream.objects.create(tenant=tenant, name="a", transport="stdio", command=COMMAND, approved={"command": COMMAND})

    assert planned(f"mcphub: 1\nupstreams: {{a: {{transport: stdio, command: {COMMAND}}}}}\n").problems == []
    assert planned("mcphub: 1\nupstreams: {a: {transport: stdio, command: [sh]}}\n").problems != []
