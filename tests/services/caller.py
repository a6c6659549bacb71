"""A client of the handshake era that sends requests of one session to several processes."""

import json
import threading
import time
from dataclasses import dataclass
from typing import Any

import httpx

WAIT_SECONDS = 30.0


@dataclass
class Caller:
    """A session, created at the first URL that it uses."""

    key: str
    wire_id: str = ""

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {self.key}", "Accept": "application/json, text/event-stream"}
        return {**headers, "Mcp-Session-Id": self.wire_id} if self.wire_id else headers

    def open(self, url: str) -> "Caller":
        """Initialize a session at this URL."""
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        response = self.post(url, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        assert response.status_code == 200, response.text
        self.wire_id = response.headers["mcp-session-id"]
        return self

    def post(self, url: str, body: Any) -> httpx.Response:
        return httpx.post(url, json=body, headers=self.headers, timeout=WAIT_SECONDS)

    def call(self, url: str, name: str, arguments: dict[str, Any], id: int = 1) -> httpx.Response:
        params = {"name": name, "arguments": arguments}
        return self.post(url, {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})

    def calling(self, url: str, name: str, arguments: dict[str, Any], id: int) -> "Stream":
        """Start a call whose response stream is read in a thread, with its ID as the progress token."""
        params = {"name": name, "arguments": arguments, "_meta": {"progressToken": id}}
        only_a_stream = {"Accept": "text/event-stream"}
        body = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
        return Stream("POST", url, body, self.headers | only_a_stream)

    def counting(self, url: str, steps: int, id: int) -> "Stream":
        """Start a call of `count` whose stream is read in a thread."""
        return self.calling(url, "count", {"n": steps}, id)

    def listening(self, url: str) -> "Stream":
        """The session's GET stream, read in a thread."""
        return Stream("GET", url, None, self.headers)


class Stream(threading.Thread):
    """Reads a stream to its end: `seen` has (seconds since the request, message)."""

    def __init__(self, verb: str, url: str, body: Any, headers: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[float, dict[str, Any]]] = []
        self.opened = threading.Event()
        self._request = (verb, url, body, headers)
        self.start()

    def run(self) -> None:
        verb, url, body, headers = self._request
        began = time.monotonic()
        try:
            with httpx.stream(verb, url, json=body, headers=headers, timeout=WAIT_SECONDS) as response:
                self.opened.set()
                for line in response.iter_lines():
                    if line.startswith("data: {"):
                        self.seen.append((time.monotonic() - began, json.loads(line[6:])))
        except httpx.HTTPError:
            return  # a killed process does not close its connections properly

    def finished(self, seconds: float = WAIT_SECONDS) -> list[tuple[float, dict[str, Any]]]:
        """The messages, once the stream has ended. Raises AssertionError if it does not end within `seconds`."""
        self.join(seconds)
        assert not self.is_alive(), "the stream did not end"
        return self.seen
