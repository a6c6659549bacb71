"""Rows of a catalog that cannot be compiled are left out, and the others stay available."""

import pytest

from tools_app.catalog import authoring, compiled
from tools_app.catalog.validation.sizes import json_size_fault
from tools_app.models import Tenant, Tool


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


@pytest.mark.parametrize("number", [7.92e28, 1e16, -1e16, float("inf"), float("nan")])
def test_a_number_that_a_database_would_change_is_refused(number: float) -> None:
    assert json_size_fault({"a": [{"b": number}]}) == "It contains a number that cannot be stored exactly."


@pytest.mark.parametrize("number", [9.9e15, 2**64 - 1, -(2**63), 1e-9, True, 0])
def test_other_numbers_are_stored(number: float) -> None:
    assert json_size_fault({"a": [{"b": number}]}) is None
