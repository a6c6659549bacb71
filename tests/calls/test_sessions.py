"""Sessions: owner, maximum number, expiry, and stored state."""

import asyncio
import dataclasses
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone
from msgspec.structs import replace

from tools_app.calls import sessions
from tools_app.calls.sessions import Negotiation, SessionFacts
from tools_app.identity import principal
from tools_app.identity.principal import Credential, Principal
from tools_app.models import Session, Tenant
from tools_app.protocol.errors import RpcError
from tools_app.tenants import keys, last_used

AGREED = Negotiation("2025-11-25", {"name": "laptop", "version": "1.2"}, {"sampling": {}})
HOME = "203.0.113.9"


@pytest.fixture
def loop(transactional_db: None) -> Iterator[asyncio.Runner]:
    """An event loop in a process with empty caches."""
    forget()
    with asyncio.Runner() as runner:
        yield runner
    forget()


def forget() -> None:
    for ring in (principal.cache, sessions.cache, sessions.listeners):
        ring.forget_all()
    last_used._sessions.clear()


@pytest.fixture
def caller(loop: asyncio.Runner, tenant: Tenant) -> Principal:
    return caller_of(loop, tenant)


def caller_of(loop: asyncio.Runner, tenant: Tenant) -> Principal:
    found = loop.run(principal.authenticate(Credential(keys.issue(tenant, "laptop")[1])))
    assert found
    return found


def started(loop: asyncio.Runner, who: Principal, negotiation: Negotiation = AGREED) -> SessionFacts:
    found = loop.run(sessions.find(who, loop.run(sessions.start(who, negotiation, HOME))))
    assert found
    return found


def again(loop: asyncio.Runner, who: Principal, session: SessionFacts) -> SessionFacts | None:
    """The session as read by a process with empty caches."""
    sessions.cache.forget_all()
    return loop.run(sessions.find_by_digest(who, session.digest))


def last_seen(session: SessionFacts, seconds_ago: float) -> None:
    moment = timezone.now() - timedelta(seconds=seconds_ago)
    Session.objects.filter(pk=session.id).update(last_seen_at=moment)


def test_a_session_is_what_was_agreed_on_under_the_digest_of_its_id(
    loop: asyncio.Runner, caller: Principal, tenant: Tenant
) -> None:
    wire_id = loop.run(sessions.start(caller, AGREED, HOME, "ws."))
    assert wire_id.startswith("ws.")
    assert len(wire_id) == 46
    assert all("!" <= letter <= "~" for letter in wire_id)
    row = Session.objects.get()
    assert (row.digest, row.tenant, row.api_key_id) == (keys.digest_of(wire_id), tenant, caller.key_id)
    assert (row.remote_address, row.protocol_version) == (HOME, "2025-11-25")
    found = loop.run(sessions.find(caller, wire_id))
    assert found
    assert (found.id, found.version, found.client_name, found.client_version) == (row.pk, "2025-11-25", "laptop", "1.2")
    assert (found.capabilities, found.subscriptions) == ({"sampling": {}}, frozenset())
    assert loop.run(sessions.start(caller, AGREED, HOME)) != loop.run(sessions.start(caller, AGREED, HOME))


def test_a_session_is_found_by_its_own_key_alone(loop: asyncio.Runner, caller: Principal, other_tenant: Tenant) -> None:
    session = started(loop, caller)
    anonymous = replace(caller, key_id=None)
    open_to_all = started(loop, anonymous)
    second_key = replace(caller, key_id=uuid4())
    same_key_elsewhere = replace(caller, tenant_id=other_tenant.pk)
    assert again(loop, caller, session)
    assert again(loop, anonymous, open_to_all)
    for who in (anonymous, second_key, same_key_elsewhere, caller_of(loop, other_tenant)):
        assert again(loop, who, session) is None
    for who in (caller, replace(anonymous, tenant_id=other_tenant.pk)):
        assert again(loop, who, open_to_all) is None
    assert loop.run(sessions.find(caller, "A" * 43)) is None


def test_a_session_is_over_when_nobody_used_it_for_too_long(
    loop: asyncio.Runner, caller: Principal, settings: Any
) -> None:
    settings.MCPHUB_SESSION_IDLE_TIMEOUT = 100
    used, unused, ended = (started(loop, caller) for _ in range(3))
    last_seen(used, 90)
    last_seen(unused, 110)
    loop.run(sessions.end(ended))
    last_seen(ended, 110)
    assert again(loop, caller, used)
    assert again(loop, caller, unused) is None
    assert sessions.end_idle() == 1
    assert sessions.end_idle() == 0
    reasons = dict(Session.objects.values_list("pk", "end_reason"))
    assert reasons == {used.id: "", unused.id: "idle", ended.id: "deleted"}
    assert Session.objects.get(ended_at=None).pk == used.id


def test_the_use_of_a_session_keeps_it_alive(loop: asyncio.Runner, caller: Principal) -> None:
    used, unused = started(loop, caller), started(loop, caller)
    last_used.write()
    for session in (used, unused):
        last_seen(session, 60)
    assert again(loop, caller, used)
    assert again(loop, replace(caller, key_id=uuid4()), unused) is None
    before = timezone.now() - timedelta(seconds=30)
    last_used.write()
    assert set(Session.objects.filter(last_seen_at__gt=before)) == {Session.objects.get(pk=used.id)}


def test_sessions_are_still_open_until_they_end_or_expire_and_are_used_until_then(
    loop: asyncio.Runner, caller: Principal, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.MCPHUB_SESSION_IDLE_TIMEOUT = 100
    monkeypatch.setattr(sessions, "MAX_LOAD", 2)
    used, also_used, unused, ended = (started(loop, caller) for _ in range(4))
    last_used.write()
    for session, seconds in ((used, 90), (also_used, 90), (unused, 110)):
        last_seen(session, seconds)
    loop.run(sessions.end(ended))
    ids = {session.digest: session.id for session in (used, unused, also_used, ended)}
    assert list(loop.run(sessions.open_digests({}))) == []
    assert set(loop.run(sessions.open_digests({**ids, "unknown": uuid4()}))) == {used.digest, also_used.digest}
    before = timezone.now() - timedelta(seconds=30)
    last_used.write()
    assert set(Session.objects.filter(last_seen_at__gt=before, ended_at=None)) == set(
        Session.objects.filter(pk__in=[used.id, also_used.id])
    )


def test_a_session_ends_once_and_alone(loop: asyncio.Runner, caller: Principal) -> None:
    first, second, third = (started(loop, caller) for _ in range(3))
    assert loop.run(sessions.end(first)) is True
    assert loop.run(sessions.end(first, "again")) is False
    assert sessions.end_by_person(Session.objects.get(pk=second.id)) is True
    assert sessions.end_by_person(Session.objects.get(pk=second.id)) is False
    # At once, in the process that ended it.
    found = [loop.run(sessions.find_by_digest(caller, session.digest)) for session in (first, second, third)]
    assert [session is not None for session in found] == [False, False, True]
    reasons = dict(Session.objects.values_list("pk", "end_reason"))
    assert reasons == {first.id: "deleted", second.id: "admin", third.id: ""}


def test_a_tenant_has_as_many_sessions_as_it_may_and_only_open_ones_count(
    loop: asyncio.Runner, caller: Principal, other_tenant: Tenant, settings: Any
) -> None:
    settings.MCPHUB_SESSION_IDLE_TIMEOUT = 100
    neighbour = caller_of(loop, other_tenant)
    two = replace(caller, allowed=replace(caller.allowed, most_sessions=2))
    for _ in range(3):
        started(loop, neighbour)
    first, second = started(loop, two), started(loop, two)
    with pytest.raises(RpcError) as refused:
        started(loop, two)
    data = {"scope": "tenant", "what": "sessions", "limit": 2, "retryAfterSeconds": 60}
    assert (refused.value.data, refused.value.retry_after) == (data, 60)
    assert "2 open sessions" in refused.value.message
    assert Session.objects.filter(tenant=two.tenant_id).count() == 2
    loop.run(sessions.end(first))
    started(loop, two)
    last_seen(second, 110)
    started(loop, two)
    with pytest.raises(RpcError):
        started(loop, two)


def test_strangers_to_a_public_tenant_take_no_session_from_its_keys_and_only_unused_ones_from_each_other(
    loop: asyncio.Runner, caller: Principal
) -> None:
    keyed, stranger = (
        replace(who, allowed=replace(caller.allowed, most_sessions=3)) for who in (caller, replace(caller, key_id=None))
    )
    own = started(loop, keyed)
    crowd = [started(loop, stranger) for _ in range(2)]
    last_seen(own, 3600)
    last_seen(crowd[1], 120)
    with pytest.raises(RpcError):
        started(loop, keyed)  # the tenant is not public any more
    Tenant.objects.update(is_public=True)
    started(loop, keyed)
    with pytest.raises(RpcError):
        started(loop, stranger)
    assert [again(loop, who, row) is not None for who, row in ((keyed, own), *((stranger, row) for row in crowd))] == [
        True,
        True,
        False,
    ]
    last_seen(crowd[0], 120)
    started(loop, stranger)
    assert Session.objects.filter(end_reason="needed by others").count() == 2


def test_where_a_tenant_has_no_limit_of_its_own_the_hubs_counts(
    loop: asyncio.Runner, caller: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "DEFAULT_MAX_SESSIONS", 1)
    started(loop, caller)
    with pytest.raises(RpcError):
        started(loop, caller)
    started(loop, replace(caller, allowed=replace(caller.allowed, most_sessions=2)))


def test_what_initialize_agreed_on_later_is_noted(loop: asyncio.Runner, caller: Principal) -> None:
    waiting, other = started(loop, caller, Negotiation()), started(loop, caller, Negotiation())
    assert (waiting.version, waiting.client_name, waiting.client_version, waiting.capabilities) == ("", "", "", {})
    loop.run(sessions.store_negotiation(waiting, AGREED))
    found = loop.run(sessions.find_by_digest(caller, waiting.digest))
    assert found
    assert (found.version, found.client_name, found.capabilities) == ("2025-11-25", "laptop", {"sampling": {}})
    assert Session.objects.get(pk=other.id).protocol_version == ""


def test_what_a_client_asked_for_is_its_sessions_own(loop: asyncio.Runner, caller: Principal) -> None:
    session, other = started(loop, caller), started(loop, caller)
    loop.run(sessions.set_log_level(session, "error"))
    noted = loop.run(sessions.find_by_digest(caller, session.digest))
    assert noted
    assert noted.log_level == "error"
    for uri in ("docs://b", "docs://a", "docs://a"):
        assert loop.run(sessions.subscribe(session, uri)) is True
    found = loop.run(sessions.find_by_digest(caller, session.digest))
    assert found
    assert (found.log_level, found.subscriptions) == ("error", {"docs://a", "docs://b"})
    loop.run(sessions.unsubscribe(session, "docs://a"))
    found = loop.run(sessions.find_by_digest(caller, session.digest))
    assert found
    assert found.subscriptions == {"docs://b"}
    row = Session.objects.get(pk=other.id)
    assert (row.log_level == "error", row.subscriptions) == (False, [])


@pytest.mark.parametrize("bound", ["MAX_SUBSCRIPTIONS", "MAX_SUBSCRIBED_LENGTH"])
def test_a_session_has_so_many_subscriptions_and_no_more(
    loop: asyncio.Runner, caller: Principal, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    uris = ["docs://a", "docs://b"]
    monkeypatch.setattr(sessions, bound, 2 if bound == "MAX_SUBSCRIPTIONS" else len("".join(uris)))
    session = started(loop, caller)
    assert [loop.run(sessions.subscribe(session, uri)) for uri in uris] == [True, True]
    assert loop.run(sessions.subscribe(session, "docs://c")) is False
    # An existing subscription takes no additional memory.
    assert loop.run(sessions.subscribe(session, "docs://a")) is True
    assert Session.objects.get().subscriptions == uris
    loop.run(sessions.unsubscribe(session, "docs://a"))
    assert loop.run(sessions.subscribe(session, "docs://c")) is True


def test_one_stream_of_a_session_tells_of_changes(loop: asyncio.Runner, caller: Principal) -> None:
    session, other = started(loop, caller), started(loop, caller)
    first, second = uuid4(), uuid4()

    def who_tells() -> list[bool]:
        return [loop.run(sessions.is_listener(session, stream)) for stream in (first, second)]

    assert who_tells() == [True, False]
    loop.run(sessions.set_listener(session, second))
    assert who_tells() == [False, True]
    loop.run(sessions.clear_listener(session, first))
    assert who_tells() == [False, True]
    loop.run(sessions.clear_listener(session, second))
    assert who_tells() == [True, False]
    assert Session.objects.get(pk=other.id).listener is None


def test_what_a_client_says_of_itself_and_what_it_subscribes_to_weigh_in_memory() -> None:
    light = SessionFacts(uuid4(), "", None, uuid4(), "2025-11-25", "", "", {}, "", frozenset(), timezone.now())
    bare = sessions._size_of(light)
    with_capabilities = sessions._size_of(dataclasses.replace(light, capabilities={"a": "x" * 1000}))
    with_subscriptions = sessions._size_of(dataclasses.replace(light, subscriptions=frozenset({"x" * 1000, "y" * 500})))
    assert bare < 100
    assert 4000 < with_capabilities - bare < 4100
    assert 1500 < with_subscriptions - bare < 2000
