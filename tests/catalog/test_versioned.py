"""Bulk writes increase the versions of their tenants' catalogs, on both databases."""

from uuid import UUID

import pytest
from django.db import transaction

from tools_app.models import Tenant, Tool

pytestmark = pytest.mark.django_db


def create_tenant(slug: str) -> Tenant:
    return Tenant.objects.create(slug=slug, name=slug)


def version(tenant_id: UUID) -> int:
    return Tenant.objects.get(pk=tenant_id).catalog_version


def test_rows_that_are_locked_may_be_updated() -> None:
    tenant = create_tenant("acme")
    Tool.objects.create(tenant=tenant, name="echo", kind="http")
    before = version(tenant.pk)

    with transaction.atomic():
        Tool.objects.select_for_update().filter(tenant=tenant).update(title="Echo")

    assert version(tenant.pk) > before


def test_bulk_update_of_the_tenant_raises_both_versions() -> None:
    old, new = create_tenant("acme"), create_tenant("globex")
    tool = Tool.objects.create(tenant=old, name="echo", kind="http")
    before = version(old.pk), version(new.pk)

    tool.tenant = new
    Tool.objects.bulk_update([tool], ["tenant"])

    assert version(old.pk) > before[0]
    assert version(new.pk) > before[1]
