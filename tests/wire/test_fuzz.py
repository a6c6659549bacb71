"""Random requests against the real endpoint: each gets a valid response in time, and answered calls are recorded.

The requests are the same in each run. `MCPHUB_FUZZ_SECONDS` says for how long to send them (8 seconds by
default), and `MCPHUB_FUZZ_SEED` which ones: a whole number, 1 by default. A long run with another seed:

    MCPHUB_FUZZ_SECONDS=600 MCPHUB_FUZZ_SEED=2 pytest tests/wire/test_fuzz.py
"""

import base64
import copy
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Any

import httpx
import pytest
from pydantic import Field

from tests.wire.client import ACCEPT_BOTH, HANDSHAKES, META, MODERN, NAME_PARAMETERS, SESSION, RawClient, modern_meta
from tests.wire.task_tools import NAME_FORM
from tools_app.calls import run
from tools_app.calls.background import start_task
from tools_app.methods import paging
from tools_app.models import Call, RunningCall, Tenant
from tools_app.toolkit import (
    ProtocolError,
    ResourceNotFound,
    ToolContext,
    ToolError,
    completer,
    header,
    prompt,
    resource,
    tool,
)
from tools_app.transport import delivery

# It tries many inputs.
pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("MCPHUB_FUZZ_SECONDS", "8"))
SEED = int(os.environ.get("MCPHUB_FUZZ_SEED", "1"))
MAX_SECONDS = 30.0
SOUND = {200, 202, 204, 400, 401, 403, 404, 405, 406, 413, 415, 421, 429}
# Log messages about internal errors that a client may not see.
FAULTS = ("The hub failed", "A stream broke", "left to the sweeper", "could not begin", "could not be written")

TOOLS = ("say", "add", "work", "may_be_task", "is_task", "asks", "fails", "mirrors")
CALLS: Sequence[tuple[str, dict[str, Any]]] = (
    ("say", {"word": "fox"}),
    ("add", {"a": 1, "b": 2.5}),
    ("work", {"steps": 2}),
    ("may_be_task", {"steps": 3}),
    ("is_task", {"steps": 1}),
    ("asks", {}),
    ("fails", {"how": "protocol"}),
    ("mirrors", {"region": "north"}),
    ("no_such_tool", {}),
)
REQUESTS: Sequence[tuple[str, dict[str, Any]]] = (
    *(("tools/call", {"name": name, "arguments": arguments}) for name, arguments in CALLS),
    ("tools/call", {"name": "is_task", "arguments": {"steps": 1}, "task": {"ttl": 1000}}),
    ("tools/list", {}),
    ("tools/list", {"cursor": "CURSOR"}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "fuzz://one"}),
    ("resources/read", {"uri": "fuzz://pages/two"}),
    ("resources/subscribe", {"uri": "fuzz://one"}),
    ("resources/unsubscribe", {"uri": "fuzz://one"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "greets", "arguments": {"name": "Ada"}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greets"}, "argument": {"name": "name", "value": "A"}},
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "fuzz://pages/{page}"}, "argument": {"name": "page", "value": ""}},
    ),
    ("logging/setLevel", {"level": "debug"}),
    ("tasks/get", {"taskId": "TASK"}),
    ("tasks/result", {"taskId": "TASK"}),
    ("tasks/list", {}),
    ("tasks/update", {"taskId": "TASK", "inputResponses": {"name": {"action": "accept", "content": {"name": "A"}}}}),
    ("tasks/cancel", {"taskId": "TASK"}),
    ("subscriptions/listen", {"notifications": {"toolsListChanged": True, "taskIds": ["TASK"]}}),
    ("server/discover", {}),
    ("ping", {}),
    ("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "f", "version": "1"}}),
    ("no/such", {}),
)
NOTIFICATIONS: Sequence[tuple[str, dict[str, Any]]] = (
    ("notifications/initialized", {}),
    ("notifications/cancelled", {"requestId": "fuzz-1", "reason": "enough"}),
    ("notifications/progress", {"progressToken": "t", "progress": 1}),
    ("notifications/roots/list_changed", {}),
)
CAPABILITIES = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {},
    "roots": {},
    "extensions": {META + "tasks": {}},
}
JUNK: Sequence[Any] = (
    None,
    True,
    0,
    -1,
    1.5,
    2**53,
    2**63,
    2**64,
    10**400,
    1e308,
    float("nan"),
    "",
    "x",
    "\x00",
    "\ud800",
    "é\u202e\U0001f9ca",
    "y" * 5000,
    "../../etc/passwd",
    "=?base64?w6k=?=",
    "2026-07-28",
    "CURSOR",
    "TASK",
    "STATE",
    [],
    {},
    [[[]]],
    {"": {"": None}},
    [1, "2", None],
    {"_meta": {"progressToken": {}}},
)
DEEP = 70
HEADER_VALUES = (
    b"",
    b"x",
    b"2026-07-28",
    b"2025-11-25",
    b"2025-03-26",
    b"1999-01-01",
    b"=?base64?\x80?=",
    b"=?base64?w6k=?=",
    b"\xff\xfe\x80",
    b"*/*",
    b"application/json",
    b"text/event-stream",
    b"text/html",
    b"null",
    b"https://evil.example",
    b"00000000-0000-0000-0000-000000000000/0",
    b"00000000-0000-0000-0000-000000000000/99999999999999999999",
    b"z" * 4000,
)
HEADER_NAMES = (
    "Accept",
    "Content-Type",
    "Origin",
    "MCP-Protocol-Version",
    "Mcp-Method",
    "Mcp-Name",
    "Mcp-Param-Region",
    SESSION,
    "Last-Event-ID",
    "Authorization",
    "X-API-Key",
    "X-Forwarded-For",
)


@dataclass
class Attempt:
    """One request. `calls` are the ids of the tools/call in it, which only it has."""

    verb: str
    path: str
    headers: dict[str, bytes]
    body: bytes
    calls: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.verb} {self.path} {self.headers} {self.body[:2000]!r}"


class Fuzzer:
    """Mutates valid requests. Ids of tasks and cursors from responses are used in later requests."""

    def __init__(self, seed: int, key: str, other_key: str) -> None:
        self.random = Random(seed)
        self._callers = (
            [
                (key, "/mcp"),
                (key, "/t/acme/mcp"),
                ("", "/t/acme/mcp"),
                (other_key, "/mcp"),
                (other_key, "/t/acme/mcp"),
                ("nonsense", "/mcp"),
                ("", "/mcp"),
                (key, "/t/none/mcp"),
            ],
            [40, 10, 20, 10, 2, 1, 1, 1],
        )
        self.sessions: dict[tuple[str, str], str] = {}
        self.brought: dict[str, list[str]] = {"CURSOR": [], "TASK": [], "STATE": [], "EVENT": []}
        self._made = 0

    def attempt(self) -> Attempt:
        """The next request."""
        key, path = self.random.choices(*self._callers)[0]
        verb = self.random.choices(
            ["POST", "GET", "DELETE", "OPTIONS", "PUT", "HEAD", "PATCH"], [120, 4, 1, 1, 1, 1, 1]
        )[0]
        version = self.random.choice([*HANDSHAKES, MODERN, MODERN, MODERN, MODERN])
        messages = self._messages(version)
        headers = self._headers(version, key, messages[0])
        sent = messages if len(messages) > 1 or self._rarely(0.02) else messages[0]
        for _ in range(self.random.choice([0, 0, 0, 1, 1, 2, 4])):
            sent = self._mutated(sent)
        return Attempt(verb, path, self._mutated_headers(headers), self._written(sent), list(calls_in(sent)))

    def learn(self, message: Any) -> None:
        """Remember ids and cursors for later requests."""
        if isinstance(message, list):
            for item in message:
                self.learn(item)
        elif isinstance(message, dict):
            for name, kind in (("nextCursor", "CURSOR"), ("taskId", "TASK"), ("requestState", "STATE")):
                if isinstance(message.get(name), str):
                    self.brought[kind] = [*self.brought[kind][-9:], message[name]]
            self.learn(list(message.values()))

    def _rarely(self, chance: float) -> bool:
        return self.random.random() < chance

    def _messages(self, version: str) -> list[dict[str, Any]]:
        many = self.random.randint(2, 4) if version == "2025-03-26" and self._rarely(0.3) else 1
        return [self._message(version) for _ in range(many)]

    def _message(self, version: str) -> dict[str, Any]:
        kind = self.random.choices(["request", "notification", "response"], [20, 2, 1])[0]
        if kind == "response":
            return {"jsonrpc": "2.0", "id": "00000000-0000-0000-0000-000000000000:name", "result": {"action": "accept"}}
        method, params = copy.deepcopy(self.random.choice(REQUESTS if kind == "request" else NOTIFICATIONS))
        if version == MODERN:
            params["_meta"] = {**modern_meta(), META + "clientCapabilities": CAPABILITIES}
        if self._rarely(0.3):
            params.setdefault("_meta", {})["progressToken"] = "t"
        if self._rarely(0.1):
            params |= {"requestState": "STATE", "inputResponses": {"name": {"action": "decline"}}}
        message = {"jsonrpc": "2.0", "method": method, "params": self._filled(params)}
        if kind == "request":
            self._made += 1
            message["id"] = f"fuzz-{self._made}"
        return message

    def _filled(self, value: Any) -> Any:
        """The request with ids and cursors of earlier responses in place of its own."""
        if isinstance(value, dict):
            return {name: self._filled(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._filled(inner) for inner in value]
        known = self.brought.get(value) if isinstance(value, str) else None
        return self.random.choice(known) if known else value

    def _headers(self, version: str, key: str, message: dict[str, Any]) -> dict[str, bytes]:
        fields = {"Accept": ACCEPT_BOTH.encode(), "Content-Type": b"application/json"}
        if key:
            fields["Authorization"] = f"Bearer {key}".encode()
        if version != MODERN:
            return fields | {SESSION: self.sessions.get((version, key), "none").encode()}
        method, params = str(message.get("method", "")), message.get("params", {})
        fields |= {"MCP-Protocol-Version": MODERN.encode(), "Mcp-Method": method.encode()}
        if method in NAME_PARAMETERS:
            fields["Mcp-Name"] = encoded(str(params.get(NAME_PARAMETERS[method], "")))
        if params.get("name") == "mirrors":
            fields["Mcp-Param-Region"] = b"north"
        return fields

    def _mutated_headers(self, headers: dict[str, bytes]) -> dict[str, bytes]:
        for _ in range(self.random.choice([0, 0, 0, 0, 1, 2])):
            name = self.random.choice(HEADER_NAMES)
            if self._rarely(0.3):
                headers.pop(name, None)
            else:
                headers[name] = self.random.choice(HEADER_VALUES)
        if self.brought["EVENT"] and self._rarely(0.05):
            headers["Last-Event-ID"] = self.random.choice(self.brought["EVENT"]).encode()
        return headers

    def _junk(self) -> Any:
        if self._rarely(0.02):
            deep: Any = "bottom"
            for _ in range(DEEP):
                deep = [deep] if self._rarely(0.5) else {"a": deep}
            return deep
        return self._filled(copy.deepcopy(self.random.choice(JUNK)))

    def _mutated(self, value: Any) -> Any:
        """The request with one value replaced, dropped or added."""
        places = list(places_in(value))
        if not places:
            return self._junk()
        container, place = self.random.choice(places)
        change = self.random.choice(["replace", "replace", "drop", "add"])
        if change == "replace":
            container[place] = self._junk()
        elif change == "drop":
            del container[place]
        elif isinstance(container, dict):
            container[str(self.random.choice(JUNK))[:20]] = self._junk()
        else:
            container.append(self._junk())
        return value

    def _written(self, value: Any) -> bytes:
        body = json.dumps(value, ensure_ascii=self._rarely(0.5)).encode(errors="surrogatepass")
        if self._rarely(0.03):
            cut = self.random.randrange(len(body) + 1)
            return body[:cut] + self.random.randbytes(self.random.randrange(9)) + body[cut + 1 :]
        return self.random.randbytes(20) if self._rarely(0.01) else body


def calls_in(sent: Any) -> Iterator[str]:
    """The ids of the tools/call that are left in a message or a batch."""
    for message in sent if isinstance(sent, list) else [sent]:
        if isinstance(message, dict) and message.get("method") == "tools/call":
            id = message.get("id")
            if isinstance(id, str) and id.startswith("fuzz-"):
                yield id


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container in a value, with each place in it."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for place, child in list(inner):
        yield value, place
        yield from places_in(child)


def encoded(value: str) -> bytes:
    if value.isascii() and value.isprintable() and value == value.strip():
        return value.encode()
    return b"=?base64?%b?=" % base64.b64encode(value.encode(errors="surrogatepass"))


# --- What each answer must be -------------------------------------------------------------------------------------


def check_message(message: Any) -> None:
    assert isinstance(message, dict), message
    assert message["jsonrpc"] == "2.0"
    if "error" in message:
        assert isinstance(message["error"]["code"], int)
        assert isinstance(message["error"]["message"], str)
        assert "result" not in message
    else:
        assert "method" in message or isinstance(message["result"], dict)


def messages_of(response: httpx.Response, ids: list[str], *, endless: bool) -> list[Any]:
    """The messages of a response, read to its end, or to its first message if it is `endless`.

    The ids of its events are added to `ids`.
    """
    if response.headers.get("content-type", "").partition(";")[0] != "text/event-stream":
        body = response.read()
        value = json.loads(body) if body else []
        return value if isinstance(value, list) else [value]
    received = []
    for line in response.iter_lines():
        assert line.partition(":")[0] in {"", "event", "data", "id", "retry"}, line
        data = line.removeprefix("data: ") if line.startswith("data: ") else ""
        if data:
            value = json.loads(data)
            received += value if isinstance(value, list) else [value]
        if line.startswith("id: "):
            ids.append(line.removeprefix("id: "))
        if endless and (received or line.startswith(":") or not line):
            break
    return received


def is_endless(attempt: Attempt) -> bool:
    return attempt.verb == "GET" or b"subscriptions/listen" in attempt.body


def send(http: httpx.Client, attempt: Attempt, ids: list[str]) -> tuple[int, list[Any]]:
    """Send a request and return the status and messages of its response, which must be valid and in time."""
    began = time.monotonic()
    content = attempt.body if attempt.verb in {"POST", "PUT", "PATCH"} else None
    request = http.build_request(attempt.verb, attempt.path, headers=attempt.headers, content=content)
    response = http.send(request, stream=True)
    try:
        assert response.status_code in SOUND, response.status_code
        # A stream that waits for changes says nothing until there are some: that it began is all.
        is_waiting = attempt.verb == "GET" and response.status_code == 200
        messages = [] if is_waiting else messages_of(response, ids, endless=is_endless(attempt))
    finally:
        response.close()
    for message in messages:
        check_message(message)
    assert time.monotonic() - began < MAX_SECONDS
    return response.status_code, messages


# --- What the hub offers ------------------------------------------------------------------------------------------


def register() -> None:
    """Tools of every kind, two resources and a prompt, all of them quick."""
    register_tasks()
    register_offers()

    @tool(read_only=True)
    async def say(word: str) -> str:
        return word

    @tool
    def add(a: int, b: float) -> float:
        return a + b

    @tool(background=True)
    def work(steps: Annotated[int, Field(ge=0, le=3)], context: ToolContext) -> int:
        for step in range(steps):
            context.progress(step, message="\x00\u202e")
            context.log("error", {"step": step})
        return steps

    @tool
    def fails(how: str) -> str:
        if how == "protocol":
            raise ProtocolError("Not like this.", 4711, {"how": how})
        raise ToolError(how)

    @tool
    def mirrors(region: Annotated[str, header("Region")]) -> str:
        return region


def register_tasks() -> None:
    @tool(task="optional", background=True)
    def may_be_task(steps: Annotated[int, Field(ge=0, le=3)], context: ToolContext) -> int:
        context.sleep(steps / 50)
        return steps

    @tool(task="required")
    def is_task(steps: Annotated[int, Field(ge=0, le=3)], context: ToolContext) -> int:
        context.sleep(steps / 50)
        return steps

    @tool(task="optional")
    async def asks(context: ToolContext) -> str:
        return str(await context.elicit("Your name?", NAME_FORM, key="name"))


def register_offers() -> None:
    @resource("fuzz://one")
    def one() -> bytes:
        return b"\x00\xff"

    @resource("fuzz://pages/{page}")
    def pages(page: str) -> str:
        if page == "none":
            raise ResourceNotFound
        return page

    @prompt
    def greets(name: str) -> str:
        return f"Greet {name}."

    @completer(greets, "name")
    def names(typed: str, given: dict[str, str]) -> list[str]:
        return [typed, "Ada"]


@pytest.fixture
def quick(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short waits and small pages."""
    monkeypatch.setattr(paging, "PAGE_SIZE", 3)
    monkeypatch.setattr(delivery, "STREAM_AFTER_SECONDS", 0.1)
    settings.MCPHUB_KEEPALIVE_INTERVAL = 0.5
    monkeypatch.setattr(start_task, "TASK_AFTER_SECONDS", 0.02)
    settings.MCPHUB_ELICITATION_TIMEOUT = 0.1


@pytest.fixture
def offers(
    registries: None,
    offer: Callable[..., object],
    offer_resources: Callable[..., object],
    offer_prompts: Callable[..., object],
    tenant: Tenant,
    quick: None,
) -> None:
    tenant.is_public, tenant.public_tools, tenant.public_calls_per_minute = True, ["*"], 100_000
    tenant.save()
    register()
    offer(*TOOLS)
    offer_resources("fuzz://one", "fuzz://pages/{page}")
    offer_prompts("greets")


def open_sessions(fuzzer: Fuzzer, clients: Sequence[RawClient]) -> None:
    for client in clients:
        for version in HANDSHAKES:
            opened = client.initialize(version, capabilities=CAPABILITIES)
            fuzzer.sessions[version, client.key or ""] = opened.headers[SESSION]


@pytest.mark.timeout(SECONDS + 60)
def test_every_request_gets_a_valid_response_and_answered_calls_are_recorded(
    client: RawClient,
    make_client: Callable[..., RawClient],
    key: str,
    other_key: str,
    offers: None,
    eventually: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    fuzzer, statuses, answered = Fuzzer(SEED, key, other_key), Counter[int](), set()
    clients = [client, make_client(other_key), make_client(None, "/t/acme/mcp")]
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends:
        if statuses.total() % 200 == 0:
            open_sessions(fuzzer, clients)
        attempt = fuzzer.attempt()
        try:
            status, messages = send(client.http, attempt, fuzzer.brought["EVENT"])
        except (AssertionError, ValueError, KeyError, httpx.HTTPError) as problem:
            pytest.fail(f"seed {SEED}, request {statuses.total()}: {problem!r}\n{attempt}\n{caplog.text[-3000:]}")
        statuses[status] += 1
        fuzzer.learn(messages)
        answered |= {item["id"] for item in messages if "result" in item and item.get("id") in attempt.calls}
    assert statuses[200] > statuses.total() / 5, statuses
    assert len(answered) > statuses.total() / 50, statuses
    assert [text for text in caplog.messages if any(fault in text for fault in FAULTS)] == []
    eventually(lambda: not run.running_here())
    recorded = {
        *Call.objects.values_list("request_id", flat=True),
        *RunningCall.objects.values_list("request_id", flat=True),
    }
    assert {json.dumps(id) for id in answered} <= recorded
    assert client.handshake().result("say", {"word": "still here"})["content"][0]["text"] == "still here"
