"""Fixtures of the tests of tenant files: a tenant with a row of every kind."""

from collections.abc import Callable
from typing import Any

import pytest

from tools_app.catalog import authoring
from tools_app.models import Prompt, Resource, Tenant, Tool
from tools_app.tenant_config.document import read
from tools_app.tenant_config.plan import apply, plan
from tools_app.tenant_config.steps import Plan

SCHEMA = {"type": "object", "properties": {"term": {"type": "string"}}}


@pytest.fixture
def full(tenant: Tenant, offer: Any) -> Tenant:
    """`tenant` with tools, resources and prompts of every editable kind, and one Python tool."""
    authoring.set_secret(tenant, "TOKEN", "hush-hush")
    offer("echo")
    authoring.save_tool(
        Tool(
            tenant=tenant,
            name="find",
            kind="http",
            title="Find",
            description="Finds.\n\nEverything.\n",
            input_schema=SCHEMA,
            annotations={"readOnlyHint": True},
            timeout_seconds=5,
            calls_per_minute=10,
            config={
                "method": "GET",
                "base_url": "https://api.example.com/",
                "path": "find",
                "query": {"q": "{term}"},
                "headers": {"Authorization": "Bearer {secret:TOKEN}"},
            },
        )
    )
    for row in (
        Resource(uri="docs://guide", name="guide", kind="text", mime_type="text/markdown", text="# Guide\n\nOn: off\n"),
        Resource(uri="files://logo.png", name="logo", kind="file", mime_type="image/png", blob=b"\x89PNG\x00\xff"),
        Resource(
            uri="pages://{page}",
            name="pages",
            kind="http",
            config={"method": "GET", "base_url": "https://example.com", "path": "{page}"},
        ),
    ):
        row.tenant = tenant
        authoring.save_resource(row)
    authoring.save_prompt(
        Prompt(
            tenant=tenant,
            name="greet",
            kind="template",
            arguments=[{"name": "who", "required": True, "values": ["yes", "2020-01-01"]}],
            messages=[{"role": "user", "text": "Greet {who}"}],
        )
    )
    return tenant


@pytest.fixture
def planned(tenant: Tenant) -> Callable[..., Plan]:
    """Plan the import of a text into `tenant`, by the command line unless `by` is given."""

    def run(text: str, by: Any = None, **options: Any) -> Plan:
        return plan(Tenant.objects.get(pk=tenant.pk), read(text), by, **options)

    return run


@pytest.fixture
def applied(planned: Callable[..., Plan]) -> Callable[..., Plan]:
    """Plan the import of a text, and apply it."""

    def run(text: str, by: Any = None, **options: Any) -> Plan:
        found = planned(text, by, **options)
        apply(found, by)
        return found

    return run
