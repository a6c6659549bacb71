"""A handshake-era client that can talk to several processes in one session."""

import json
import threading
import time
from dataclasses import dataclass
from typing import Any

import httpx

WAIT_SECONDS = 30.0


@dataclass
class Caller:
    """A session, made at the first URL it talks to."""

    key: str
    wire_id: str = ""

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {self.key}", "Accept": "application/json, text/event-stream"}
        return {**headers, "Mcp-Session-Id": self.wire_id} if self.wire_id else headers

    def open(self, url: str) -> "Caller":
        """Initialize a session there."""
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        answer = self.post(url, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        assert answer.status_code == 200, answer.text
        self.wire_id = answer.headers["mcp-session-id"]
        return self

    def post(self, url: str, body: Any) -> httpx.Response:
        return httpx.post(url, json=body, headers=self.headers, timeout=WAIT_SECONDS)

    def call(self, url: str, name: str, arguments: dict[str, Any], id: int = 1) -> httpx.Response:
        params = {"name": name, "arguments": arguments}
        return self.post(url, {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})

    def counting(self, url: str, steps: int, id: int) -> "Counting":
        """A `count` whose stream is read in a thread."""
        return Counting(self, url, steps, id)

    def listening(self, url: str) -> "Listening":
        """The session's GET stream, read in a thread."""
        return Listening(self, url)


class Stream(threading.Thread):
    """Reads a stream to its end: `seen` is what came, as (seconds since the request, message)."""

    def __init__(self, caller: Caller, verb: str, url: str, body: Any = None) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[float, dict[str, Any]]] = []
        self.opened = threading.Event()
        self._request = (verb, url, body, caller.headers)
        self.start()

    def run(self) -> None:
        verb, url, body, headers = self._request
        began = time.monotonic()
        try:
            with httpx.stream(verb, url, json=body, headers=headers, timeout=WAIT_SECONDS) as answer:
                self.opened.set()
                for line in answer.iter_lines():
                    if line.startswith("data: "):
                        self.seen.append((time.monotonic() - began, json.loads(line[6:])))
        except httpx.HTTPError:
            return  # a process that was killed closes nothing properly

    def finished(self, seconds: float = WAIT_SECONDS) -> list[tuple[float, dict[str, Any]]]:
        """What came, once the stream is over. Raises AssertionError if it is not within `seconds`."""
        self.join(seconds)
        assert not self.is_alive(), "the stream did not end"
        return self.seen


class Counting(Stream):
    """The stream of a `count`."""

    def __init__(self, caller: Caller, url: str, steps: int, id: int) -> None:
        params = {"name": "count", "arguments": {"n": steps}, "_meta": {"progressToken": id}}
        super().__init__(caller, "POST", url, {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})


class Listening(Stream):
    """A GET stream."""

    def __init__(self, caller: Caller, url: str) -> None:
        super().__init__(caller, "GET", url)
