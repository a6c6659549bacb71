"""`manage.py issue_key`, for people and scripts."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from tools_app.access import keys
from tools_app.models import ApiKey


def issue(*arguments: str) -> str:
    out = StringIO()
    call_command("issue_key", *arguments, stdout=out)
    return out.getvalue()


def test_it_prints_only_the_key(tenant):
    printed = issue("--tenant", tenant.slug, "--name", "laptop")

    row = ApiKey.objects.get()
    assert printed.endswith("\n")
    assert row.digest == keys.digest_of(printed.strip())
    assert (row.tenant, row.name, row.expires_at) == (tenant, "laptop", None)


def test_a_key_can_expire(tenant):
    issue("--tenant", tenant.slug, "--name", "laptop", "--expires-in-days", "2")

    left = ApiKey.objects.get().expires_at - timezone.now()
    assert timedelta(days=2) - timedelta(minutes=1) < left <= timedelta(days=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tenant", "nobody", "--name", "x"], "Unknown tenant: 'nobody'."),
        (["--tenant", "acme", "--name", "x", "--expires-in-days", "0"], "from 1 to"),
        (["--tenant", "acme", "--name", "x", "--expires-in-days", "9999999"], "from 1 to"),
        (["--tenant", "acme", "--name", " "], "--name must not be empty"),
    ],
)
def test_a_mistake_is_named_and_issues_nothing(tenant, arguments, message):
    with pytest.raises(CommandError, match=message):
        issue(*arguments)

    assert not ApiKey.objects.exists()
