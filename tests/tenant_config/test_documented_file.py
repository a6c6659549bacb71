"""The example file in the documentation can be imported."""

import re
from pathlib import Path
from typing import Any

import pytest

from tools_app.models import Tenant
from tools_app.tenant_config.export import export

PAGE = Path(__file__).resolve().parents[2] / "docs/configuration-files.md"


@pytest.mark.django_db
def test_the_documented_file_is_applied_as_it_stands(applied: Any, tenant: Tenant) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    found = applied(text)
    assert (found.problems, found.missing_secrets, len(found.steps)) == ([], {"API_TOKEN": ["tool find_user"]}, 13)
    tenant.refresh_from_db()
    assert "Bearer {secret:API_TOKEN}" in export(tenant)
    assert applied(text).is_empty
