"""Principals: permissions, authentication, and the recorded name of the client."""

import asyncio
import time
from collections.abc import Hashable, Iterator, Mapping
from datetime import timedelta
from ipaddress import ip_network
from time import thread_time
from uuid import uuid4

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone
from msgspec.structs import replace

from tools_app.core.validators import MAX_ENTRIES, ItemKind, validate_names, validate_patterns
from tools_app.identity import principal
from tools_app.identity.oauth import service_clients, tokens
from tools_app.identity.oauth.scopes import Grant
from tools_app.identity.patterns import PermittedNames, matches
from tools_app.identity.principal import Credential, Principal
from tools_app.models import AccessToken, ApiKey, Connection, Tenant, TenantScope
from tools_app.tenants import keys
from tools_app.tenants.keys import access_digest

PRINCIPAL = Principal(key_id=uuid4(), tenant_id=uuid4(), tenant_slug="acme", redacted_keys=())


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("echo", ["echo"], ["echo2", "", "an echo"]),
        ("*", ["", "anything\nat all"], []),
        ("search_*", ["search_", "search_docs"], ["search", "xsearch_"]),
        ("*_docs", ["_docs", "search_docs"], ["docs", "_docs2"]),
        ("a*b*c", ["abc", "a1b2c", "abbcc"], ["ac", "acb", "ab", "abcd"]),
        ("ab*ba", ["abba", "ab-ba"], ["aba"]),
        ("a.c", ["a.c"], ["abc"]),
        ("*a*", ["a", "ab", "ba", "bab"], ["", "b"]),
        ("*aa*aa*", ["aaaa", "aa-aa"], ["aa", "aaa"]),
    ],
)
def test_a_star_stands_for_anything(pattern: str, fits: list[str], does_not: list[str]) -> None:
    assert [name for name in (*fits, *does_not) if matches(name, [pattern])] == fits


def test_no_pattern_keeps_the_process_busy() -> None:
    began = thread_time()
    assert not matches("a" * 500, ["*a" * 200 + "*b"])
    assert thread_time() - began < 10


def test_patterns_are_counted() -> None:
    validate_patterns(["a"] * MAX_ENTRIES)
    with pytest.raises(ValidationError, match="At most"):
        validate_patterns(["a"] * (MAX_ENTRIES + 1))


@pytest.mark.parametrize(
    "entry", ["tool=", "resource=two words", "prompt=" + "x" * 501, "other=a", "a?", "two words", ""]
)
def test_what_names_nothing_is_refused(entry: str) -> None:
    with pytest.raises(ValidationError, match="Entry 2"):
        validate_names(["echo", entry])


@pytest.mark.parametrize(
    ("methods", "method", "may"),
    [
        (None, "tools/call", True),
        (("tools/*",), "tools/call", True),
        (("tools/*",), "prompts/get", False),
        ((), "tools/call", False),
        ((), "ping", True),
        (("tools/*",), "initialize", True),
        ((), "server/discover", True),
        ((), "logging/setLevel", True),
        ((), "logging/setLevelXX", False),
    ],
)
def test_a_caller_asks_for_the_methods_it_may_and_always_for_what_tells_nothing(
    methods: tuple[str, ...] | None, method: str, may: bool
) -> None:
    assert replace(PRINCIPAL, methods=methods).permits_method(method) is may


@pytest.mark.parametrize(
    ("networks", "address", "may"),
    [
        ((), "203.0.113.9", True),
        ((), "nowhere", True),
        (("192.0.2.0/24",), "192.0.2.255", True),
        (("192.0.2.0/24",), "192.0.3.0", False),
        (("192.0.2.0/24",), "::ffff:192.0.2.1", True),
        (("192.0.2.0/24",), "", False),
        (("192.0.2.0/24",), "stdio", False),
        (("2001:db8::/32", "10.0.0.0/8"), "2001:db8::1", True),
        (("2001:db8::/32", "10.0.0.0/8"), "10.1.1.1", True),
        (("2001:db8::/32",), "2001:db9::1", False),
    ],
)
def test_a_caller_may_be_where_its_networks_are_and_anywhere_without_any(
    networks: tuple[str, ...], address: str, may: bool
) -> None:
    assert replace(PRINCIPAL, networks=tuple(map(ip_network, networks))).permits_address(address) is may


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"names": PermittedNames(["a"])}, False),
        ({"methods": ("ping",)}, False),
        ({"grants": ()}, False),
        ({"toolset": uuid4()}, False),
        ({"presentation": "search"}, False),
        ({"person": "ada"}, True),
        ({"networks": (ip_network("192.0.2.0/24"),)}, True),
    ],
)
def test_callers_have_the_same_access_where_what_they_may_use_and_see_agrees(
    change: dict[str, object], same: bool
) -> None:
    assert PRINCIPAL.has_same_access_as(replace(PRINCIPAL, **change)) is same


READS = Grant(None, ("tools/list", "resources/*"))
REPORTS = Grant(PermittedNames(["report_*"]), ("tools/call",))
EVERYTHING = Grant(None, None)


@pytest.mark.parametrize(
    ("grants", "method", "name", "lacks"),
    [
        (None, "tools/call", "echo", False),
        ((), "tools/call", "echo", True),
        ((), "ping", "", False),
        ((READS,), "tools/list", "", False),
        ((READS,), "resources/read", "docs://a", False),
        ((READS,), "tools/call", "", True),
        ((REPORTS,), "tools/call", "", False),
        ((REPORTS,), "tools/call", "report_a", False),
        ((REPORTS,), "tools/call", "echo", True),
        # One scope for the method and another for the name do not combine.
        ((READS, REPORTS), "tools/call", "echo", True),
        ((READS, REPORTS), "resources/read", "docs://a", False),
        ((EVERYTHING,), "tools/call", "echo", False),
    ],
)
def test_a_token_does_what_one_of_its_scopes_permits(
    grants: tuple[Grant, ...] | None, method: str, name: str, lacks: bool
) -> None:
    caller = replace(PRINCIPAL, grants=grants)
    item: tuple[ItemKind, str] | None = ("resource" if ":" in name else "tool", name) if name else None
    assert caller.lacks_scope(method, item) is lacks
    if not name:
        assert caller.permits_method(method) is not lacks
        assert not replace(caller, methods=("prompts/*",)).permits_method("tools/list")


def test_a_key_is_limited_as_itself_and_a_stranger_as_its_address_at_the_tenant() -> None:
    stranger = replace(PRINCIPAL, key_id=None, address="203.0.113.9")
    assert PRINCIPAL.limit_key == str(PRINCIPAL.key_id)
    assert stranger.limit_key == f"{PRINCIPAL.tenant_id}:203.0.113.9"


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:0:1:2::3", "2001:db8:0:1::/64"),
        ("stdio", "stdio"),
    ],
)
def test_an_address_is_counted_by_what_one_host_controls(address: str, counted: str) -> None:
    assert principal.rate_limit_key(address) == counted


def test_only_a_person_is_recorded_as_the_playgrounds() -> None:
    assert PRINCIPAL.recorded_name("laptop") == "laptop"
    assert PRINCIPAL.recorded_name(" Playground (root)").startswith("client: ")
    assert replace(PRINCIPAL, person="ada").recorded_name("laptop") == "playground (ada)"


# --- From the database ------------------------------------------------------------------------------------------------


@pytest.fixture
def runner(transactional_db: None) -> Iterator[asyncio.Runner]:
    """An event loop in a process with empty caches."""
    principal.cache.forget_all()
    principal.public_cache.forget_all()
    with asyncio.Runner() as runner:
        yield runner
    principal.cache.forget_all()
    principal.public_cache.forget_all()


def test_a_key_is_its_tenants_with_all_that_narrows_it(runner: asyncio.Runner, tenant: Tenant) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(redacted_keys=["ssn"], most_sessions=3)
    scopes = {"tool_patterns": ["search_*"], "methods": ["tools/*"], "networks": ["192.0.2.0/24", "2001:db8::/32"]}
    row, key = keys.issue(tenant, "narrow", **scopes)
    plain_row, plain_key = keys.issue(tenant, "plain")
    found = runner.run(principal.authenticate(Credential(key)))
    assert found
    assert (found.key_id, found.tenant_id, found.tenant_slug) == (row.pk, tenant.pk, "acme")
    assert (found.redacted_keys, found.allowed.most_sessions) == (("ssn",), 3)
    assert (found.names, found.methods) == (PermittedNames(["search_*"]), ("tools/*",))
    assert found.networks == (ip_network("192.0.2.0/24"), ip_network("2001:db8::/32"))
    plain = runner.run(principal.authenticate(Credential(plain_key)))
    assert plain
    assert (plain.key_id, plain.names, plain.methods, plain.networks) == (plain_row.pk, None, None, ())
    assert (plain.person, plain.address) == ("", "")


def test_a_network_that_is_none_lets_nobody_in_and_spoils_no_other_key(runner: asyncio.Runner, tenant: Tenant) -> None:
    row, key = keys.issue(tenant, "spoilt")
    other = keys.issue(tenant, "other")[1]
    ApiKey.objects.filter(pk=row.pk).update(networks=["nonsense"])

    async def both() -> list[Principal | None]:
        return await asyncio.gather(*(principal.authenticate(Credential(carried)) for carried in (key, other)))

    spoilt, good = runner.run(both())
    assert spoilt
    assert good
    assert not any(spoilt.permits_address(address) for address in ("192.0.2.1", "127.0.0.1", "::1", "stdio", ""))
    assert good.permits_address("192.0.2.1")


def test_a_key_opens_until_the_moment_at_which_it_expires(
    runner: asyncio.Runner, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    expires = timezone.now() + timedelta(hours=1)
    key = keys.issue(tenant, "short", expires_at=expires)[1]
    monkeypatch.setattr(principal.time, "time", (expires - timedelta(milliseconds=1)).timestamp)
    assert runner.run(principal.authenticate(Credential(key)))
    monkeypatch.setattr(principal.time, "time", expires.timestamp)
    assert runner.run(principal.authenticate(Credential(key))) is None


def test_a_text_that_is_shorter_than_any_key_is_not_looked_for(runner: asyncio.Runner, tenant: Tenant) -> None:
    short = "k" * (keys.MIN_KEY - 1)
    assert runner.run(principal.authenticate(Credential(short))) is None
    assert not principal.cache.is_absent(keys.digest_of(short))
    unknown = "k" * keys.MIN_KEY
    assert runner.run(principal.authenticate(Credential(unknown))) is None
    assert principal.cache.is_absent(keys.digest_of(unknown))


def test_a_process_knows_the_doors_that_it_saw_open(runner: asyncio.Runner, tenant: Tenant) -> None:
    key, unused = keys.issue(tenant, "one")[1], keys.issue(tenant, "unused")[1]
    Tenant.objects.create(slug="closed", name="Closed")
    Tenant.objects.filter(pk=tenant.pk).update(is_public=True)
    assert not principal.is_known(Credential(key), None)
    assert not principal.is_known(None, "acme")
    assert runner.run(principal.authenticate(Credential(key)))
    for slug, is_open in (("acme", True), ("closed", False), ("nobody", False)):
        assert (runner.run(principal.anonymous_principal(slug, "203.0.113.9")) is not None) is is_open
        assert principal.is_known(None, slug) is is_open
    assert principal.is_known(Credential(key), None)
    assert not principal.is_known(None, None)
    # An invalid key gets no priority over strangers, not even at a public tenant's endpoint.
    assert not principal.is_known(Credential(unused), "acme")


def test_whoever_runs_the_hubs_commands_gets_all_that_an_active_tenant_has(
    runner: asyncio.Runner, tenant: Tenant
) -> None:
    other = Tenant.objects.create(slug="off", name="Off", is_active=False)
    Tenant.objects.filter(pk=tenant.pk).update(public_tools=["echo"], redacted_keys=["ssn"])
    found = runner.run(principal.operator_principal("acme"))
    assert found
    assert (found.key_id, found.tenant_id, found.tenant_slug) == (None, tenant.pk, "acme")
    assert (found.names, found.methods, found.networks, found.redacted_keys) == (None, None, (), ("ssn",))
    assert runner.run(principal.operator_principal(other.slug)) is None
    assert runner.run(principal.operator_principal("nobody")) is None


@pytest.mark.parametrize("change", [{"is_public": False}, {"is_active": False}])
def test_anybody_is_somebody_only_at_a_public_tenant_that_is_on(
    runner: asyncio.Runner, tenant: Tenant, change: dict[str, bool]
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(is_public=True, public_tools=["echo"], public_calls_per_minute=5)
    found = runner.run(principal.anonymous_principal("acme", "203.0.113.9"))
    assert found
    assert (found.key_id, found.tenant_id, found.address) == (None, tenant.pk, "203.0.113.9")
    assert found.names == PermittedNames(["echo"])
    limited = found.allowed.calls[0]
    assert (limited.scope, limited.most, limited.seconds) == ("address", 5, 60)
    assert str(tenant.pk) in limited.key
    assert "203.0.113.9" in limited.key
    Tenant.objects.filter(pk=tenant.pk).update(**change)
    principal.public_cache.forget_all()
    assert runner.run(principal.anonymous_principal("acme", "203.0.113.9")) is None


@pytest.mark.parametrize(
    ("of_key", "of_tenant"),
    [
        ({"tool_patterns": ["echo"]}, {}),
        ({"methods": ["tools/*"]}, {}),
        ({"networks": ["192.0.2.0/24"]}, {}),
        ({}, {"allow_query_key": True}),
    ],
)
def test_the_standing_of_a_key_changes_with_what_its_streams_depend_on(
    runner: asyncio.Runner, tenant: Tenant, of_key: dict[str, object], of_tenant: dict[str, object]
) -> None:
    changed, other = (keys.issue(tenant, name)[0] for name in ("changed", "other"))
    digests = [changed.digest, other.digest]
    before = runner.run(principal.key_states(digests))
    assert runner.run(principal.key_states(digests)) == before
    assert before.keys() == set(digests)
    for field, value in of_key.items():
        setattr(changed, field, value)
    changed.save()
    for field, value in of_tenant.items():
        setattr(tenant, field, value)
    tenant.save()
    after = runner.run(principal.key_states(digests))
    assert after[changed.digest] != before[changed.digest]
    assert (after[other.digest] == before[other.digest]) is not bool(of_tenant)


def test_a_key_that_is_not_valid_has_no_standing(
    runner: asyncio.Runner, tenant: Tenant, other_tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(principal, "MAX_LOAD", 2)
    valid, revoked, expired, expires = (keys.issue(tenant, name)[0] for name in "abcd")
    inactive = keys.issue(other_tenant, "inactive")[0]
    keys.revoke(revoked)
    now = timezone.now()
    ApiKey.objects.filter(pk=expired.pk).update(expires_at=now)
    ApiKey.objects.filter(pk=expires.pk).update(expires_at=now + timedelta(hours=1))
    Tenant.objects.filter(pk=other_tenant.pk).update(is_active=False)
    digests = [key.digest for key in (valid, revoked, expired, expires, inactive)]
    assert runner.run(principal.key_states([*digests, "unknown"])).keys() == {valid.digest, expires.digest}
    assert runner.run(principal.key_states([])) == {}


def test_a_key_in_a_url_opens_where_its_tenant_allows_that(runner: asyncio.Runner, tenant: Tenant) -> None:
    credential = Credential(keys.issue(tenant, "laptop")[1], from_query=True)
    assert runner.run(principal.authenticate(credential)) is None
    Tenant.objects.update(allow_query_key=True)
    principal.cache.forget_all()
    assert runner.run(principal.authenticate(credential))


def test_a_key_that_was_made_a_moment_ago_opens_though_it_was_unknown_before(
    runner: asyncio.Runner, tenant: Tenant
) -> None:
    row, key = keys.issue(tenant, "laptop")
    ApiKey.objects.filter(pk=row.pk).update(digest="0" * 64)
    assert runner.run(principal.authenticate(Credential(key))) is None
    ApiKey.objects.filter(pk=row.pk).update(digest=row.digest)
    assert runner.run(principal.authenticate_uncached(Credential(key)))


def test_it_is_known_whose_a_key_was_that_has_ended(runner: asyncio.Runner, tenant: Tenant) -> None:
    rows = [keys.issue(tenant, name) for name in ("valid", "revoked", "expired")]
    keys.revoke(rows[1][0])
    ApiKey.objects.filter(pk=rows[2][0].pk).update(expires_at=timezone.now())
    credentials = [Credential(key) for key in (*(key for _, key in rows), "mcphub_" + "x" * 50)]
    assert [principal.ended_key(one) for one in credentials] == [None] * 4
    for one in credentials:
        runner.run(principal.authenticate(one))
    ended = [principal.ended_key(one) for one in credentials]
    assert [one and (one.principal.key_id, one.cause) for one in ended] == [
        None,
        (rows[1][0].pk, principal.REVOKED),
        (rows[2][0].pk, principal.EXPIRED),
        None,
    ]


# --- Access tokens ----------------------------------------------------------------------------------------------------


@pytest.fixture
def connection(tenant: Tenant) -> Connection:
    TenantScope.objects.create(tenant=tenant, name="reports", tool_patterns=["report_*"], methods=["tools/call"])
    return service_clients.create(tenant, "job")[0].connection


def test_a_token_may_what_its_scopes_permit_in_a_header_alone(runner: asyncio.Runner, connection: Connection) -> None:
    found = {
        scope: runner.run(principal.authenticate(Credential(tokens.issue_access(connection, scope).access)))
        for scope in ("mcp:call", "mcp:call reports", "reports", "gone")
    }
    grants = (Grant(PermittedNames(["report_*"]), ("tools/call", "tools/list")),)
    assert {scope: one and (one.scopes, one.grants) for scope, one in found.items()} == {
        "mcp:call": (("mcp:call",), None),
        "mcp:call reports": (("mcp:call", "reports"), None),
        "reports": (("reports",), grants),
        "gone": (("gone",), ()),
    }
    assert {one.key_id for one in found.values() if one} == {connection.key_id}
    Tenant.objects.update(allow_query_key=True)
    principal.cache.forget_all()
    access = tokens.issue_access(connection, "reports").access
    assert runner.run(principal.authenticate(Credential(access)))
    assert runner.run(principal.authenticate(Credential(access, from_query=True))) is None


def test_a_token_ends_with_its_own_time_or_that_of_its_key(
    runner: asyncio.Runner, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    credential = Credential(tokens.issue_access(connection, "reports").access)

    def is_accepted(at: float) -> bool:
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: at)
            return runner.run(principal.authenticate(credential)) is not None

    ends = AccessToken.objects.get().expires_at.timestamp()
    assert [is_accepted(ends - 0.001), is_accepted(ends)] == [True, False]
    earlier = timezone.now() + timedelta(seconds=60)
    ApiKey.objects.filter(pk=connection.key_id).update(expires_at=earlier)
    principal.cache.forget_all()
    assert [is_accepted(earlier.timestamp() - 0.001), is_accepted(earlier.timestamp())] == [True, False]


def test_the_standing_of_a_token_changes_with_its_connection_and_the_scopes_that_it_has(
    runner: asyncio.Runner, tenant: Tenant, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(principal, "MAX_LOAD", 2)
    held = {scope: access_digest(tokens.issue_access(connection, scope).access) for scope in ("mcp:call", "reports")}
    more = access_digest(tokens.issue_access(connection, "mcp:read").access)
    key = keys.issue(tenant, "laptop")[0]
    digests = [*held.values(), more, key.digest, "mcphub_unknown"]

    def states() -> Mapping[str, Hashable]:
        return runner.run(principal.key_states(digests))

    before = states()
    assert states() == before
    assert before.keys() == set(digests[:-1])
    TenantScope.objects.update(tool_patterns=["report_b*"])
    renamed = states()
    assert {digest for digest in before if renamed[digest] != before[digest]} == {held["reports"]}
    ApiKey.objects.filter(pk=connection.key_id).update(tool_patterns=["echo"])
    assert {digest for digest in before if states()[digest] != renamed[digest]} == {*held.values(), more}
    keys.revoke(connection.key)
    assert states().keys() == {key.digest}
