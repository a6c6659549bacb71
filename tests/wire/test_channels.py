"""HTTP+SSE and WebSocket: every revision on one channel, with the rules of Streamable HTTP."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.wire.channels import OPENERS, TRANSPORTS, ChannelClient
from tests.wire.client import (
    ALL_VERSIONS,
    EACH_HANDSHAKE,
    EACH_VERSION,
    META,
    MODERN,
    WAIT_SECONDS,
    RawClient,
    call_params,
    message_of,
)
from tests.wire.task_tools import NAME_FORM, Gate, accepted
from tools_app.catalog import authoring
from tools_app.models import ApiKey, Call, Resource, ResourceKind, RunningCall, Session, Tenant
from tools_app.tenants import keys
from tools_app.toolkit import ToolContext, tool
from tools_app.transport import connection, state

pytestmark = pytest.mark.servers

Offer = Callable[..., list[Any]]
Open = Callable[..., ChannelClient]
WITH_PROGRESS = {"progressToken": "t"}
LONG = {"n": 600}
EACH_ERA = ("2025-11-25", MODERN)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture(autouse=True)
def tools(registries: None, offer: Offer, gate: Gate) -> None:
    @tool
    def logs(context: ToolContext) -> str:
        context.log("debug", "small")
        context.log("error", "great")
        return "logged"

    @tool
    async def asks(context: ToolContext) -> str:
        return f"hello {(await context.elicit('Your name?', NAME_FORM, key='name')).content['name']}"

    @tool
    def holds(context: ToolContext) -> str:
        context.progress(1)
        gate.hold(context)
        return "held no more"

    @tool
    def chatters(context: ToolContext) -> str:
        for step in range(10_000):
            context.progress(step)
            context.log("error", step)
            context.sleep(0.001)
        return "done"

    offer("logs", "asks", "holds", "chatters", "echo", "count", "test_throw")


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_channel(transport: str) -> Iterator[Open]:
    """Open channels that close with the test: `open_channel(client)`."""
    open_ones = []

    def enter(client: RawClient, slug: str = "") -> ChannelClient:
        open_ones.append(OPENERS[transport](client, f"/t/{slug}/{transport}" if slug else f"/{transport}"))
        return open_ones[-1].__enter__()

    yield enter
    for context in open_ones:
        context.__exit__(None, None, None)


@pytest.fixture
def new_channel(open_channel: Open, client: RawClient) -> ChannelClient:
    """A channel on which nothing was sent yet."""
    return open_channel(client)


@pytest.fixture(params=EACH_VERSION)
def channel_of_each_version(request: pytest.FixtureRequest, new_channel: ChannelClient) -> ChannelClient:
    """A client of each revision in turn."""
    return new_channel.negotiate(request.param)


@pytest.fixture(params=EACH_ERA)
def channel(request: pytest.FixtureRequest, new_channel: ChannelClient) -> ChannelClient:
    """A client of each era in turn."""
    return new_channel.negotiate(request.param)


@pytest.fixture(params=EACH_HANDSHAKE)
def handshake_channel(request: pytest.FixtureRequest, new_channel: ChannelClient) -> ChannelClient:
    """A client of each handshake revision in turn, with sampling and elicitation."""
    return new_channel.negotiate(request.param, {"sampling": {}, "elicitation": {}})


@pytest.fixture
def modern_channel(new_channel: ChannelClient) -> ChannelClient:
    return new_channel.negotiate(MODERN, {"elicitation": {}})


# --- The messages ---------------------------------------------------------------------------------------------------


@pytest.mark.shows("custom-transport.keeps-protocol", "custom-transport.keeps-patterns", "http-sse.two-addresses")
def test_responses_are_those_of_streamable_http(channel_of_each_version: ChannelClient, client: RawClient) -> None:
    peer = client.peer(channel_of_each_version.version)
    requests: list[tuple[str, dict[str, Any]]] = [
        ("tools/list", {}),
        ("tools/call", call_params("echo", {"message": "fox"})),
        ("tools/call", call_params("echo", {"massage": "fox"})),
        ("tools/call", call_params("test_throw")),
        ("tools/call", call_params("nobody")),
        ("tools/call", {"name": 7}),
        ("prompts/list", {}),
        ("resources/list", {}),
        ("resources/read", {"uri": "docs://nothing"}),
        ("server/discover", {}),
        ("ping", {}),
        ("initialize", {"protocolVersion": channel_of_each_version.version}),
        ("no/such/method", {}),
    ]
    for number, (method, params) in enumerate(requests[: None if channel_of_each_version.is_modern else -2]):
        assert channel_of_each_version.response_to(method, params, id=number) == message_of(
            peer.request(method, params, id=number)
        )


@pytest.mark.shows("custom-transport.keeps-protocol")
@pytest.mark.parametrize("version", EACH_HANDSHAKE)
def test_the_session_opens_as_over_streamable_http(new_channel: ChannelClient, client: RawClient, version: str) -> None:
    assert new_channel.initialize(version)["result"] == client.initialize(version).json()["result"]


@pytest.mark.parametrize("where", ["here", "in-a-worker"])
def test_progress_comes_before_the_answer(channel_of_each_version: ChannelClient, gate: Gate, where: str) -> None:
    gate.open()
    name, arguments = ("count", {"n": 3}) if where == "in-a-worker" else ("holds", {})
    answer = channel_of_each_version.tool_response(name, arguments, id="c", meta=WITH_PROGRESS)
    assert answer["result"]["isError"] is False
    progress = [message["params"]["progress"] for message in channel_of_each_version.received]
    assert progress == ([0, 1, 2] if where == "in-a-worker" else [1])
    assert {message["params"]["progressToken"] for message in channel_of_each_version.received} == {"t"}


def test_log_messages_come_from_the_level_on_that_the_client_wants(channel_of_each_version: ChannelClient) -> None:
    meta = {}
    if channel_of_each_version.is_modern:
        meta = {META + "logLevel": "error"}
    else:
        assert channel_of_each_version.response_to("logging/setLevel", {"level": "error"})["result"] == {}
    assert channel_of_each_version.tool_response("logs", meta=meta)["result"]["content"][0]["text"] == "logged"
    assert [message["params"]["data"] for message in channel_of_each_version.received] == ["great"]


def test_a_question_goes_out_on_the_channel_and_its_answer_comes_back_there(handshake_channel: ChannelClient) -> None:
    handshake_channel.call("asks", id="c")
    question = handshake_channel.next()
    assert (question["method"], question["params"]["message"]) == ("elicitation/create", "Your name?")
    handshake_channel.respond(question["id"], accepted("Ada"))
    assert handshake_channel.response("c")["result"]["content"][0]["text"] == "hello Ada"


@pytest.mark.shows("custom-transport.keeps-patterns")
def test_in_the_modern_era_a_question_is_an_answer_and_the_client_comes_again(modern_channel: ChannelClient) -> None:
    input_required = modern_channel.tool_response("asks", id=1)["result"]
    assert input_required["resultType"] == "input_required"
    assert input_required["inputRequests"]["name"]["method"] == "elicitation/create"
    retry = {"inputResponses": {"name": accepted("Ada")}, "requestState": input_required["requestState"]}
    answer = modern_channel.response_to("tools/call", {**call_params("asks"), **retry}, id=2)
    assert answer["result"]["content"][0]["text"] == "hello Ada"
    assert modern_channel.received == []


@pytest.mark.shows("custom-transport.keeps-patterns")
@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
def test_a_modern_request_needs_its_version_and_capabilities(new_channel: ChannelClient, missing: str) -> None:
    meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
    del meta[META + missing]
    new_channel.send({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}})
    code = -32602 if missing == "clientCapabilities" else -32600  # without its revision it is none of the modern era
    assert new_channel.response(1)["error"]["code"] == code


def test_an_unknown_modern_revision_is_rejected_with_the_supported_ones(new_channel: ChannelClient) -> None:
    meta = {META + "protocolVersion": "2099-01-01", META + "clientCapabilities": {}}
    new_channel.send({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}})
    error = new_channel.response(1)["error"]
    assert (error["code"], error["data"]) == (-32022, {"supported": [MODERN], "requested": "2099-01-01"})


def test_both_eras_can_be_spoken_on_one_channel(new_channel: ChannelClient) -> None:
    new_channel.negotiate("2025-06-18")
    assert "resultType" not in new_channel.tool_response("echo", {"message": "a"})["result"]
    new_channel.version = MODERN
    assert new_channel.tool_response("echo", {"message": "b"})["result"]["resultType"] == "complete"
    new_channel.call("holds", id="held", meta=WITH_PROGRESS)
    new_channel.next()
    new_channel.cancel("held")
    assert "result" in new_channel.response_to("server/discover")


# --- Changes ----------------------------------------------------------------------------------------------------------


def create_resource(tenant: Tenant) -> Resource:
    row = Resource(tenant=tenant, uri="docs://own", name="own", kind=ResourceKind.TEXT, text="old")
    return authoring.save_resource(row)


def test_changes_are_notified_on_the_same_channel(
    handshake_channel: ChannelClient, tenant: Tenant, offer: Offer, eventually: Callable[..., Any]
) -> None:
    row = create_resource(tenant)
    # New rows are visible within a second.
    eventually(lambda: handshake_channel.response_to("resources/subscribe", {"uri": "docs://own"}).get("result") == {})
    row.text = "new"
    authoring.save_resource(row)
    offer("calculator")
    # The channel may also be notified that the list of resources changed.
    methods = set()
    while not methods >= {"notifications/resources/updated", "notifications/tools/list_changed"}:
        methods.add(handshake_channel.next()["method"])
    assert "result" in handshake_channel.response_to("resources/read", {"uri": "docs://own"})


def test_a_resource_that_is_created_again_is_notified_to_its_subscribers(
    new_channel: ChannelClient, tenant: Tenant
) -> None:
    row = create_resource(tenant)
    assert new_channel.negotiate("2025-11-25").response_to("resources/subscribe", {"uri": "docs://own"})["result"] == {}
    authoring.delete(row)
    assert new_channel.next()["method"] == "notifications/resources/list_changed"
    create_resource(tenant)
    methods = [new_channel.next()["method"] for _ in range(2)]
    assert methods == ["notifications/resources/list_changed", "notifications/resources/updated"]


@pytest.mark.shows("custom-transport.keeps-patterns")
def test_a_modern_client_listens_until_it_cancels(modern_channel: ChannelClient, tenant: Tenant, offer: Offer) -> None:
    filters = {"toolsListChanged": True, "resourceSubscriptions": ["docs://own"]}
    row = create_resource(tenant)
    modern_channel.request("subscriptions/listen", {"notifications": filters}, id="sub")
    meta = {"io.modelcontextprotocol/subscriptionId": "sub"}
    assert modern_channel.next()["params"] == {"_meta": meta, "notifications": filters}
    offer("calculator")
    assert modern_channel.next() == {
        "jsonrpc": "2.0",
        "method": "notifications/tools/list_changed",
        "params": {"_meta": meta},
    }
    authoring.save_resource(row)
    assert modern_channel.next()["params"] == {"_meta": meta, "uri": "docs://own"}
    modern_channel.cancel("sub")
    modern_channel.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="next")
    assert modern_channel.next()["method"] == "notifications/subscriptions/acknowledged"
    offer("search_docs")
    assert modern_channel.next()["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "next"}


def test_two_clients_with_the_same_ids_get_their_own_messages_only(
    open_channel: Open, client: RawClient, gate: Gate
) -> None:
    one, two = (open_channel(client).negotiate("2025-11-25") for _ in range(2))
    for channel, word in ((one, "one"), (two, "two")):
        channel.call("holds", id=1, meta={"progressToken": word})
        assert channel.next()["params"]["progressToken"] == word
    one.cancel(1)
    # Nothing answers a cancellation, but what follows it is answered after it.
    assert one.tool_response("echo", {"message": "one"}, id=2)["result"]["content"][0]["text"] == "hello one"
    gate.open()
    assert two.response(1)["result"]["content"][0]["text"] == "held no more"
    assert one.received == two.received == []


# --- Cancellation -----------------------------------------------------------------------------------------------------


@pytest.mark.shows("cancellation.reason-logged")
@pytest.mark.parametrize("tool", ["count", "holds"])
def test_a_request_is_cancelled_by_its_notification(
    channel: ChannelClient, eventually: Callable[..., Any], tool: str
) -> None:
    channel.call(tool, LONG if tool == "count" else {}, id="long", meta=WITH_PROGRESS)
    assert channel.next()["method"] == "notifications/progress"
    channel.cancel("long", "no longer needed")
    call = eventually(Call.objects.filter(tool_name=tool).first)
    assert call.outcome == "cancelled"
    assert "no longer needed" in call.cause
    channel.response_to("tools/list", id=2)
    assert all("result" not in message for message in channel.received)
    eventually(lambda: not RunningCall.objects.exists())


@pytest.mark.shows("stdio.cancelled-silent")
def test_no_message_follows_about_a_modern_request_that_was_cancelled(modern_channel: ChannelClient) -> None:
    for number in range(5):
        modern_channel.call("chatters", id=number, meta={"progressToken": number, META + "logLevel": "debug"})
        modern_channel.next()
        modern_channel.cancel(number)
        # Messages sent before the hub read the cancellation may still arrive; after this response, none does.
        modern_channel.response_to("server/discover", id="after")
        modern_channel.received.clear()
        modern_channel.response_to("server/discover", id="after that")
        assert modern_channel.received == []


@pytest.mark.parametrize("tool", ["count", "holds"])
def test_a_request_can_be_cancelled_in_the_moment_it_was_sent(
    channel: ChannelClient, eventually: Callable[..., Any], tool: str
) -> None:
    started_at = time.monotonic()
    for id in range(5):
        channel.call(tool, LONG if tool == "count" else {}, id=id)
        channel.cancel(id)
    channel.response_to("tools/list", id="after")
    eventually(lambda: not RunningCall.objects.exists())
    assert set(Call.objects.values_list("outcome", flat=True)) <= {"cancelled"}
    assert all("result" not in message for message in channel.received)
    assert time.monotonic() - started_at < WAIT_SECONDS  # the calls take twice as long


def test_a_notification_about_another_request_is_ignored(channel: ChannelClient, gate: Gate) -> None:
    channel.call("holds", id=1, meta=WITH_PROGRESS)
    channel.next()
    request_ids: list[Any] = ["other", 2, "1", None, True, [], {"a": 1}]
    for request_id in request_ids:
        channel.cancel(request_id)
    gate.open()
    assert channel.response(1)["result"]["isError"] is False


# --- Invalid messages -----------------------------------------------------------------------------------------------


@pytest.mark.shows("lifecycle.initialize-first")
def test_a_handshake_session_begins_with_initialize_and_only_once(new_channel: ChannelClient) -> None:
    new_channel.version = "2025-11-25"
    assert new_channel.response_to("tools/list")["error"]["message"] == "Call initialize first."
    new_channel.negotiate("2025-11-25")
    again = new_channel.initialize("2025-06-18", id=2)["error"]
    assert again == {"code": -32600, "message": "This connection has been initialized already."}
    assert "result" in new_channel.response_to("tools/list")


def test_an_initialize_that_is_wrong_can_be_made_right(new_channel: ChannelClient) -> None:
    new_channel.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 7}})
    assert new_channel.response(1)["error"]["code"] == -32602
    assert "result" in new_channel.negotiate("2025-11-25").response_to("ping")


def test_an_invalid_message_is_answered_with_an_invalid_request_error(new_channel: ChannelClient) -> None:
    cases: list[tuple[Any, int | None]] = [
        ({"jsonrpc": "1.0", "id": 5, "method": "ping"}, 5),
        ({"jsonrpc": "2.0", "id": 5, "method": 6}, 5),
        ({"jsonrpc": "2.0", "id": 5, "method": "ping", "params": []}, 5),
        ({"jsonrpc": "2.0", "id": 5, "result": {}, "error": {}}, 5),
        ({"jsonrpc": "2.0", "id": None, "method": "ping"}, None),
        ("ping", None),
        (17, None),
    ]
    for message, id in cases:
        new_channel.send(message)
        response = new_channel.next()
        assert (response.get("id"), response["error"]["code"]) == (id, -32600), message
    assert "result" in new_channel.negotiate("2025-11-25").response_to("ping")


def test_notifications_and_responses_that_nobody_waits_for_are_ignored(channel: ChannelClient) -> None:
    channel.notify("notifications/never/heard/of")
    channel.notify("notifications/cancelled", {})
    channel.respond("nobody:asked", {})
    assert "result" in channel.response_to("tools/list")
    assert channel.received == []


def test_a_batch_is_answered_in_the_revision_that_has_them(new_channel: ChannelClient) -> None:
    new_channel.negotiate("2025-03-26")
    new_channel.send(
        [
            {"jsonrpc": "2.0", "id": 1, "method": "ping"},
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call_params("echo", {"message": "b"})},
            {"jsonrpc": "2.0", "id": 3, "method": "initialize", "params": {}},
            "nothing",
        ]
    )
    answers: Any = new_channel.next()
    assert [("result" in part, part.get("id")) for part in answers] == [(False, 3), (False, None), (True, 1), (True, 2)]


@pytest.mark.parametrize("version", [version for version in ALL_VERSIONS if version != "2025-03-26"])
def test_no_other_revision_has_batches(new_channel: ChannelClient, version: str) -> None:
    new_channel.negotiate(version)
    batches: list[list[Any]] = [[], [{"jsonrpc": "2.0", "id": 1, "method": "ping"}]]
    for batch in batches:
        new_channel.send(batch)
        assert new_channel.next()["error"]["code"] == -32600, batch
    assert "result" in new_channel.response_to("tools/list", id=2)


@pytest.mark.parametrize("many", [0, 51])
def test_a_batch_has_its_bounds(new_channel: ChannelClient, many: int) -> None:
    new_channel.negotiate("2025-03-26")
    new_channel.send([{"jsonrpc": "2.0", "id": id, "method": "ping"} for id in range(many)])
    assert "1 to 50" in new_channel.next()["error"]["message"]


def test_an_id_is_good_for_one_request_at_a_time(channel: ChannelClient, gate: Gate) -> None:
    channel.call("holds", id=1, meta=WITH_PROGRESS)
    channel.next()
    response = channel.tool_response("echo", {"message": "x"}, id=1)
    assert "an id of its own" in response["error"]["message"]
    gate.open()
    assert channel.response(1)["result"]["content"][0]["text"] == "held no more"
    assert channel.tool_response("echo", {"message": "x"}, id=1)["result"]["content"][0]["text"] == "hello x"


def test_so_many_requests_run_at_a_time_and_no_more(
    channel: ChannelClient, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_IN_FLIGHT", 3)
    for id in range(3):
        channel.call("holds", id=id)
    assert "At most 3 requests at a time" in channel.tool_response("echo", {"message": "x"}, id=3)["error"]["message"]
    gate.open()
    answers = [channel.next() for _ in range(3)]
    assert sorted(message["id"] for message in answers) == [0, 1, 2]
    assert channel.tool_response("echo", {"message": "x"}, id=3)["result"]["isError"] is False


# --- The end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["count", "holds"])
@pytest.mark.parametrize("version", EACH_ERA)
def test_a_client_that_disconnects_cancels_its_running_calls(
    transport: str, client: RawClient, eventually: Callable[..., Any], version: str, tool: str
) -> None:
    with OPENERS[transport](client, f"/{transport}") as channel:
        channel.negotiate(version)
        channel.call(tool, LONG if tool == "count" else {}, meta=WITH_PROGRESS)
        channel.next()
    assert eventually(Call.objects.filter(tool_name=tool).first).outcome == "cancelled"
    eventually(lambda: not RunningCall.objects.exists())
    eventually(lambda: not Session.objects.filter(ended_at=None).exists())
    assert set(Session.objects.values_list("end_reason", flat=True)) <= {"closed"}


@pytest.mark.parametrize("version", EACH_ERA)
def test_a_channel_ends_soon_after_its_key_was_revoked(
    new_channel: ChannelClient, client: RawClient, eventually: Callable[..., Any], version: str
) -> None:
    new_channel.negotiate(version)
    keys.revoke(ApiKey.objects.get(digest=keys.digest_of(client.key or "")))
    assert new_channel.read_to_end() == []
    eventually(lambda: not Session.objects.filter(ended_at=None).exists())


def test_a_channel_ends_with_its_session(new_channel: ChannelClient) -> None:
    new_channel.negotiate("2025-11-25")
    Session.objects.update(ended_at="2026-01-01T00:00Z")
    assert new_channel.read_to_end() == []


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """End all streams as the hub does when it stops."""

    def stop() -> None:
        ((loop, web),) = [entry for entry in state._states.items() if entry[0].is_running()]
        monkeypatch.setattr(web, "draining", True)
        loop.call_soon_threadsafe(web.streams.end_all)

    return stop


@pytest.mark.shows("cancellation.of-subscriptions", "subscriptions.closure")
def test_a_hub_that_stops_ends_subscriptions_and_lets_calls_finish(
    modern_channel: ChannelClient, stopping: Callable[[], None], gate: Gate
) -> None:
    modern_channel.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="sub")
    modern_channel.next()
    modern_channel.call("holds", id="held", meta=WITH_PROGRESS)
    modern_channel.next()
    stopping()
    cancelled, closed = modern_channel.next(), modern_channel.next()
    assert (cancelled["method"], cancelled["params"]["requestId"]) == ("notifications/cancelled", "sub")
    assert (closed["id"], closed["result"]["resultType"]) == ("sub", "complete")
    assert closed["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "sub"
    gate.open()
    messages = modern_channel.read_to_end()
    assert [(message["id"], message["result"]["content"][0]["text"]) for message in messages] == [
        ("held", "held no more")
    ]


def test_a_hub_that_stops_lets_calls_finish_and_then_ends_the_channel(
    new_channel: ChannelClient, stopping: Callable[[], None], eventually: Callable[..., Any]
) -> None:
    new_channel.negotiate("2025-06-18").call("count", {"n": 3}, id=1, meta=WITH_PROGRESS)
    new_channel.next()
    stopping()
    assert new_channel.read_to_end()[-1]["result"]["content"][0]["text"] == "3"
    assert eventually(Call.objects.first).outcome == "ok"
    assert eventually(lambda: Session.objects.get().end_reason) == "closed"


# --- Callers ----------------------------------------------------------------------------------------------------------


def test_a_public_tenant_needs_no_key(
    open_channel: Open, make_client: Callable[..., RawClient], tenant: Tenant, tools: None
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(is_public=True, public_tools=["echo"], public_calls_per_minute=100)
    state.forget_everything()
    for version in ("2025-11-25", MODERN):
        channel = open_channel(make_client(None), tenant.slug).negotiate(version)
        assert [tool["name"] for tool in channel.response_to("tools/list")["result"]["tools"]] == ["echo"]
        assert channel.tool_response("echo", {"message": "x"})["result"]["content"][0]["text"] == "hello x"
