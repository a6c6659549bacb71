"""What HTTP+SSE and WebSocket have in common: one channel, every revision, and the rules of Streamable HTTP."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.wire.channels import OPENERS, TRANSPORTS, Talk
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
from tools_app.access import keys
from tools_app.catalog import authoring
from tools_app.models import ApiKey, Call, Resource, ResourceKind, RunningCall, Session, Tenant
from tools_app.toolkit import ToolContext, tool
from tools_app.transport import connection, state

Offer = Callable[..., list[Any]]
Open = Callable[..., Talk]
TOLD = {"progressToken": "t"}
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
        return "said it all"

    offer("logs", "asks", "holds", "chatters", "echo", "count", "test_throw")


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def opened(transport: str) -> Iterator[Open]:
    """Open channels that close with the test: `opened(client)`."""
    open_ones = []

    def enter(client: RawClient, slug: str = "") -> Talk:
        open_ones.append(OPENERS[transport](client, f"/t/{slug}/{transport}" if slug else f"/{transport}"))
        return open_ones[-1].__enter__()

    yield enter
    for channel in open_ones:
        channel.__exit__(None, None, None)


@pytest.fixture
def quiet(opened: Open, client: RawClient) -> Talk:
    """A client that said nothing yet."""
    return opened(client)


@pytest.fixture(params=EACH_VERSION)
def every(request: pytest.FixtureRequest, quiet: Talk) -> Talk:
    """A client of each revision in turn."""
    return quiet.speak(request.param)


@pytest.fixture(params=EACH_ERA)
def talk(request: pytest.FixtureRequest, quiet: Talk) -> Talk:
    """A client of each era in turn."""
    return quiet.speak(request.param)


@pytest.fixture(params=EACH_HANDSHAKE)
def session(request: pytest.FixtureRequest, quiet: Talk) -> Talk:
    """A client of each handshake revision in turn, which answers what it is asked."""
    return quiet.speak(request.param, {"sampling": {}, "elicitation": {}})


@pytest.fixture
def modern(quiet: Talk) -> Talk:
    return quiet.speak(MODERN, {"elicitation": {}})


# --- The messages ---------------------------------------------------------------------------------------------------


@pytest.mark.shows("custom-transport.keeps-protocol", "custom-transport.keeps-patterns", "http-sse.two-addresses")
def test_it_says_what_streamable_http_says(every: Talk, client: RawClient) -> None:
    peer = client.peer(every.version)
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
        ("initialize", {"protocolVersion": every.version}),
        ("no/such/method", {}),
    ]
    for number, (method, params) in enumerate(requests[: None if every.is_modern else -2]):
        assert every.ask(method, params, id=number) == message_of(peer.request(method, params, id=number))


@pytest.mark.shows("custom-transport.keeps-protocol")
@pytest.mark.parametrize("version", EACH_HANDSHAKE)
def test_the_session_opens_as_over_streamable_http(quiet: Talk, client: RawClient, version: str) -> None:
    assert quiet.initialize(version)["result"] == client.initialize(version).json()["result"]


@pytest.mark.parametrize("where", ["here", "in-a-worker"])
def test_progress_comes_before_the_answer(every: Talk, gate: Gate, where: str) -> None:
    gate.open()
    name, arguments = ("count", {"n": 3}) if where == "in-a-worker" else ("holds", {})
    answer = every.ask_tool(name, arguments, id="c", meta=TOLD)
    assert answer["result"]["isError"] is False
    progress = [message["params"]["progress"] for message in every.heard]
    assert progress == ([0, 1, 2] if where == "in-a-worker" else [1])
    assert {message["params"]["progressToken"] for message in every.heard} == {"t"}


def test_log_messages_come_from_the_level_on_that_the_client_wants(every: Talk) -> None:
    meta = {}
    if every.is_modern:
        meta = {META + "logLevel": "error"}
    else:
        assert every.ask("logging/setLevel", {"level": "error"})["result"] == {}
    assert every.ask_tool("logs", meta=meta)["result"]["content"][0]["text"] == "logged"
    assert [message["params"]["data"] for message in every.heard] == ["great"]


def test_a_question_goes_out_on_the_channel_and_its_answer_comes_back_there(session: Talk) -> None:
    session.call("asks", id="c")
    question = session.next()
    assert (question["method"], question["params"]["message"]) == ("elicitation/create", "Your name?")
    session.respond(question["id"], accepted("Ada"))
    assert session.answer("c")["result"]["content"][0]["text"] == "hello Ada"


@pytest.mark.shows("custom-transport.keeps-patterns")
def test_in_the_modern_era_a_question_is_an_answer_and_the_client_comes_again(modern: Talk) -> None:
    asked = modern.ask_tool("asks", id=1)["result"]
    assert asked["resultType"] == "input_required"
    assert asked["inputRequests"]["name"]["method"] == "elicitation/create"
    told = {"inputResponses": {"name": accepted("Ada")}, "requestState": asked["requestState"]}
    answer = modern.ask("tools/call", {**call_params("asks"), **told}, id=2)
    assert answer["result"]["content"][0]["text"] == "hello Ada"
    assert modern.heard == []


@pytest.mark.shows("custom-transport.keeps-patterns")
@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
def test_a_modern_request_says_all_of_itself(quiet: Talk, missing: str) -> None:
    meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
    del meta[META + missing]
    quiet.send({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}})
    code = -32602 if missing == "clientCapabilities" else -32600  # without its revision it is none of the modern era
    assert quiet.answer(1)["error"]["code"] == code


def test_a_modern_revision_that_nobody_knows_is_refused_with_those_that_there_are(quiet: Talk) -> None:
    meta = {META + "protocolVersion": "2099-01-01", META + "clientCapabilities": {}}
    quiet.send({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}})
    error = quiet.answer(1)["error"]
    assert (error["code"], error["data"]) == (-32022, {"supported": [MODERN], "requested": "2099-01-01"})


def test_both_eras_can_be_spoken_on_one_channel(quiet: Talk) -> None:
    quiet.speak("2025-06-18")
    assert "resultType" not in quiet.ask_tool("echo", {"message": "a"})["result"]
    quiet.version = MODERN
    assert quiet.ask_tool("echo", {"message": "b"})["result"]["resultType"] == "complete"
    quiet.call("holds", id="held", meta=TOLD)
    quiet.next()
    quiet.cancel("held")
    assert "result" in quiet.ask("server/discover")


# --- Changes ----------------------------------------------------------------------------------------------------------


def create_resource(tenant: Tenant) -> Resource:
    row = Resource(tenant=tenant, uri="docs://own", name="own", kind=ResourceKind.TEXT, text="old")
    return authoring.save_resource(row)


def test_changes_are_told_on_the_same_channel(
    session: Talk, tenant: Tenant, offer: Offer, eventually: Callable[..., Any]
) -> None:
    row = create_resource(tenant)
    # What is new is known within a second.
    eventually(lambda: session.ask("resources/subscribe", {"uri": "docs://own"}).get("result") == {})
    row.text = "new"
    authoring.save_resource(row)
    offer("calculator")
    # That the resource is there may be news to the channel as well.
    told = set()
    while not told >= {"notifications/resources/updated", "notifications/tools/list_changed"}:
        told.add(session.next()["method"])
    assert "result" in session.ask("resources/read", {"uri": "docs://own"})


def test_a_resource_that_comes_back_is_news_to_those_who_waited_for_it(quiet: Talk, tenant: Tenant) -> None:
    row = create_resource(tenant)
    assert quiet.speak("2025-11-25").ask("resources/subscribe", {"uri": "docs://own"})["result"] == {}
    authoring.delete(row)
    assert quiet.next()["method"] == "notifications/resources/list_changed"
    create_resource(tenant)
    news = [quiet.next()["method"] for _ in range(2)]
    assert news == ["notifications/resources/list_changed", "notifications/resources/updated"]


@pytest.mark.shows("custom-transport.keeps-patterns")
def test_a_modern_client_listens_until_it_cancels(modern: Talk, tenant: Tenant, offer: Offer) -> None:
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["docs://own"]}
    row = create_resource(tenant)
    modern.request("subscriptions/listen", {"notifications": wanted}, id="sub")
    named = {"io.modelcontextprotocol/subscriptionId": "sub"}
    assert modern.next()["params"] == {"_meta": named, "notifications": wanted}
    offer("calculator")
    assert modern.next() == {
        "jsonrpc": "2.0",
        "method": "notifications/tools/list_changed",
        "params": {"_meta": named},
    }
    authoring.save_resource(row)
    assert modern.next()["params"] == {"_meta": named, "uri": "docs://own"}
    modern.cancel("sub")
    modern.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="next")
    assert modern.next()["method"] == "notifications/subscriptions/acknowledged"
    offer("search_docs")
    assert modern.next()["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "next"}


def test_two_clients_with_the_same_ids_hear_their_own_alone(opened: Open, client: RawClient, gate: Gate) -> None:
    one, two = (opened(client).speak("2025-11-25") for _ in range(2))
    for talk, word in ((one, "one"), (two, "two")):
        talk.call("holds", id=1, meta={"progressToken": word})
        assert talk.next()["params"]["progressToken"] == word
    one.cancel(1)
    # Nothing answers a cancellation, but what follows it is answered after it.
    assert one.ask_tool("echo", {"message": "one"}, id=2)["result"]["content"][0]["text"] == "hello one"
    gate.open()
    assert two.answer(1)["result"]["content"][0]["text"] == "held no more"
    assert one.heard == two.heard == []


# --- Cancellation -----------------------------------------------------------------------------------------------------


@pytest.mark.shows("cancellation.reason-logged")
@pytest.mark.parametrize("tool", ["count", "holds"])
def test_a_request_is_cancelled_by_its_notification(talk: Talk, eventually: Callable[..., Any], tool: str) -> None:
    talk.call(tool, LONG if tool == "count" else {}, id="long", meta=TOLD)
    assert talk.next()["method"] == "notifications/progress"
    talk.cancel("long", "no longer needed")
    call = eventually(Call.objects.filter(tool_name=tool).first)
    assert call.outcome == "cancelled"
    assert "no longer needed" in call.cause
    talk.ask("tools/list", id=2)
    assert all("result" not in message for message in talk.heard)
    eventually(lambda: not RunningCall.objects.exists())


@pytest.mark.shows("stdio.cancelled-silent")
def test_nothing_is_said_any_more_about_a_modern_request_that_was_cancelled(modern: Talk) -> None:
    for number in range(5):
        modern.call("chatters", id=number, meta={"progressToken": number, META + "logLevel": "debug"})
        modern.next()
        modern.cancel(number)
        # What was on its way before the hub heard of it may still come; after the answer to this, nothing does.
        modern.ask("server/discover", id="after")
        modern.heard.clear()
        modern.ask("server/discover", id="after that")
        assert modern.heard == []


@pytest.mark.parametrize("tool", ["count", "holds"])
def test_a_request_can_be_cancelled_in_the_moment_it_was_sent(
    talk: Talk, eventually: Callable[..., Any], tool: str
) -> None:
    began = time.monotonic()
    for id in range(5):
        talk.call(tool, LONG if tool == "count" else {}, id=id)
        talk.cancel(id)
    talk.ask("tools/list", id="after")
    eventually(lambda: not RunningCall.objects.exists())
    assert set(Call.objects.values_list("outcome", flat=True)) <= {"cancelled"}
    assert all("result" not in message for message in talk.heard)
    assert time.monotonic() - began < WAIT_SECONDS  # the calls take twice as long


@pytest.mark.parametrize("request_id", ["other", 2, "1", None, True, [], {"a": 1}])
def test_a_notification_about_another_request_is_ignored(talk: Talk, gate: Gate, request_id: Any) -> None:
    talk.call("holds", id=1, meta=TOLD)
    talk.next()
    talk.cancel(request_id)
    gate.open()
    assert talk.answer(1)["result"]["isError"] is False


# --- What a client gets wrong -------------------------------------------------------------------------------------


@pytest.mark.shows("lifecycle.initialize-first")
def test_a_handshake_session_begins_with_initialize_and_only_once(quiet: Talk) -> None:
    quiet.version = "2025-11-25"
    assert quiet.ask("tools/list")["error"]["message"] == "Call initialize first."
    quiet.speak("2025-11-25")
    again = quiet.initialize("2025-06-18", id=2)["error"]
    assert again == {"code": -32600, "message": "This connection has been initialized already."}
    assert "result" in quiet.ask("tools/list")


def test_an_initialize_that_is_wrong_can_be_made_right(quiet: Talk) -> None:
    quiet.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 7}})
    assert quiet.answer(1)["error"]["code"] == -32602
    assert "result" in quiet.speak("2025-11-25").ask("ping")


@pytest.mark.parametrize(
    ("message", "id"),
    [
        ({"jsonrpc": "1.0", "id": 5, "method": "ping"}, 5),
        ({"jsonrpc": "2.0", "id": 5, "method": 6}, 5),
        ({"jsonrpc": "2.0", "id": 5, "method": "ping", "params": []}, 5),
        ({"jsonrpc": "2.0", "id": 5, "result": {}, "error": {}}, 5),
        ({"jsonrpc": "2.0", "id": None, "method": "ping"}, None),
        ("ping", None),
        (17, None),
    ],
)
def test_what_is_no_message_is_told_to_be_none(quiet: Talk, message: Any, id: Any) -> None:
    quiet.send(message)
    told = quiet.next()
    assert (told.get("id"), told["error"]["code"]) == (id, -32600)
    assert "result" in quiet.speak("2025-11-25").ask("ping")


def test_notifications_and_responses_that_nobody_waits_for_are_ignored(talk: Talk) -> None:
    talk.notify("notifications/never/heard/of")
    talk.notify("notifications/cancelled", {})
    talk.respond("nobody:asked", {})
    assert "result" in talk.ask("tools/list")
    assert talk.heard == []


def test_a_batch_is_answered_in_the_revision_that_has_them(quiet: Talk) -> None:
    quiet.speak("2025-03-26")
    quiet.send(
        [
            {"jsonrpc": "2.0", "id": 1, "method": "ping"},
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call_params("echo", {"message": "b"})},
            {"jsonrpc": "2.0", "id": 3, "method": "initialize", "params": {}},
            "nothing",
        ]
    )
    answers: Any = quiet.next()
    assert [("result" in part, part.get("id")) for part in answers] == [(False, 3), (False, None), (True, 1), (True, 2)]


@pytest.mark.parametrize("version", [version for version in ALL_VERSIONS if version != "2025-03-26"])
@pytest.mark.parametrize("batch", [[], [{"jsonrpc": "2.0", "id": 1, "method": "ping"}]])
def test_no_other_revision_has_batches(quiet: Talk, version: str, batch: list[Any]) -> None:
    quiet.speak(version)
    quiet.send(batch)
    assert quiet.next()["error"]["code"] == -32600
    assert "result" in quiet.ask("tools/list", id=2)


@pytest.mark.parametrize("many", [0, 51])
def test_a_batch_has_its_bounds(quiet: Talk, many: int) -> None:
    quiet.speak("2025-03-26")
    quiet.send([{"jsonrpc": "2.0", "id": id, "method": "ping"} for id in range(many)])
    assert "1 to 50" in quiet.next()["error"]["message"]


def test_an_id_is_good_for_one_request_at_a_time(talk: Talk, gate: Gate) -> None:
    talk.call("holds", id=1, meta=TOLD)
    talk.next()
    refused = talk.ask_tool("echo", {"message": "x"}, id=1)
    assert "an id of its own" in refused["error"]["message"]
    gate.open()
    assert talk.answer(1)["result"]["content"][0]["text"] == "held no more"
    assert talk.ask_tool("echo", {"message": "x"}, id=1)["result"]["content"][0]["text"] == "hello x"


def test_so_many_requests_run_at_a_time_and_no_more(talk: Talk, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_IN_FLIGHT", 3)
    for id in range(3):
        talk.call("holds", id=id)
    assert "At most 3 requests at a time" in talk.ask_tool("echo", {"message": "x"}, id=3)["error"]["message"]
    gate.open()
    answers = [talk.next() for _ in range(3)]
    assert sorted(message["id"] for message in answers) == [0, 1, 2]
    assert talk.ask_tool("echo", {"message": "x"}, id=3)["result"]["isError"] is False


# --- The end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["count", "holds"])
@pytest.mark.parametrize("version", EACH_ERA)
def test_a_client_that_leaves_gives_up_what_still_runs(
    transport: str, client: RawClient, eventually: Callable[..., Any], version: str, tool: str
) -> None:
    with OPENERS[transport](client, f"/{transport}") as talk:
        talk.speak(version)
        talk.call(tool, LONG if tool == "count" else {}, meta=TOLD)
        talk.next()
    assert eventually(Call.objects.filter(tool_name=tool).first).outcome == "cancelled"
    eventually(lambda: not RunningCall.objects.exists())
    eventually(lambda: not Session.objects.filter(ended_at=None).exists())
    assert set(Session.objects.values_list("end_reason", flat=True)) <= {"closed"}


@pytest.mark.parametrize("version", EACH_ERA)
def test_a_channel_ends_soon_after_its_key_was_revoked(
    quiet: Talk, client: RawClient, eventually: Callable[..., Any], version: str
) -> None:
    quiet.speak(version)
    keys.revoke(ApiKey.objects.get(digest=keys.digest_of(client.key or "")))
    assert quiet.read_to_end() == []
    eventually(lambda: not Session.objects.filter(ended_at=None).exists())


def test_a_channel_ends_with_its_session(quiet: Talk) -> None:
    quiet.speak("2025-11-25")
    Session.objects.update(ended_at="2026-01-01T00:00Z")
    assert quiet.read_to_end() == []


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let the hub say to its channels what it says when it stops."""

    def stop() -> None:
        ((loop, web),) = [known for known in state._states.items() if known[0].is_running()]
        monkeypatch.setattr(web, "draining", True)
        loop.call_soon_threadsafe(web.streams.end_all)

    return stop


@pytest.mark.shows("cancellation.of-subscriptions", "subscriptions.closure")
def test_a_hub_that_stops_says_farewell_to_those_who_listen(
    modern: Talk, stopping: Callable[[], None], gate: Gate
) -> None:
    modern.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="sub")
    modern.next()
    modern.call("holds", id="held", meta=TOLD)
    modern.next()
    stopping()
    cancelled, closed = modern.next(), modern.next()
    assert (cancelled["method"], cancelled["params"]["requestId"]) == ("notifications/cancelled", "sub")
    assert (closed["id"], closed["result"]["resultType"]) == ("sub", "complete")
    assert closed["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "sub"
    gate.open()
    said = modern.read_to_end()
    assert [(message["id"], message["result"]["content"][0]["text"]) for message in said] == [("held", "held no more")]


def test_a_hub_that_stops_lets_calls_finish_and_then_ends_the_channel(
    quiet: Talk, stopping: Callable[[], None], eventually: Callable[..., Any]
) -> None:
    quiet.speak("2025-06-18").call("count", {"n": 3}, id=1, meta=TOLD)
    quiet.next()
    stopping()
    assert quiet.read_to_end()[-1]["result"]["content"][0]["text"] == "3"
    assert eventually(Call.objects.first).outcome == "ok"
    assert eventually(lambda: Session.objects.get().end_reason) == "closed"


# --- Who is who -------------------------------------------------------------------------------------------------------


def test_a_public_tenant_needs_no_key(
    opened: Open, make_client: Callable[..., RawClient], tenant: Tenant, tools: None
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(is_public=True, public_tools=["echo"], public_calls_per_minute=100)
    state.forget_everything()
    for version in ("2025-11-25", MODERN):
        talk = opened(make_client(None), tenant.slug).speak(version)
        assert [tool["name"] for tool in talk.ask("tools/list")["result"]["tools"]] == ["echo"]
        assert talk.ask_tool("echo", {"message": "x"})["result"]["content"][0]["text"] == "hello x"
