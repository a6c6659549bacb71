"""Continuous calls from several threads, while a test restarts or kills processes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tests.services.caller import WAIT_SECONDS, Caller

CLIENTS = 4


class Load:
    """Clients with one session each, on persistent connections."""

    def __init__(self, url: str, key: str) -> None:
        self.answered = 0
        self.failures: list[str] = []
        self._url = url
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        callers = [Caller(key).open(url) for _ in range(CLIENTS)]
        self._threads = [threading.Thread(target=self._call, args=[caller], daemon=True) for caller in callers]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(WAIT_SECONDS)

    def _call(self, caller: Caller) -> None:
        params = {"name": "echo", "arguments": {"message": "x"}}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        # A call that takes seconds on a busy machine is answered with JSON all the same.
        headers = {**caller.headers, "Accept": "application/json"}
        with httpx.Client(headers=headers, timeout=WAIT_SECONDS, trust_env=False) as client:
            while not self._stopped.is_set():
                failure = _failure(client, self._url, request)
                with self._lock:
                    self.answered += 1
                    self.failures += [failure] if failure else []


def _failure(client: httpx.Client, url: str, request: object) -> str:
    """What was wrong with the response, or an empty text."""
    try:
        response = client.post(url, json=request)
    except httpx.HTTPError as problem:
        return repr(problem)
    if response.status_code != 200 or response.json()["result"]["content"][0]["text"] != "hello x":
        return f"{response.status_code} {response.text}"
    return ""


@contextmanager
def loading(url: str, key: str) -> Iterator[Load]:
    """Make calls while the block runs."""
    load = Load(url, key)
    try:
        yield load
    finally:
        load.stop()
