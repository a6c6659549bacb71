"""Rows of a catalog that cannot be compiled are left out, and the others stay available."""

import pytest

from tools_app.catalog import authoring, compiled, skills, versioned
from tools_app.catalog.validation.sizes import MAX_JSON_BYTES, json_size_fault
from tools_app.models import ItemKind, Prompt, Resource, Secret, Tenant, Tool, Upstream
from tools_app.upstreams import observation


def test_one_tenant_cannot_take_the_catalogs_of_others(tenant: Tenant, caplog: pytest.LogCaptureFixture) -> None:
    other = Tenant.objects.create(slug="other", name="Other")
    config = {"method": "GET", "base_url": "https://example.com", "path": "/"}
    for owner in (tenant, other):
        authoring.save_tool(Tool(tenant=owner, name="one", kind="http", config=config, input_schema={"type": "object"}))
    # 7.92e28 as PostgreSQL returns it.
    Tool.objects.filter(tenant=tenant).update(input_schema={"type": "object", "maxProperties": 792 * 10**26})
    compiled.forget_all()
    found = compiled.load([tenant.pk, other.pk])
    assert tenant.pk not in found
    assert set(found[other.pk].tools) == {"one"}
    assert f"The catalog of tenant {tenant.slug} cannot be compiled" in caplog.text


def test_a_catalog_that_cannot_be_compiled_is_logged_once_for_each_version(
    tenant: Tenant, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"method": "GET", "base_url": "https://example.com", "path": "/"}
    authoring.save_tool(Tool(tenant=tenant, name="one", kind="http", config=config, input_schema={"type": "object"}))
    for maximum, tracebacks in ((792 * 10**26, 1), (793 * 10**26, 2), (5, 2)):
        Tool.objects.filter(tenant=tenant).update(input_schema={"type": "object", "maxProperties": maximum})
        found = [compiled.load([tenant.pk]) for _ in range(3)]
        assert [tenant.pk in one for one in found] == [maximum == 5] * 3
        assert caplog.text.count("Traceback") == tracebacks


def test_what_cannot_be_used_is_one_log_line_of_each_kind_however_much_it_is(
    tenant: Tenant, caplog: pytest.LogCaptureFixture
) -> None:
    with versioned.touch_once():
        for number in range(20):
            name = f"n{number:02}"
            Tool.objects.create(tenant=tenant, name=name, kind="python", config={"function": "gone"})
            Prompt.objects.create(tenant=tenant, name=name, kind="python", config={"function": "gone"})
            Secret.objects.create(tenant=tenant, name=name.upper(), ciphertext=b"of another key")
            uri = f"skill://{name}/SKILL.md"
            Resource.objects.create(tenant=tenant, uri=uri, name=name, kind="text", text="no frontmatter")
    listed = {f"{number}": {"description": "x" * MAX_JSON_BYTES} for number in range(20)}
    upstream = Upstream.objects.create(tenant=tenant, name="other", url="https://example.com/mcp")
    tenant.refresh_from_db()

    skills.skills_of(compiled.of_tenant(tenant))
    observation.store_listing(upstream.pk, ItemKind.TOOL, listed)

    lines = [record.getMessage() for record in caplog.records if record.name.startswith("tools_app")]
    assert [line.partition(":")[0] for line in lines] == [
        "20 secrets of tenant acme were encrypted with another key",
        "40 rows of tenant acme are not offered",
        f"20 skills of tenant {tenant.pk} are invalid",
        "20 of an upstream's tools are not offered",
    ]
    assert all(line.endswith(f"; and {count} more") for line, count in zip(lines, (17, 37, 17, 17), strict=True))


@pytest.mark.parametrize("number", [7.92e28, 1e16, -1e16, float("inf"), float("nan")])
def test_a_number_that_a_database_would_change_is_refused(number: float) -> None:
    assert json_size_fault({"a": [{"b": number}]}) == "It contains a number that cannot be stored exactly."


@pytest.mark.parametrize("number", [9.9e15, 2**64 - 1, -(2**63), 1e-9, True, 0])
def test_other_numbers_are_stored(number: float) -> None:
    assert json_size_fault({"a": [{"b": number}]}) is None
