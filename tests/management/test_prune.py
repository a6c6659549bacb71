"""The command `prune`."""

import re
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tests.audit.aged import days_ago, write_at
from tools_app.models import Call, Tenant

pytestmark = pytest.mark.django_db(transaction=True)


def prune(*arguments: str) -> list[str]:
    """Run it without pauses; return the printed lines without times."""
    out = StringIO()
    call_command("prune", "--pause", "0", *arguments, stdout=out)
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "<moment>", out.getvalue()).splitlines()


@pytest.fixture(autouse=True)
def old_calls(tenant: Tenant, other_tenant: Tenant) -> None:
    """Three expired calls of one tenant, and one of the other."""
    Tenant.objects.update(keep_days=30)
    write_at(tenant, days_ago(50), days_ago(45), days_ago(40), days_ago(1))
    write_at(other_tenant, days_ago(40))


def test_it_prunes_and_tells_how_far_it_is() -> None:
    assert prune("--batch", "2") == [
        "acme: 2 calls pruned, up to <moment>",
        "acme: 3 calls pruned, up to <moment>",
        "rival: 1 calls pruned, up to <moment>",
    ]
    assert Call.objects.count() == 1
    assert prune() == ["Nothing to prune."]


def test_one_tenant_is_pruned_alone() -> None:
    assert prune("--tenant", "rival") == ["rival: 1 calls pruned, up to <moment>"]
    assert Call.objects.count() == 4


def test_a_dry_run_counts_by_tenant_and_prunes_nothing() -> None:
    assert prune("--dry-run") == ["acme: 3 calls older than <moment>", "rival: 1 calls older than <moment>"]
    assert prune("--dry-run", "--tenant", "acme") == ["acme: 3 calls older than <moment>"]
    assert Call.objects.count() == 5


def test_a_dry_run_says_when_there_is_nothing() -> None:
    Tenant.objects.update(keep_days=0)
    assert prune("--dry-run") == ["Nothing to prune."]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tenant", "nobody"], "Unknown tenant: 'nobody'."),
        (["--batch", "0"], "--batch must be a number from 1 to 10000."),
        (["--batch", "10001"], "--batch must be a number from 1 to 10000."),
        (["--pause", "-1"], "--pause must be a number of seconds from 0 to 60."),
        (["--pause", "nan"], "--pause must be a number of seconds from 0 to 60."),
    ],
)
def test_a_mistake_is_named_and_prunes_nothing(arguments: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=re.escape(message)):
        prune(*arguments)
    assert Call.objects.count() == 5
