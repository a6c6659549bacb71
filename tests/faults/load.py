"""A mixed load that records the request, the outcome and the times of every call.

Each call has a unique word as an argument, so that every response can be compared with its record.
"""

import asyncio
import threading
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.faults.wire import Answer, ConnectionBroken, HttpConnection
from tests.services.stack import eventually

META = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
NOT_FOUND = 404
JOIN_SECONDS = 60.0

# The number of tools of the load, and the results of each that `wait_for_results` waits for.
TOOLS = 4
ENOUGH = 5

Step = Callable[["Client"], Awaitable[None]]


@dataclass
class CallAttempt:
    """One call, as its client observed it.

    `outcome` is "result", "tool_error", "refused", "broken" (the connection), "hung", "no session", or "unanswered" (a
    stream that ended without a response). `notification_count` counts the messages before the response, `reconnects`
    the further connections.
    """

    word: str
    tool: str
    url: str
    started_at: float
    outcome: str = "unanswered"
    detail: Any = None
    ended_at: float = 0.0
    notification_count: int = 0
    reconnects: int = 0

    @property
    def seconds(self) -> float:
        return self.ended_at - self.started_at


class Load:
    """Clients in a thread of their own, until `stop`. A request may take at most `request_timeout` seconds.

    `retries` is how often a client reconnects if the connection was closed before a byte of the response came. Every
    word of a load starts with its name.
    """

    def __init__(
        self, urls: list[str], key: str, clients: int, request_timeout: float, pause: float, retries: int
    ) -> None:
        self.urls, self.key, self.request_timeout, self.pause, self.retries = urls, key, request_timeout, pause, retries
        self.name = uuid.uuid4().hex[:8]
        self.attempts: list[CallAttempt] = []
        self.problems: list[BaseException] = []
        self.clients = [Client(self, number) for number in range(clients)]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let every client finish its call, and stop."""
        self._stopping.set()
        self._thread.join(self.request_timeout + JOIN_SECONDS)
        assert not self._thread.is_alive(), "the load did not end"
        if self.problems:
            raise self.problems[0]

    @property
    def session_count(self) -> int:
        """The number of sessions that were initialized: one for each client with sessions, if none is lost."""
        return sum(client.sessions for client in self.clients)

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def count(self, *outcomes: str) -> int:
        """The number of calls with one of these outcomes."""
        return sum(attempt.outcome in outcomes for attempt in list(self.attempts))

    def wait_for_results(self, within: float = 40.0) -> None:
        """Return when every tool has returned results of calls that started after this."""
        now = time.monotonic()
        eventually(lambda: self._have_results(now), within)

    def _have_results(self, since: float) -> bool:
        results = Counter(
            attempt.tool
            for attempt in list(self.attempts)
            if attempt.outcome == "result" and attempt.started_at > since
        )
        return len(results) == TOOLS and min(results.values()) >= ENOUGH

    def except_outcomes(self, *outcomes: str) -> list[CallAttempt]:
        """The first calls with other outcomes than these."""
        return [attempt for attempt in list(self.attempts) if attempt.outcome not in outcomes][:5]

    def outcome_counts(self) -> Counter[str]:
        """The number of calls with each outcome."""
        return Counter(attempt.outcome for attempt in list(self.attempts))

    def _run(self) -> None:
        try:
            asyncio.run(self._all())
        except BaseException as problem:  # noqa: BLE001 - raised again in the test's thread
            self.problems.append(problem)

    async def _all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for client in self.clients:
                group.create_task(client.run())


@dataclass
class Client:
    """A client of the load. Those with odd numbers use a session, at whichever process responds."""

    load: Load
    number: int
    connections: list[HttpConnection] = field(init=False)
    session: str = ""
    sessions: int = 0
    round_number: int = 0
    connection_index: int = 0

    def __post_init__(self) -> None:
        self.connections = [HttpConnection(url) for url in self.load.urls]
        self.connection_index = self.number // 2 % len(self.connections)

    async def run(self) -> None:
        """Make one call after another, of every kind in turn."""
        try:
            while not self.load.stopping:
                await KINDS[(self.number + self.round_number) % len(KINDS)](self)
                self.round_number += 1
                await asyncio.sleep(self.load.pause)
            await self._end_session()
        finally:
            for connection in self.connections:
                connection.close()

    async def call(self, tool: str, progress: bool = False, **arguments: Any) -> CallAttempt:
        """Make a call and record its outcome."""
        if self.number % 2 and not self.session and not await self._initialize():
            await asyncio.sleep(self.load.pause + 0.1)
            return CallAttempt("", tool, "", time.monotonic(), "no session")
        connection = self.connections[self.connection_index]
        word = f"{self.load.name}.{self.number}.{self.round_number}"
        attempt = CallAttempt(word, tool, f"http://{connection.host}:{connection.port}", time.monotonic())
        self.load.attempts.append(attempt)
        meta: dict[str, Any] = {"progressToken": word} if progress else {}
        params = {"name": tool, "arguments": {"word": word, **arguments}, "_meta": meta}
        await self._send_attempt(attempt, connection, "tools/call", params)
        attempt.ended_at = time.monotonic()
        if attempt.outcome == "refused" and attempt.detail[0] == NOT_FOUND:
            self.session = ""  # the hub says that the session has ended
        if attempt.outcome == "broken":
            self.connection_index = (self.connection_index + 1) % len(self.connections)
            await asyncio.sleep(0.1)
        return attempt

    async def _send_attempt(
        self, attempt: CallAttempt, connection: HttpConnection, method: str, params: dict[str, Any]
    ) -> None:
        def on_message(message: dict[str, Any]) -> None:
            attempt.notification_count += "method" in message

        try:
            async with asyncio.timeout(self.load.request_timeout):
                attempt.outcome, attempt.detail = _outcome_of(
                    await self._post_with_reconnect(attempt, connection, method, params, on_message)
                )
        except ConnectionBroken as problem:
            attempt.outcome, attempt.detail = "broken", str(problem)
        except TimeoutError:
            attempt.outcome = "hung"

    async def _post_with_reconnect(
        self,
        attempt: CallAttempt,
        connection: HttpConnection,
        method: str,
        params: dict[str, Any],
        on_message: Callable[[dict[str, Any]], None],
    ) -> Answer:
        """Post, and reconnect if the connection was closed before a byte of the response, as HTTP clients do."""
        while True:
            try:
                return await self._post(connection, method, params, on_message)
            except ConnectionBroken as problem:
                if not problem.may_reconnect or attempt.reconnects >= self.load.retries:
                    raise
                attempt.reconnects += 1
                await asyncio.sleep(0.02 * attempt.reconnects)

    async def _post(
        self,
        connection: HttpConnection,
        method: str,
        params: dict[str, Any],
        on_message: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> Answer:
        headers = {"Authorization": f"Bearer {self.load.key}"}
        if self.number % 2:
            headers |= {"Mcp-Session-Id": self.session} if self.session else {}
        else:
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, "Mcp-Name": params["name"]}
            params["_meta"] = {**params["_meta"], **modern_meta(self.load.name)}
        body = {"jsonrpc": "2.0", "id": self.round_number + 1, "method": method, "params": params}
        return await connection.post(body, headers, on_message)

    async def _initialize(self) -> bool:
        """Initialize a session."""
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": _client(self.load.name)}
        try:
            async with asyncio.timeout(self.load.request_timeout):
                answer = await self._post(self.connections[self.connection_index], "initialize", params)
        except (ConnectionBroken, TimeoutError):
            self.connection_index = (self.connection_index + 1) % len(self.connections)
            return False
        self.session = answer.headers.get("mcp-session-id", "")
        self.sessions += bool(self.session)
        return bool(self.session)

    async def _end_session(self) -> None:
        """Delete the session."""
        if self.session:
            connection = self.connections[self.connection_index]
            headers = {"Authorization": f"Bearer {self.load.key}", "Mcp-Session-Id": self.session}
            answer = await connection.send("DELETE", headers)
            assert answer.status == 204, answer


def modern_meta(name: str) -> dict[str, Any]:
    """The `_meta` of a client of 2026-07-28."""
    return {f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": {}, f"{META}clientInfo": _client(name)}


def modern_call(key: str, tool: str, **arguments: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """The body and the headers of a call with progress, of 2026-07-28."""
    params = {"name": tool, "arguments": arguments, "_meta": {**modern_meta("one"), "progressToken": 1}}
    headers = {
        "Authorization": f"Bearer {key}",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers


def _client(name: str) -> dict[str, str]:
    return {"name": name, "version": "1"}


def _outcome_of(answer: Answer) -> tuple[str, Any]:
    """The outcome of a call, and its details."""
    last = answer.messages[-1] if answer.messages else {}
    if "error" in last:
        return "refused", (answer.status, last["error"]["code"], last["error"]["message"], answer.headers)
    if "result" not in last:
        return "unanswered", answer.status
    result = last["result"]
    return "tool_error" if result["isError"] else "result", result["content"][0]["text"]


KINDS: tuple[Step, ...] = (
    lambda client: client.call("quick"),
    lambda client: client.call("steps", progress=True, n=5, pause=0.05),
    lambda client: client.call("change"),
    lambda client: client.call("toil", progress=True, n=5, pause=0.05),
    lambda client: client.call("quick"),
    lambda client: client.call("change"),
    lambda client: client.call("toil", n=3, pause=0.02),
)


@contextmanager
def loading(
    urls: list[str],
    key: str,
    *,
    clients: int = 16,
    request_timeout: float = 20.0,
    pause: float = 0.2,
    retries: int = 0,
) -> Iterator[Load]:
    """Run a load during the block. All of its calls have outcomes afterwards.

    With the default pause it is far from what a slow machine can take: latencies are those of the failure.
    """
    load = Load(urls, key, clients, request_timeout, pause, retries)
    try:
        yield load
    finally:
        load.stop()
