"""What a principal may use, and under which name its client is recorded."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from ipaddress import ip_network
from time import process_time
from uuid import uuid4

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone
from msgspec.structs import replace

from tools_app.access import keys, principal
from tools_app.access.principal import Credential, Principal, matches
from tools_app.models import ApiKey, Tenant
from tools_app.models.validators import MAX_ENTRIES, validate_patterns

WHOEVER = Principal(key_id=uuid4(), tenant_id=uuid4(), tenant_slug="acme", redacted_keys=())


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
    began = process_time()
    assert not matches("a" * 500, ["*a" * 200 + "*b"])
    assert process_time() - began < 1.0


def test_patterns_are_counted() -> None:
    validate_patterns(["a"] * MAX_ENTRIES)
    with pytest.raises(ValidationError, match="At most"):
        validate_patterns(["a"] * (MAX_ENTRIES + 1))


@pytest.mark.parametrize(
    ("patterns", "may"),
    [(None, True), ((), False), (("echo",), True), (("search_*", "ec*"), True), (("search",), False)],
)
def test_a_caller_gets_what_its_patterns_name_and_everything_without_any(
    patterns: tuple[str, ...] | None, may: bool
) -> None:
    assert replace(WHOEVER, patterns=patterns).may_use("echo") is may


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
    assert replace(WHOEVER, methods=methods).may_ask(method) is may


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
    assert replace(WHOEVER, networks=tuple(map(ip_network, networks))).may_call_from(address) is may


@pytest.mark.parametrize(
    ("change", "same"),
    [({}, True), ({"patterns": ("a",)}, False), ({"methods": ("ping",)}, False), ({"person": "ada"}, True)],
)
def test_callers_have_the_same_scopes_where_patterns_and_methods_agree(change: dict[str, object], same: bool) -> None:
    assert WHOEVER.has_scopes_of(replace(WHOEVER, **change)) is same


def test_a_key_is_limited_as_itself_and_a_stranger_as_its_address_at_the_tenant() -> None:
    stranger = replace(WHOEVER, key_id=None, address="203.0.113.9")
    assert WHOEVER.limited_as == str(WHOEVER.key_id)
    assert stranger.limited_as == f"{WHOEVER.tenant_id}:203.0.113.9"


def test_only_a_person_is_recorded_as_the_playgrounds() -> None:
    assert WHOEVER.named("laptop") == "laptop"
    assert WHOEVER.named(" Playground (root)").startswith("client: ")


# --- From the database ------------------------------------------------------------------------------------------------


@pytest.fixture
def ask(transactional_db: None) -> Iterator[asyncio.Runner]:
    """An event loop of a process that remembers nothing."""
    principal.cache.forget_all()
    principal.public_cache.forget_all()
    with asyncio.Runner() as runner:
        yield runner
    principal.cache.forget_all()
    principal.public_cache.forget_all()


def test_a_key_is_its_tenants_with_all_that_narrows_it(ask: asyncio.Runner, tenant: Tenant) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(redacted_keys=["ssn"], most_sessions=3)
    scopes = {"tool_patterns": ["search_*"], "methods": ["tools/*"], "networks": ["192.0.2.0/24", "2001:db8::/32"]}
    row, key = keys.issue(tenant, "narrow", **scopes)
    plain_row, plain_key = keys.issue(tenant, "plain")
    found = ask.run(principal.authenticate(Credential(key)))
    assert found
    assert (found.key_id, found.tenant_id, found.tenant_slug) == (row.pk, tenant.pk, "acme")
    assert (found.redacted_keys, found.allowed.most_sessions) == (("ssn",), 3)
    assert (found.patterns, found.methods) == (("search_*",), ("tools/*",))
    assert found.networks == (ip_network("192.0.2.0/24"), ip_network("2001:db8::/32"))
    plain = ask.run(principal.authenticate(Credential(plain_key)))
    assert plain
    assert (plain.key_id, plain.patterns, plain.methods, plain.networks) == (plain_row.pk, None, None, ())
    assert (plain.person, plain.address) == ("", "")


def test_a_network_that_is_none_lets_nobody_in_and_spoils_no_other_key(ask: asyncio.Runner, tenant: Tenant) -> None:
    row, key = keys.issue(tenant, "spoilt")
    other = keys.issue(tenant, "other")[1]
    ApiKey.objects.filter(pk=row.pk).update(networks=["nonsense"])

    async def both() -> list[Principal | None]:
        return await asyncio.gather(*(principal.authenticate(Credential(carried)) for carried in (key, other)))

    spoilt, good = ask.run(both())
    assert spoilt
    assert good
    assert not any(spoilt.may_call_from(address) for address in ("192.0.2.1", "127.0.0.1", "::1", "stdio", ""))
    assert good.may_call_from("192.0.2.1")


def test_a_key_opens_until_the_moment_at_which_it_expires(
    ask: asyncio.Runner, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    expires = timezone.now() + timedelta(hours=1)
    key = keys.issue(tenant, "short", expires_at=expires)[1]
    monkeypatch.setattr(principal.time, "time", (expires - timedelta(milliseconds=1)).timestamp)
    assert ask.run(principal.authenticate(Credential(key)))
    monkeypatch.setattr(principal.time, "time", expires.timestamp)
    assert ask.run(principal.authenticate(Credential(key))) is None


def test_a_text_that_is_shorter_than_any_key_is_not_looked_for(ask: asyncio.Runner, tenant: Tenant) -> None:
    short = "k" * (keys.MIN_KEY - 1)
    assert ask.run(principal.authenticate(Credential(short))) is None
    assert not principal.cache.is_absent(keys.digest_of(short))
    unknown = "k" * keys.MIN_KEY
    assert ask.run(principal.authenticate(Credential(unknown))) is None
    assert principal.cache.is_absent(keys.digest_of(unknown))


def test_a_process_knows_the_doors_that_it_saw_open(ask: asyncio.Runner, tenant: Tenant) -> None:
    key, unused = keys.issue(tenant, "one")[1], keys.issue(tenant, "unused")[1]
    Tenant.objects.create(slug="closed", name="Closed")
    Tenant.objects.filter(pk=tenant.pk).update(is_public=True)
    assert not principal.is_known(Credential(key), None)
    assert not principal.is_known(None, "acme")
    assert ask.run(principal.authenticate(Credential(key)))
    for slug, is_open in (("acme", True), ("closed", False), ("nobody", False)):
        assert (ask.run(principal.anybody(slug, "203.0.113.9")) is not None) is is_open
        assert principal.is_known(None, slug) is is_open
    assert principal.is_known(Credential(key), None)
    assert not principal.is_known(None, None)
    # Nobody goes before strangers with a key that opens nothing, not even at a public tenant's address.
    assert not principal.is_known(Credential(unused), "acme")


def test_whoever_runs_the_hubs_commands_gets_all_that_an_active_tenant_has(ask: asyncio.Runner, tenant: Tenant) -> None:
    other = Tenant.objects.create(slug="off", name="Off", is_active=False)
    Tenant.objects.filter(pk=tenant.pk).update(public_tools=["echo"], redacted_keys=["ssn"])
    found = ask.run(principal.operator("acme"))
    assert found
    assert (found.key_id, found.tenant_id, found.tenant_slug) == (None, tenant.pk, "acme")
    assert (found.patterns, found.methods, found.networks, found.redacted_keys) == (None, None, (), ("ssn",))
    assert ask.run(principal.operator(other.slug)) is None
    assert ask.run(principal.operator("nobody")) is None


@pytest.mark.parametrize("change", [{"is_public": False}, {"is_active": False}])
def test_anybody_is_somebody_only_at_a_public_tenant_that_is_on(
    ask: asyncio.Runner, tenant: Tenant, change: dict[str, bool]
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(is_public=True, public_tools=["echo"], public_calls_per_minute=5)
    found = ask.run(principal.anybody("acme", "203.0.113.9"))
    assert found
    assert (found.key_id, found.tenant_id, found.patterns, found.address) == (None, tenant.pk, ("echo",), "203.0.113.9")
    limited = found.allowed.calls[0]
    assert (limited.scope, limited.most, limited.seconds) == ("address", 5, 60)
    assert str(tenant.pk) in limited.key
    assert "203.0.113.9" in limited.key
    Tenant.objects.filter(pk=tenant.pk).update(**change)
    principal.public_cache.forget_all()
    assert ask.run(principal.anybody("acme", "203.0.113.9")) is None


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
    ask: asyncio.Runner, tenant: Tenant, of_key: dict[str, object], of_tenant: dict[str, object]
) -> None:
    changed, other = (keys.issue(tenant, name)[0] for name in ("changed", "other"))
    digests = [changed.digest, other.digest]
    before = ask.run(principal.standing_of(digests))
    assert ask.run(principal.standing_of(digests)) == before
    assert before.keys() == set(digests)
    for field, value in of_key.items():
        setattr(changed, field, value)
    changed.save()
    for field, value in of_tenant.items():
        setattr(tenant, field, value)
    tenant.save()
    after = ask.run(principal.standing_of(digests))
    assert after[changed.digest] != before[changed.digest]
    assert (after[other.digest] == before[other.digest]) is not bool(of_tenant)


def test_a_key_that_is_not_valid_has_no_standing(
    ask: asyncio.Runner, tenant: Tenant, other_tenant: Tenant, monkeypatch: pytest.MonkeyPatch
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
    assert ask.run(principal.standing_of([*digests, "unknown"])).keys() == {valid.digest, expires.digest}
    assert ask.run(principal.standing_of([])) == {}
