"""Elicitations of upstreams by URL: calls that require one first, and notifications of their completion."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from tests.upstreams.servers import PAGE, SdkServer, tool
from tests.wire.client import MODERN, RawClient, call_params, error_of, message_of
from tools_app.core.notifications import publish
from tools_app.models import Call, Outcome
from tools_app.upstreams.errors import ErrorResponse
from tools_app.upstreams.exchanges import exchange, pages

URLS = {"elicitation": {"form": {}, "url": {}}}
OLD = "2025-11-25"
COMPLETE = "notifications/elicitation/complete"


@pytest.fixture
def server(sdk_server: Callable[..., SdkServer], add_upstream: Any) -> SdkServer:
    server = sdk_server()
    server.tools = [tool("visit"), tool("needs"), tool("echo")]
    add_upstream(server, era="handshake")
    return server


def result_text(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


@pytest.mark.shows("elicitation.completion")
def test_the_completion_of_an_elicitation_is_notified_on_the_stream_of_its_call(
    server: SdkServer, client: RawClient
) -> None:
    peer = client.peer(OLD, URLS)
    with peer.stream("tools/call", call_params("books_visit")) as stream:
        question = stream.next()
        assert question["params"] == {"mode": "url", "message": "Open", "url": PAGE, "elicitationId": "e1"}
        assert peer.respond(question["id"], {"action": "accept"}).status_code == 202
        notification, response = stream.read_to_end()
    assert (notification["method"], notification["params"]) == (COMPLETE, {"elicitationId": "e1"}), (
        "nothing of unknown ids"
    )
    assert result_text(response["result"]) == "accept"
    assert message_of(client.peer(MODERN).call("books_echo", {}))["result"]


@pytest.mark.shows("elicitation.completion", "elicitation.required-error")
def test_a_required_elicitation_is_an_error_and_only_its_client_is_notified_of_the_completion(
    server: SdkServer, client: RawClient
) -> None:
    peer, other = client.peer(OLD, URLS), client.peer(OLD, URLS)
    with peer.listening() as stream, other.listening() as other_stream:
        error = error_of(peer.call("books_needs"))
        (elicitation,) = error["data"]["elicitations"]
        assert error["code"] == -32042
        assert elicitation == {"mode": "url", "message": "Sign in", "url": PAGE, "elicitationId": "e2"}
        server.visited.set()
        for id in ("unknown", "e2", "e2"):
            server.complete(id)
        notification = stream.next()
        assert (notification["method"], notification["params"]) == (COMPLETE, {"elicitationId": "e2"})
        assert result_text(peer.result("books_needs")) == "ran"
        # The first message of the other stream is about the other client's own call.
        server.visited.clear()
        assert error_of(other.call("books_needs"))["code"] == -32042
        server.complete("e2")
        assert other_stream.next()["params"] == {"elicitationId": "e2"}
    assert list(Call.objects.filter(tool_name="books_needs").values_list("outcome", flat=True).order_by("pk")) == [
        Outcome.TOOL_ERROR,
        Outcome.OK,
        Outcome.TOOL_ERROR,
    ]


def test_a_modern_client_is_asked_to_open_the_page_and_then_the_call_runs(
    server: SdkServer, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "PAGE_DELAYS", (0.01,))
    peer = client.peer(MODERN, URLS)
    input_required = peer.result("books_needs")
    ((name, request),) = input_required["inputRequests"].items()
    assert request["params"] == {"mode": "url", "message": "Sign in", "url": PAGE}

    def retry(action: str) -> dict[str, Any]:
        params = {**call_params("books_needs"), "inputResponses": {name: {"action": action}}}
        message: dict[str, Any] = message_of(
            peer.request("tools/call", {**params, "requestState": input_required["requestState"]})
        )
        return message["result"]

    server.visited.set()
    assert result_text(retry("accept")) == "ran"
    server.visited.clear()
    # Declining, and accepting without opening the page, are errors of the tool.
    for action in ("accept", "decline"):
        input_required = peer.result("books_needs")
        result = retry(action)
        assert result["isError"]
        assert PAGE in result_text(result)
    assert server.called.count("needs") == 6


@pytest.mark.parametrize(
    ("version", "capabilities"),
    [(MODERN, {}), (MODERN, {"elicitation": {}}), (OLD, {"elicitation": {}}), ("2025-06-18", URLS)],
)
def test_a_client_without_url_elicitation_gets_the_url_in_an_error(
    server: SdkServer, client: RawClient, version: str, capabilities: dict[str, Any]
) -> None:
    result = client.peer(version, capabilities).result("books_needs")
    assert result["isError"]
    assert result_text(result) == (
        f"The upstream 'books' needs you to open a page first, and to call again then: Sign in {PAGE}"
    )


def test_an_unsafe_url_is_not_in_the_error(server: SdkServer, client: RawClient) -> None:
    server.page = "http://example.com/plain"
    for version in (OLD, MODERN):
        result = client.peer(version, URLS).result("books_needs")
        assert "error -32042: Sign in first." in result_text(result)
        assert "example.com" not in result_text(result)


class RecordingRecipient(pages.PageRecipient):
    """A client whose call has ended."""

    def __init__(self, number: int, completed: list[tuple[int, str]]) -> None:
        self.session_id = number  # type: ignore[assignment]
        self._completed = completed

    def notify_completed(self, id: str) -> None:
        self._completed.append((self.session_id, id))  # type: ignore[arg-type]


def test_what_a_connection_remembers_of_pages_is_bounded_and_ids_of_two_sessions_count_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages, "MAX_PAGES", 3)
    completed: list[tuple[int, str]] = []
    one, two = RecordingRecipient(1, completed), RecordingRecipient(2, completed)
    open_pages = pages.OpenPages()

    def remember(id: Any, recipient: RecordingRecipient) -> None:
        open_pages.remember_error(
            ErrorResponse(-32042, "", {"elicitations": [{"elicitationId": id, "url": PAGE}]}), recipient
        )

    for id in ("a", "b", "c", "d", "x" * 201, 7, "", "\0"):
        remember(id, one)
    remember("d", two)
    for id in ("a", "b", "c", "d", None, ["a"]):
        open_pages.handle_completion({"method": COMPLETE, "params": {"elicitationId": id}})
    open_pages.handle_completion({"method": COMPLETE, "params": []})
    assert completed == [(1, "b"), (1, "c")]


def test_a_notification_between_processes_carries_any_id(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(publish, "notify", sent.append)
    session_id = uuid4()
    for id in ("e1", "a|b:c", "Ähre \u2028 ?"):
        pages.publish_completed(session_id, id)
        kind, _, rest = sent.pop().partition(":")
        assert (kind, pages.parse_topic(rest)) == (pages.TOPIC, (str(session_id), id))
        assert "|" not in rest
