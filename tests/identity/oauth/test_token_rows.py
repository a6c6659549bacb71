"""Authorization codes and tokens of connections: use, lifetime and owner."""

from datetime import timedelta

import pytest
from django.utils import timezone

from tools_app.identity.oauth import service_clients, tokens
from tools_app.identity.oauth.tokens import Pair, Replayed
from tools_app.models import AccessToken, AuthorizationCode, Connection, RefreshToken, Tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def connection(tenant: Tenant) -> Connection:
    return service_clients.create(tenant, "job")[0].connection


@pytest.fixture
def other(tenant: Tenant) -> Connection:
    return service_clients.create(tenant, "other job")[0].connection


def issue_pair(connection: Connection) -> Pair:
    """Tokens from a new authorization code."""
    code = tokens.issue_code(connection, redirect_uri="http://localhost/", challenge="x", scope="mcp:call")
    row = tokens.find_code(code, connection.client_id)
    assert row is not None
    return tokens.exchange_code(row)


def refresh_row(connection: Connection, pair: Pair) -> RefreshToken:
    row = tokens.find_refresh_token(pair.refresh, connection.client_id)
    assert row is not None
    return row


def test_a_refresh_token_is_of_its_client_and_ends(connection: Connection, other: Connection) -> None:
    pair = issue_pair(connection)
    assert tokens.find_refresh_token(pair.refresh, other.client_id) is None
    row = refresh_row(connection, pair)
    RefreshToken.objects.filter(pk=row.pk).update(expires_at=timezone.now())
    assert tokens.find_refresh_token(pair.refresh, connection.client_id) is None


def test_a_code_that_nobody_used_ends_and_a_used_one_is_remembered(connection: Connection) -> None:
    code = tokens.issue_code(connection, redirect_uri="http://localhost/", challenge="x", scope="mcp:call")
    AuthorizationCode.objects.update(expires_at=timezone.now())
    assert tokens.find_code(code, connection.client_id) is None
    AuthorizationCode.objects.update(used_at=timezone.now())
    row = tokens.find_code(code, connection.client_id)
    assert row is not None
    with pytest.raises(Replayed):
        tokens.exchange_code(row)


def test_parallel_renewals_are_counted_in_one_family(
    connection: Connection, other: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MAX_PAIRS_OF_FAMILY", 2)
    pair = issue_pair(connection)
    for _ in range(3):
        issue_pair(other)
    row = refresh_row(connection, pair)
    tokens.rotate(row, "mcp:call")
    tokens.rotate(row, "mcp:call")
    with pytest.raises(Replayed):
        tokens.rotate(row, "mcp:call")
    assert not RefreshToken.objects.filter(family=row.family).exists()
    assert RefreshToken.objects.filter(connection=other).count() == 3


def test_the_oldest_live_token_of_a_service_client_ends_and_nobody_elses(
    connection: Connection, other: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MAX_LIVE", 2)
    theirs = [tokens.issue_access(other, "mcp:call").access for _ in range(2)]
    ours = [tokens.issue_access(connection, "mcp:call").access for _ in range(3)]
    alive = [tokens.family_of(token, connection.client_id) is not None for token in ours]
    assert alive == [False, True, True]
    assert all(tokens.family_of(token, other.client_id) for token in theirs)


def test_a_connection_that_ends_takes_its_codes_and_tokens_with_it_and_no_others(
    connection: Connection, other: Connection
) -> None:
    for owner in (connection, other):
        issue_pair(owner)
        tokens.issue_access(owner, "mcp:call")
    tokens.end_all(connection)
    for model, remaining in ((AuthorizationCode, 1), (AccessToken, 2), (RefreshToken, 1)):
        assert model.objects.filter(connection=connection).count() == 0
        assert model.objects.filter(connection=other).count() == remaining


def test_what_ended_before_a_time_is_pruned_and_nothing_else(connection: Connection) -> None:
    now = timezone.now()
    issue_pair(connection)
    issue_pair(connection)
    for model in (AuthorizationCode, AccessToken, RefreshToken):
        old = model.objects.order_by("pk")[:1].values_list("pk", flat=True)
        model.objects.filter(pk__in=list(old)).update(expires_at=now - timedelta(seconds=1))
    tokens.prune(now)
    for model in (AuthorizationCode, AccessToken, RefreshToken):
        assert model.objects.count() == 1
