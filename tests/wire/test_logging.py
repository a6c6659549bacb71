"""Log messages of tools that clients receive (logging)."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from tests.wire.client import META, MODERN, Peer, RawClient, call_params, error_of, message_of
from tools_app.catalog import authoring
from tools_app.models import Call, CallEvent, Tenant, Tool
from tools_app.protocol.versions import LOG_LEVELS
from tools_app.toolkit import ToolContext, prompt, resource, tool

MESSAGE = "notifications/message"
BACKGROUND = pytest.mark.parametrize("background", [False, True])


@pytest.fixture
def talk(registries: None, offer: Callable[..., object]) -> None:
    """A tool that logs one message at each level."""

    @tool
    async def talk(context: ToolContext) -> str:
        for level in LOG_LEVELS:
            context.log(level, f"It is {level}.", "lips")
        return "done"

    offer("talk")


@pytest.fixture
def offer_say(registries: None, offer: Callable[..., object]) -> Callable[..., None]:
    """Offer a tool `say` that logs `data`: `offer_say(data, level="info", background=False)`."""

    def make(data: Any, level: str = "info", times: int = 1, *, background: bool = False) -> None:
        @tool(background=background)
        def say(context: ToolContext) -> str:
            for _ in range(times):
                context.log(level, data)
            return "done"

        offer("say")

    return make


def set_level(peer: Peer, level: object) -> Any:
    return peer.request("logging/setLevel", {"level": level})


def params_with_level(peer: Peer, level: str | None, name: str = "talk", method: str = "tools/call") -> dict[str, Any]:
    """The parameters of a call whose client requests messages from `level` on, as its era does."""
    if peer.is_modern:
        return {**call_params(name), "_meta": {META + "logLevel": level} if level else {}}
    if level:
        assert message_of(set_level(peer, level))["result"] == {}
    return call_params(name)


def log_messages(peer: Peer, level: str | None, name: str = "talk") -> list[dict[str, Any]]:
    """The log messages of a call."""
    with peer.stream("tools/call", params_with_level(peer, level, name)) as stream:
        if stream.response.headers["content-type"] == "application/json":
            stream.response.read()
            return []
        *notifications, response = stream.read_to_end()
    assert response["result"]["content"][0]["text"] == "done"
    assert {message["method"] for message in notifications} <= {MESSAGE}
    return [message["params"] for message in notifications]


def levels(messages: list[dict[str, Any]]) -> list[str]:
    return [message["level"] for message in messages]


@pytest.mark.parametrize("level", LOG_LEVELS)
def test_a_client_receives_messages_from_its_level_on(client: RawClient, talk: None, level: str) -> None:
    expected = list(LOG_LEVELS[LOG_LEVELS.index(level) :])
    assert levels(log_messages(client.peer(MODERN), level)) == expected
    assert levels(log_messages(client.handshake(), level)) == expected


@pytest.mark.shows("logging.context")
def test_a_message_has_its_logger_its_data_and_its_level(peer: Peer, talk: None) -> None:
    assert log_messages(peer, "emergency") == [{"level": "emergency", "logger": "lips", "data": "It is emergency."}]


@pytest.mark.shows("logging.context")
@BACKGROUND
def test_a_message_without_a_logger_comes_from_its_tool(
    client: RawClient, offer_say: Callable[..., None], background: bool
) -> None:
    offer_say({"shelf": 5}, background=background)
    assert log_messages(client.handshake(), "debug", "say") == [
        {"level": "info", "logger": "say", "data": {"shelf": 5}}
    ]


def test_without_a_level_the_modern_era_gets_no_messages_and_a_session_gets_info(peer: Peer, talk: None) -> None:
    expected = [] if peer.is_modern else list(LOG_LEVELS[1:])
    assert levels(log_messages(peer, None)) == expected
    assert CallEvent.objects.filter(kind="log").count() == len(LOG_LEVELS)


def test_the_level_of_one_request_is_not_that_of_the_next(client: RawClient, talk: None) -> None:
    peer = client.peer(MODERN)
    assert levels(log_messages(peer, "alert")) == ["alert", "emergency"]
    assert log_messages(peer, None) == []


def test_the_level_is_a_sessions_own(client: RawClient, talk: None) -> None:
    session_with_level, other = client.handshake(), client.handshake()
    assert levels(log_messages(session_with_level, "emergency")) == ["emergency"]
    assert levels(log_messages(other, None)) == list(LOG_LEVELS[1:])
    assert levels(log_messages(session_with_level, None)) == ["emergency"]
    assert levels(log_messages(session_with_level, "debug")) == list(LOG_LEVELS)


@pytest.mark.shows("logging.errors")
def test_an_invalid_level_is_rejected_and_the_old_one_stays(session: Peer, talk: None) -> None:
    set_level(session, "critical")
    for level in ("loud", "INFO", "", None, 3, ["info"], {"level": "info"}):
        response = set_level(session, level)
        assert (response.status_code, error_of(response)["code"]) == (200, -32602)
    assert levels(log_messages(session, None)) == ["critical", "alert", "emergency"]


@pytest.mark.shows("logging.bad-level")
@pytest.mark.parametrize("level", ["loud", "INFO", "", 3, ["info"], {"level": "info"}])
def test_a_request_with_an_invalid_level_is_rejected(client: RawClient, talk: None, level: object) -> None:
    response = client.modern("tools/call", {**call_params("talk"), "_meta": {META + "logLevel": level}})
    assert (response.status_code, error_of(response)["code"]) == (400, -32602)
    assert not CallEvent.objects.exists()


def test_the_modern_era_has_no_level_to_set(client: RawClient) -> None:
    response = client.modern("logging/setLevel", {"level": "info"})
    assert (response.status_code, error_of(response)["code"]) == (404, -32601)


def test_resources_and_prompts_log_too(
    peer: Peer, registries: None, offer_resources: Callable[..., object], offer_prompts: Callable[..., object]
) -> None:
    @resource("docs://a")
    def a(context: ToolContext) -> str:
        context.log("warning", "read")
        return "a"

    @prompt
    def b(context: ToolContext) -> str:
        context.log("warning", "rendered")
        return "b"

    offer_resources("docs://a")
    offer_prompts("b")
    for method, params, logger in (
        ("resources/read", {"uri": "docs://a"}, "docs://a"),
        ("prompts/get", {"name": "b"}, "b"),
    ):
        request_params = {**params_with_level(peer, "debug", logger), **params}
        request_params.pop("arguments")
        with peer.stream(method, request_params) as stream:
            message, response = stream.read_to_end()
        assert message["params"]["logger"] == logger
        assert "result" in response


@pytest.mark.shows("logging.own-stream")
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
def test_messages_come_on_the_stream_of_their_own_call_alone(
    client: RawClient, talk: None, offer: Callable[..., object], version: str
) -> None:
    peer = client.peer(version)
    listening = (
        peer.stream("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="sub-1")
        if peer.is_modern
        else peer.listening()
    )
    with listening as stream:
        if peer.is_modern:
            stream.next()
        with (
            peer.stream("tools/call", params_with_level(peer, "debug"), id=5) as own,
            peer.stream("tools/call", params_with_level(peer, "emergency"), id=6) as other,
        ):
            assert [len(own.read_to_end()), len(other.read_to_end())] == [len(LOG_LEVELS) + 1, 2]
        offer("echo")
        assert stream.next()["method"] == "notifications/tools/list_changed"


@pytest.mark.shows("logging.control")
def test_values_that_are_not_json_become_text(peer: Peer, offer_say: Callable[..., None]) -> None:
    offer_say({"at": datetime(2026, 1, 31, tzinfo=UTC), "set": {1}, "not": float("nan"), "words": "ä\n\x00"})
    (message,) = log_messages(peer, "debug", "say")
    assert message["data"] == {"at": "2026-01-31T00:00:00+00:00", "set": "{1}", "not": None, "words": "ä\n\x00"}


@pytest.mark.shows("logging.control")
def test_a_tool_cannot_log_at_an_invalid_level(client: RawClient, offer_say: Callable[..., None]) -> None:
    offer_say("x", level="loud")
    assert message_of(client.handshake().call("say"))["result"]["isError"] is True
    assert not CallEvent.objects.exists()


@pytest.mark.shows("logging.secrets")
@BACKGROUND
def test_values_with_names_of_secrets_are_redacted(
    client: RawClient, offer_say: Callable[..., None], tenant: Tenant, background: bool
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(redacted_keys=["ssn"])
    offer_say(
        {"user": "ada", "password": "hunter2", "more": [{"apiKey": "hunter2", "SSN": "hunter2"}]}, background=background
    )
    (message,) = log_messages(client.handshake(), "debug", "say")
    hidden = {"user": "ada", "password": "[redacted]", "more": [{"apiKey": "[redacted]", "SSN": "[redacted]"}]}
    assert message["data"] == hidden
    assert orjson.loads(CallEvent.objects.get().data)["data"] == hidden


@pytest.mark.shows("logging.secrets")
def test_of_a_failure_nothing_is_logged_to_the_client(
    peer: Peer, registries: None, offer: Callable[..., object], tenant: Tenant
) -> None:
    @tool
    def breaks() -> str:
        raise RuntimeError("the password is hunter2")

    offer("breaks")
    authoring.set_secret(tenant, "TOKEN", "hunter2")
    config = {"base_url": "http://127.0.0.1:9", "headers": {"Authorization": "Bearer {secret:TOKEN}"}}
    authoring.save_tool(Tool(tenant=tenant, name="asks", kind="http", config=config))
    for name in ("breaks", "asks"):
        response = peer.request("tools/call", params_with_level(peer, "debug", name))
        assert message_of(response)["result"]["isError"] is True
        assert MESSAGE not in response.text
        assert "hunter2" not in response.text
        assert "Traceback" not in response.text


@pytest.mark.shows("logging.rate-limit")
@BACKGROUND
def test_a_tool_that_logs_without_pause_does_not_flood_its_client(
    client: RawClient, offer_say: Callable[..., None], background: bool
) -> None:
    offer_say("again", times=1000, background=background)
    messages = log_messages(client.handshake(), "debug", "say")
    seconds = Call.objects.get().duration_us / 1_000_000
    assert 100 <= len(messages) <= 100 * (int(seconds) + 2)
    assert len(messages) < 1000
    assert CallEvent.objects.count() == 1000


def test_a_flood_at_one_level_drowns_no_other(
    client: RawClient, registries: None, offer: Callable[..., object]
) -> None:
    @tool
    async def flood(context: ToolContext) -> str:
        for _ in range(300):
            context.log("debug", "water")
        context.log("alert", "land")
        return "done"

    offer("flood")
    messages = log_messages(client.handshake(), "debug", "flood")
    assert messages[-1] == {"level": "alert", "logger": "flood", "data": "land"}
    assert len(messages) < 300


@BACKGROUND
def test_a_message_that_is_too_long_is_cut_and_says_so(
    client: RawClient, offer_say: Callable[..., None], settings: Any, background: bool
) -> None:
    settings.MCPHUB_MAX_PAYLOAD_BYTES = 1000
    offer_say("x" * 5000, background=background)
    (message,) = log_messages(client.handshake(), "debug", "say")
    assert (message["level"], message["data"]["truncated"], message["data"]["size"]) == ("info", True, 5002)
    assert len(json.dumps(message)) < 1200
