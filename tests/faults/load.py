"""A mixed load that notes what became of every call: what was asked, what was answered, and when.

Each call brings a word of its own, so that the records can be held against the answers, one by one.
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

from tests.faults.wire import Answer, Broken, Wire
from tests.services.stack import eventually

META = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
NOT_FOUND = 404
JOIN_SECONDS = 60.0

# How many tools the load has, and how many results of each show that it goes on.
TOOLS = 4
ENOUGH = 5

Step = Callable[["Client"], Awaitable[None]]


@dataclass
class Asked:
    """One call, as its client saw it.

    `how` is "result", "tool_error", "refused", "broken" (the connection), "hung", or "unanswered" (a stream that ended
    without an answer); `heard` counts the messages before the answer, `again` the connections made anew.
    """

    word: str
    tool: str
    url: str
    began: float
    how: str = "unanswered"
    detail: Any = None
    ended: float = 0.0
    heard: int = 0
    again: int = 0

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Load:
    """Clients in a thread of their own, until `stop`. `bound` is the longest that a request may take.

    `retries` is how often a client makes a connection anew that was closed before a byte of the answer came. Every
    word of a load begins with its name.
    """

    def __init__(self, urls: list[str], key: str, clients: int, bound: float, pause: float, retries: int) -> None:
        self.urls, self.key, self.bound, self.pause, self.retries = urls, key, bound, pause, retries
        self.name = uuid.uuid4().hex[:8]
        self.asked: list[Asked] = []
        self.problems: list[BaseException] = []
        self.clients = [Client(self, number) for number in range(clients)]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let every client end its call, and say no more."""
        self._stopping.set()
        self._thread.join(self.bound + JOIN_SECONDS)
        assert not self._thread.is_alive(), "the load did not end"
        if self.problems:
            raise self.problems[0]

    @property
    def opened(self) -> int:
        """How many sessions were opened: one for each client that keeps one, if none is lost."""
        return sum(client.sessions for client in self.clients)

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def count(self, *hows: str) -> int:
        """How many calls ended so."""
        return sum(asked.how in hows for asked in list(self.asked))

    def goes_on(self, within: float = 40.0) -> None:
        """Return when every tool has answered some calls that are made from now on."""
        now = time.monotonic()
        eventually(lambda: self._have_results(now), within)

    def _have_results(self, since: float) -> bool:
        results = Counter(asked.tool for asked in list(self.asked) if asked.how == "result" and asked.began > since)
        return len(results) == TOOLS and min(results.values()) >= ENOUGH

    def but(self, *hows: str) -> list[Asked]:
        """Some of the calls that ended in other ways than these."""
        return [asked for asked in list(self.asked) if asked.how not in hows][:5]

    def hows(self) -> Counter[str]:
        """How many calls ended in each way."""
        return Counter(asked.how for asked in list(self.asked))

    def _run(self) -> None:
        try:
            asyncio.run(self._all())
        except BaseException as problem:  # noqa: BLE001 - raised anew in the test's thread
            self.problems.append(problem)

    async def _all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for client in self.clients:
                group.create_task(client.go_on())


@dataclass
class Client:
    """One of many. Those with odd numbers keep a session, which they use at whichever process answers."""

    load: Load
    number: int
    wires: list[Wire] = field(init=False)
    session: str = ""
    sessions: int = 0
    turn: int = 0
    at: int = 0

    def __post_init__(self) -> None:
        self.wires = [Wire(url) for url in self.load.urls]
        self.at = self.number // 2 % len(self.wires)

    async def go_on(self) -> None:
        """Call after call, of every kind in turn."""
        try:
            while not self.load.stopping:
                await KINDS[(self.number + self.turn) % len(KINDS)](self)
                self.turn += 1
                await asyncio.sleep(self.load.pause)
            await self._leave()
        finally:
            for wire in self.wires:
                wire.close()

    async def call(self, tool: str, progress: bool = False, **arguments: Any) -> Asked:
        """Make a call and note how it ended."""
        if self.number % 2 and not self.session and not await self._open():
            await asyncio.sleep(self.load.pause + 0.1)
            return Asked("", tool, "", time.monotonic(), "no session")
        wire = self.wires[self.at]
        word = f"{self.load.name}.{self.number}.{self.turn}"
        asked = Asked(word, tool, f"http://{wire.host}:{wire.port}", time.monotonic())
        self.load.asked.append(asked)
        meta: dict[str, Any] = {"progressToken": word} if progress else {}
        params = {"name": tool, "arguments": {"word": word, **arguments}, "_meta": meta}
        await self._asked(asked, wire, "tools/call", params)
        asked.ended = time.monotonic()
        if asked.how == "refused" and asked.detail[0] == NOT_FOUND:
            self.session = ""  # it has ended, or so it was said
        if asked.how == "broken":
            self.at = (self.at + 1) % len(self.wires)
            await asyncio.sleep(0.1)
        return asked

    async def _asked(self, asked: Asked, wire: Wire, method: str, params: dict[str, Any]) -> None:
        def heard(message: dict[str, Any]) -> None:
            asked.heard += "method" in message

        try:
            async with asyncio.timeout(self.load.bound):
                asked.how, asked.detail = _understood(await self._posted(asked, wire, method, params, heard))
        except Broken as problem:
            asked.how, asked.detail = "broken", str(problem)
        except TimeoutError:
            asked.how = "hung"

    async def _posted(
        self, asked: Asked, wire: Wire, method: str, params: dict[str, Any], heard: Callable[[dict[str, Any]], None]
    ) -> Answer:
        """Post, and connect anew where a connection was closed before a byte of the answer, as HTTP clients do."""
        while True:
            try:
                return await self._post(wire, method, params, heard)
            except Broken as problem:
                if not problem.untouched or asked.again >= self.load.retries:
                    raise
                asked.again += 1
                await asyncio.sleep(0.02 * asked.again)

    async def _post(
        self, wire: Wire, method: str, params: dict[str, Any], heard: Callable[[dict[str, Any]], None] = lambda _: None
    ) -> Answer:
        headers = {"Authorization": f"Bearer {self.load.key}"}
        if self.number % 2:
            headers |= {"Mcp-Session-Id": self.session} if self.session else {}
        else:
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, "Mcp-Name": params["name"]}
            params["_meta"] = {**params["_meta"], **modern_meta(self.load.name)}
        body = {"jsonrpc": "2.0", "id": self.turn + 1, "method": method, "params": params}
        return await wire.post(body, headers, heard)

    async def _open(self) -> bool:
        """Begin a session."""
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": _client(self.load.name)}
        try:
            async with asyncio.timeout(self.load.bound):
                answer = await self._post(self.wires[self.at], "initialize", params)
        except (Broken, TimeoutError):
            self.at = (self.at + 1) % len(self.wires)
            return False
        self.session = answer.headers.get("mcp-session-id", "")
        self.sessions += bool(self.session)
        return bool(self.session)

    async def _leave(self) -> None:
        """End the session, as a tidy client does."""
        if self.session:
            wire = self.wires[self.at]
            headers = {"Authorization": f"Bearer {self.load.key}", "Mcp-Session-Id": self.session}
            answer = await wire.send("DELETE", headers)
            assert answer.status == 204, answer


def modern_meta(name: str) -> dict[str, Any]:
    """What a client of 2026-07-28 says of itself in every request."""
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


def _understood(answer: Answer) -> tuple[str, Any]:
    """How a call ended, by its answer."""
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
    urls: list[str], key: str, *, clients: int = 16, bound: float = 20.0, pause: float = 0.05, retries: int = 0
) -> Iterator[Load]:
    """Load for as long as the block lasts; what became of every call is known after it."""
    load = Load(urls, key, clients, bound, pause, retries)
    try:
        yield load
    finally:
        load.stop()
