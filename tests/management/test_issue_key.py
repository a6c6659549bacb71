"""The command `issue_key`."""

from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.utils import timezone

from tools_app.models import ApiKey, Membership, Role
from tools_app.tenants import keys


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
        (["--tenant", "acme", "--name", "x" * 201], "--name x+: .*at most 200 characters"),
    ],
)
def test_a_mistake_is_named_and_issues_nothing(tenant, arguments, message):
    with pytest.raises(CommandError, match=message):
        issue(*arguments)

    assert not ApiKey.objects.exists()


def test_a_key_can_act_for_a_member(tenant):
    ann, ben = User.objects.create_user("ann"), User.objects.create_user("ben", is_active=False)
    Membership.objects.create(user=ann, tenant=tenant, role=Role.OPERATOR)
    User.objects.create_user("stranger")
    issue("--tenant", tenant.slug, "--name", "laptop", "--person", "ann")
    row = ApiKey.objects.get()
    assert (row.created_by, row.acts_for_creator) == (ann, True)
    for name, message in (("stranger", "not a member"), (ben.username, "no such active"), ("x", "no such active")):
        with pytest.raises(CommandError, match=message):
            issue("--tenant", tenant.slug, "--name", "laptop", "--person", name)
