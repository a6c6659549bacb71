"""How the hub reads and writes `_meta` (base protocol, §_meta)."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.wire.client import META, MODERN, Peer, RawClient, call_params, message_of
from tools_app.catalog import authoring
from tools_app.models import Call, Tenant
from tools_app.toolkit import ToolContext, tool

LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
KEY = re.compile(rf"(?:{LABEL}(?:\.{LABEL})*/)?(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?")
ODD = (None, 5, "x", [], {}, [{"a": 1}], True, 1.5, {"": None}, "\x00")
NAMES = ("serverInfo", "subscriptionId", "related-task", "never-heard-of", "model-immediate-response", "")


@pytest.fixture(autouse=True)
def say(registries: None, offer: Callable[..., object]) -> None:
    """A tool that logs before it returns."""

    @tool(task="optional")
    async def say(context: ToolContext, word: str = "done") -> str:
        context.progress(1)
        context.log("info", "word")
        return word

    offer("say")


def keys_of(value: Any) -> Iterator[str]:
    """Every key of every `_meta` in a message."""
    if isinstance(value, dict):
        yield from value.get("_meta", {})
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from keys_of(inner)


def messages_of(peer: Peer, method: str, params: dict[str, Any]) -> list[Any]:
    """All messages of the response to a request."""
    with peer.stream(method, params) as stream:
        if stream.response.headers["content-type"] == "application/json":
            stream.response.read()
            return [stream.response.json()]
        return stream.read_to_end()


def all_said(peer: Peer) -> list[Any]:
    loud = {"progressToken": "t", **({META + "logLevel": "debug"} if peer.is_modern else {})}
    requests = [
        ("tools/call", call_params("say", meta=loud)),
        ("tools/call", {**call_params("say"), **({} if peer.is_modern else {"task": {}})}),
        ("tools/call", call_params("never")),
        *((f"{kind}/list", {}) for kind in ("tools", "prompts", "resources", "tasks", "roots")),
        ("completion/complete", {}),
        *([("server/discover", {})] if peer.is_modern else []),
    ]
    messages = [message for method, params in requests for message in messages_of(peer, method, params)]
    tasks = [message["result"]["task"]["taskId"] for message in messages if "task" in message.get("result", {})]
    return messages + [message for id in tasks for message in messages_of(peer, "tasks/result", {"taskId": id})]


@pytest.mark.shows("meta.keys", "meta.reverse-dns")
def test_each_key_that_the_hub_writes_is_of_the_grammar_and_under_a_name_of_the_protocol(
    peer: Peer, offer: Callable[..., object]
) -> None:
    messages = all_said(peer)
    if peer.is_modern:
        wanted = {"notifications": {"toolsListChanged": True}}
        with peer.stream("subscriptions/listen", wanted, id="sub-1") as stream:
            messages.append(stream.next())
            offer("echo")
            messages.append(stream.next())
    keys = set(keys_of(messages))
    assert [key for key in keys if not KEY.fullmatch(key)] == []
    assert {key.partition("/")[0] for key in keys} <= {"io.modelcontextprotocol"}
    assert bool(keys) is (peer.version >= "2025-11-25")


@pytest.mark.shows("meta.reserved")
def test_odd_values_of_reserved_keys_change_nothing(peer: Peer) -> None:
    odd = [{META + name: value for name in NAMES} for value in ODD]
    for meta in odd:
        assert message_of(peer.call("say", meta=meta))["result"]["content"] == [{"type": "text", "text": "done"}]
    assert {call.outcome for call in Call.objects.all()} == {"ok"}


@pytest.mark.shows("meta.reserved")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25"])
def test_a_session_needs_no_meta_and_takes_any(client: RawClient, version: str) -> None:
    peer = client.peer(version)
    for meta in ODD:
        answer = peer.request("tools/call", {**call_params("say"), "_meta": meta})
        assert message_of(answer)["result"]["isError"] is False


@pytest.mark.shows("meta.client-info")
def test_the_name_of_the_client_changes_nothing(client: RawClient, other_tenant: Tenant) -> None:
    authoring.add_code_tools(other_tenant, ["echo"])
    names = ("raw", "mcphub", "rival", "admin", "Rival", "", "x" * 5000, "\x00'; --")
    infos: list[Any] = [{"name": name, "version": "1", "tenant": "rival"} for name in names]
    answers = []
    for info in [*infos, {}, {"name": 5}]:
        meta = {META + "clientInfo": info}
        answers.append(
            [
                message_of(client.modern(method, {**params, "_meta": meta}))
                for method, params in (
                    ("tools/list", {}),
                    ("tools/call", call_params("say")),
                    ("tools/call", call_params("echo")),
                )
            ]
        )
    assert [answer for answer in answers if answer != answers[0]] == []
    assert [one["name"] for one in answers[0][0]["result"]["tools"]] == ["say"]
    assert "error" in answers[0][2]


@pytest.mark.shows("meta.client-info")
def test_the_client_info_is_optional(client: RawClient) -> None:
    meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    answer = client.post(body, {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"})
    assert answer.json() == client.modern("tools/list").json()
